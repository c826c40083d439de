"""One turn over a batch of commands for several capacity reservations: lock, instant, read, advance, decide, flush.

The row lock is the safety: any number of nodes may run the same key. What an actor keeps between turns is only used
when its version is the head's under the lock, so that a node that was overtaken reads again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from domain.capacity import commands as c
from domain.capacity.boundaries import advance
from domain.capacity.grants import decide_amend, decide_close_tenant, decide_create, decide_end
from domain.capacity.observation import decide_bind, decide_miss, decide_observe, decide_unbind, first_sight
from domain.capacity.placement import decide_attach, decide_delete, decide_place, decide_start, decide_stop
from domain.capacity.state import CapacityState, Grant, Instance, Reservation
from domain.identity import split_reservation_key
from domain.outcomes import Accepted, NotFound, Outcome, Refusal
from domain.replay import Remembered, RequestKey, check_replay
from domain.terms import START_TOLERANCE_MS
from storage.capacity.books import (
    Flush,
    LockedBooks,
    Wanted,
    flush_books,
    lock_accounts,
    lock_books,
    lock_pools,
    read_past,
    read_states,
    read_surroundings,
)
from storage.database import AnyConnection
from storage.replay import answer_row
from workers import measures
from workers.actor import Actor, Ask
from workers.clock import Clock
from workers.ids import IdSource
from workers.lane import TurnResult, Work
from workers.request import NOBODY, Provenance

CONTEXT: Final = "capacity"
CREATE_GRANT: Final = "reservationGrants.create"
"""The operation under which grants' idempotency keys are unique (D19)."""

CapacityActor: TypeAlias = Actor[CapacityState]


@dataclass(frozen=True, slots=True)
class Reply:
    """What a command came to, and the instant it was decided at."""

    outcome: Outcome[Any]
    now: int


Decide: TypeAlias = Callable[[CapacityState | None, Any, c.Surroundings, int], Outcome[Any]]

DECISIONS: Final[Mapping[type, Decide]] = {
    c.CreateGrant: lambda state, command, around, now: decide_create(state, command, around=around, now=now),
    c.EndGrant: lambda state, command, around, now: decide_end(state, command, around=around, now=now),
    c.AmendGrant: lambda state, command, around, now: decide_amend(state, command, around=around, now=now),
    c.PlaceInstance: lambda state, command, around, now: decide_place(state, command, around=around, now=now),
    c.StartInstance: lambda state, command, around, now: decide_start(state, command, around=around, now=now),
    c.StopInstance: lambda state, command, around, now: decide_stop(state, command, around=around, now=now),
    c.DeleteInstance: lambda state, command, around, now: decide_delete(state, command, around=around, now=now),
    c.AttachInstance: lambda state, command, around, now: decide_attach(state, command, around=around, now=now),
    c.BindReservation: lambda state, command, around, _: decide_bind(state, command, around=around),
    c.UnbindReservation: lambda state, _command, around, now: decide_unbind(state, around=around, now=now),
    c.MissReservation: lambda state, command, _, now: decide_miss(state, command, now=now),
    c.CloseTenant: lambda state, command, _, now: decide_close_tenant(state, command, now=now),
    c.Advance: lambda _state, _command, _around, _now: Accepted(None),
}
"""Command type to decision. `ObserveReservation` is apart: it is the one that can bring a reservation into being."""


