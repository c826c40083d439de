"""Capacity reservations: what a provider holds for the platform, how much of it is granted and in use. Root only."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import partial
from typing import Annotated, Any

import strawberry

from domain.capacity.scan import ReportedReservation
from domain.capacity.state import GrantState, ReservationStatus, RunState
from domain.capacity.views import ReservationView
from domain.outcomes import Accepted, NotFound, Outcome, Refusal
from schema.capacity.availability import AvailabilityStep, Fit, fits
from schema.capacity.grants import Grant, TermInput, grants, overlapping
from schema.capacity.instances import Instance, instances
from schema.context import operation
from schema.inputs import ID, INPUT, given, in_own_tenant, in_tenant, own_tenant, reservation_of
from schema.paging import AFTER, FIRST, Connection, connection, one, take, value
from schema.refusals import answer, answers_with, result
from schema.scalars import Millis, millis, optional_id
from schema.watching import snapshots

READ_COST = 20
"""Items that a question about the time to come counts as: each one is a read of its own."""

# -- types -------------------------------------------------------------------------------------------------------------

strawberry.enum(
    ReservationStatus,
    name="CapacityReservationStatus",
    description="GONE: its provider no longer reports it, and its instances are on demand.",
)


@strawberry.type
class CapacityReservation:
    """Slots that a provider holds for the platform, counted as of now. Others than grantees share what is `free`."""

    id: strawberry.ID
    account_id: strawberry.ID
    reservation_id: strawberry.ID = strawberry.field(description="Its id at the provider.")
    provider: str
    flavor: str
    region: str
    status: ReservationStatus
    pool_id: strawberry.ID | None = strawberry.field(description="The pool that it is bound to.")
    created_at: Millis
    gone_at: Millis | None
    total: int
    in_use: int = strawberry.field(description="Slots that running instances hold, whoever owns them.")
    granted_now: int = strawberry.field(description="Slots of the grants in their term.")
    unused_granted: int = strawberry.field(description="Those of them in which nothing runs.")
    free: int = strawberry.field(description="Slots that anybody's next instance can take; never below zero.")
    shortfall: int = strawberry.field(description="How far the peak of the grants from now on exceeds the total.")
    version: int
    view: strawberry.Private[ReservationView]

    @strawberry.field
    async def availability(
        self,
        *,
        from_at: Annotated[Millis, strawberry.argument(name="from")],
        to_at: Annotated[Millis, strawberry.argument(name="to")],
    ) -> list[AvailabilityStep] | None:
        """Granted and free slots over a half-open stretch of time: one step at its start and one at every change."""
        current = operation()
        current.take(READ_COST)
        steps = await current.runtime.reads.availability(
            current.caller,
            tenant_id=own_tenant(None),
            **reservation_of(self.view.key),
            starts_at=from_at,
            ends_at=to_at,
        )
        current.take(len(value(steps)))
        return [AvailabilityStep.of(step) for step in value(steps)]

    @strawberry.field
    async def earliest_fit(
        self,
        *,
        slots: int,
        duration_ms: Millis,
        not_before: Millis | None = None,
        not_after: Millis | None = None,
        first: int | None = None,
    ) -> list[Fit] | None:
        """The earliest terms in which so many slots fit for so long; the start lies from `notBefore`, by default now,
        to `notAfter`."""
        operation().take(READ_COST)
        return await fits(
            self.view.key,
            slots=slots,
            duration_ms=duration_ms,
            not_before=not_before,
            not_after=not_after,
            first=first,
        )

    @strawberry.field
    async def grants(
        self,
        *,
        state: GrantState | None = None,
        overlaps: TermInput | None = None,
        first: Annotated[int | None, FIRST] = None,
        after: Annotated[str | None, AFTER] = None,
    ) -> Connection[Grant] | None:
        """Everybody's grants on it, newest first."""
        return await grants(
            tenant_id=own_tenant(None),
            all_tenants=True,
            **reservation_of(self.view.key),
            state=state,
            **overlapping(overlaps),
            first=first,
            after=after,
        )

    @strawberry.field
    async def instances(
        self,
        *,
        run_state: RunState | None = None,
        first: Annotated[int | None, FIRST] = None,
        after: Annotated[str | None, AFTER] = None,
    ) -> Connection[Instance] | None:
        """Everybody's instances on it, newest first, deleted ones too."""
        return await instances(
            tenant_id=own_tenant(None),
            all_tenants=True,
            **reservation_of(self.view.key),
            run_state=run_state,
            first=first,
            after=after,
        )

    @classmethod
    def of(cls, view: ReservationView) -> CapacityReservation:
        return cls(
            id=strawberry.ID(view.key),
            account_id=strawberry.ID(view.account_id),
            reservation_id=strawberry.ID(view.reservation_id),
            provider=view.provider,
            flavor=view.flavor,
            region=view.region,
            status=view.status,
            pool_id=optional_id(view.pool_id),
            created_at=Millis(view.created_at),
            gone_at=millis(view.gone_at),
            total=view.total,
            in_use=view.in_use,
            granted_now=view.granted_now,
            unused_granted=view.unused_granted,
            free=view.free,
            shortfall=view.shortfall,
            version=view.version,
            view=view,
        )


@strawberry.type
class ReportedReservations:
    """What a report named, as it is now."""

    capacity_reservations: list[CapacityReservation]


# -- inputs ------------------------------------------------------------------------------------------------------------


