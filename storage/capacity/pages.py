"""Pages of grants, instances and reservations for everybody's reads: keyset, newest first, by (created_at, id).

Rows are as the last turn left them. What a boundary that is due would change is for the caller to work out, who is told
by `next_boundary_at` (D49).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from domain.capacity.state import (
    GrantState,
    Instance,
    Mode,
    Reservation,
    ReservationStatus,
    RunState,
    Segment,
)
from storage.capacity.rows import PlacedGrant, instance_of, placed_grant_of, reservation_of
from storage.database import AnyConnection, Row
from storage.paging import Page, Position, fetch_page, newest_first


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantFilter:
    """What is None is not asked about. `overlaps` is a half-open term; `state` is as of the instant of the read."""

    tenant_id: str | None = None
    key: str | None = None
    state: GrantState | None = None
    pool_id: str | None = None
    project_id: str | None = None
    overlaps: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceFilter:
    """`grant_id` needs `key`, the reservation that the grant is on."""

    tenant_id: str | None = None
    key: str | None = None
    project_id: str | None = None
    grant_id: str | None = None
    run_state: RunState | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationFilter:
    account_id: str | None = None
    pool_id: str | None = None
    status: ReservationStatus | None = None
    flavor: str | None = None


@dataclass(frozen=True, slots=True)
class PlacedInstance:
    """An instance with what its reservation's head says about it."""

    key: str
    instance: Instance
    flavor: str
    next_boundary_at: int | None
    clock_at: int


# -- grants ------------------------------------------------------------------------------------------------------------

# R15, with `at` as the argument. What is applied has passed, whatever `at` is: a boundary is applied exactly when the
# floor of its reservation's clock has reached it (R3), so the floor itself need not be looked up for each row, and the
# index of open grants serves.
_STATES: Final[Mapping[GrantState, str]] = {
    GrantState.SCHEDULED: (
        "cancelled_at is null and not ended_applied and not started_applied and starts_at > {at} and ends_at > {at}"
    ),
    GrantState.ACTIVE: (
        "cancelled_at is null and not ended_applied and (started_applied or starts_at <= {at}) and ends_at > {at}"
    ),
    GrantState.ENDED: "cancelled_at is null and (ended_applied or ends_at <= {at})",
    GrantState.CANCELLED: "cancelled_at is not null",
}
_AT: Final = """
greatest({now}, (
    select a.at from unnest({keys}::text[], {instants}::bigint[]) a (key, at) where a.key = capacity_grant.key
))
"""
"""`at` where some reservations are shown at a later instant than now."""


_WITH_FLOOR: Final = """
select g.*, r.clock_at from ({page}) g join capacity_reservation r on r.key = g.key
order by g.created_at desc, g.grant_id collate "C" desc
"""


async def page_grants(
    connection: AnyConnection,
    chosen: GrantFilter,
    *,
    at: int,
    ahead: Mapping[str, int] | None = None,
    first: int,
    after: Position | None,
) -> Page[PlacedGrant]:
    """As of `at`, or the floor of the reservation where that is later. `ahead`: keys of reservations that are to be shown
    at a later instant still, with that instant."""
    where = _grants_where(chosen, at, ahead or {})
    page = newest_first(f"from capacity_grant where {where.text(first_argument=4)}", "grant_id")
    return await fetch_page(
        connection,
        _WITH_FLOOR.format(page=page),
        *where.arguments,
        id_column="grant_id",
        convert=placed_grant_of,
        first=first,
        after=after,
    )


async def count_grants(
    connection: AnyConnection, chosen: GrantFilter, *, at: int, ahead: Mapping[str, int] | None = None
) -> int:
    return await _count(connection, "capacity_grant", _grants_where(chosen, at, ahead or {}))


def _grants_where(chosen: GrantFilter, at: int, ahead: Mapping[str, int]) -> _Where:
    where = _Where()
    where.equal("tenant_id", chosen.tenant_id)
    where.equal("key", chosen.key)
    where.equal("pool_id", chosen.pool_id)
    where.equal("project_id", chosen.project_id)
    if chosen.state is not None:
        _add_state(where, chosen.state, at, ahead)
    if chosen.overlaps is not None:
        since, until = chosen.overlaps
        where.add("starts_at < {until} and ends_at > {since}", since=since, until=until)
    return where


def _add_state(where: _Where, state: GrantState, at: int, ahead: Mapping[str, int]) -> None:
    condition = _STATES[state]
    if "{at}" not in condition:
        where.add(condition)
    elif ahead:
        where.add(condition.replace("{at}", _AT), now=at, keys=list(ahead), instants=list(ahead.values()))
    else:
        where.add(condition, at=at)


# -- instances ---------------------------------------------------------------------------------------------------------

_INSTANCES: Final = """
(
    select i.*, r.key as head_key, r.flavor, r.next_boundary_at, r.clock_at,
        s.number as segment_number, s.from_at as segment_from_at, s.mode as segment_mode
    from capacity_instance i
        join capacity_reservation r on r.key = i.key
        left join capacity_segment s on s.key = i.key and s.instance_id = i.instance_id and s.to_at is null
) i
"""


