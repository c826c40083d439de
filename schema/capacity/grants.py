"""Grants: slots of a capacity reservation that a tenant has for a term."""

from __future__ import annotations

from typing import Annotated, Any

import strawberry

from domain.authority import Permission
from domain.capacity.counts import GrantActivity, committed_ms
from domain.capacity.metering import hours_text
from domain.capacity.state import GrantState
from domain.capacity.views import GrantView
from domain.outcomes import Outcome, Refusal
from schema.batches import each, outcomes_of
from schema.capacity.instances import Instance, for_root
from schema.capacity.refusals import CapacityUnavailable, with_wish
from schema.context import operation
from schema.events import TYPES, Event, events
from schema.failures import failed
from schema.inputs import ALL, ID, INPUT, RESERVATION, given, own_tenant, reservation_of
from schema.paging import AFTER, FIRST, Connection, connection, one, take, value
from schema.refusals import answer, answers_with, result
from schema.scalars import Int64, Millis, millis, optional_id

# -- types -------------------------------------------------------------------------------------------------------------

strawberry.enum(
    GrantState,
    name="GrantState",
    description="SCHEDULED until it starts, ACTIVE in its term, then ENDED; CANCELLED when ended before it started.",
)


@strawberry.type
class Grant:
    """A tenant's right to so many slots of a capacity reservation, from `startsAt` until right before `endsAt`."""

    id: strawberry.ID
    tenant_id: strawberry.ID = strawberry.field(description="The grantee.")
    project_id: strawberry.ID | None = strawberry.field(description="The only project that it serves, if it names one.")
    state: GrantState
    slots: int
    starts_at: Millis
    ends_at: Millis
    created_at: Millis
    cancelled_at: Millis | None
    ended_reason: str | None = strawberry.field(description="reservation-gone, when that is what ended it.")
    pool_id: strawberry.ID
    region: str
    provider: str
    version: int = strawberry.field(description="Grows with each change; amendGrant wants the latest.")
    view: strawberry.Private[GrantView]

    @strawberry.field
    def account_id(self) -> strawberry.ID | None:
        """The provider account; null unless the caller is root."""
        return for_root(self.view.account_id)

    @strawberry.field
    def reservation_id(self) -> strawberry.ID | None:
        """The capacity reservation's id at the provider; null unless the caller is root."""
        return for_root(self.view.reservation_id)

    @strawberry.field
    async def orphaned(self) -> bool:
        """Whether it serves nobody because its project was deleted."""
        return await operation().loaders.orphaned.load(self.view)

    @strawberry.field
    async def held(self) -> int:
        """Slots that its instances hold now, running or stopped."""
        activity = await self._activity()
        return activity.held if activity else 0

    @strawberry.field
    async def running(self) -> int:
        """Its instances that run now."""
        activity = await self._activity()
        return activity.running if activity else 0

    @strawberry.field
    async def stopped(self) -> int:
        """Its instances that are stopped now and keep their slots."""
        activity = await self._activity()
        return activity.stopped if activity else 0

    @strawberry.field
    async def idle(self) -> int:
        """Slots in which nothing runs now, paid for all the same; none while it is not in its term."""
        activity = await self._activity()
        return activity.idle if activity else 0

    @strawberry.field
    async def used_slot_ms(self) -> Int64:
        """Running time of its instances so far, in milliseconds."""
        return Int64(await operation().loaders.used_ms.load(self.view))

    @strawberry.field
    async def used_slot_hours(self) -> str:
        """The same in hours, a decimal with six places: for display."""
        return hours_text(await operation().loaders.used_ms.load(self.view))

    @strawberry.field
    def committed_slot_ms(self) -> Int64:
        """Slots times the time in its term so far, used or not, in milliseconds: what is billed."""
        return Int64(committed_ms(self.view))

    @strawberry.field
    def committed_slot_hours(self) -> str:
        """The same in hours, a decimal with six places: for display."""
        return hours_text(committed_ms(self.view))

    @strawberry.field
    async def instances(self, first: Annotated[int | None, FIRST] = None) -> Connection[Instance] | None:
        """The instances that are in it, newest first. Query.instances goes on after the first page."""
        current = operation()
        if denied := current.caller.principal.refuse_for(Permission.INSTANCES_READ, tenant_id=self.tenant_id):
            raise failed(denied)
        page = await current.loaders.instances_of.load((self.view, take(first)))
        return connection(page, Instance.of)

    @strawberry.field
    async def events(
        self,
        *,
        types: Annotated[list[str] | None, TYPES] = None,
        first: Annotated[int | None, FIRST] = None,
        after: Annotated[str | None, AFTER] = None,
    ) -> Connection[Event] | None:
        """What happened to it, oldest first."""
        own = operation().caller.principal.tenant_id
        return await events(
            tenant_id=own,
            all_tenants=self.tenant_id != own,
            grant_id=self.id,
            types=types,
            first=first,
            after=after,
        )

    async def _activity(self) -> GrantActivity | None:
        return await operation().loaders.activity.load(self.view)

    @classmethod
    def of(cls, view: GrantView) -> Grant:
        grant = view.grant
        return cls(
            id=strawberry.ID(grant.grant_id),
            tenant_id=strawberry.ID(grant.tenant_id),
            project_id=optional_id(grant.project_id),
            state=view.state,
            slots=grant.slots,
            starts_at=Millis(grant.starts_at),
            ends_at=Millis(grant.ends_at),
            created_at=Millis(grant.created_at),
            cancelled_at=millis(grant.cancelled_at),
            ended_reason=grant.ended_reason,
            pool_id=strawberry.ID(grant.pool_id),
            region=grant.region,
            provider=grant.provider,
            version=grant.version,
            view=view,
        )


