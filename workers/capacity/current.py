"""How things stand at the instant of a read, although a boundary that is due has not been applied to the rows yet.

Nothing is written on a read (D49): where rows are stale, the books are read and moved on in memory, by the function
that a turn uses. That is rare, for turns and the boundary timer apply what is due within moments. Callers read in one
snapshot, so that books and rows are of one moment.

Each reservation is shown at an instant of its own, which never goes behind what was decided or shown before (R3): of
`Instants`, or of the views that are asked about.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from domain.capacity.counts import GrantActivity, SlotCounts, counted_view, grant_activity, shortfall_of
from domain.capacity.observation import shortfall_peak
from domain.capacity.state import CapacityState, Instance, Segment
from domain.capacity.views import GrantView, InstanceView, ReservationView
from storage.capacity.activity import (
    GrantRows,
    UsedTime,
    read_due_keys,
    read_grant_rows,
    read_members,
    read_reservation_rows,
    read_used_ms,
)
from storage.capacity.books import read_heads
from storage.capacity.pages import PlacedInstance
from storage.capacity.rows import PlacedGrant
from storage.database import AnyConnection
from storage.paging import Page, Position
from workers.capacity.books import books_at
from workers.capacity.instants import Instants


async def current_states(connection: AnyConnection, instants: Mapping[str, int]) -> dict[str, CapacityState]:
    """The books of these reservations as they stand at the instant of each. They are thrown away afterwards."""
    if not instants:
        return {}
    return await books_at(connection, await read_heads(connection, instants), instants)


async def due_states(connection: AnyConnection, instants: Mapping[str, int]) -> dict[str, CapacityState]:
    """The same for those whose rows are stale at their instant; none as a rule."""
    due = await read_due_keys(connection, instants)
    return await current_states(connection, {key: instants[key] for key in due})


async def noted_states(connection: AnyConnection, due: Iterable[str], instants: Instants) -> dict[str, CapacityState]:
    """The books of reservations whose rows are stale, as they are going to be shown now."""
    keys = set(due)
    for key in keys:
        instants.note(key)
    return await current_states(connection, {key: instants.of(key) for key in keys})


def is_due(next_boundary_at: int | None, *, at: int) -> bool:
    return next_boundary_at is not None and next_boundary_at <= at


# -- grants ------------------------------------------------------------------------------------------------------------


def grant_view(placed: PlacedGrant, instants: Instants) -> GrantView:
    """The grant as it is to be shown now."""
    view = GrantView(placed.key, placed.grant, instants.of(placed.key, placed.clock_at))
    if is_unapplied(view):
        instants.note(placed.key)
    return view


def is_unapplied(view: GrantView) -> bool:
    """Whether it is shown in a state that no turn has put down yet."""
    grant = view.grant
    begins = not grant.started_applied and grant.starts_at <= view.at
    ends = not grant.ended_applied and grant.ends_at <= view.at
    return grant.cancelled_at is None and (begins or ends)


async def current_activity(connection: AnyConnection, views: Sequence[GrantView]) -> dict[str, GrantActivity]:
    """Held and running slots of each grant, by grant id; a grant that is no longer there is left out."""
    rows = await read_grant_rows(connection, _places(views))
    stale = [view for view in views if _is_stale(rows.get(view.grant.grant_id), view)]
    states = await current_states(connection, _instants_of(stale))
    activity = {}
    for view in views:
        grant_id, state = view.grant.grant_id, states.get(view.key)
        if state is not None:
            held, running = state.held(grant_id), state.running_in(grant_id)
        elif grant_id in rows:
            held, running = rows[grant_id].held, rows[grant_id].running
        else:
            continue
        activity[grant_id] = grant_activity(view.grant, held=held, running=running, at=view.at)
    return activity


async def current_used_ms(connection: AnyConnection, views: Sequence[GrantView]) -> dict[str, int]:
    """Running time inside each grant up to the instant it is shown at, in instance-milliseconds, by grant id (R43)."""
    rows = await read_used_ms(connection, _places(views), until=[view.at for view in _latest(views)])
    used = {grant_id: row.used_ms for grant_id, row in rows.items()}
    stale = [view for view in _latest(views) if _is_stale(rows.get(view.grant.grant_id), view)]
    if stale:
        until = [view.at for view in stale]
        closed = await read_used_ms(connection, _places(stale), until=until, only_closed=True)
        states = await current_states(connection, _instants_of(stale))
        for view in stale:
            grant_id = view.grant.grant_id
            used[grant_id] = closed[grant_id].used_ms + _open_ms(states[view.key], grant_id, at=view.at)
    return used


async def current_members(
    connection: AnyConnection, views: Sequence[GrantView], *, first: int
) -> dict[str, Page[InstanceView]]:
    """The first page of each grant's instances, by grant id; every grant asked about is there."""
    rows = await read_members(connection, _places(views), limit=first + 1)
    states = await due_states(connection, _instants_of(views))
    pages = {}
    for view in views:
        placed = rows.get(view.grant.grant_id, [])
        if view.key in states:
            placed = members_of(states[view.key], view.grant.grant_id)
        pages[view.grant.grant_id] = page_of(placed, first=first, at=view.at)
    return pages


