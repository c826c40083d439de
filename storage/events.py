"""Event streams (`event_stream`, `event`): appended under the stream's row lock, numbered without gaps, read by number.

Events wait in the outbox of their context until `relay` moves them over, in the order of their key: the capacity
reservation, or for budgets the tenant. Moving is delete and insert in one transaction, so an event is in exactly one of
the two, whoever relays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from enum import StrEnum
from typing import Any, Final

from domain.events import ANYTHING, EventRecord, EventSearch, NewEvent
from storage.database import AnyConnection, Row, affected
from storage.paging import like


class Outbox(StrEnum):
    """The tables that events wait in. All have the same columns; `key` is what they are numbered by (0004_relay.sql)."""

    CAPACITY = "capacity_outbox"
    """By capacity reservation."""
    BUDGET = "budget_outbox"
    """By tenant."""


CHANNEL: Final = "earmark"
HINT_MAX: Final = 7_000
"""PostgreSQL takes payloads below 8000 bytes; a longer hint becomes "look everywhere"."""


@dataclass(frozen=True, slots=True)
class Relayed:
    """What was moved: how many events, into which streams (the mirror among them)."""

    moved: int
    streams: list[str]
    appended: list[EventRecord]
    """In order, of the streams that somebody here listens to."""
    held: frozenset[str] = frozenset()
    """Keys whose events were left where they are: a start waits for ends of its tenant at the same instant (T89)."""
    needed: frozenset[str] = frozenset()
    """Keys whose events some of those wait for."""


_RELAY: Final = "select * from event_relay($1, $2, $3, $4, $5, $6, $7)"


async def relay(
    connection: AnyConnection,
    outbox: Outbox,
    keys: Iterable[str],
    *,
    impatient: Iterable[str] = (),
    changed: Iterable[str],
    listened: Iterable[str],
    node: str,
) -> Relayed:
    """Move what waits in an outbox under these keys to the streams, and wake the other nodes: once, after the commit.

    The caller is inside a transaction. Streams are locked in the order of their ids, so that two relays wait for each
    other instead of deadlocking; the second finds nothing left. What the others are told is a hint; the tables are the
    truth. A key that is `impatient` waits for no other (T89).
    """
    columns = (sorted(keys), list(impatient), sorted(changed), list(listened))
    row = await connection.fetchrow(_RELAY, outbox.value, *columns, node, HINT_MAX)
    assert row is not None, "the function gives one row"
    appended = [_appended(event) for event in row["appended"] or ()]
    return Relayed(row["moved"], row["streams"], appended, frozenset(row["held"]), frozenset(row["needed"]))


_APPEND: Final = "select event_append($1, $2)"


async def append_events(connection: AnyConnection, events: Iterable[NewEvent], *, recorded_at: int) -> None:
    """Put events at the end of the mirror and, unless they are for operators, of their tenants' streams, in the caller's
    transaction.

    For what no actor orders. The streams stay locked until the caller commits, so it is the last thing that it does.
    """
    rows = [{**asdict(event), "recorded_at": recorded_at} for event in events]
    if rows:
        await connection.execute(_APPEND, rows, HINT_MAX)


_LATE: Final = {
    outbox: f"select distinct key from {outbox.value} where recorded_at <= $1 limit $2" for outbox in Outbox
}


async def waiting_keys(connection: AnyConnection, outbox: Outbox, *, recorded_until: int, limit: int) -> list[str]:
    """Keys under which something has waited since `recorded_until` or longer: their node may be gone."""
    return [row["key"] for row in await connection.fetch(_LATE[outbox], recorded_until, limit)]


_HEAD: Final = "select first_seq, last_seq from event_stream where tenant_id = $1"


async def read_stream(connection: AnyConnection, stream: str) -> tuple[int, int]:
    """(oldest number still kept, last number): (1, 0) for a stream that has nothing yet."""
    row = await connection.fetchrow(_HEAD, stream)
    return (row["first_seq"], row["last_seq"]) if row else (1, 0)


_TAIL: Final = "select * from event where tenant_id = $1 and seq > $2 order by seq limit $3"


async def read_tail(connection: AnyConnection, stream: str, *, after: int, limit: int) -> list[EventRecord]:
    """Events of one stream after a number, in order."""
    return [event_of(row) for row in await connection.fetch(_TAIL, stream, after, limit)]


_PAGE: Final = """
select * from event
where tenant_id = $1 and seq > $2 and ($3::text[] is null or type = any ($3)) and ($4::text is null or subject = $4)
order by seq limit $5
"""
_PAGE_OF_GRANT: Final = """
select * from event
where tenant_id = $1 and payload ? 'grantId' and payload ->> 'grantId' = $2 and seq > $3
    and ($4::text[] is null or type = any ($4))
