"""What the meter reads and writes: the one writer of `usage_record`, and of `metered_through` on grants and segments.

A record is written once, for an hour that is over, and never edited. Which hours are still owed is told by the marks,
one a grant and one a segment, that move in the same transaction (R41): there is no mark of "the last hour done", for a
term or an adoption may begin in an hour that was over before it existed (D5). A segment whose end was moved behind its
mark, by such an adoption, gets a negative record for what was written too much (D6).

The meter decides under the locks of the heads, as every turn does (R12), and leaves its hour there as the floor of
their time (R3): whatever a clock does afterwards, nothing can be decided inside an hour that is on record (R42).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from domain.capacity.metering import (
    GRANT_SLOT_HOURS,
    GRANT_USAGE_HOURS,
    ONDEMAND_INSTANCE_HOURS,
    RESERVED_INSTANCE_HOURS,
)
from domain.terms import HOUR_MS
from storage.capacity.books import lock_reservations
from storage.database import AnyConnection

HOURS_MAX: Final = 1_000
"""Hours of grants, and of segments, that one transaction writes. Admissions wait for its locks: one hour of each of so
many grants takes about a tenth of a second, many hours of few grants a quarter of that."""


@dataclass(frozen=True, slots=True)
class DueKey:
    """A reservation that owes hours. One with `has_boundary` must be advanced before they can be written."""

    key: str
    has_boundary: bool


_DUE_KEYS: Final = """
select r.key, coalesce(r.next_boundary_at <= $1, false) as has_boundary from capacity_reservation r
where r.key > $2 and (
    exists (
        select 1 from capacity_grant g
        where g.key = r.key and g.cancelled_at is null and g.metered_through < g.ends_at
            and g.metered_through < $1 and g.starts_at < $1
    ) or exists (
        select 1 from capacity_segment s
        where s.key = r.key and s.mode <> 'none' and (s.to_at is null or s.metered_through <> s.to_at)
            and (s.metered_through > s.to_at or (s.metered_through < $1 and s.from_at < $1))
    )
)
order by r.key limit $3
"""


async def due_keys(connection: AnyConnection, *, hour_end: int, after: str, limit: int) -> list[DueKey]:
    """Reservations with hours up to `hour_end` that are not on record, in the order of their keys, after a key."""
    rows = await connection.fetch(_DUE_KEYS, hour_end, after, limit)
    return [DueKey(row["key"], row["has_boundary"]) for row in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metered:
    """What one transaction wrote: records by meter. `has_more`: these keys may owe further hours."""

    records: Mapping[str, int] = field(default_factory=dict)
    has_more: bool = False
    waiting: tuple[str, ...] = ()
    """Keys that were left alone: a boundary is still to be applied, or their hour is not over after all."""


_READY: Final = """
select key from capacity_reservation
where key = any ($1) and (next_boundary_at is null or next_boundary_at > $2) and greatest(clock_at, $3) >= $2
"""
# Moving the version makes every actor read the floor before it decides again.
_HOLD: Final = """
update capacity_reservation set clock_at = $2, version = version + 1 where key = any ($1) and clock_at < $2
"""


async def meter(
    connection: AnyConnection, keys: Sequence[str], *, hour_end: int, instant: Callable[[int], int]
) -> Metered:
    """Write what these reservations owe up to `hour_end`, a UTC hour: at most `HOURS_MAX` each of slots and instances.

    The caller is inside a transaction of its own. `instant` makes the instant from the database's clock.
    """
    database_now, _ = await lock_reservations(connection, sorted(keys))
    now = instant(database_now)
    ready = [row["key"] for row in await connection.fetch(_READY, list(keys), hour_end, now)]
    waiting = tuple(sorted(set(keys) - set(ready)))
    if not ready:
        return Metered(waiting=waiting)
    await connection.execute(_HOLD, ready, hour_end)
    written_at = max(now, hour_end)
    records, is_full = await _write(connection, _SLOTS, ready, hour_end, HOURS_MAX, written_at, GRANT_SLOT_HOURS)
    if not is_full:  # slots first: what is used inside a grant is never on record before what it commits (P6)
        meters = (GRANT_USAGE_HOURS, RESERVED_INSTANCE_HOURS, ONDEMAND_INSTANCE_HOURS)
        more, is_full = await _write(connection, _INSTANCES, ready, hour_end, HOURS_MAX, written_at, *meters)
        records |= more
    return Metered(records=records, has_more=is_full, waiting=waiting)


async def _write(
    connection: AnyConnection, sql: str, keys: list[str], *arguments: int | str
) -> tuple[dict[str, int], bool]:
    """Records by meter, and whether the limit was reached."""
    row = await connection.fetchrow(sql, keys, *arguments)
    assert row is not None, "a select of aggregates gives one row"
    return dict(row["records"] or {}), row["hours"] >= HOURS_MAX


# Takes grants, in no order, until their hours reach the limit. `since` is where a grant's mark stands, or its start;
# `until` where the mark goes. Zero-length terms owe nothing and are marked all the same (R42).
_SLOTS: Final = f"""
with owing as (
    select g.*, greatest(g.starts_at, g.metered_through) as since,
        least(g.ends_at, $2::bigint, (greatest(g.starts_at, g.metered_through) / {HOUR_MS} + $3::bigint) * {HOUR_MS})
            as until
    from capacity_grant g
    where g.key = any ($1) and g.cancelled_at is null and g.metered_through < g.ends_at
        and g.metered_through < $2 and g.starts_at < $2
    limit $3
), counted as (
    select o.*, greatest(1, (until - 1) / {HOUR_MS} - since / {HOUR_MS} + 1) as hours,
        sum(greatest(1, (until - 1) / {HOUR_MS} - since / {HOUR_MS} + 1)) over (rows unbounded preceding) as total
    from owing o
), due as materialized (
    select *, jsonb_strip_nulls(jsonb_build_object(
        'region', region, 'pool', pool_id, 'provider', provider, 'grantId', grant_id, 'projectId', project_id
    )) as tags
    from counted where total - hours < $3
), quantities as (
    select d.*, h.hour_start,
        case when d.commitments is null then
            d.slots * (least(d.ends_at, h.hour_start + {HOUR_MS}) - greatest(d.starts_at, h.hour_start))
        else (
            select sum(p.slots * greatest(0,
                least(p.to_at, d.ends_at, h.hour_start + {HOUR_MS}) - greatest(p.from_at, d.starts_at, h.hour_start)
            ))::bigint
            from (
                select (piece ->> 0)::bigint as from_at, (piece ->> 1)::bigint as slots,
                    lead((piece ->> 0)::bigint, 1, d.ends_at) over (order by number) as to_at
                from jsonb_array_elements(d.commitments) with ordinality c (piece, number)
            ) p
        ) end as quantity_ms
    from due d cross join generate_series(d.since - d.since % {HOUR_MS}, d.until - 1, {HOUR_MS}) h (hour_start)
), written as (
    insert into usage_record (
        tenant_id, source_key, project_id, meter, hour_start, quantity_ms, grant_id, tags, written_at
    )
    select tenant_id, 'slot:' || grant_id || ':' || hour_start, project_id, $5, hour_start, quantity_ms, grant_id, tags,
        $4
    from quantities where quantity_ms > 0
    on conflict (tenant_id, source_key) do nothing
    returning 1
), marked as (
    update capacity_grant g set metered_through = d.until from due d
    where g.key = any ($1) and g.key = d.key and g.grant_id = d.grant_id
)
select (select json_build_object($5::text, count(*)) from written) as records,
    (select coalesce(sum(hours), 0)::bigint from due) as hours
