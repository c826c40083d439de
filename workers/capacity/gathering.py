"""What a turn must know before it decides: heads and books under the lock, registries, things that are over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from domain.capacity import commands as c
from domain.capacity.state import CapacityState, Reservation
from domain.identity import split_reservation_key
from storage.capacity.books import (
    LockedBooks,
    Wanted,
    lock_accounts,
    lock_books,
    lock_pools,
    read_newer,
    read_past,
    read_states,
    read_surroundings,
)
from storage.database import AnyConnection
from workers.actor import Actor, Ask
from workers.capacity.books import note_deserted

CATCH_UP_MAX: Final = 1_000
"""Grants that are put into books one by one; more of them are read with all the others in one sweep."""

CapacityActor: TypeAlias = Actor[CapacityState]
CapacityWork: TypeAlias = Sequence[tuple[CapacityActor, Sequence[Ask]]]


@dataclass(slots=True)
class Needs:
    """What the commands of a batch ask about besides the books they are decided on."""

    wanted: Wanted = field(default_factory=Wanted)
    past_grants: set[str] = field(default_factory=set)
    past_instances: set[str] = field(default_factory=set)
    pools_to_bind: set[str] = field(default_factory=set)
    accounts_to_join: set[str] = field(default_factory=set)

    def note(self, actor: CapacityActor, command: Any) -> None:
        want(self.wanted, actor.key, actor.state, command)
        match command:
            case c.EndGrant() | c.AmendGrant() if _lacks(actor, "grants", command.grant_id):
                self.past_grants.add(command.grant_id)
            case c.StartInstance() | c.ChangeProject() | c.StopInstance() | c.DeleteInstance() | c.AttachInstance() if (
                _lacks(actor, "instances", command.instance_id)
            ):
                self.past_instances.add(command.instance_id)
            case c.BindReservation():
                self.pools_to_bind.add(command.pool_id)
            case c.ObserveReservation() if actor.state is None:
                self.accounts_to_join.add(command.account_id)

    @property
    def is_only_registries(self) -> bool:
        """Whether nothing has to be locked or read besides `wanted`."""
        return not (self.past_grants or self.past_instances or self.pools_to_bind or self.accounts_to_join)


async def lock(connection: AnyConnection, work: CapacityWork) -> LockedBooks:
    """One round trip for the locks, the clock, the remembered answers, and what is wanted whatever the books say."""
    wanted = Wanted()
    request_keys = set()
    for actor, asks in work:
        for ask in asks:
            want(wanted, actor.key, None, ask.command)
            if ask.provenance.key is not None:
                request_keys.add(ask.provenance.key)
    return await lock_books(connection, [actor.key for actor, _ in work], request_keys=request_keys, wanted=wanted)


async def load(connection: AnyConnection, work: CapacityWork, heads: Mapping[str, Reservation]) -> None:
    """Read the books of every actor that has none, and bring those up to date that others have written in since."""
    stale, overtaken = {}, {}
    for actor, _ in work:
        head = heads.get(actor.key)
        if head is None:
            actor.state = None
        elif actor.state is None:
            stale[actor.key] = head
        elif actor.state.reservation.version != head.version:
            overtaken[actor.key] = actor.state
    if overtaken:
        stale |= await _catch_up(connection, overtaken, heads)
        for actor, _ in work:
            if actor.key in overtaken:
                actor.be_cautious()
    states = await read_states(connection, stale)
    for actor, _ in work:
        if actor.key in states:
            actor.state = states[actor.key]


async def _catch_up(
    connection: AnyConnection, overtaken: Mapping[str, CapacityState], heads: Mapping[str, Reservation]
) -> dict[str, Reservation]:
    """Tell these books what is newer. The heads of those for which that is so much that they are better read anew."""
    newer = await read_newer(connection, {key: state.reservation.version for key, state in overtaken.items()})
    behind = {}
    for key, state in overtaken.items():
        if len(newer[key].grants) > CATCH_UP_MAX:
            behind[key] = heads[key]
        else:
            state.catch_up(heads[key], newer[key].grants, newer[key].instances)
    return behind


async def look_around(connection: AnyConnection, work: CapacityWork, books: LockedBooks, *, now: int) -> c.Surroundings:
    """Registries and past things that the commands of this batch ask about; mostly the locks have brought it all."""
    needs = Needs(wanted=books.known.copy())
    for actor, asks in work:
        for ask in asks:
            if not isinstance(ask.command, c.CreateGrant):  # most are; the locks have brought all that it asks about
                needs.note(actor, ask.command)
    stakes = {actor.key: projects_at_stake(actor, asks, now=now) for actor, asks in work}
    needs.wanted.project_ids.update(*stakes.values())
    if needs.pools_to_bind:
        await lock_pools(connection, needs.pools_to_bind)
    if needs.accounts_to_join:
        await lock_accounts(connection, needs.accounts_to_join)
    around = books.around
    if needs.pools_to_bind or needs.accounts_to_join or not books.known.covers(needs.wanted):
        around = await read_surroundings(connection, needs.wanted)
    if needs.past_grants or needs.past_instances:
        keys = [actor.key for actor, _ in work]
        grants, instances = await read_past(
            connection, keys, grant_ids=sorted(needs.past_grants), instance_ids=sorted(needs.past_instances)
        )
        around = replace(around, past_grants=grants, past_instances=instances)
    alive = around.projects.keys()
    await note_deserted(
        connection, {actor.state: stakes[actor.key] - alive for actor, _ in work if actor.state is not None}
    )
    return around


def projects_at_stake(actor: CapacityActor, asks: Iterable[Ask], *, now: int) -> set[str]:
    """Projects that a grant is restricted to here, when one may start or let instances go in this turn (D30)."""
    state = actor.state
    if state is None:
        return set()
    due = state.next_boundary()
    if (due is None or due[0] > now) and not any(isinstance(ask.command, c.EndGrant | c.AmendGrant) for ask in asks):
        return set()
    return state.restricted_projects()


def want(wanted: Wanted, key: str, state: CapacityState | None, command: Any) -> None:
    """Add what a command asks about; with the books at hand also what depends on them."""
    pool_id = state.reservation.pool_id if state else None
    match command:
        case c.CreateGrant():
            wanted.tenant_ids.add(command.grant_tenant_id)
            wanted.account_ids.add(command.account_id)
            wanted.project_ids.update(filter(None, [command.project_id]))
        case c.PlaceInstance() | c.AttachInstance() | c.SeekSlot():
            wanted.tenant_ids.add(command.tenant_id)
            wanted.project_ids.add(command.project_id)
            wanted.account_ids.add(split_reservation_key(key)[0])
        case c.StartInstance() | c.ChangeProject() if state and (instance := state.instances.get(command.instance_id)):
            wanted.tenant_ids.add(instance.tenant_id)
            wanted.project_ids.add(command.project_id or instance.project_id)
        case c.BindReservation():
            wanted.pool_ids.add(command.pool_id)
            wanted.account_ids.add(split_reservation_key(key)[0])
        case c.UnbindReservation():
            wanted.account_ids.add(split_reservation_key(key)[0])
        case c.ObserveReservation():
            wanted.account_ids.add(command.account_id)
        case _:
            return
    wanted.pool_ids.update(filter(None, [pool_id]))


def _lacks(actor: CapacityActor, shelf: str, thing_id: str) -> bool:
    return actor.state is not None and thing_id not in getattr(actor.state, shelf)