# -- inputs ------------------------------------------------------------------------------------------------------------


@strawberry.input
class CreateGrantInput:
    """Commits slots to the tenant `grantTenantId`, or to one of its projects. `tenantId` is the root tenant."""

    tenant_id: strawberry.ID
    account_id: strawberry.ID
    reservation_id: strawberry.ID
    grant_tenant_id: strawberry.ID
    project_id: strawberry.ID | None = None
    slots: int
    starts_at: Millis
    ends_at: Millis
    idempotency_key: str


@strawberry.input
class CreateGrantsInput:
    """Up to 256 grants, each with an idempotency key of its own."""

    grants: list[CreateGrantInput]


@strawberry.input
class EndGrantInput:
    """Names a grant and the account that it is on."""

    tenant_id: strawberry.ID
    account_id: strawberry.ID
    grant_id: strawberry.ID
    idempotency_key: str | None = None


@strawberry.input
class AmendGrantInput:
    """What is not given stays as it is. `expectedVersion` is the version that the change was decided on."""

    tenant_id: strawberry.ID
    account_id: strawberry.ID
    grant_id: strawberry.ID
    expected_version: int
    slots: int | None = None
    starts_at: Millis | None = None
    ends_at: Millis | None = None
    idempotency_key: str | None = None


@strawberry.input
class TermInput:
    """A half-open stretch of time."""

    starts_at: Millis
    ends_at: Millis


# -- results -----------------------------------------------------------------------------------------------------------

CreateGrantResult = result("CreateGrantResult", Grant, CapacityUnavailable)


@strawberry.type
class CreatedGrants:
    """What came of each grant, in the order in which they were asked for."""

    outcomes: Any = outcomes_of(CreateGrantResult)


CreateGrantsResult = result("CreateGrantsResult", CreatedGrants)
EndGrantResult = result("EndGrantResult", Grant)
AmendGrantResult = result("AmendGrantResult", Grant, CapacityUnavailable)


# -- query -------------------------------------------------------------------------------------------------------------