order by seq limit $5
"""
_SEARCHED: Final = """
where tenant_id = $1 and seq > $2 and ($3::text[] is null or type = any ($3)) and ($4::text is null or subject = $4)
    and ($6::text is null or split_part(type, '.', 1) = $6)
    and ($7::text is null or starts_with(payload ->> 'scope', $7))
    and ($8::text is null or (payload ? 'correlation_id' and payload ->> 'correlation_id' = $8))
    and ($9::text is null or trace_id = $9)
    and ($10::text is null or request_id = $10)
    and ($11::bigint is null or occurred_at >= $11) and ($12::bigint is null or occurred_at <= $12)
    and ($13::text is null or payload ->> 'correlation_id' ilike $13 or payload ->> 'scope' ilike $13)
order by seq limit $5
"""
_PAGE_OF_SEARCH: Final = f"select * from event {_SEARCHED}"
_PAGE_OF_CORRELATION: Final = f"""
with correlated as materialized (
    select * from event where tenant_id = $1 and payload ? 'correlation_id' and payload ->> 'correlation_id' = $8
)
select * from correlated {_SEARCHED}
"""
"""There are few of them, which the planner cannot know: in order of their numbers it would go through the whole stream."""


async def page_events(
    connection: AnyConnection,
    stream: str,
    *,
    after: int,
    types: Sequence[str] | None = None,
    tenant_id: str | None = None,
    grant_id: str | None = None,
    search: EventSearch = ANYTHING,
    limit: int,
) -> list[EventRecord]:
    """A page of one stream, oldest first, filtered."""
    kinds = list(types) if types is not None else None
    if grant_id is not None:
        rows = await connection.fetch(_PAGE_OF_GRANT, stream, grant_id, after, kinds, limit)
    elif search != ANYTHING:
        *wanted, text = astuple(search)
        pattern = like(text) if text else None
        page = _PAGE_OF_SEARCH if search.correlation_id is None else _PAGE_OF_CORRELATION
        rows = await connection.fetch(page, stream, after, kinds, tenant_id, limit, *wanted, pattern)
    else:
        rows = await connection.fetch(_PAGE, stream, after, kinds, tenant_id, limit)
    return [event_of(row) for row in rows]


_EXPIRE: Final = """
with gone as (
    delete from event where (tenant_id, seq) in (
        select tenant_id, seq from event where tenant_id = $1 and recorded_at < $2 order by seq limit $3
    )
    returning seq
)
update event_stream set first_seq = greatest(first_seq, (select coalesce(max(seq), 0) + 1 from gone))
where tenant_id = $1 and exists (select 1 from gone)
"""
_STREAMS: Final = "select tenant_id from event_stream where tenant_id > $1 order by tenant_id limit $2"


async def page_streams(connection: AnyConnection, *, after: str, limit: int) -> list[str]:
    return [row["tenant_id"] for row in await connection.fetch(_STREAMS, after, limit)]


async def expire_events(connection: AnyConnection, stream: str, *, before: int, limit: int) -> bool:
    """Remove up to `limit` of the oldest events recorded before an instant; whether some were removed."""
    return affected(await connection.execute(_EXPIRE, stream, before, limit)) > 0


def event_of(row: Row) -> EventRecord:
    return EventRecord(
        stream=row["tenant_id"],
        seq=row["seq"],
        event_id=row["event_id"],
        tenant_id=row["subject"],
        type=row["type"],
        occurred_at=row["occurred_at"],
        recorded_at=row["recorded_at"],
        payload=row["payload"],
        request_id=row["request_id"],
        trace_id=row["trace_id"],
    )


def _appended(event: Mapping[str, Any]) -> EventRecord:
    """As the relay gives them: with the names of an `EventRecord`."""
    return EventRecord(**event)


def streams_of(events: Iterable[EventRecord]) -> dict[str, list[EventRecord]]:
    """Events by stream, in order."""
    streams: dict[str, list[EventRecord]] = defaultdict(list)
    for event in events:
        streams[event.stream].append(event)
    return streams
