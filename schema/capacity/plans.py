"""Plans: what a grant would do, before anybody makes it (F4)."""

from __future__ import annotations

from typing import Annotated, Any

import strawberry

from domain.capacity.availability import Obstacle, Plan
from domain.outcomes import Refusal
from schema import refusals
from schema.capacity.availability import AvailabilityStep
from schema.capacity.refusals import with_wish
from schema.context import operation
from schema.inputs import INPUT, given
from schema.refusals import answers_with, result, show_refusal
from schema.scalars import Millis

# -- types -------------------------------------------------------------------------------------------------------------


@strawberry.type
class GrantObstacle:
    """A stretch of a planned term in which the slots do not fit, and the grants that hold them then."""

    starts_at: Millis
    ends_at: Millis
    granted: int
    missing: int
    grant_ids: list[strawberry.ID]

    @classmethod
    def of(cls, obstacle: Obstacle) -> GrantObstacle:
        return cls(
            starts_at=Millis(obstacle.starts_at),
            ends_at=Millis(obstacle.ends_at),
            granted=obstacle.granted,
            missing=obstacle.missing,
            grant_ids=[strawberry.ID(grant_id) for grant_id in obstacle.grant_ids],
        )


@strawberry.type
class GrantPlan:
    """What createGrant would answer right now, and why."""

    accepted: bool
    refusal: refusals.Refusal | None
    total: int
    peak: int = strawberry.field(description="Slots granted at the peak of the term, without the planned ones.")
    obstacles: list[GrantObstacle]
    physical_room: int = strawberry.field(
        description="Slots that could be used at once if it started with the instances that run now."
    )
    adopted: int = strawberry.field(description="Running instances of the tenant that it would take in at its start.")
    runs_out: list[AvailabilityStep] = strawberry.field(
        description="Instants in the term from which on no further slot could be granted, were the grant made."
    )


# -- inputs ------------------------------------------------------------------------------------------------------------


@strawberry.input
class PlanGrantInput:
    """As for createGrant, without an idempotency key: nothing is written."""

    tenant_id: strawberry.ID
    account_id: strawberry.ID
    reservation_id: strawberry.ID
    grant_tenant_id: strawberry.ID
    project_id: strawberry.ID | None = None
    slots: int
    starts_at: Millis
    ends_at: Millis


# -- results -----------------------------------------------------------------------------------------------------------

PlanGrantResult = result("PlanGrantResult", GrantPlan)


def _plan(plan: Plan, wanted: PlanGrantInput) -> GrantPlan:
    return GrantPlan(
        accepted=plan.refusal is None,
        refusal=None if plan.refusal is None else with_wish(show_refusal(plan.refusal), wanted),
        total=plan.total,
        peak=plan.peak,
        obstacles=[GrantObstacle.of(obstacle) for obstacle in plan.obstacles],
        physical_room=plan.physical_room,
        adopted=plan.adopted,
        runs_out=[AvailabilityStep.of(step) for step in plan.runs_out],
    )


# -- query -------------------------------------------------------------------------------------------------------------


@strawberry.type
class PlanQuery:
    @answers_with(PlanGrantResult)
    async def plan_grant(self, wanted: Annotated[PlanGrantInput, INPUT]) -> Any:
        """What createGrant would answer now, and why: the same decision with nothing written. Root only."""
        current = operation()
        plan = await current.runtime.grants.plan(current.caller, **given(wanted))
        return show_refusal(plan) if isinstance(plan, Refusal) else _plan(plan, wanted)
