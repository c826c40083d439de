"""One turn over a batch of commands for several tenants' budgets, in one of two modes, as capacity has them.

Lock mode: lock, instant, read, advance, decide, flush. The row lock is the safety: any number of nodes may run the same
tenant. What an actor keeps between turns is only used when its version is the head's under the lock, so that a node that
was overtaken reads again.

Cached mode, where everything that the commands name is in memory: decide first, then one statement checks versions, the
clock and earlier answers in the database, and writes. When something does not hold the batch goes through the lock mode.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from domain.budget.commands import CreateTenant, KeyedCommand
from domain.budget.decisions import decide
from domain.budget.repeats import BudgetOutcome
from domain.budget.replay import RememberedAnswer
from domain.budget.settlement import advance
from domain.budget.tenants import first_sight
from domain.outcomes import Accepted, NotFound, Refusal
from domain.replay import RequestKey
from storage.budget.books import Flush, Head, NumberedEvent, flush_books, lock_tenants
from storage.budget.settling import settle_books
from storage.database import AnyConnection
from storage.premises import Premises
from workers import measures
from workers.actor import Actor, Ask
from workers.ahead import SOON_MS, VALID_MAX_MS, hear
from workers.budget.changes import change_key
from workers.budget.loading import BudgetActor, TenantBooks, complete, has_what
from workers.budget.watched import PublishedThresholds, Thresholds
from workers.clock import Clock
from workers.ids import IdSource
from workers.recent import Known, Recent
from workers.turns import Answers, Prepared, TurnResult, Work

CONTEXT: Final = "budget"

NO_TENANT: Final = NotFound(field="tenant_id", message="no such tenant")


BudgetWork: TypeAlias = Sequence[tuple[BudgetActor, Sequence[Ask]]]

RECENT_MAX: Final = 8_000
"""Answers remembered in memory: with the balances that they tell, some two kilobytes each."""


@dataclass(slots=True)
class _Batch:
    """What one turn carries from step to step."""

    instant: int
    flush: Flush = field(default_factory=Flush)
    result: TurnResult = field(default_factory=TurnResult)
    answers: dict[RequestKey, RememberedAnswer] = field(default_factory=dict)
    refused: set[RequestKey] = field(default_factory=set)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(command, outcome) to how often: looking up a measure costs as much as a small decision."""

    def count(self) -> None:
        for (command, outcome), count in self.counts.items():
            measures.DECISIONS.labels(CONTEXT, command, outcome).inc(count)


@dataclass(slots=True, kw_only=True)
class _Ahead(Prepared):
    """Decisions made from memory, with what they rest on; without premises there is nothing to ask the database."""

    batch: _Batch
    premises: Premises | None


