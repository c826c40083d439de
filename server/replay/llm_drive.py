"""The run of the llm replay under the trace's clock: a hold when a request comes, the tokens when its answer is there.

At most `concurrency` calls are under way at once, and only calls less than `ANSWER_LEAST_MS` apart: nothing that a
reserve leads to is that early, so none of them has to wait for another.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from server.replay.drive import Progress
from server.replay.llm_agents import Fate, LlmAgents, fate_of
from server.replay.llm_calls import Held
from server.replay.llm_world import INSTALMENTS, Funds, Job
from workers.budget.expiry import ExpiryJob
from workers.clock import ManualClock

TTL_MS: Final = 60_000
GRACE_MS: Final = 5_000
ANSWER_LEAST_MS: Final = 1_000
TOKEN_MS: Final = 20
"""The trace does not tell how long an answer took: that long, and this for each token, but no longer than the TTL."""
MARGIN_MS: Final = 2_000


@dataclass(order=True, slots=True)
class _Due:
    at: int
    number: int
    job: Job = field(compare=False)
    held: Held | None = field(compare=False, default=None)


class LlmDrive:
    def __init__(
        self,
        agents: LlmAgents,
        clock: ManualClock,
        *,
        jobs: Sequence[Job],
        funds: Funds,
        concurrency: int,
        progress: Progress,
    ) -> None:
        self.agents = agents
        self.wall_ms = 0
        self._clock = clock
        self._jobs, self._funds = jobs, funds
        self._concurrency, self._progress = concurrency, progress
        self._agenda = [_Due(job.request.came_at, job.number, job) for job in jobs]
        self._done = 0
        self._instalments = 1

    async def run(self, expiry: ExpiryJob) -> None:
        """From the first request until the last hold is over."""
        heapq.heapify(self._agenda)
        started = time.perf_counter_ns()
        while batch := self._next_batch():
            self._clock.now = batch[-1].at
            await self._pay()
            await asyncio.gather(*map(self._take, batch))
            self._progress(self._done, len(self._jobs))
        self._clock.advance(TTL_MS + GRACE_MS + MARGIN_MS)
        await expiry.run_once()
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
            await self.agents.pay_instalment(self._funds, self._instalments)
            self._instalments += 1

    async def _take(self, due: _Due) -> None:
        if due.held is not None:
            await self.agents.settle(due.held)
            return
        held = await self.agents.reserve(due.job, ttl_ms=TTL_MS, grace_ms=GRACE_MS)
        self._done += 1
        if held is not None and (at := _settles_at(held)) is not None:
            heapq.heappush(self._agenda, _Due(at, due.job.number, due.job, held))


def _settles_at(held: Held) -> int | None:
    """When this hold is settled, if ever."""
    match fate_of(held.job.number):
        case Fate.IN_GRACE:
            return held.expires_at + MARGIN_MS
        case Fate.TOO_LATE:
            return held.expires_at + GRACE_MS + MARGIN_MS
        case Fate.LEFT:
            return None
        case _:
            took_ms = ANSWER_LEAST_MS + TOKEN_MS * held.job.request.generated_tokens
            return held.expires_at - held.remaining_ttl_ms + min(took_ms, TTL_MS - MARGIN_MS)
