"""The run of the llm replay: a hold of an estimate when a request comes, the actual tokens when its answer is there.

The clock follows the trace. At most `concurrency` calls are under way at once, and only calls less than
`ANSWER_LEAST_MS` apart: nothing that a reserve leads to is that early, so none of them has to wait for another.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeVar

from domain.amounts import Amount, Unit
from domain.budget.answers import CommitAnswer, ReserveAnswer
from domain.budget.repeats import BudgetOutcome
from domain.budget.values import Action, Decision, Metrics
from domain.outcomes import Refusal
from server.replay.drive import Progress
from server.replay.llm_world import GRACE_MS, INSTALMENTS, TTL_MS, Job, LlmWorld, agreed
from workers.budget.expiry import ExpiryJob
from workers.clock import ManualClock
from workers.runtime import Runtime

ANSWER_LEAST_MS: Final = 1_000
TOKEN_MS: Final = 20
"""The trace does not tell how long an answer took: that long, and this for each token, but no longer than the TTL."""
MARGIN_MS: Final = 2_000

Answer = TypeVar("Answer")


class Fate(StrEnum):
    """How an agent treats its hold."""

    IN_TIME = "in time"
    IN_GRACE = "in grace"
    """Settles after the TTL and before the grace is over."""
    TOO_LATE = "too late"
    """Settles after the grace: refused."""
    LEFT = "left"
    """Crashed: never settles, and the hold expires."""


def fate_of(number: int) -> Fate:
    """Of the request with this number: a few of every thousand go wrong, the same ones in every run."""
    fates = {5: Fate.IN_GRACE, 10: Fate.LEFT, 15: Fate.TOO_LATE}
    return fates.get(number % 100, Fate.IN_TIME)


@dataclass(slots=True, kw_only=True)
class LlmTally:
    """What one agent's requests came to."""

    allowed: int = 0
    """Held, with caps or without."""
    capped: int = 0
    """Of them, held with caps."""
    denied: int = 0
    committed: int = 0
    in_grace: int = 0
    """Of them, after the TTL."""
    cut: int = 0
    """Of them, charged less than used, since no more was left."""
    overdraft: int = 0
    """Of them, with a budget whose debt grew."""
    refused: int = 0
    """Holds that could not be settled with the actual, and were settled with what was held."""
    too_late: int = 0
    left: int = 0
    charged: int = 0
    """Tokens."""


@dataclass(slots=True)
class Latencies:
    """Of one kind of call, as its caller saw it."""

    taken_ns: list[int] = field(default_factory=list)

    def percentile_us(self, percent: int) -> int:
        """Microseconds; 0 when there was none."""
        if not self.taken_ns:
            return 0
        ordered = sorted(self.taken_ns)
        return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] // 1_000


@dataclass(order=True, slots=True)
class _Due:
    at: int
    number: int
    job: Job = field(compare=False)
    held: ReserveAnswer | None = field(compare=False, default=None)


