"""Notices ahead of a grant's start and end: how early a tenant wants them."""

from __future__ import annotations

from typing import Annotated, Any

import strawberry

from domain.capacity.notices import Leads
from schema.context import operation
from schema.inputs import INPUT, in_own_tenant, own_tenant
from schema.paging import one, settled
from schema.refusals import answer, answers_with, result
from schema.scalars import Int64, int64

# -- types -------------------------------------------------------------------------------------------------------------


@strawberry.type
class GrantNotices:
    """How long before a grant starts or ends the tenant gets `reservation-grant.starting-soon` and `.ending-soon`."""

    tenant_id: strawberry.ID
    starting_soon_ms: Int64 | None = strawberry.field(description="Null: no such notices.")
    ending_soon_ms: Int64 | None = strawberry.field(description="Null: no such notices.")

    @classmethod
    def of(cls, leads: Leads) -> GrantNotices:
        return cls(
            tenant_id=strawberry.ID(leads.tenant_id),
            starting_soon_ms=int64(leads.starting_ms),
            ending_soon_ms=int64(leads.ending_ms),
        )


# -- inputs and results ------------------------------------------------------------------------------------------------


@strawberry.input
class SetGrantNoticesInput:
    """For a tenant; without one named, for the caller's own. A lead of null ends the notices of its kind."""

    tenant_id: strawberry.ID | None = None
    starting_soon_ms: Int64 | None = strawberry.field(default=None, description="A minute to 90 days.")
    ending_soon_ms: Int64 | None = strawberry.field(default=None, description="A minute to 90 days.")
    idempotency_key: str | None = None


SetGrantNoticesResult = result("SetGrantNoticesResult", GrantNotices)


# -- query and mutation ------------------------------------------------------------------------------------------------


@strawberry.type
class NoticeQuery:
    @strawberry.field
    async def grant_notices(self, tenant_id: strawberry.ID | None = None) -> GrantNotices | None:
        """Of one tenant, by default the caller's own. Null for a tenant that cannot be seen."""
        current = operation()
        found = settled(await current.runtime.notices.leads(current.caller, tenant_id=own_tenant(tenant_id)))
        return one(found, GrantNotices.of)


@strawberry.type
class NoticeMutation:
    @answers_with(SetGrantNoticesResult)
    async def set_grant_notices(self, wanted: Annotated[SetGrantNoticesInput, INPUT]) -> Any:
        """For the members of the tenant and root's."""
        current = operation()
        keywords = in_own_tenant(wanted)
        leads = {"starting_ms": keywords.pop("starting_soon_ms"), "ending_ms": keywords.pop("ending_soon_ms")}
        return answer(await current.runtime.notices.set_leads(current.caller, **keywords, **leads), GrantNotices.of)