# -- instances ---------------------------------------------------------------------------------------------------------


async def current_instances(
    connection: AnyConnection, placed: Sequence[PlacedInstance], instants: Instants
) -> list[InstanceView]:
    """Each instance as it stands now: a boundary can move it into a grant or out of one, and nothing else."""
    due = {one.key for one in placed if is_due(one.next_boundary_at, at=instants.of(one.key, one.clock_at))}
    states = await noted_states(connection, due, instants)
    views = []
    for one in placed:
        instance = one.instance
        if one.key in states:
            instance = states[one.key].instances.get(instance.instance_id, instance)  # deleted ones are in no books
        views.append(InstanceView(one.key, instance, one.flavor, instants.of(one.key, one.clock_at)))
    return views


def members_of(state: CapacityState, grant_id: str) -> list[PlacedInstance]:
    """A grant's instances, newest first."""
    members = sorted(state.members.get(grant_id, {}).values(), key=lambda instance: instance.age, reverse=True)
    head = state.reservation
    return [PlacedInstance(head.key, instance, head.flavor, None, head.clock_at) for instance in members]


def page_of(placed: Sequence[PlacedInstance], *, first: int, at: int) -> Page[InstanceView]:
    """The first page of a list that is at hand, newest first."""
    shown = placed[:first]
    return Page(
        items=tuple(InstanceView(one.key, one.instance, one.flavor, at) for one in shown),
        positions=tuple(position_of(one.instance) for one in shown),
        has_more=len(placed) > first,
    )


def position_of(instance: Instance) -> Position:
    return Position(instance.created_at, instance.instance_id)


# -- reservations ------------------------------------------------------------------------------------------------------


async def current_reservations(
    connection: AnyConnection, keys: Iterable[str], instants: Instants
) -> dict[str, ReservationView]:
    """Each reservation with its slots counted as of now, by key."""
    rows = await read_reservation_rows(connection, keys)
    due = [key for key, row in rows.items() if is_due(row.next_boundary_at, at=instants.of(key, row.head.clock_at))]
    states = await noted_states(connection, due, instants)
    views = {}
    for key, row in rows.items():
        at = instants.of(key, row.head.clock_at)
        if key in states:
            counts = SlotCounts.of(states[key])
            missing = max(0, shortfall_peak(states[key], now=at) - row.head.total)
        else:
            counts, missing = row.counts, shortfall_of(row.head.total, row.terms, now=at)
        views[key] = counted_view(row.head, counts, shortfall=missing, at=at)
    return views


def _open_ms(state: CapacityState, grant_id: str, *, at: int) -> int:
    """Running time inside the grant that the rows do not have as closed: what runs still, and what moving on closed."""
    segments: dict[tuple[str, int], Segment] = dict(state.changes.segments)
    for instance in state.instances.values():
        if instance.segment is not None:
            segments[instance.instance_id, instance.segment.number] = instance.segment
    mine = (segment for segment in segments.values() if segment.grant_id == grant_id)
    return sum(max(0, min(at if segment.to_at is None else segment.to_at, at) - segment.from_at) for segment in mine)


def _places(views: Sequence[GrantView]) -> list[tuple[str, str]]:
    return [(view.key, view.grant.grant_id) for view in _latest(views)]


def _latest(views: Sequence[GrantView]) -> list[GrantView]:
    """Each grant once: a loader may be asked twice for the same, and what was seen last holds."""
    latest: dict[str, GrantView] = {}
    for view in views:
        seen = latest.get(view.grant.grant_id)
        if seen is None or view.at > seen.at:
            latest[view.grant.grant_id] = view
    return list(latest.values())


def _instants_of(views: Iterable[GrantView]) -> dict[str, int]:
    """By reservation; of several, the latest is good for all."""
    instants: dict[str, int] = {}
    for view in views:
        instants[view.key] = max(view.at, instants.get(view.key, 0))
    return instants


def _is_stale(row: GrantRows | UsedTime | None, view: GrantView) -> bool:
    return row is not None and is_due(row.next_boundary_at, at=view.at)
