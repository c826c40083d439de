"""The event log of the published wire: a tenant's own events, or everybody's for operators (8.1, operations 13 and 14)."""

from __future__ import annotations

from typing import Final

from domain.authority import Permission
from domain.budget.envelopes import CATEGORIES, TENANT_CATEGORIES
from domain.budget.queries import LIMIT_DEFAULT, EventQuery
from domain.events import MIRROR, EventRecord
from domain.outcomes import NotFound, Refusal
from storage.budget.event_log import EVENTS, find_event, page_event_log
from workers.budget import rights
from workers.budget.listing import Listing, ListingReads, listing
from workers.budget.texts import is_kept
from workers.request import Caller

READ_EVENTS: Final = rights.Right(Permission.EVENTS_READ, Permission.ADMIN_EVENTS_READ)


class EventLogReads(ListingReads):
    async def event_log(
        self,
        caller: Caller,
        *,
        query: EventQuery,
        tenant_id: str | None,
        limit: int = LIMIT_DEFAULT,
        cursor: str | None = None,
    ) -> Listing[EventRecord] | Refusal:
        """Events of one tenant, of the types that tenants may see; with the tenant None root's mirror: all of them.

        A key that is confined to scopes sees the events of those. Refuses in this order: ACCESS_DENIED, INVALID_INPUT.
        """
        found = self._begin(
            caller,
            READ_EVENTS,
            name="events",
            tenant=tenant_id,
            query=query,
            limit=limit,
            cursor=cursor,
            columns=EVENTS.columns,
        )
        if isinstance(found, Refusal):
            return found
        mark, after = found
        async with self._snapshot() as (connection, _):
            page = await page_event_log(
                connection,
                MIRROR if tenant_id is None else tenant_id,
                query,
                scope_filter=() if tenant_id is None else rights.scope_filter_of(caller, tenant_id),
                categories=CATEGORIES if tenant_id is None else TENANT_CATEGORIES,
                after=after,
                limit=limit,
            )
        return listing(page, mark, lambda event: event)

    async def event(self, caller: Caller, *, event_id: str) -> EventRecord | Refusal:
        """Root: any event. Refuses in this order: ACCESS_DENIED, NOT_FOUND."""
        if (denied := rights.refuse(caller, READ_EVENTS, caller.principal.tenant_id, as_admin=True)) is not None:
            return denied
        event = None
        if is_kept(event_id):
            async with self._snapshot() as (connection, _):
                event = await find_event(connection, MIRROR, event_id, categories=CATEGORIES)
        return NotFound(field="event_id", message="there is no such event") if event is None else event
