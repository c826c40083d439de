"""The event log of the published wire: one tenant's stream, or the mirror for operators, in any order. Reads only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from domain.budget.queries import EventQuery, EventSort, Place
from domain.events import EventRecord
from storage.budget.keyset import NUMBER, Column, Listing, Page
from storage.budget.pages import confined
from storage.database import AnyConnection
from storage.events import event_of
from storage.paging import like

_CATEGORY: Final = "split_part(type, '.', 1)"
_CORRELATION: Final = "payload ->> 'correlation_id'"
_SCOPE: Final = "payload ->> 'scope'"

EVENTS: Final = Listing(
    f"""
from event
where tenant_id = $1 and {_CATEGORY} = any ($2)
    and ($3::text is null or type = $3)
    and ($4::text is null or subject = $4)
    and ($5::text is null or starts_with({_SCOPE}, $5))
    and ($6::text is null or (payload ? 'correlation_id' and {_CORRELATION} = $6))
    and ($7::text is null or trace_id = $7)
    and ($8::text is null or request_id = $8)
    and ($9::bigint is null or occurred_at >= $9) and ($10::bigint is null or occurred_at <= $10)
    and ($11::text is null or {_CORRELATION} ilike $11 or {_SCOPE} ilike $11)
    and {confined(_SCOPE, "$12")}
""",
    arguments=12,
    columns={
        EventSort.TIMESTAMP: Column("occurred_at", NUMBER),
        EventSort.EVENT_TYPE: Column("type"),
        EventSort.CATEGORY: Column(_CATEGORY),
        EventSort.SCOPE: Column(f"coalesce({_SCOPE}, '')"),
        EventSort.TENANT_ID: Column("subject"),
    },
    id_column="event_id",
)


async def page_event_log(
    connection: AnyConnection,
    stream: str,
    query: EventQuery,
    *,
    scope_filter: Sequence[str],
    categories: Sequence[str],
    after: Place | None,
    limit: int,
) -> Page[EventRecord]:
    """Events of one stream. Those without a scope are hidden from a key that is confined to scopes."""
    return await EVENTS.fetch(
        connection,
        (
            stream,
            [word for word in categories if query.category in (None, word)],
            query.event_type,
            query.tenant_id,
            query.scope,
            query.correlation_id,
            query.trace_id,
            query.request_id,
            *query.occurred,
            like(query.search) if query.search else None,
            list(scope_filter) or None,
        ),
        sort=query.sort_by,
        descending=query.descending,
        after=after,
        limit=limit,
        convert=event_of,
    )


_ONE: Final = f"select * from event where tenant_id = $1 and event_id = $2 and {_CATEGORY} = any ($3)"


async def find_event(
    connection: AnyConnection, stream: str, event_id: str, *, categories: Sequence[str]
) -> EventRecord | None:
    row = await connection.fetchrow(_ONE, stream, event_id, list(categories))
    return None if row is None else event_of(row)
