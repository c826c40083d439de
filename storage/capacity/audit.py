"""Everything about one capacity reservation, its whole history, for an audit: rows as they lie there, one snapshot.

Reads only. The caller's transaction is a repeatable read, or rows of different moments will not agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from domain.capacity.metering import GRANT_SLOT_HOURS, GRANT_USAGE_HOURS
from domain.capacity.state import CapacityEvent, Grant, Instance, Reservation, Segment
from storage.capacity.books import read_heads, read_states
from storage.capacity.rows import grant_of, instance_of, segment_of
from storage.database import AnyConnection, Row

_KEYS: Final = "select key from capacity_reservation where key > $1 order by key limit $2"


async def page_keys(connection: AnyConnection, *, after: str, limit: int) -> list[str]:
    """Reservations by key, after a key."""
    return [row["key"] for row in await connection.fetch(_KEYS, after, limit)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedSegment:
    instance_id: str
    segment: Segment
    metered_through: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRecord:
    """One record of committed slots."""

    tenant_id: str
    grant_id: str
    hour_start: int
    quantity_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """One reservation with all its grants, instances, segments, records and events, ended and deleted ones included."""

    head: Reservation
    free: int
    """F as the books that decisions read have it, at the instant of the last decision (R20)."""
    grants: Mapping[str, Grant]
    metered_through: Mapping[str, int]
    """By grant id: up to where its committed slots are on record."""
    instances: Mapping[str, Instance]
    segments: Sequence[AuditedSegment]
    """By instance and number."""
    elsewhere: Sequence[AuditedSegment]
    """What its instances ran at other reservations, before they came here or after they left."""
    slot_records: Sequence[SlotRecord]
    used_in_grants: Mapping[tuple[str, int], int]
    """(grant id, hour start) -> recorded instance-milliseconds inside the grant."""
    used_by_instances: Mapping[tuple[str, str], int]
    """(instance id, meter) -> recorded instance-milliseconds."""
    events: Sequence[CapacityEvent]
    """Events about grants in the order of their tenants' streams; what still waits in the outbox comes last."""
    trimmed: frozenset[str]
    """Tenants whose streams have lost their oldest events to retention."""

    @property
    def key(self) -> str:
        return self.head.key

    @property
    def at(self) -> int:
        """The instant that the rows speak of: the last one decided at."""
        return self.head.clock_at


_GRANTS: Final = 'select * from capacity_grant where key = $1 order by grant_id collate "C"'
_INSTANCES: Final = 'select * from capacity_instance where key = $1 order by instance_id collate "C"'
_SEGMENTS: Final = 'select * from capacity_segment where key = $1 order by instance_id collate "C", number'
_ELSEWHERE: Final = """
select s.* from capacity_instance i
    join capacity_instance o on o.created_at = i.created_at and o.instance_id collate "C" = i.instance_id and o.key <> i.key
    join capacity_segment s on s.key = o.key and s.instance_id = o.instance_id
where i.key = $1 order by s.instance_id collate "C", s.number
"""
_SLOT_RECORDS: Final = """
select tenant_id, grant_id, hour_start, quantity_ms from usage_record
where tenant_id = any ($1) and grant_id = any ($2) and meter = $3
"""
_USED_IN_GRANTS: Final = """
select grant_id, hour_start, sum(quantity_ms)::bigint as quantity_ms from usage_record
where tenant_id = any ($1) and grant_id = any ($2) and meter = $3 group by grant_id, hour_start
"""
_USED_BY_INSTANCES: Final = """
select u.instance_id, u.meter, sum(u.quantity_ms)::bigint as quantity_ms
from usage_record u join capacity_segment s on s.key = $2 and s.instance_id = u.instance_id
    and s.number = split_part(u.source_key, ':', 3)::integer -- what it ran elsewhere is on record there
where u.tenant_id = any ($1) group by u.instance_id, u.meter
"""
_EVENTS: Final = """
select tenant_id, type, occurred_at, payload from event
where tenant_id = any ($1) and payload ? 'grantId' order by tenant_id, seq
"""
_WAITING: Final = """
select tenant_id, type, occurred_at, payload from capacity_outbox where key = $1 and payload ? 'grantId' order by seq
"""
_TRIMMED: Final = "select tenant_id from event_stream where tenant_id = any ($1) and first_seq > 1"


async def read_books(connection: AnyConnection, key: str) -> Books:
    """The reservation must exist."""
    heads = await read_heads(connection, [key])
    state = (await read_states(connection, heads))[key]
    grant_rows = await connection.fetch(_GRANTS, key)
    grants = {row["grant_id"]: grant_of(row) for row in grant_rows}
    instances = {row["instance_id"]: instance_of(row) for row in await connection.fetch(_INSTANCES, key)}
    owners = {grant.tenant_id for grant in grants.values()} | {instance.tenant_id for instance in instances.values()}
    tenants = sorted(owners)
    ids = list(grants)
    slots = await connection.fetch(_SLOT_RECORDS, tenants, ids, GRANT_SLOT_HOURS)
    in_grants = await connection.fetch(_USED_IN_GRANTS, tenants, ids, GRANT_USAGE_HOURS)
    by_instances = await connection.fetch(_USED_BY_INSTANCES, tenants, key)
    trimmed = await connection.fetch(_TRIMMED, tenants)
    return Books(
        head=heads[key],
        free=state.free,
        grants=grants,
        metered_through={row["grant_id"]: row["metered_through"] for row in grant_rows},
        instances=instances,
        segments=[_segment(row) for row in await connection.fetch(_SEGMENTS, key)],
        elsewhere=[_segment(row) for row in await connection.fetch(_ELSEWHERE, key)],
        slot_records=[SlotRecord(**dict(row)) for row in slots],
        used_in_grants={(row["grant_id"], row["hour_start"]): row["quantity_ms"] for row in in_grants},
        used_by_instances={(row["instance_id"], row["meter"]): row["quantity_ms"] for row in by_instances},
        events=await _events(connection, key, tenants, grants),
        trimmed=frozenset(row["tenant_id"] for row in trimmed),
    )


async def _events(
    connection: AnyConnection, key: str, tenants: Sequence[str], grants: Mapping[str, Any]
) -> list[CapacityEvent]:
    rows = [*await connection.fetch(_EVENTS, list(tenants)), *await connection.fetch(_WAITING, key)]
    return [_event(row) for row in rows if row["payload"]["grantId"] in grants]


def _event(row: Row) -> CapacityEvent:
    return CapacityEvent(
        tenant_id=row["tenant_id"], type=row["type"], occurred_at=row["occurred_at"], payload=row["payload"]
    )


def _segment(row: Row) -> AuditedSegment:
    return AuditedSegment(
        instance_id=row["instance_id"], segment=segment_of(row), metered_through=row["metered_through"]
    )