class LlmDrive:
    def __init__(
        self,
        runtime: Runtime,
        clock: ManualClock,
        world: LlmWorld,
        jobs: Sequence[Job],
        *,
        concurrency: int,
        progress: Progress,
    ) -> None:
        self.tallies: dict[str, LlmTally] = defaultdict(LlmTally)
        self.denials: Counter[str] = Counter()
        """By code."""
        self.latencies = {"reserve": Latencies(), "commit": Latencies()}
        self.wall_ms = 0
        self._runtime, self._clock, self._world, self._jobs = runtime, clock, world, jobs
        self._concurrency, self._progress = concurrency, progress
        self._debts: dict[str, int] = {}
        """Of each budget, as the latest answer told."""
        self._agenda = [_Due(job.request.came_at, job.number, job) for job in jobs]
        self._done = 0
        self._instalments = 1

    async def run(self) -> None:
        """From the first request until the last hold is over."""
        heapq.heapify(self._agenda)
        started = time.perf_counter_ns()
        while batch := self._next_batch():
            self._clock.now = batch[-1].at
            await self._pay()
            await asyncio.gather(*(self._reserve(due) if due.held is None else self._settle(due) for due in batch))
            self._progress(self._done, len(self._jobs))
        self._clock.advance(TTL_MS + GRACE_MS + MARGIN_MS)
        await ExpiryJob(self._runtime.budget_asker).run_once()
        self.wall_ms = (time.perf_counter_ns() - started) // 1_000_000
        self._progress(len(self._jobs), len(self._jobs))

    def _next_batch(self) -> list[_Due]:
        batch: list[_Due] = []
        while self._agenda and len(batch) < self._concurrency:
            if batch and self._agenda[0].at >= batch[0].at + ANSWER_LEAST_MS:
                break
            batch.append(heapq.heappop(self._agenda))
        return batch

    async def _pay(self) -> None:
        """The instalments that have come due; the first one was there from the start."""
        began_at, ends_at = self._jobs[0].request.came_at, self._jobs[-1].request.came_at
        while self._instalments < INSTALMENTS:
            if self._clock.now < began_at + (ends_at - began_at) * self._instalments // INSTALMENTS:
                return
            await self._world.pay_instalment(self._instalments)
            self._instalments += 1

    async def _reserve(self, due: _Due) -> None:
        job, tally = due.job, self.tallies[due.job.agent.name]
        outcome = await self._timed(
            "reserve",
            lambda: self._runtime.budgets.reserve(
                self._world.caller,
                idempotency_key=f"reserve-{job.number}",
                subject=job.agent.subject,
                action=Action(kind="llm.completion", name=job.request.app),
                estimate=_tokens(job.estimate),
                ttl_ms=TTL_MS,
                grace_ms=GRACE_MS,
                overage_policy=job.agent.kind.overage_policy,
            ),
        )
        self._done += 1
        if isinstance(outcome, Refusal):
            tally.denied += 1
            self.denials[outcome.code] += 1
            return
        held = agreed(outcome)
        tally.allowed += 1
        tally.capped += held.decision is Decision.ALLOW_WITH_CAPS
        self._plan(job, held, tally)

    def _plan(self, job: Job, held: ReserveAnswer, tally: LlmTally) -> None:
        """When this hold is settled, if ever."""
        assert held.expires_at is not None, "a live hold"
        match fate_of(job.number):
            case Fate.IN_TIME:
                took_ms = ANSWER_LEAST_MS + TOKEN_MS * job.request.generated_tokens
                at = held.decided_at + min(took_ms, TTL_MS - MARGIN_MS)
            case Fate.IN_GRACE:
                at = held.expires_at + MARGIN_MS
            case Fate.TOO_LATE:
                at = held.expires_at + GRACE_MS + MARGIN_MS
            case Fate.LEFT:
                tally.left += 1
                return
        heapq.heappush(self._agenda, _Due(at, job.number, job, held))

    async def _settle(self, due: _Due) -> None:
        """With what was used; refused for being more than there is, with what was held."""
        assert due.held is not None, "what is settled is held"
        tally = self.tallies[due.job.agent.name]
        actual = _actual(due.job, due.held)
        outcome = await self._commit(due.job, due.held, actual, again=False)
        if isinstance(outcome, Refusal) and outcome.code == "RESERVATION_EXPIRED":
            tally.too_late += 1
            return
        if isinstance(outcome, Refusal):
            tally.refused += 1
            self.denials[f"commit {outcome.code}"] += 1
            actual = due.held.reserved or 0
            outcome = await self._commit(due.job, due.held, actual, again=True)
        answer = agreed(outcome)
        tally.committed += 1
        tally.in_grace += fate_of(due.job.number) is Fate.IN_GRACE
        tally.cut += answer.charged < actual
        tally.charged += answer.charged
        tally.overdraft += self._note_debts(answer)

    async def _commit(self, job: Job, held: ReserveAnswer, actual: int, *, again: bool) -> BudgetOutcome[CommitAnswer]:
        assert held.reservation_id is not None, "a live hold"
        reservation_id = held.reservation_id
        return await self._timed(
            "commit",
            lambda: self._runtime.budgets.commit(
                self._world.caller,
                reservation_id=reservation_id,
                idempotency_key=f"commit-{job.number}" + ("-as-held" if again else ""),
                actual=_tokens(actual),
                metrics=Metrics(tokens_input=job.request.context_tokens, tokens_output=job.request.generated_tokens),
            ),
        )

    async def _timed(self, what: str, call: Callable[[], Awaitable[Answer]]) -> Answer:
        started = time.perf_counter_ns()
        answer = await call()
        self.latencies[what].taken_ns.append(time.perf_counter_ns() - started)
        return answer

    def _note_debts(self, answer: CommitAnswer) -> bool:
        """Whether a debt is more than it was. Answers come in the order of the decisions: one tenant, one actor."""
        grew = False
        for balance in answer.balances:
            grew |= balance.debt > self._debts.get(balance.scope_path, 0)
            self._debts[balance.scope_path] = balance.debt
        return grew


def _actual(job: Job, held: ReserveAnswer) -> int:
    """An agent that got caps keeps them: the answer is no longer than they say."""
    generated = job.request.generated_tokens
    if held.caps is not None and held.caps.max_tokens is not None:
        generated = min(generated, held.caps.max_tokens)
    return job.request.context_tokens + generated


def _tokens(amount: int) -> Amount:
    return Amount(Unit.TOKENS, amount)