class BudgetTurn:
    """The turn of budgets. One object serves all lanes of a node; what it keeps between turns is checked when used."""

    name = CONTEXT

    def __init__(self, clock: Clock, ids: IdSource, thresholds: Thresholds | None = None) -> None:
        self._clock = clock
        self._ids = ids
        self._thresholds = thresholds or PublishedThresholds()
        self._recent: Recent[RememberedAnswer] = Recent(clock, most=RECENT_MAX)

    async def run(self, connection: AnyConnection, work: Work) -> TurnResult:
        work = sorted(work, key=lambda item: item[0].key)
        commands = [ask.command for _, asks in work for ask in asks]
        keys = {command.request_key for command in commands if isinstance(command, KeyedCommand)}
        locked = await lock_tenants(connection, [actor.key for actor, _ in work], keys)
        self._clock.database.see(locked.now_ms)
        batch = _Batch(self._clock.instant(locked.now_ms))
        await self._thresholds.load(connection)
        await complete(connection, work, locked, batch.instant)
        for actor, asks in work:
            self._decide_all(actor, asks, batch)
        if batch.flush.tenant_ids:
            await flush_books(connection, batch.flush)
        batch.count()
        batch.result.answers = {**locked.remembered, **batch.answers}
        return batch.result

    def prepare(self, work: Work, *, under_way: Answers) -> tuple[Prepared | None, Work]:
        believed = self._clock.database.estimate()
        if believed is None:
            return None, work
        batch, known = _Batch(self._clock.instant(believed)), self._recent.beside(under_way)
        ready: list[tuple[BudgetActor, Sequence[Ask]]] = []
        rest: list[tuple[BudgetActor, Sequence[Ask]]] = []
        for actor, asks in work:
            (ready if _can_decide(actor, asks, known, batch.instant) else rest).append((actor, asks))
        if not ready:
            return None, rest
        ready.sort(key=lambda item: item[0].key)
        return self._decide_ahead(ready, batch, believed, known), rest

    async def settle(self, connection: AnyConnection, prepared: Prepared) -> bool:
        assert isinstance(prepared, _Ahead), "it was prepared here"
        if prepared.premises is not None:
            verdict, now_ms = await settle_books(connection, prepared.premises, prepared.batch.flush)
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

    def _decide_ahead(self, work: BudgetWork, batch: _Batch, believed: int, known: Known[RememberedAnswer]) -> _Ahead:
        versions, valid_ms = {}, VALID_MAX_MS
        for actor, asks in work:
            books = actor.state
            assert books is not None, "only actors with books decide ahead"
            tenant, commands = books.state.tenant, [ask.command for ask in asks]
            version, now = tenant.version, books.now(batch.instant)
            valid_ms = min(valid_ms, books.valid_ms(commands, now, most=VALID_MAX_MS))
            self._decide_all(actor, asks, batch)
            valid_ms = min(valid_ms, books.valid_ms((), now, most=VALID_MAX_MS))
            if tenant.version != version or not all(_is_known(command, known) for command in commands):
                versions[tenant.tenant_id] = version
        batch.result.answers = batch.answers
        premises = None
        if versions:
            asked = [key for key in batch.refused if known.get(key) is None]
            premises = Premises(clock_ms=believed, valid_ms=valid_ms, versions=versions, unanswered=asked)
        return _Ahead(work=work, result=batch.result, batch=batch, premises=premises)

    # -- deciding ------------------------------------------------------------------------------------------------

    def _decide_all(self, actor: BudgetActor, asks: Iterable[Ask], batch: _Batch) -> None:
        """Every command of one tenant, in order, with no await between: expiries that are due come first."""
        if actor.state is not None:
            thresholds = self._thresholds.utilizations(actor.key)
            if actor.state.state.thresholds is not thresholds:
                actor.state.state.watch(thresholds)
            advance(actor.state.state, actor.state.now(batch.instant))
        for ask in asks:
            outcome = _decide(actor, ask.command, batch.instant)
            if isinstance(outcome, Refusal) and isinstance(ask.command, KeyedCommand):
                batch.refused.add(ask.command.request_key)
            batch.counts[type(ask.command).__name__, _word(outcome)] += 1
            batch.result.replies.append((ask, outcome))
        books = actor.state
        if books is None:
            return
        self._collect(books, batch)
        if not books.trim():
            actor.state = None

    def _collect(self, books: TenantBooks, batch: _Batch) -> None:
        """Put what changed into the flush. The books are ahead of the database from here until it is committed."""
        changes, due_at = books.state.take_changes(), books.head_due_at()
        if not changes and due_at == books.next_expiry_at:
            return
        tenant = books.state.tenant
        tenant.version += 1
        books.next_expiry_at = due_at
        if changes.tenant:
            books.updated_at = tenant.clock_at
        events = []
        for event in changes.events:
            books.outbox_seq += 1
            events.append(NumberedEvent(books.outbox_seq, self._ids.new("evt"), event, event.payload(tenant.tenant_id)))
        head = Head(
            tenant=tenant,
            outbox_seq=books.outbox_seq,
            next_expiry_at=due_at,
            updated_at=books.updated_at,
            is_new=books.is_new,
        )
        books.is_new = False
        audit = [(self._ids.new("aud"), entry) for entry in changes.audit]
        batch.flush.add_changes(head, changes, events=events, audit=audit, now=tenant.clock_at)
        changed = (change_key(tenant.tenant_id, scope, unit) for scope, unit in changes.budgets)
        batch.result.changed_keys.extend(changed)
        batch.answers.update(changes.remembered)
        batch.refused.difference_update(changes.remembered)
        if events:
            batch.result.event_keys.append(tenant.tenant_id)


def _can_decide(actor: BudgetActor, asks: Sequence[Ask], known: Known[RememberedAnswer], instant: int) -> bool:
    """Whether these commands can be decided from memory."""
    books = actor.state
    if books is None:
        return False
    now, due_at = books.now(instant), books.due_at()
    if due_at is not None and now < due_at < now + SOON_MS:
        return False
    if books.unread_due_at is not None and books.unread_due_at <= now:
        return False
    return has_what(books, [ask.command for ask in asks], known)


def _decide(actor: BudgetActor, command: Any, instant: int) -> BudgetOutcome[Any]:
    if actor.state is not None:
        return decide(actor.state.state, command, actor.state.now(instant))
    if not isinstance(command, CreateTenant):
        return NO_TENANT
    seen = first_sight(command, instant)
    if isinstance(seen, Refusal):
        return seen
    state, outcome = seen
    actor.state = TenantBooks(state=state, has_all_budgets=True, is_new=True)
    return outcome


def _is_known(command: Any, known: Known[RememberedAnswer]) -> bool:
    """Whether it was answered before, so that this time it rests on nothing."""
    return isinstance(command, KeyedCommand) and known.get(command.request_key) is not None


def _word(outcome: BudgetOutcome[Any]) -> str:
    if isinstance(outcome, Refusal):
        return outcome.code.lower()
    return "accepted" if isinstance(outcome, Accepted) else "replayed"
