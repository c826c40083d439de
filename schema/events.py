"""Events: what happened, as pages of a stream and as a stream that goes on."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any, Final

import strawberry
from strawberry.scalars import JSON

from domain.budget.envelopes import PUBLISHED_TYPES
from domain.capacity import boundaries
from domain.events import EventRecord
from schema.context import Operation, operation
from schema.inputs import ALL, own_tenant
from schema.paging import AFTER, FIRST, Connection, Edge, page_info, take, value
from schema.scalars import Int64, Millis, millis, optional_id
from schema.sharing import Answers

TYPES: Final = strawberry.argument(description="Only events of these types, such as reservation-grant.ended.")
OF_TENANT: Final = strawberry.argument(description="With all: only events about this tenant.")
RESUME: Final = strawberry.argument(
    description="The cursor of an event: every later one follows, once and in order. Without it, from now on."
)
CATEGORY: Final = strawberry.argument(description="What the type begins with, such as budget or reservation-grant.")
SCOPE: Final = strawberry.argument(description="Only events of budgets whose scope path begins so.")
SINCE: Final = strawberry.argument(name="from", description="Only what occurred at this instant or later.")
UNTIL: Final = strawberry.argument(description="Only what occurred at this instant or earlier.")
SEARCH: Final = strawberry.argument(description="Text in the scope or the correlation id, in any case.")
EVENT_TYPES: Final = (*boundaries.TYPES, *sorted(PUBLISHED_TYPES))
"""What streams can have: the types of both contexts, and of the registry."""
GRANT_EVENTS: Final = "reservation-grant."
"""How the types of all events about grants begin."""


# -- types -------------------------------------------------------------------------------------------------------------


@strawberry.type
class Event:
    """Something that happened. Its place in the stream is `seq`; `id` is the same in every stream."""

    id: strawberry.ID
    cursor: str = strawberry.field(description="Resumes right after this event, in events and in grantEvents.")
    seq: Int64 = strawberry.field(description="Counts without gaps in its stream.")
    type: str
    tenant_id: strawberry.ID = strawberry.field(description="The tenant that it is about.")
    occurred_at: Millis = strawberry.field(description="When it was due: a boundary of a term, however late noticed.")
    recorded_at: Millis
    grant_id: strawberry.ID | None
    project_id: strawberry.ID | None
    pool_id: strawberry.ID | None
    slots: int | None
    starts_at: Millis | None
    ends_at: Millis | None
    reason: str | None = strawberry.field(description="reservation-gone, when that is why a grant is over.")
    payload: JSON = strawberry.field(description="Everything that was published with it.")
    request_id: str | None = strawberry.field(description="The request that caused it, if one did.")
    trace_id: str | None
    answers: strawberry.Private[Answers] = strawberry.field(default_factory=dict)

    @classmethod
    def of(cls, event: EventRecord) -> Event:
        """One object an event, for all who listen."""
        shown = event.shown.get(cls)
        if shown is None:
            shown = event.shown[cls] = cls._of(event)
        return shown

    @classmethod
    def _of(cls, event: EventRecord) -> Event:
        payload = event.payload
        return cls(
            id=strawberry.ID(event.event_id),
            cursor=event.cursor,
            seq=Int64(event.seq),
            type=event.type,
            tenant_id=strawberry.ID(event.tenant_id),
            occurred_at=Millis(event.occurred_at),
            recorded_at=Millis(event.recorded_at),
            grant_id=optional_id(payload.get("grantId")),
            project_id=optional_id(payload.get("projectId")),
            pool_id=optional_id(payload.get("poolId")),
            slots=payload.get("slots"),
            starts_at=millis(payload.get("startsAt")),
            ends_at=millis(payload.get("endsAt")),
            reason=payload.get("reason"),
            payload=JSON(dict(payload)),
            request_id=event.request_id,
            trace_id=event.trace_id,
        )


# -- query -------------------------------------------------------------------------------------------------------------


async def events(*, first: int | None, after: str | None, **chosen: Any) -> Connection[Event]:
    """A page of a stream, oldest first. Its end cursor resumes behind everything that was looked through."""
    current = operation()
    page = value(await current.runtime.reads.events(current.caller, first=take(first), after=after, **chosen))
    edges = [Edge(node=Event.of(event), cursor=event.cursor) for event in page.items]
    info = page_info([edge.cursor for edge in edges], has_next=page.has_more, after=after)
    info.end_cursor = page.end_cursor
    return Connection(edges=edges, page_info=info)


@strawberry.type
class EventQuery:
    @strawberry.field
    async def events(
        self,
        *,
        tenant_id: strawberry.ID | None = None,
        all_tenants: Annotated[bool, ALL] = False,
        of_tenant_id: Annotated[strawberry.ID | None, OF_TENANT] = None,
        types: Annotated[list[str] | None, TYPES] = None,
        grant_id: strawberry.ID | None = None,
        category: Annotated[str | None, CATEGORY] = None,
        scope: Annotated[str | None, SCOPE] = None,
        correlation_id: str | None = None,
        trace_id: str | None = None,
        request_id: str | None = None,
        since: Annotated[Millis | None, SINCE] = None,
        until: Annotated[Millis | None, UNTIL] = None,
        search: Annotated[str | None, SEARCH] = None,
        first: Annotated[int | None, FIRST] = None,
        after: Annotated[str | None, AFTER] = None,
    ) -> Connection[Event] | None:
        """What happened in the tenant, oldest first, as far back as events are kept. `endCursor` also begins a
        subscription."""
        return await events(
            tenant_id=own_tenant(tenant_id),
            all_tenants=all_tenants,
            of_tenant_id=of_tenant_id,
            types=types,
            known=EVENT_TYPES,
            grant_id=grant_id,
            search={
                "category": category,
                "scope": scope,
                "correlation_id": correlation_id,
                "trace_id": trace_id,
                "request_id": request_id,
                "occurred_from": since,
                "occurred_until": until,
                "text": search,
            },
            first=first,
            after=after,
        )

    @strawberry.field
    async def events_cursor(
        self, tenant_id: strawberry.ID | None = None, all_tenants: Annotated[bool, ALL] = False
    ) -> str | None:
        """Where the stream ends now. Asked for before anything else, it begins a subscription that misses nothing of
        what changes after."""
        current = operation()
        cursor = await current.runtime.reads.events_cursor(
            current.caller, tenant_id=own_tenant(tenant_id), all_tenants=all_tenants
        )
        return value(cursor)


# -- subscription ------------------------------------------------------------------------------------------------------


@strawberry.type
class EventSubscription:
    @strawberry.subscription
    async def grant_events(
        self,
        *,
        tenant_id: strawberry.ID | None = None,
        all_tenants: Annotated[bool, ALL] = False,
        of_tenant_id: Annotated[strawberry.ID | None, OF_TENANT] = None,
        grant_id: strawberry.ID | None = None,
        types: Annotated[list[str] | None, TYPES] = None,
        after: Annotated[str | None, RESUME] = None,
    ) -> AsyncGenerator[Event, None]:
        """Events about grants, as they happen. When the server ends the stream, the error's extensions have a code and
        the cursor to resume with."""
        current = operation()
        chosen = value(
            current.runtime.reads.event_filter(
                current.caller,
                tenant_id=own_tenant(tenant_id),
                all_tenants=all_tenants,
                of_tenant_id=of_tenant_id,
                types=types,
                grant_id=grant_id,
                after=after,
            )
        )
        stream = current.runtime.hub.subscribe(
            chosen.stream,
            key_id=current.caller.principal.key_id,
            after=chosen.after,
            accept=lambda event: event.type.startswith(GRANT_EVENTS) and chosen.accepts(event),
        )
        return _shown(current, stream)


async def _shown(current: Operation, stream: AsyncGenerator[EventRecord, None]) -> AsyncGenerator[Event, None]:
    """Leaves the hub at once when the client leaves, instead of when the garbage is collected (B27)."""
    async with aclosing(stream) as records:
        async for record in records:
            current.begin()
            yield Event.of(record)
