"""Books outside of a turn: read, and brought up to an instant by the function that a turn uses (R16)."""

from __future__ import annotations

from collections.abc import Mapping, Set

from domain.capacity.boundaries import advance
from domain.capacity.state import CapacityState, Reservation
from storage.capacity.activity import read_deleted_projects
from storage.capacity.books import read_states
from storage.database import AnyConnection


async def books_at(
    connection: AnyConnection, heads: Mapping[str, Reservation], instants: Mapping[str, int]
) -> dict[str, CapacityState]:
    """The books of these reservations with every boundary applied that is due at the instant of each.

    Whoever holds the locks of the heads may decide about them; whoever does not throws them away.
    """
    states = await read_states(connection, heads)
    due = [state for key, state in states.items() if _is_due(state, at=instants[key])]
    await note_deserted(connection, {state: state.restricted_projects() for state in due})
    for state in due:
        advance(state, instants[state.reservation.key])
    return states


def _is_due(state: CapacityState, *, at: int) -> bool:
    boundary = state.next_boundary()
    return boundary is not None and boundary[0] <= at


async def note_deserted(connection: AnyConnection, stakes: Mapping[CapacityState, Set[str]]) -> None:
    """Tell books which of the projects named for them are deleted: from then on their grants take nobody in (D30)."""
    projects = set().union(*stakes.values())
    deleted = await read_deleted_projects(connection, projects) if projects else {}
    for state, mine in stakes.items():
        state.deserted = {project_id: deleted[project_id] for project_id in mine & deleted.keys()}
