"""The event log of the published wire: a tenant's own events, or everybody's for operators (8.1, operations 13 and 14)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from domain.authority import Permission
from domain.budget.envelopes import CATEGORIES, PUBLISHED_TYPES, TENANT_CATEGORIES
from domain.budget.queries import LIMIT_DEFAULT, EventQuery
from domain.budget.scopes import scope_filter_allows
from domain.budget.shapes import invalid
from domain.events import MIRROR, EventRecord, check_cursor
from domain.outcomes import NotFound, Refusal
from domain.shapes import Shape, check_known
from storage.budget.event_log import EVENTS, find_event, page_event_log
from workers.budget import rights
from workers.budget.listing import Listing, ListingReads, listing
from workers.budget.texts import is_kept
from workers.request import Caller

TYPES_MAX: Final = len(PUBLISHED_TYPES)
"""Types that a stream can be narrowed to: there are no more."""
READ_EVENTS: Final = rights.Right(Permission.EVENTS_READ, Permission.ADMIN_EVENTS_READ)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventChoice:
    """What of a stream a subscriber is shown. `after` is the number to go on after; None: from now on."""

    stream: str
    categories: tuple[str, ...]
    after: int | None = None
    types: frozenset[str] | None = None
    scope: str | None = None
    """Events about it and what lies below it."""
    scope_filter: tuple[str, ...] = ()

    def accepts(self, event: EventRecord) -> bool:
        if event.type.partition(".")[0] not in self.categories or "category" not in event.payload:
            return False
        return (self.types is None or event.type in self.types) and self._covers(event.payload.get("scope"))

    def _covers(self, scope: str | None) -> bool:
        """Events without a scope are for keys that are not confined to some (7)."""
        if scope is None:
            return self.scope is None and not self.scope_filter
        is_below = self.scope is None or scope == self.scope or scope.startswith(f"{self.scope}/")
        return is_below and (not self.scope_filter or scope_filter_allows(self.scope_filter, scope))


class EventLogReads(ListingReads):
    def event_choice(
        self,
        caller: Caller,
        *,
        tenant_id: str | None,
        scope: str | None = None,
        types: Sequence[str] | None = None,
        after: str | None = None,
    ) -> EventChoice | Refusal:
        """What a subscription to events of one tenant may show, or with the tenant None one to root's mirror.

        An operator sees every category. Refuses in this order: ACCESS_DENIED, INVALID_INPUT.
        """
        own = caller.principal.tenant_id
        if (denied := rights.refuse(caller, READ_EVENTS, tenant_id or own, as_admin=tenant_id is None)) is not None:
            return denied
        if types is not None and len(types) > TYPES_MAX:
            return invalid("types", f"types has at most {TYPES_MAX} entries", reason="range")
        if tenant_id is not None and not is_kept(tenant_id):
            return invalid("tenant_id", "no tenant can be called so", reason="charset")
        stream = MIRROR if tenant_id is None else tenant_id
        try:
            check_known(types or (), "types", sorted(PUBLISHED_TYPES))
            number = check_cursor(stream, after)
        except Shape as shape:
            return shape.refusal
        return EventChoice(
            stream=stream,
            categories=TENANT_CATEGORIES if stream == own else CATEGORIES,
            after=number,
            types=None if types is None else frozenset(types),
            scope=None if scope is None else scope.lower(),
            scope_filter=rights.scope_filter_of(caller, stream),
        )

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