@dataclass(slots=True)
class _Batch:
    """What one turn carries from step to step."""

    work: Work
    database_now: int = 0
    around: c.Surroundings = field(default_factory=lambda: c.Surroundings(platform_tenant_id=""))
    remembered: dict[RequestKey, Remembered] = field(default_factory=dict)
    flush: Flush = field(default_factory=Flush)
    result: TurnResult = field(default_factory=TurnResult)
    answers: dict[RequestKey, Remembered] = field(default_factory=dict)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(command, outcome) to how often: looking up a measure costs as much as a decision."""

    def asks(self) -> Iterable[tuple[CapacityActor, Ask]]:
        for actor, asks in self.work:
            for ask in asks:
                yield actor, ask


class CapacityTurn:
    """The turn of capacity. One object serves all lanes of a node: it keeps nothing between turns itself."""

    name = CONTEXT

    def __init__(self, clock: Clock, ids: IdSource) -> None:
        self._clock = clock
        self._ids = ids

    async def run(self, connection: AnyConnection, work: Work) -> TurnResult:
        batch = _Batch(sorted(work, key=lambda item: item[0].key))
        books = await _lock(connection, batch)
        batch.database_now, batch.remembered = books.now_ms, books.remembered
        await _load(connection, batch, books.heads)
        now = self._clock.instant(batch.database_now)
        batch.around = await _look_around(connection, batch, books, now=now)
        for actor, asks in batch.work:
            self._decide_all(actor, asks, batch)
        if batch.flush.heads or batch.flush.answers:
            await flush_books(connection, batch.flush)
        for (command, outcome), count in batch.counts.items():
            measures.DECISIONS.labels(CONTEXT, command, outcome).inc(count)
        return batch.result

    def forget(self, actors: Iterable[Actor[Any]]) -> None:
        for actor in actors:
            actor.state = None

    # -- deciding ------------------------------------------------------------------------------------------------

    def _decide_all(self, actor: CapacityActor, asks: Iterable[Ask], batch: _Batch) -> None:
        """Every command of one reservation, in order, with no await between: boundaries that are due come first."""
        now = self._clock.instant(batch.database_now)
        if actor.state is not None:
            now = max(now, actor.state.reservation.clock_at)  # R3: never behind what was decided before
            advance(actor.state, now)
        causes: list[Provenance] = [NOBODY] * (len(actor.state.changes.events) if actor.state else 0)
        for ask in asks:
            outcome = self._decide(actor, ask, batch, now)
            batch.counts[type(ask.command).__name__, _word(outcome)] += 1
            batch.result.replies.append((ask, Reply(outcome, now)))
            told = len(actor.state.changes.events) if actor.state else 0
            causes.extend([ask.provenance] * (told - len(causes)))
        self._collect(actor, causes, batch, now)

    def _decide(self, actor: CapacityActor, ask: Ask, batch: _Batch, now: int) -> Outcome[Any]:
        """Replay comes before state (R5); an accepted command is remembered with what it made or changed."""
        key = ask.provenance.key
        if key is not None and (known := batch.answers.get(key) or batch.remembered.get(key)):
            return check_replay(known, ask.provenance.fingerprint, names_grants=key.operation == CREATE_GRANT)
        if isinstance(ask.command, c.ObserveReservation):
            outcome = _observe(actor, ask.command, batch.around, now)
        else:
            outcome = DECISIONS[type(ask.command)](actor.state, ask.command, batch.around, now)
        if not isinstance(outcome, Accepted):
            return outcome
        if key is not None:
            remembered = Remembered(ask.provenance.fingerprint, _subject(outcome.answer, actor.key))
            batch.answers[key] = remembered
            batch.flush.answers.append(answer_row(key, remembered, answered_at=now))
        return Accepted(_as_decided(outcome.answer))

    def _collect(self, actor: CapacityActor, causes: list[Provenance], batch: _Batch, now: int) -> None:
        if actor.state is None or not actor.state.changes:
            return
        platform = batch.around.platform_tenant_id
        told = write_changes(batch.flush, actor.state, causes, now=now, platform_tenant_id=platform, ids=self._ids)
        batch.result.changed_keys.append(actor.key)
        if told:
            batch.result.event_keys.append(actor.key)


def write_changes(
    flush: Flush,
    state: CapacityState,
    causes: Sequence[Provenance],
    *,
    now: int,
    platform_tenant_id: str,
    ids: IdSource,
) -> bool:
    """Number the new events, move the head on, and put everything that changed into the flush; whether events came.

    `causes` has one entry an event. The state is ahead of the database from here until the flush is committed.
    """
    changes = state.take_changes()
    reservation = state.reservation
    reservation.version += 1
    reservation.clock_at = now
    for event, cause in zip(changes.events, causes, strict=True):
        reservation.outbox_seq += 1
        flush.add_event(
            reservation.key,
            event,
            seq=reservation.outbox_seq,
            event_id=ids.new("evt"),
            tenant_id=event.tenant_id or platform_tenant_id,
            recorded_at=now,
            request_id=cause.request_id,
            trace_id=cause.trace_id,
        )
    state.forget(before=now - START_TOLERANCE_MS)
    flush.add_changes(state, changes)
    return bool(changes.events)


async def _lock(connection: AnyConnection, batch: _Batch) -> LockedBooks:
    """One round trip for the locks, the clock, the remembered answers, and what is wanted whatever the books say."""
    wanted = Wanted()
    for actor, ask in batch.asks():
        _want(wanted, actor.key, None, ask.command)
    request_keys = {ask.provenance.key for _, ask in batch.asks() if ask.provenance.key is not None}
    keys = [actor.key for actor, _ in batch.work]
    return await lock_books(connection, keys, request_keys=request_keys, wanted=wanted)


async def _load(connection: AnyConnection, batch: _Batch, heads: Mapping[str, Reservation]) -> None:
    """Read the books of every actor that has none, or whose own are not the ones under the lock."""
    stale = {}
    for actor, _ in batch.work:
        head = heads.get(actor.key)
        if head is None:
            actor.state = None
        elif actor.state is None or actor.state.reservation.version != head.version:
            stale[actor.key] = head
    states = await read_states(connection, stale)
    for actor, _ in batch.work:
        if actor.key in states:
            actor.state = states[actor.key]


async def _look_around(connection: AnyConnection, batch: _Batch, books: LockedBooks, *, now: int) -> c.Surroundings:
    """Registries and past things that the commands of this batch ask about; mostly the locks have brought it all."""
    wanted, past_grants, past_instances = books.known.copy(), set(), set()
    pools_to_bind: set[str] = set()
    accounts_to_join: set[str] = set()
    for actor, ask in batch.asks():
        if isinstance(ask.command, c.CreateGrant):
            continue  # most are; the locks have brought all that it asks about
        _want(wanted, actor.key, actor.state, ask.command)
        match ask.command:
            case c.EndGrant() | c.AmendGrant() as command if _lacks(actor, "grants", command.grant_id):
                past_grants.add(command.grant_id)
            case c.StartInstance() | c.StopInstance() | c.DeleteInstance() | c.AttachInstance() as command if _lacks(
                actor, "instances", command.instance_id
            ):
                past_instances.add(command.instance_id)
            case c.BindReservation():
                pools_to_bind.add(ask.command.pool_id)
            case c.ObserveReservation() if actor.state is None:
                accounts_to_join.add(ask.command.account_id)
    stakes = {actor.key: _projects_at_stake(actor, asks, now=now) for actor, asks in batch.work}
    wanted.project_ids.update(*stakes.values())
    if pools_to_bind:
        await lock_pools(connection, pools_to_bind)
    if accounts_to_join:
        await lock_accounts(connection, accounts_to_join)
    around = books.around
    if pools_to_bind or accounts_to_join or not books.known.covers(wanted):
        around = await read_surroundings(connection, wanted)
    if past_grants or past_instances:
        keys = [actor.key for actor, _ in batch.work]
        grants, instances = await read_past(
            connection, keys, grant_ids=sorted(past_grants), instance_ids=sorted(past_instances)
        )
        around = replace(around, past_grants=grants, past_instances=instances)
    _note_deserted(stakes, batch, around)
    return around


def _projects_at_stake(actor: CapacityActor, asks: Iterable[Ask], *, now: int) -> set[str]:
    """Projects that a grant is restricted to here, when one may start or let instances go in this turn (D30)."""
    state = actor.state
    if state is None:
        return set()
    due = state.next_boundary()
    if (due is None or due[0] > now) and not any(isinstance(ask.command, c.EndGrant | c.AmendGrant) for ask in asks):
        return set()
    return state.restricted_projects()


def _note_deserted(stakes: Mapping[str, set[str]], batch: _Batch, around: c.Surroundings) -> None:
    """Which of those projects are deleted: their grants stay and bill, and take nobody in (D30)."""
    for actor, _ in batch.work:
        if actor.state is not None:
            actor.state.deserted = frozenset(stakes[actor.key] - around.projects.keys())


def _want(wanted: Wanted, key: str, state: CapacityState | None, command: Any) -> None:
    pool_id = state.reservation.pool_id if state else None
    match command:
        case c.CreateGrant():
            wanted.tenant_ids.add(command.grant_tenant_id)
            wanted.account_ids.add(command.account_id)
            wanted.project_ids.update(filter(None, [command.project_id]))
        case c.PlaceInstance() | c.AttachInstance():
            wanted.tenant_ids.add(command.tenant_id)
            wanted.project_ids.add(command.project_id)
            wanted.account_ids.add(split_reservation_key(key)[0])
        case c.StartInstance() if state and (instance := state.instances.get(command.instance_id)):
            wanted.tenant_ids.add(instance.tenant_id)
            wanted.project_ids.add(instance.project_id)
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


def _observe(
    actor: CapacityActor, command: c.ObserveReservation, around: c.Surroundings, now: int
) -> Outcome[Reservation]:
    if command.account_id not in around.accounts:
        return NotFound(field="accountId", message="no such provider account")
    if actor.state is None:
        actor.state = first_sight(actor.key, command, now=now)
        return Accepted(actor.state.reservation)
    return decide_observe(actor.state, command, now=now)


def _lacks(actor: CapacityActor, shelf: str, thing_id: str) -> bool:
    return actor.state is not None and thing_id not in getattr(actor.state, shelf)


def _as_decided(answer: Any) -> Any:
    """The state goes on changing; the caller keeps what was decided. (`copy.copy` takes three times as long.)"""
    if answer is None:
        return None
    kept = object.__new__(type(answer))
    for name in answer.__slots__:
        setattr(kept, name, getattr(answer, name))
    return kept


def _subject(answer: Grant | Instance | Reservation | None, key: str) -> str:
    """What a replay looks up again."""
    if isinstance(answer, Grant):
        return answer.grant_id
    return answer.instance_id if isinstance(answer, Instance) else key


def _word(outcome: Outcome[Any]) -> str:
    if isinstance(outcome, Refusal):
        return outcome.code.lower()
    return "accepted" if isinstance(outcome, Accepted) else "replayed"
