"""Budget reservations: what is held, and what became of it."""

from __future__ import annotations

from typing import Annotated, Final

import strawberry

from domain.amounts import Unit
from domain.budget.queries import ReservationQuery, ReservationSort, Window
from domain.budget.records import ReservationStatus
from domain.budget.values import OveragePolicy
from domain.outcomes import NotFound
from schema.budget.answers import listed, read
from schema.budget.values import SubjectInput
from schema.context import operation
from schema.inputs import ID
from schema.paging import AFTER, FIRST, Connection, take
from schema.scalars import Int64, JSONObject, Millis, int64, json_object, millis
from workers.budget.listing import SeenReservation

SETTLED: Final = strawberry.argument(description="Only of those that were committed or released.")

# -- types -------------------------------------------------------------------------------------------------------------

strawberry.enum(
    ReservationStatus,
    name="BudgetReservationStatus",
    description="EXPIRED as soon as the grace after the expiry is over.",
)
strawberry.enum(
    ReservationSort,
    name="BudgetReservationSort",
    description="Equals are in the order of their ids, whatever the direction.",
)


@strawberry.type
class BudgetAction:
    """What the hold is for."""

    kind: str
    name: str
    tags: list[str]


@strawberry.type
class BudgetReservation:
    """A hold on all budgets of a subject."""

    id: strawberry.ID
    tenant_id: strawberry.ID
    idempotency_key: str
    status: ReservationStatus
    subject: JSONObject = strawberry.field(description="As it was sent, level by level.")
    action: BudgetAction
    unit: Unit
    reserved: Int64 = strawberry.field(description="The estimate that was held.")
    charged: Int64 | None = strawberry.field(description="Once it is committed.")
    scope: str = strawberry.field(description="The subject's own path.")
    affected_scopes: list[str]
    overage_policy: OveragePolicy
    extensions_used: Int64
    created_at: Millis
    expires_at: Millis
    grace_ms: Int64
    finalized_at: Millis | None
    metadata: JSONObject | None

    @classmethod
    def of(cls, seen: SeenReservation) -> BudgetReservation:
        held = seen.reservation
        return cls(
            id=strawberry.ID(held.reservation_id),
            tenant_id=strawberry.ID(seen.tenant_id),
            idempotency_key=held.idempotency_key,
            status=seen.status,
            subject=JSONObject(held.subject.content()),
            action=BudgetAction(kind=held.action.kind, name=held.action.name, tags=list(held.action.tags)),
            unit=held.unit,
            reserved=Int64(held.estimate),
            charged=int64(held.charged),
            scope=held.scope_path,
            affected_scopes=list(held.affected_scopes),
            overage_policy=held.overage_policy,
            extensions_used=Int64(held.extensions_used),
            created_at=Millis(held.created_at),
            expires_at=Millis(held.expires_at),
            grace_ms=Int64(held.grace_ms),
            finalized_at=millis(held.finalized_at),
            metadata=json_object(held.metadata),
        )


# -- query -------------------------------------------------------------------------------------------------------------


@strawberry.type
class BudgetReservationQuery:
    @strawberry.field
    async def budget_reservation(
        self, reservation_id: Annotated[strawberry.ID, ID], as_admin: bool = False
    ) -> BudgetReservation | None:
        """A hold of the caller's tenant; with `asAdmin` root sees anybody's. One that has expired is an error."""
        current = operation()
        found = await current.runtime.budget_reads.reservation(
            current.caller, reservation_id=reservation_id, as_admin=as_admin
        )
        return None if isinstance(found, NotFound) else BudgetReservation.of(read(found, reservation_id="id"))

    @strawberry.field
    async def budget_reservations(
        self,
        *,
        tenant_id: strawberry.ID | None = None,
        status: ReservationStatus | None = None,
        subject: SubjectInput | None = None,
        idempotency_key: str | None = None,
        created_from: Millis | None = None,
        created_to: Millis | None = None,
        expires_from: Millis | None = None,
        expires_to: Millis | None = None,
        finalized_from: Annotated[Millis | None, SETTLED] = None,
        finalized_to: Annotated[Millis | None, SETTLED] = None,
        sort_by: ReservationSort = ReservationSort.CREATED_AT,
        descending: bool = True,
        first: Annotated[int | None, FIRST] = None,
        after: Annotated[str | None, AFTER] = None,
    ) -> Connection[BudgetReservation] | None:
        """The tenant's holds, newest first or as they are to be sorted, whatever became of them. Both ends of a window are
        included."""
        current = operation()
        chosen = ReservationQuery(
            idempotency_key=idempotency_key,
            status=status,
            subject=None if subject is None else subject.value(),
            created=Window(created_from, created_to),
            expires=Window(expires_from, expires_to),
            finalized=Window(finalized_from, finalized_to),
            sort_by=sort_by,
            descending=descending,
        )
        found = await current.runtime.budget_reads.reservations(
            current.caller, query=chosen, limit=take(first), cursor=after, tenant_id=tenant_id
        )
        return listed(found, BudgetReservation.of, after=after)
