"""One turn over a batch of commands for several capacity reservations, in one of two modes.

Lock mode: lock, instant, read, advance, decide, flush. The row lock is the safety: any number of nodes may run the same
key. What an actor keeps between turns is only used when its version is the head's under the lock, so that a node that
was overtaken reads again.

Cached mode, for actors that have their books and whose commands ask about nothing unknown: decide first, by the books in
memory, the facts learnt and the database's clock as it was seen; then one statement checks all of that in the database
and writes. When something does not hold nothing is written, and the batch goes through the lock mode.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from domain.capacity import commands as c
from domain.capacity.boundaries import advance
from domain.capacity.grants import decide_amend, decide_close_tenant, decide_create, decide_end
from domain.capacity.observation import decide_bind, decide_miss, decide_observe, decide_unbind, first_sight
from domain.capacity.placement import (
    decide_attach,
    decide_change_project,
    decide_delete,
    decide_place,
    decide_seek,
    decide_start,
    decide_stop,
)
from domain.capacity.state import CapacityState, Grant, Instance, Reservation
from domain.outcomes import Accepted, NotFound, Outcome, Refusal
from domain.replay import Remembered, RequestKey, check_replay
from domain.terms import START_TOLERANCE_MS
from storage.capacity.books import Flush, Wanted, flush_books
from storage.capacity.settling import CapacityPremises, settle_books
from storage.database import AnyConnection
from storage.premises import Verdict
from storage.replay import answer_row
from workers import measures
from workers.actor import Actor, Ask
from workers.ahead import SOON_MS, VALID_MAX_MS, hear
from workers.capacity.facts import Facts
from workers.capacity.gathering import (
    CapacityActor,
    CapacityWork,
    Needs,
    load,
    lock,
    look_around,
    projects_at_stake,
)
from workers.clock import Clock
from workers.ids import IdSource
from workers.recent import Known, Recent
from workers.request import NOBODY, Provenance
from workers.turns import Answers, Prepared, TurnResult, Work

CONTEXT: Final = "capacity"
CREATE_GRANT: Final = "reservationGrants.create"
"""The operation under which grants' idempotency keys are unique (D19)."""


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
    c.SeekSlot: lambda state, command, around, now: decide_seek(state, command, around=around, now=now),
    c.StartInstance: lambda state, command, around, now: decide_start(state, command, around=around, now=now),
    c.ChangeProject: lambda state, command, around, now: decide_change_project(state, command, around=around, now=now),
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

    work: CapacityWork
    database_now: int = 0
    around: c.Surroundings = field(default_factory=lambda: c.Surroundings(platform_tenant_id=""))
    remembered: Mapping[RequestKey, Remembered] = field(default_factory=dict)
    flush: Flush = field(default_factory=Flush)
    result: TurnResult = field(default_factory=TurnResult)
    answers: dict[RequestKey, Remembered] = field(default_factory=dict)
    refused: set[RequestKey] = field(default_factory=set)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(command, outcome) to how often: looking up a measure costs as much as a decision."""

    def count(self) -> None:
        for (command, outcome), count in self.counts.items():
            measures.DECISIONS.labels(CONTEXT, command, outcome).inc(count)


@dataclass(slots=True, kw_only=True)
class _Ahead(Prepared):
    """Decisions made from memory, with what they rest on; without premises there is nothing to ask the database."""

    batch: _Batch
    premises: CapacityPremises | None


class CapacityTurn:
    """The turn of capacity. One object serves all lanes of a node; what it keeps between turns is checked when used."""

    name = CONTEXT

    def __init__(self, clock: Clock, ids: IdSource) -> None:
        self._clock = clock
        self._ids = ids
        self._facts = Facts()
        self._recent: Recent[Remembered] = Recent(clock)

    async def run(self, connection: AnyConnection, work: Work) -> TurnResult:
        batch = _Batch(sorted(work, key=lambda item: item[0].key))
        books = await lock(connection, batch.work)
        self._clock.database.see(books.now_ms)
        batch.database_now, batch.remembered = books.now_ms, books.remembered
        await load(connection, batch.work, books.heads)
        now = self._clock.instant(batch.database_now)
        batch.around = await look_around(connection, batch.work, books, now=now)
        self._facts.learn(batch.around)
        for actor, asks in batch.work:
            self._decide_all(actor, asks, batch)
        if batch.flush:
            await flush_books(connection, batch.flush)
        batch.count()
        batch.result.answers = {**batch.remembered, **batch.answers}
        return batch.result

    def prepare(self, work: Work, *, under_way: Answers) -> tuple[Prepared | None, Work]:
        believed = self._clock.database.estimate()
        if believed is None:
            return None, work
        now = self._clock.instant(believed)
        ready: list[tuple[CapacityActor, Sequence[Ask]]] = []
        rest: list[tuple[CapacityActor, Sequence[Ask]]] = []
        wanted: list[Wanted] = []
        for actor, asks in work:
            needed = self._needed(actor, asks, now)
            if needed is None:
                rest.append((actor, asks))
            else:
                ready.append((actor, asks))
                wanted.append(needed)
        if not ready:
            return None, rest
        batch = _Batch(sorted(ready, key=lambda item: item[0].key), database_now=believed)
        batch.around = self._facts.around(wanted)
        return self._decide_ahead(batch, self._recent.beside(under_way)), rest

    async def settle(self, connection: AnyConnection, prepared: Prepared) -> bool:
        assert isinstance(prepared, _Ahead), "it was prepared here"
        if prepared.premises is not None:
            verdict, now_ms = await settle_books(connection, prepared.premises, prepared.batch.flush)
            if verdict is Verdict.CHANGED:
                self._facts.forget()
            if not hear(verdict, now_ms, context=CONTEXT, clock=self._clock):
                return False
        prepared.batch.count()
        return True

    def committed(self, result: TurnResult) -> None:
        self._recent.note(result.answers)

    def forget(self, actors: Iterable[Actor[Any]]) -> None:
        for actor in actors:
            actor.state = None

    # -- deciding from memory ------------------------------------------------------------------------------------

    def _needed(self, actor: CapacityActor, asks: Sequence[Ask], now: int) -> Wanted | None:
        """What these commands want to know of registries; None when they cannot be decided from memory."""
        if (state := actor.state) is None:
            return None
        due = state.next_boundary()
        if due is not None and now < due[0] < now + SOON_MS:
            return None
        needs = Needs()
        for ask in asks:
            needs.note(actor, ask.command)
        needs.wanted.project_ids |= projects_at_stake(actor, asks, now=now)
        return needs.wanted if needs.is_only_registries and self._facts.cover(needs.wanted) else None

    def _decide_ahead(self, batch: _Batch, known: Known[Remembered]) -> _Ahead:
        keys = (ask.provenance.key for _, asks in batch.work for ask in asks)
        batch.remembered = {key: found for key in keys if key is not None and (found := known.get(key))}
        versions, valid_ms = {}, VALID_MAX_MS
        for actor, asks in batch.work:
            state = actor.state
            assert state is not None, "only actors with books decide ahead"
            state.deserted = {}  # every project that matters is known to exist
            version = state.reservation.version
            now = self._decide_all(actor, asks, batch)
            is_told = any(ask.provenance.key not in batch.remembered for ask in asks)
            if is_told or state.reservation.version != version:
                versions[actor.key] = version
            if (due := state.next_boundary()) is not None:
                valid_ms = min(valid_ms, due[0] - now)
        premises = self._premises(batch, versions, valid_ms) if versions else None
        batch.result.answers = batch.answers
        return _Ahead(work=batch.work, result=batch.result, batch=batch, premises=premises)

    def _premises(self, batch: _Batch, versions: Mapping[str, int], valid_ms: int) -> CapacityPremises:
        around = batch.around
        return CapacityPremises(
            clock_ms=batch.database_now,
            valid_ms=valid_ms,
            versions=versions,
            tenants=around.tenants,
            projects=around.projects,
            accounts=around.accounts,
            offers=around.offers,
            unanswered=batch.refused,
        )

    # -- deciding ------------------------------------------------------------------------------------------------

    def _decide_all(self, actor: CapacityActor, asks: Iterable[Ask], batch: _Batch) -> int:
        """Every command of one reservation, in order, with no await between: boundaries that are due come first.

        Gives the instant they were decided at.
        """
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
        return now

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
            if key is not None:
                batch.refused.add(key)
            return outcome
        if key is not None:
            batch.refused.discard(key)
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
            trace_flags=cause.trace_flags,
        )
    state.forget(before=now - START_TOLERANCE_MS)
    flush.add_changes(state, changes)
    return bool(changes.events)


def _observe(
    actor: CapacityActor, command: c.ObserveReservation, around: c.Surroundings, now: int
) -> Outcome[Reservation]:
    if command.account_id not in around.accounts:
        return NotFound(field="accountId", message="no such provider account")
    if actor.state is None:
        actor.state = first_sight(actor.key, command, now=now)
        return Accepted(actor.state.reservation)
    return decide_observe(actor.state, command, now=now)


def _copier(kind: type) -> Callable[[Any], Any]:
    """Copies things of a kind, field by field: written out once, that takes a tenth of what `copy.copy` takes."""
    lines = "".join(f"    kept.{name} = thing.{name}\n" for name in kind.__slots__)  # type: ignore[attr-defined]
    source = f"def copy(thing):\n    kept = new(kind)\n{lines}    return kept\n"
    names: dict[str, Any] = {"new": object.__new__, "kind": kind}
    exec(source, names)  # noqa: S102 - only names of our own fields are in it
    copy: Callable[[Any], Any] = names["copy"]
    return copy


_COPIERS: Final = {kind: _copier(kind) for kind in (Grant, Instance, Reservation)}


def _as_decided(answer: Any) -> Any:
    """The state goes on changing; the caller keeps what was decided."""
    return None if answer is None else _COPIERS[type(answer)](answer)


def _subject(answer: Grant | Instance | Reservation | None, key: str) -> str:
    """What a replay looks up again."""
    if isinstance(answer, Grant):
        return answer.grant_id
    return answer.instance_id if isinstance(answer, Instance) else key


def _word(outcome: Outcome[Any]) -> str:
    if isinstance(outcome, Refusal):
        return outcome.code.lower()
    return "accepted" if isinstance(outcome, Accepted) else "replayed"
