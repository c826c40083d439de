"""One turn over a batch of commands for several tenants' budgets: lock, instant, read, advance, decide, flush.

The row lock is the safety: any number of nodes may run the same tenant. What an actor keeps between turns is only used
when its version is the head's under the lock, so that a node that was overtaken reads again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from domain.budget.commands import CreateTenant, KeyedCommand
from domain.budget.decisions import decide
from domain.budget.repeats import BudgetOutcome
from domain.budget.settlement import advance
from domain.budget.tenants import first_sight
from domain.outcomes import Accepted, NotFound, Refusal
from storage.budget.books import Flush, Head, NumberedEvent, flush_books, lock_tenants
from storage.database import AnyConnection
from workers import measures
from workers.actor import Actor, Ask
from workers.budget.changes import change_key
from workers.budget.loading import BudgetActor, TenantBooks, complete
from workers.clock import Clock
from workers.ids import IdSource
from workers.lane import Prepared, TurnResult, Work

CONTEXT: Final = "budget"

NO_TENANT: Final = NotFound(field="tenant_id", message="no such tenant")


@dataclass(slots=True)
class _Batch:
    """What one turn carries from step to step."""

    instant: int
    flush: Flush = field(default_factory=Flush)
    result: TurnResult = field(default_factory=TurnResult)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(command, outcome) to how often: looking up a measure costs as much as a small decision."""


class BudgetTurn:
    """The turn of budgets. One object serves all lanes of a node: it keeps nothing between turns itself."""

    name = CONTEXT

    def __init__(self, clock: Clock, ids: IdSource) -> None:
        self._clock = clock
        self._ids = ids

    def prepare(self, work: Work) -> tuple[None, Work]:
        return None, work

    async def settle(self, connection: AnyConnection, prepared: Prepared) -> bool:
        raise AssertionError("nothing is prepared")

    def committed(self, result: TurnResult) -> None:
        """Nothing is kept."""

    async def run(self, connection: AnyConnection, work: Work) -> TurnResult:
        work = sorted(work, key=lambda item: item[0].key)
        commands = [ask.command for _, asks in work for ask in asks]
        keys = {command.request_key for command in commands if isinstance(command, KeyedCommand)}
        locked = await lock_tenants(connection, [actor.key for actor, _ in work], keys)
        batch = _Batch(self._clock.instant(locked.now_ms))
        await complete(connection, work, locked, batch.instant)
        for actor, asks in work:
            self._decide_all(actor, asks, batch)
        if batch.flush.tenant_ids:
            await flush_books(connection, batch.flush)
        for (command, outcome), count in batch.counts.items():
            measures.DECISIONS.labels(CONTEXT, command, outcome).inc(count)
        return batch.result

    def forget(self, actors: Iterable[Actor[Any]]) -> None:
        for actor in actors:
            actor.state = None

    # -- deciding ------------------------------------------------------------------------------------------------

    def _decide_all(self, actor: BudgetActor, asks: Iterable[Ask], batch: _Batch) -> None:
        """Every command of one tenant, in order, with no await between: expiries that are due come first."""
        if actor.state is not None:
            advance(actor.state.state, actor.state.now(batch.instant))
        for ask in asks:
            outcome = _decide(actor, ask.command, batch.instant)
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
        changes, due_at = books.state.take_changes(), books.due_at()
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
        if events:
            batch.result.event_keys.append(tenant.tenant_id)


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


def _word(outcome: BudgetOutcome[Any]) -> str:
    if isinstance(outcome, Refusal):
        return outcome.code.lower()
    return "accepted" if isinstance(outcome, Accepted) else "replayed"
