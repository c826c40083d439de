"""Which reservations have starts and ends of grants to apply, and when the next one is due. Reads only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from storage.database import AnyConnection


@dataclass(frozen=True, slots=True)
class DueReservation:
    """`due_at` is its earliest boundary that is not applied; `boundaries` counts all of them up to now."""

    key: str
    due_at: int
    boundaries: int


_DUE: Final = """
select r.key, r.next_boundary_at, (
    select count(*) filter (where not g.started_applied and g.starts_at <= $1) + count(*) filter (where g.ends_at <= $1)
    from capacity_grant g where g.key = r.key and g.cancelled_at is null and not g.ended_applied
) as boundaries
from capacity_reservation r
where r.next_boundary_at <= $1 and (r.next_boundary_at, r.key) > ($2::bigint, $3::text)
order by r.next_boundary_at, r.key limit $4
"""
FIRST: Final = DueReservation("", -1, 0)
"""Before all of them."""


async def due_reservations(
    connection: AnyConnection, *, now: int, after: DueReservation, limit: int
) -> list[DueReservation]:
    """Reservations with a boundary up to `now`, the longest due first, after one of them."""
    rows = await connection.fetch(_DUE, now, after.due_at, after.key, limit)
    return [DueReservation(row["key"], row["next_boundary_at"], row["boundaries"]) for row in rows]


_NEXT: Final = "select min(next_boundary_at) from capacity_reservation where next_boundary_at > $1"


async def next_boundary_at(connection: AnyConnection, *, after: int) -> int | None:
    """The earliest boundary of any reservation after an instant; None when there is none."""
    due_at: int | None = await connection.fetchval(_NEXT, after)
    return due_at