async def grants(*, first: int | None, after: str | None, **chosen: Any) -> Connection[Grant]:
    """A page of grants, counted when that is asked for. Raises the refusals of the read."""
    current = operation()
    reads = current.runtime.reads
    page = await reads.grants(current.caller, first=take(first), after=after, **chosen)

    async def count() -> int | Refusal:
        return await reads.count_grants(current.caller, **chosen)

    term = {"overlapsFrom": "overlaps.startsAt", "overlapsTo": "overlaps.endsAt"}
    return connection(value(page, **term), Grant.of, after=after, count=count)


def overlapping(term: TermInput | None) -> dict[str, int]:
    return {} if term is None else {"overlaps_from": term.starts_at, "overlaps_to": term.ends_at}


@strawberry.type
class GrantQuery:
    @strawberry.field
    async def grant(
        self, grant_id: Annotated[strawberry.ID, ID], tenant_id: strawberry.ID | None = None
    ) -> Grant | None:
        """A grant of the tenant that the caller acts in, by default its own; for root in the root tenant, any."""
        current = operation()
        view = await current.runtime.reads.grant(current.caller, tenant_id=own_tenant(tenant_id), grant_id=grant_id)
        return one(view, Grant.of, grantId="id")

    @strawberry.field
    async def grants(
        self,
        *,
        tenant_id: strawberry.ID | None = None,
        all_tenants: Annotated[bool, ALL] = False,
        grant_tenant_id: Annotated[
            strawberry.ID | None, strawberry.argument(description="With all: those of one grantee.")
        ] = None,
        state: GrantState | None = None,
        pool_id: strawberry.ID | None = None,
        project_id: strawberry.ID | None = None,
        reservation: Annotated[strawberry.ID | None, RESERVATION] = None,
        overlaps: TermInput | None = None,
        first: Annotated[int | None, FIRST] = None,
        after: Annotated[str | None, AFTER] = None,
    ) -> Connection[Grant] | None:
        """Grants made to the tenant, newest first, ended and cancelled ones too."""
        return await grants(
            tenant_id=own_tenant(tenant_id),
            all_tenants=all_tenants,
            grant_tenant_id=grant_tenant_id,
            state=state,
            pool_id=pool_id,
            project_id=project_id,
            **reservation_of(reservation, field="reservation"),
            **overlapping(overlaps),
            first=first,
            after=after,
        )


# -- mutation ----------------------------------------------------------------------------------------------------------


@strawberry.type
class GrantMutation:
    @answers_with(CreateGrantResult)
    async def create_grant(self, wanted: Annotated[CreateGrantInput, INPUT]) -> Any:
        """Root only. A retry with the same idempotency key gets the grant as it is now."""
        return await _create(wanted)

    @answers_with(CreateGrantsResult)
    async def create_grants(self, wanted: Annotated[CreateGrantsInput, INPUT]) -> Any:
        """Root only. Each is decided by itself, after those before it; one that failed is null, with an error beside the
        data, and what it came to is told to a retry."""
        return await each(wanted.grants, _create, CreatedGrants, field="grants")

    @answers_with(EndGrantResult)
    async def end_grant(self, wanted: Annotated[EndGrantInput, INPUT]) -> Any:
        """Root only. Ends a grant now, or cancels it before its start; one that is over is answered as it is."""
        current = operation()
        return answer(await current.runtime.grants.end(current.caller, **given(wanted)), Grant.of)

    @answers_with(AmendGrantResult)
    async def amend_grant(self, wanted: Annotated[AmendGrantInput, INPUT]) -> Any:
        """Root only. Changes slots or term in one decision, with no moment in which others could take the slots."""
        current = operation()
        return answer(await current.runtime.grants.amend(current.caller, **given(wanted)), Grant.of)


async def _create(wanted: CreateGrantInput) -> Any:
    current = operation()
    outcome: Outcome[GrantView] = await current.runtime.grants.create(current.caller, **given(wanted))
    return with_wish(answer(outcome, Grant.of), wanted)
