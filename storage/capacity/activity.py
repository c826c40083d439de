"""What goes on in many grants or reservations at once: counted by the database, one statement whatever their number.

Rows are as the last turn left them; `next_boundary_at` tells the caller when a boundary makes them stale (D49).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from domain.capacity.counts import SlotCounts
from domain.capacity.state import Reservation
from storage.capacity.pages import PlacedInstance, placed_instance_of
from storage.capacity.rows import reservation_of
from storage.database import AnyConnection

GrantPlace: TypeAlias = tuple[str, str]
"""(key, grant id)."""


@dataclass(frozen=True, slots=True)
class GrantRows:
    """What rows say of one grant."""

    held: int
    running: int
    next_boundary_at: int | None


_ACTIVITY: Final = """
select w.grant_id, r.next_boundary_at, count(i.instance_id) as held,
    count(*) filter (where i.run_state = 'running') as running
from unnest($2::text[], $3::text[]) w (key, grant_id)
    join capacity_reservation r on r.key = w.key and r.key = any ($1)
    left join capacity_instance i on i.key = r.key and i.key = any ($1) and i.grant_id = w.grant_id
group by w.key, w.grant_id, r.next_boundary_at
"""


async def read_grant_rows(connection: AnyConnection, grants: Sequence[GrantPlace]) -> dict[str, GrantRows]:
    """Instances that hold a slot, and those of them that run, by grant id."""
    rows = await connection.fetch(_ACTIVITY, *_columns(grants))
    return {row["grant_id"]: GrantRows(row["held"], row["running"], row["next_boundary_at"]) for row in rows}


@dataclass(frozen=True, slots=True)
class UsedTime:
    used_ms: int
    next_boundary_at: int | None


# Instants come as text: each new connection would first have to look up what an array of bigint is, in two statements.
_USED: Final = """
select w.grant_id, r.next_boundary_at,
    coalesce(sum(greatest(0, least(coalesce(s.to_at, w.until), w.until) - s.from_at)), 0)::bigint as used_ms
from (
    select key, grant_id, until::bigint as until from unnest($2::text[], $3::text[], $4::text[]) w (key, grant_id, until)
) w
    join capacity_reservation r on r.key = w.key and r.key = any ($1)
    left join capacity_segment s on s.key = r.key and s.key = any ($1) and s.grant_id = w.grant_id
        and (s.to_at is not null or not $5)