"""

# A segment that was cut back behind its mark owes a negative quantity from its end to the mark; all others what they
# ran since the mark. Tags of what ran in a grant are the grant's own, as they were at create (R14).
_INSTANCES: Final = f"""
with owing as (
    select s.*, coalesce(s.metered_through > s.to_at, false) as is_cut,
        case when s.metered_through > s.to_at then s.to_at else greatest(s.from_at, s.metered_through) end as since,
        case when s.metered_through > s.to_at then s.metered_through else least(
            coalesce(s.to_at, $2::bigint), $2,
            (greatest(s.from_at, s.metered_through) / {HOUR_MS} + $3::bigint) * {HOUR_MS}
        ) end as until
    from capacity_segment s
    where s.key = any ($1) and s.mode <> 'none' and (s.to_at is null or s.metered_through <> s.to_at)
        and (s.metered_through > s.to_at or (s.metered_through < $2 and s.from_at < $2))
    limit $3
), counted as (
    select o.*, greatest(1, (until - 1) / {HOUR_MS} - since / {HOUR_MS} + 1) as hours,
        sum(greatest(1, (until - 1) / {HOUR_MS} - since / {HOUR_MS} + 1)) over (rows unbounded preceding) as total
    from owing o
), due as materialized (
    select c.key, c.instance_id, c.number, c.grant_id, c.since, c.until, c.hours, c.to_at, c.is_cut,
        coalesce(g.tenant_id, i.tenant_id) as tenant_id, c.project_id,
        case c.mode when 'grant' then $5::text when 'reserved' then $6::text else $7::text end as meter,
        jsonb_strip_nulls(jsonb_build_object(
            'flavor', r.flavor, 'region', coalesce(g.region, r.region), 'pool', coalesce(g.pool_id, r.pool_id),
            'provider', coalesce(g.provider, r.provider), 'instanceId', c.instance_id, 'grantId', c.grant_id
        )) as tags
    from counted c
    join capacity_instance i on i.key = c.key and i.instance_id = c.instance_id
    join capacity_reservation r on r.key = c.key
    left join capacity_grant g on g.key = c.key and g.grant_id = c.grant_id and g.key = any ($1)
    where i.key = any ($1) and r.key = any ($1) and c.total - c.hours < $3
), written as (
    insert into usage_record (
        tenant_id, source_key, project_id, meter, hour_start, quantity_ms, grant_id, instance_id, tags, written_at
    )
    select d.tenant_id,
        'inst:' || d.instance_id || ':' || d.number || ':' || d.meter || ':' || h.hour_start
            || case when d.is_cut then ':cut:' || d.to_at else '' end,
        d.project_id, d.meter, h.hour_start,
        (least(d.until, h.hour_start + {HOUR_MS}) - greatest(d.since, h.hour_start))
            * case when d.is_cut then -1 else 1 end,
        d.grant_id, d.instance_id, d.tags, $4
    from due d cross join generate_series(d.since - d.since % {HOUR_MS}, d.until - 1, {HOUR_MS}) h (hour_start)
    where d.since < d.until
    on conflict (tenant_id, source_key) do nothing
    returning meter
), marked as (
    update capacity_segment s set metered_through = case when d.is_cut then d.to_at else d.until end from due d
    where s.key = any ($1) and s.key = d.key and s.instance_id = d.instance_id and s.number = d.number
)
select (select json_object_agg(meter, records) from (select meter, count(*) as records from written group by meter) m)
        as records,
    (select coalesce(sum(hours), 0)::bigint from due) as hours
"""
