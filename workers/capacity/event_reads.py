"""Reads of event streams: a tenant's own, or for root the mirror of all of them (R62, D47, F6)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from domain.authority import Permission
from domain.capacity.boundaries import TYPES
from domain.events import ANYTHING, MIRROR, EventRecord, EventSearch, check_cursor, encode_cursor
from domain.identity import GRANT_ID, TENANT_ID, grammar
from domain.outcomes import AccessDenied, InvalidInput, Refusal
from domain.paging import check_first
from domain.shapes import Shape, check_optional_integer, check_optional_text, check_text
from storage.events import page_events, read_stream
from workers.capacity.reading import Reading, check_flag, check_words, refuse_reader
from workers.request import Caller

SEARCHED: Final = grammar(r"[^\0\ud800-\udfff]{1,1024}", "text of 1 to 1024 characters")
"""What a text that is looked for can be."""


@dataclass(frozen=True, slots=True)
class EventPage:
    """Events in the order of their stream. `end_cursor` resumes after them, in a query and in a subscription."""

    items: tuple[EventRecord, ...]
    has_more: bool
    end_cursor: str


@dataclass(frozen=True, slots=True)
class EventFilter:
    """What of a stream is wanted: for a page, and for a subscription to the same."""

    stream: str
    after: int | None
    types: tuple[str, ...] | None = None
    grant_id: str | None = None
    subject: str | None = None
    """The tenant that an event is about, where the stream is the mirror."""
    search: EventSearch = ANYTHING
    """For pages only."""

    def accepts(self, event: EventRecord) -> bool:
        return (
            (self.types is None or event.type in self.types)
            and self.grant_id in (None, event.payload.get("grantId"))
            and self.subject in (None, event.tenant_id)
        )

    def only(self, types: Sequence[str]) -> EventFilter:
        """The same of these types alone."""
        return replace(self, types=tuple(kind for kind in types if self.types is None or kind in self.types))


class EventReads(Reading):
    def event_filter(
        self,
        caller: Caller,
        *,
        tenant_id: Any,
        all_tenants: Any = None,
        of_tenant_id: Any = None,
        types: Any = None,
        grant_id: Any = None,
        after: Any = None,
        search: Mapping[str, Any] | None = None,
        right: Permission = Permission.QUOTAS_READ,
        known: Collection[str] = TYPES,
    ) -> EventFilter | Refusal:
        """What a page or a subscription of events may show: the tenant's stream; with `all_tenants` the mirror, for
        root acting in the root tenant, and there `of_tenant_id` for the events about one tenant. Events of other
        contexts in the same stream are shown to keys with events:read that are not confined to scopes. `known`: the
        types that may be asked for.

        Refuses in this order: INVALID_INPUT, ACCESS_DENIED.
        """
        try:
            check_text(tenant_id, "tenantId", TENANT_ID)
            everybody = check_flag(all_tenants, "all")
            stream = MIRROR if everybody else tenant_id
            chosen = EventFilter(
                stream=stream,
                after=check_cursor(stream, after),
                types=check_words(types, "types", known=known),
                grant_id=check_optional_text(grant_id, "grantId", GRANT_ID),
                subject=check_optional_text(of_tenant_id, "ofTenantId", TENANT_ID),
                search=_check_search(**(search or {})),
            )
            if chosen.grant_id is not None and chosen.search != ANYTHING:
                message = "the events of one grant are not searched any further"
                raise Shape(InvalidInput(field="grantId", reason="too-many-filters", message=message))
        except Shape as shape:
            return shape.refusal
        denied: AccessDenied | None = refuse_reader(caller, right, tenant_id=tenant_id, as_root=everybody)
        if denied:
            return denied
        if not everybody and chosen.subject not in (None, tenant_id):
            message = "events about another tenant are read with all: true"
            return InvalidInput(field="ofTenantId", reason="needs-all", message=message)
        sees_all = caller.principal.may(Permission.EVENTS_READ) and not caller.principal.scope_filter
        return chosen if sees_all else chosen.only(TYPES)

    async def events(self, caller: Caller, *, first: Any = None, **given: Any) -> EventPage | Refusal:
        """A page of a stream, oldest first, from the oldest event that is kept or after a cursor.

        Takes what `event_filter` takes, and `first` (200 at most). Refuses in this order: INVALID_INPUT, ACCESS_DENIED,
        INVALID_INPUT (`cursor-expired`: events after the cursor are no longer kept; `cursor-ahead`: the stream has not
        come that far, so it is no cursor that was given out).
        """
        try:
            count = check_first(first)
        except Shape as shape:
            return shape.refusal
        chosen = self.event_filter(caller, **given)
        if isinstance(chosen, Refusal):
            return chosen
        async with self._moment() as connection:
            oldest, last = await read_stream(connection, chosen.stream)
            after = oldest - 1 if chosen.after is None else chosen.after
            if after < oldest - 1:
                message = "events after this cursor are no longer kept: begin anew without it"
                return InvalidInput(field="after", reason="cursor-expired", message=message)
            if after > max(last, oldest - 1):
                message = "after lies ahead of everything in this stream: it is not a cursor that was given out here"
                return InvalidInput(field="after", reason="cursor-ahead", message=message)
            found = await page_events(
                connection,
                chosen.stream,
                after=after,
                types=chosen.types,
                tenant_id=chosen.subject,
                grant_id=chosen.grant_id,
                search=chosen.search,
                limit=count + 1,
            )
        found = [event for event in found if chosen.accepts(event)]  # a grant is of one tenant: all of them or none
        return _page(found, chosen.stream, first=count, after=after, last=last)

    async def events_cursor(self, caller: Caller, *, tenant_id: Any, all_tenants: Any = None) -> str | Refusal:
        """Where the stream ends now. Whoever asks for this first, then reads state, then events after it misses nothing
        (F10). It tells nothing of the events, so either permission for reading some will do. Refuses as `event_filter`.
        """
        reads_events = caller.principal.may(Permission.EVENTS_READ)
        right = Permission.EVENTS_READ if reads_events else Permission.QUOTAS_READ
        chosen = self.event_filter(caller, tenant_id=tenant_id, all_tenants=all_tenants, right=right)
        if isinstance(chosen, Refusal):
            return chosen
        async with self._moment() as connection:
            _, last = await read_stream(connection, chosen.stream)
        return encode_cursor(chosen.stream, last)


def _check_search(
    *, occurred_from: Any = None, occurred_until: Any = None, scope: Any = None, **texts: Any
) -> EventSearch:
    """Scopes are kept in lower case. Raises `Shape`."""
    since, until = check_optional_integer(occurred_from, "from"), check_optional_integer(occurred_until, "until")
    if since is not None and until is not None and since > until:
        raise Shape(InvalidInput(field="from", reason="after-end", message="from lies after until"))
    names = {"category": "category", "correlation_id": "correlationId", "trace_id": "traceId"}
    names |= {"request_id": "requestId", "text": "search"}
    checked = {name: check_optional_text(texts.get(name), shown, SEARCHED) for name, shown in names.items()}
    path = check_optional_text(scope, "scope", SEARCHED)
    return EventSearch(
        scope=None if path is None else path.lower(), occurred_from=since, occurred_until=until, **checked
    )


def _page(found: Sequence[EventRecord], stream: str, *, first: int, after: int, last: int) -> EventPage:
    """A page that reached the end of the stream resumes there, however few of its events were wanted."""
    shown, has_more = tuple(found[:first]), len(found) > first
    given = shown[-1].seq if shown else after
    end = given if has_more else max(last, given)
    return EventPage(shown, has_more, encode_cursor(stream, end))