@strawberry.input
class BindReservationInput:
    """Binds a capacity reservation to a pool: from then on grants can be made on it."""

    tenant_id: strawberry.ID | None = None
    account_id: strawberry.ID
    reservation_id: strawberry.ID
    pool_id: strawberry.ID
    idempotency_key: str | None = None


@strawberry.input
class UnbindReservationInput:
    """Names a capacity reservation."""

    tenant_id: strawberry.ID | None = None
    account_id: strawberry.ID
    reservation_id: strawberry.ID
    idempotency_key: str | None = None


@strawberry.input
class ReportedReservationInput:
    """One capacity reservation as its provider shows it. `total` and `inUse` count slots."""

    reservation_id: strawberry.ID
    flavor: str
    region: str
    total: int
    in_use: int | None = None
    ready: bool = True


@strawberry.input
class ReportReservationsInput:
    """Everything that the agent of an account of the kind push sees. What a complete report leaves out is gone."""

    tenant_id: strawberry.ID | None = None
    account_id: strawberry.ID
    reservations: list[ReportedReservationInput]
    complete: bool = strawberry.field(default=True, description="False: the agent could not see everything.")
    idempotency_key: str | None = None


# -- results -----------------------------------------------------------------------------------------------------------

BindReservationResult = result("BindReservationResult", CapacityReservation)
UnbindReservationResult = result("UnbindReservationResult", CapacityReservation)
ReportReservationsResult = result("ReportReservationsResult", ReportedReservations)


async def _as_it_is_now(outcome: Outcome[str]) -> Outcome[ReservationView]:
    """The reservation behind the key that a desk answered with."""
    if not isinstance(outcome, Accepted):
        return outcome
    view = await operation().loaders.reservations.load(outcome.answer)
    return NotFound(field="reservationId", message="the reservation is gone") if view is None else Accepted(view)


# -- query -------------------------------------------------------------------------------------------------------------


@strawberry.type
class ReservationQuery:
    @strawberry.field
    async def capacity_reservation(self, key: Annotated[strawberry.ID, ID]) -> CapacityReservation | None:
        """One by its id, which is its account's and its own at the provider: accountId/reservationId."""
        return one(await _reservation(key), CapacityReservation.of)

    @strawberry.field
    async def capacity_reservations(
        self,
        *,
        account_id: strawberry.ID | None = None,
        pool_id: strawberry.ID | None = None,
        status: ReservationStatus | None = None,
        flavor: str | None = None,
        first: Annotated[int | None, FIRST] = None,
        after: Annotated[str | None, AFTER] = None,
    ) -> Connection[CapacityReservation] | None:
        """All that were ever reported, newest first, but for those of deleted accounts."""
        current = operation()
        reads = current.runtime.reads
        chosen = {
            "tenant_id": own_tenant(None),
            "account_id": account_id,
            "pool_id": pool_id,
            "status": status,
            "flavor": flavor,
        }
        page = await reads.reservations(current.caller, first=take(first), after=after, **chosen)

        async def count() -> int | Refusal:
            return await reads.count_reservations(current.caller, **chosen)

        return connection(value(page), CapacityReservation.of, after=after, count=count)


# -- mutation ----------------------------------------------------------------------------------------------------------


@strawberry.type
class ReservationMutation:
    @answers_with(BindReservationResult)
    async def bind_reservation(self, wanted: Annotated[BindReservationInput, INPUT]) -> Any:
        """Root only."""
        current = operation()
        outcome = await current.runtime.reservations.bind(current.caller, **in_own_tenant(wanted))
        return answer(await _as_it_is_now(outcome), CapacityReservation.of)

    @answers_with(UnbindReservationResult)
    async def unbind_reservation(self, wanted: Annotated[UnbindReservationInput, INPUT]) -> Any:
        """Root only. Refused while a grant on it is scheduled or active."""
        current = operation()
        outcome = await current.runtime.reservations.unbind(current.caller, **in_own_tenant(wanted))
        return answer(await _as_it_is_now(outcome), CapacityReservation.of)

    @answers_with(ReportReservationsResult)
    async def report_reservations(self, wanted: Annotated[ReportReservationsInput, INPUT]) -> Any:
        """Root only. Takes in what an agent saw of an account that is not scanned."""
        current = operation()
        keywords = in_tenant(given(wanted))
        keywords["reservations"] = [ReportedReservation(**given(reported)) for reported in wanted.reservations]
        outcome = await current.runtime.reservations.report(current.caller, **keywords)
        if not isinstance(outcome, Accepted):
            return answer(outcome, _reported)
        views = await current.loaders.reservations.load_many(outcome.answer)
        return _reported(view for view in views if view is not None)


def _reported(views: Any) -> ReportedReservations:
    return ReportedReservations(capacity_reservations=[CapacityReservation.of(view) for view in views])


# -- subscription ------------------------------------------------------------------------------------------------------


@strawberry.type
class ReservationSubscription:
    @strawberry.subscription
    async def capacity_reservation_changed(
        self, key: Annotated[strawberry.ID, ID]
    ) -> AsyncGenerator[CapacityReservation, None]:
        """The capacity reservation as it is, then again after each change; changes that come together are shown once.
        When the server ends the stream, the error's extensions have a code. Root only."""
        current = operation()
        changes = current.runtime.board.watch(key, key_id=current.caller.principal.key_id)
        value(await _reservation(key))
        return snapshots(current, changes, partial(_reservation, key), CapacityReservation.of)


async def _reservation(key: str) -> ReservationView | Refusal:
    current = operation()
    return await current.runtime.reads.reservation(current.caller, tenant_id=own_tenant(None), **reservation_of(key))