async def page_instances(
    connection: AnyConnection, chosen: InstanceFilter, *, first: int, after: Position | None
) -> Page[PlacedInstance]:
    """Deleted ones too, unless a run state is asked for."""
    where = _instances_where(chosen)
    where.equal("head_key", chosen.key)
    return await fetch_page(
        connection,
        newest_first(f"from {_INSTANCES} where {where.text(first_argument=4)}", "instance_id"),
        *where.arguments,
        id_column="instance_id",
        convert=placed_instance_of,
        first=first,
        after=after,
    )


async def count_instances(connection: AnyConnection, chosen: InstanceFilter) -> int:
    return await _count(connection, "capacity_instance", _instances_where(chosen))


_INSTANCE: Final = f"select * from {_INSTANCES} where key = $1 and head_key = $1 and instance_id = $2"


async def find_instance(connection: AnyConnection, key: str, instance_id: str) -> PlacedInstance | None:
    row = await connection.fetchrow(_INSTANCE, key, instance_id)
    return placed_instance_of(row) if row else None


def placed_instance_of(row: Row) -> PlacedInstance:
    return PlacedInstance(
        key=row["key"],
        instance=instance_of(row, _open_segment(row)),
        flavor=row["flavor"],
        next_boundary_at=row["next_boundary_at"],
        clock_at=row["clock_at"],
    )


def _open_segment(row: Row) -> Segment | None:
    """An open segment is in the grant and of the project that its instance is in."""
    if row["segment_number"] is None:
        return None
    return Segment(
        number=row["segment_number"],
        from_at=row["segment_from_at"],
        to_at=None,
        mode=Mode(row["segment_mode"]),
        grant_id=row["grant_id"],
        project_id=row["project_id"],
    )


def _instances_where(chosen: InstanceFilter) -> _Where:
    assert chosen.grant_id is None or chosen.key is not None, "a grant is found by the key of its reservation"
    where = _Where()
    where.add("moved_to is null")
    where.equal("tenant_id", chosen.tenant_id)
    where.equal("key", chosen.key)
    where.equal("project_id", chosen.project_id)
    where.equal("grant_id", chosen.grant_id)
    where.equal("run_state", chosen.run_state.value if chosen.run_state else None)
    return where


# -- reservations ------------------------------------------------------------------------------------------------------

# An account that was deleted takes its reservations out of sight; the rows stay for the usage that points at them.
_RESERVATIONS: Final = """
(
    select r.* from capacity_reservation r
        join provider_account a on a.account_id = r.account_id and a.deleted_at is null
) r
"""


async def page_reservations(
    connection: AnyConnection, chosen: ReservationFilter, *, first: int, after: Position | None
) -> Page[Reservation]:
    where = _reservations_where(chosen)
    return await fetch_page(
        connection,
        newest_first(f"from {_RESERVATIONS} where {where.text(first_argument=4)}", "key"),
        *where.arguments,
        id_column="key",
        convert=reservation_of,
        first=first,
        after=after,
    )


async def count_reservations(connection: AnyConnection, chosen: ReservationFilter) -> int:
    return await _count(connection, _RESERVATIONS, _reservations_where(chosen))


_RESERVATION: Final = f"select * from {_RESERVATIONS} where key = $1"


async def find_reservation(connection: AnyConnection, key: str) -> Reservation | None:
    """The head, unless its account was deleted."""
    row = await connection.fetchrow(_RESERVATION, key)
    return reservation_of(row) if row else None


def _reservations_where(chosen: ReservationFilter) -> _Where:
    where = _Where()
    where.equal("account_id", chosen.account_id)
    where.equal("pool_id", chosen.pool_id)
    where.equal("status", chosen.status.value if chosen.status else None)
    where.equal("flavor", chosen.flavor)
    return where


# -- conditions --------------------------------------------------------------------------------------------------------


class _Where:
    """Conditions that were asked for, and nothing else: so every combination gets the plan that suits it."""

    def __init__(self) -> None:
        self._conditions: list[tuple[str, tuple[str, ...]]] = []
        self.arguments: list[Any] = []

    def equal(self, column: str, value: str | None) -> None:
        if value is not None:
            self.add(f"{column} = {{value}}", value=value)

    def add(self, condition: str, **values: Any) -> None:
        """`condition` names its values in braces."""
        self._conditions.append((condition, tuple(values)))
        self.arguments.extend(values.values())

    def text(self, *, first_argument: int) -> str:
        """SQL whose arguments are numbered from there on."""
        number = first_argument
        parts = ["true"]
        for condition, names in self._conditions:
            parts.append(condition.format(**{name: f"${number + place}" for place, name in enumerate(names)}))
            number += len(names)
        return " and ".join(parts)


async def _count(connection: AnyConnection, source: str, where: _Where) -> int:
    statement = f"select count(*) from {source} where {where.text(first_argument=1)}"
    count: int = await connection.fetchval(statement, *where.arguments)
    return count
