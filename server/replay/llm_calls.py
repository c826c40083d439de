"""What the llm replay asks of the authority, whichever way it gets there, and what it is told.

Two ways: the desks of this process (`llm_desk`), and a running server over HTTP (`llm_wire`). All amounts are tokens.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from domain.budget.values import Balance
from server.replay.llm_trace import LlmRequest
from server.replay.llm_world import Agent, Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A live hold, as its answer told it."""

    reservation_id: str
    amount: int
    expires_at: int
    """By the authority's clock."""
    remaining_ttl_ms: int
    has_caps: bool
    max_tokens: int | None
    grace_ms: int
    job: Job
    asked_ns: int = 0
    """By our own clock; `told_ns` is when the answer was there."""
    told_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Charged:
    """A settlement or a debit. `balances`: of the budgets that took part, afterwards."""

    amount: int
    balances: Sequence[Balance]


@dataclass(frozen=True, slots=True)
class Denied:
    code: str


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

    @contextmanager
    def timed(self) -> Iterator[None]:
        started = time.perf_counter_ns()
        yield
        self.taken_ns.append(time.perf_counter_ns() - started)


def new_latencies() -> dict[str, Latencies]:
    """By what is asked."""
    return {what: Latencies() for what in ("reserve", "commit", "extend", "release", "debit")}


class LlmCalls(Protocol):
    """Raises `ReplayError` for a refusal that a replay cannot come upon."""

    latencies: dict[str, Latencies]

    async def make_budget(self, scope: str, *, allocated: int, overdraft_limit: int) -> None: ...

    async def make_policy(self, name: str, *, pattern: str, max_tokens: int) -> None: ...

    async def credit(self, scope: str, amount: int, *, key: str) -> None: ...

    async def reserve(self, job: Job, *, ttl_ms: int, grace_ms: int, key: str) -> Held | Denied: ...

    async def extend(self, held: Held, *, by_ms: int, key: str) -> Held | Denied:
        """The same hold with its new expiry."""

    async def commit(self, held: Held, actual: int, *, request: LlmRequest, key: str) -> Charged | Denied: ...

    async def release(self, held: Held, *, key: str) -> Denied | None: ...

    async def debit(self, agent: Agent, actual: int, *, request: LlmRequest, key: str) -> Charged | Denied:
        """Spend what is available without a hold."""

    async def balances(self) -> tuple[Balance, ...]:
        """Of every budget of the tenant."""