group by w.key, w.grant_id, r.next_boundary_at
"""


async def read_used_ms(
    connection: AnyConnection, grants: Sequence[GrantPlace], *, until: Sequence[int], only_closed: bool = False
) -> dict[str, UsedTime]:
    """Running time inside each grant up to an instant of its own, in instance-milliseconds, by grant id (R43).

    `only_closed` leaves out the stretches that are still running.
    """
    rows = await connection.fetch(_USED, *_columns(grants), [str(instant) for instant in until], only_closed)
    return {row["grant_id"]: UsedTime(row["used_ms"], row["next_boundary_at"]) for row in rows}


_MEMBERS: Final = """
select * from (
    select i.*, r.flavor, r.next_boundary_at, r.clock_at,
        s.number as segment_number, s.from_at as segment_from_at, s.mode as segment_mode,
        row_number() over (
            partition by i.key, i.grant_id order by i.created_at desc, i.instance_id collate "C" desc
        ) as place
    from unnest($2::text[], $3::text[]) w (key, grant_id)
        join capacity_reservation r on r.key = w.key and r.key = any ($1)
        join capacity_instance i on i.key = r.key and i.key = any ($1) and i.grant_id = w.grant_id
        left join capacity_segment s on s.key = i.key and s.key = any ($1) and s.instance_id = i.instance_id
            and s.to_at is null
) m
where m.place <= $4
order by m.key, m.grant_id, m.place
"""


async def read_members(
    connection: AnyConnection, grants: Sequence[GrantPlace], *, limit: int
) -> dict[str, list[PlacedInstance]]:
    """The newest instances of each grant, up to `limit` of each, newest first, by grant id."""
    members: dict[str, list[PlacedInstance]] = defaultdict(list)
    for row in await connection.fetch(_MEMBERS, *_columns(grants), limit):
        members[row["grant_id"]].append(placed_instance_of(row))
    return members


_NEXT: Final = "select key, next_boundary_at from capacity_reservation where key = any ($1) and next_boundary_at <= $2"


async def read_due_keys(connection: AnyConnection, instants: Mapping[str, int]) -> set[str]:
    """The reservations among these that have a boundary to apply at their instant."""
    if not instants:
        return set()
    rows = await connection.fetch(_NEXT, sorted(instants), max(instants.values()))
    return {row["key"] for row in rows if row["next_boundary_at"] <= instants[row["key"]]}


# -- reservations ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ReservationRows:
    """A head, and what the rows under it come to. `terms` are the grants that are not over: (start, end, slots)."""

    head: Reservation
    next_boundary_at: int | None
    counts: SlotCounts = field(default_factory=lambda: SlotCounts(running=0, outside_running=0, live_slots=0))
    terms: list[tuple[int, int, int]] = field(default_factory=list)


_HEADS: Final = "select * from capacity_reservation where key = any ($1)"
_RUNNING: Final = """
select key, count(*) as running, count(*) filter (where grant_id is null) as outside_running
from capacity_instance where key = any ($1) and run_state = 'running' and attached
group by key
"""
_OPEN: Final = """
select key, starts_at, ends_at, slots, started_applied
from capacity_grant where key = any ($1) and cancelled_at is null and not ended_applied
"""


async def read_reservation_rows(connection: AnyConnection, keys: Iterable[str]) -> dict[str, ReservationRows]:
    """Three statements whatever the number of keys. The caller's transaction makes them one snapshot."""
    wanted = sorted(set(keys))
    heads = await connection.fetch(_HEADS, wanted)
    running = {row["key"]: row for row in await connection.fetch(_RUNNING, wanted)}
    terms: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    live_slots: dict[str, int] = defaultdict(int)
    for row in await connection.fetch(_OPEN, wanted):
        terms[row["key"]].append((row["starts_at"], row["ends_at"], row["slots"]))
        live_slots[row["key"]] += row["slots"] if row["started_applied"] else 0
    found = {}
    for row in heads:
        key, counted = row["key"], running.get(row["key"])
        counts = SlotCounts(
            running=counted["running"] if counted else 0,
            outside_running=counted["outside_running"] if counted else 0,
            live_slots=live_slots[key],
        )
        found[key] = ReservationRows(reservation_of(row), row["next_boundary_at"], counts, terms[key])
    return found


_TERMS: Final = """
select starts_at, ends_at, slots, commitments from capacity_grant
where key = $1 and cancelled_at is null and ends_at > $2 and starts_at < $3
"""


async def read_terms(
    connection: AnyConnection, key: str, *, starts_at: int, ends_at: int
) -> list[tuple[int, int, int]]:
    """(start, end, slots) of everything granted inside [starts_at, ends_at), what is over included; a grant whose slots
    were amended in mid-term comes in its pieces."""
    terms: list[tuple[int, int, int]] = []
    for row in await connection.fetch(_TERMS, key, starts_at, ends_at):
        pieces = row["commitments"] or [(row["starts_at"], row["slots"])]
        edges = [*(from_at for from_at, _ in pieces[1:]), row["ends_at"]]
        terms.extend((from_at, to_at, slots) for (from_at, slots), to_at in zip(pieces, edges, strict=True))
    return terms


# -- projects ----------------------------------------------------------------------------------------------------------

_DELETED: Final = "select project_id, deleted_at from project where project_id = any ($1) and deleted_at is not null"


async def read_deleted_projects(connection: AnyConnection, project_ids: Iterable[str]) -> dict[str, int]:
    """Those of the named projects that were deleted, and when."""
    rows = await connection.fetch(_DELETED, sorted(set(project_ids)))
    return {row["project_id"]: row["deleted_at"] for row in rows}


def _columns(grants: Sequence[GrantPlace]) -> tuple[list[str], list[str], list[str]]:
    """The distinct keys, and the places as two columns."""
    keys = [key for key, _ in grants]
    return sorted(set(keys)), keys, [grant_id for _, grant_id in grants]
