"""Event streams (`event_stream`, `event`): appended under the stream's row lock, numbered without gaps, read by number.

Capacity's events wait in `capacity_outbox` until `relay` moves them over, in the order of their reservation. Moving is
delete and insert in one transaction, so an event is in exactly one of the two, whoever relays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

from domain.events import MIRROR, EventRecord
from storage.database import AnyConnection, Row, affected

_SEEN: Final = """
select key, max(seq) as seq, array_agg(distinct tenant_id) as tenants
from capacity_outbox where key = any ($1) group by key
"""
_MAKE_STREAMS: Final = """
insert into event_stream (tenant_id)
select s from unnest($1::text[]) s order by s on conflict (tenant_id) do nothing
"""
_LOCK_STREAMS: Final = """
select tenant_id, last_seq from event_stream where tenant_id = any ($1) order by tenant_id for no key update
"""
_TAKE: Final = """
delete from capacity_outbox o using unnest($1::text[], $2::bigint[]) k (key, seq)
where o.key = any ($1) and o.key = k.key and o.seq <= k.seq
returning o.*
"""
_APPEND: Final = """
insert into event (
    tenant_id, seq, event_id, subject, type, occurred_at, recorded_at, payload, request_id, trace_id
)
select tenant_id, seq, event_id, subject, type, occurred_at, recorded_at, payload, request_id, trace_id
from json_populate_recordset(null::event, $1)
"""
_MOVE_ON: Final = """
update event_stream s set last_seq = d.last_seq
from unnest($1::text[], $2::bigint[]) d (tenant_id, last_seq)
where s.tenant_id = any ($1) and s.tenant_id = d.tenant_id
"""


async def relay(connection: AnyConnection, keys: Iterable[str]) -> list[EventRecord]:
    """Move what waits in the outboxes of these reservations to the streams; the appended events, mirror included.

    The caller is inside a transaction. Streams are locked in the order of their ids, so that two relays wait for each
    other instead of deadlocking; the second finds nothing left.
    """
    seen = await connection.fetch(_SEEN, sorted(keys))
    if not seen:
        return []
    streams = sorted({MIRROR, *(tenant for row in seen for tenant in row["tenants"])})
    await connection.execute(_MAKE_STREAMS, streams)
    last = {row["tenant_id"]: row["last_seq"] for row in await connection.fetch(_LOCK_STREAMS, streams)}
    taken = await connection.fetch(_TAKE, [row["key"] for row in seen], [row["seq"] for row in seen])
    events = _numbered(sorted(taken, key=lambda row: (row["recorded_at"], row["key"], row["seq"])), last)
    if events:
        await connection.execute(_APPEND, [_event_row(event) for event in events])
        await connection.execute(_MOVE_ON, list(last), list(last.values()))
    return events


_WAITING: Final = "select distinct key from capacity_outbox where recorded_at <= $1 limit $2"


async def waiting_keys(connection: AnyConnection, *, recorded_until: int, limit: int) -> list[str]:
    """Reservations whose outbox has waited since `recorded_until` or longer: their node may be gone."""
    return [row["key"] for row in await connection.fetch(_WAITING, recorded_until, limit)]


_HEAD: Final = "select first_seq, last_seq from event_stream where tenant_id = $1"


async def read_stream(connection: AnyConnection, stream: str) -> tuple[int, int]:
    """(oldest number still kept, last number): (1, 0) for a stream that has nothing yet."""
    row = await connection.fetchrow(_HEAD, stream)
    return (row["first_seq"], row["last_seq"]) if row else (1, 0)


_TAIL: Final = "select * from event where tenant_id = $1 and seq > $2 order by seq limit $3"


async def read_tail(connection: AnyConnection, stream: str, *, after: int, limit: int) -> list[EventRecord]:
    """Events of one stream after a number, in order."""
    return [_event_of(row) for row in await connection.fetch(_TAIL, stream, after, limit)]


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


async def page_events(
    connection: AnyConnection,
    stream: str,
    *,
    after: int,
    types: Sequence[str] | None = None,
    tenant_id: str | None = None,
    grant_id: str | None = None,
    limit: int,
) -> list[EventRecord]:
    """A page of one stream, oldest first, filtered."""
    kinds = list(types) if types is not None else None
    if grant_id is not None:
        rows = await connection.fetch(_PAGE_OF_GRANT, stream, grant_id, after, kinds, limit)
    else:
        rows = await connection.fetch(_PAGE, stream, after, kinds, tenant_id, limit)
    return [_event_of(row) for row in rows]


_NOTIFY: Final = "select pg_notify($1, $2)"
CHANNEL: Final = "earmark"


async def notify(connection: AnyConnection, hint: str) -> None:
    """Wake the other nodes: a hint, at most one a batch; the tables are the truth."""
    await connection.execute(_NOTIFY, CHANNEL, hint)


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


def _numbered(rows: Sequence[Row], last: dict[str, int]) -> list[EventRecord]:
    """Each row once for its tenant and once for the mirror, with the next number of each; `last` moves on."""
    events = []
    for row in rows:
        for stream in (row["tenant_id"], MIRROR):
            last[stream] += 1
            events.append(_record(row, stream=stream, seq=last[stream], tenant_id=row["tenant_id"]))
    return events


def _event_of(row: Row) -> EventRecord:
    return _record(row, stream=row["tenant_id"], seq=row["seq"], tenant_id=row["subject"])


def _record(row: Row, *, stream: str, seq: int, tenant_id: str) -> EventRecord:
    return EventRecord(
        stream=stream,
        seq=seq,
        event_id=row["event_id"],
        tenant_id=tenant_id,
        type=row["type"],
        occurred_at=row["occurred_at"],
        recorded_at=row["recorded_at"],
        payload=row["payload"],
        request_id=row["request_id"],
        trace_id=row["trace_id"],
    )


def _event_row(event: EventRecord) -> dict[str, Any]:
    return {
        "tenant_id": event.stream,
        "seq": event.seq,
        "event_id": event.event_id,
        "subject": event.tenant_id,
        "type": event.type,
        "occurred_at": event.occurred_at,
        "recorded_at": event.recorded_at,
        "payload": event.payload,
        "request_id": event.request_id,
        "trace_id": event.trace_id,
    }


def streams_of(events: Iterable[EventRecord]) -> dict[str, list[EventRecord]]:
    """Events by stream, in order."""
    streams: dict[str, list[EventRecord]] = defaultdict(list)
    for event in events:
        streams[event.stream].append(event)
    return streams
