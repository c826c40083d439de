"""`earmark replay llm`: an hour of real requests to language models against budgets that run out.

Through the desks of this process under the trace's clock, on a database of its own; over HTTP it is `llm_live`. Each
request holds an estimate of its tokens and settles with the actual ones. A few come back late, and a few never.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from server.replay.drive import Progress
from server.replay.llm_agents import LlmAgents
from server.replay.llm_desk import TENANT, DeskCalls
from server.replay.llm_drive import LlmDrive
from server.replay.llm_ledger import ReplyLedger
from server.replay.llm_report import LlmReport, make_report
from server.replay.llm_trace import LlmRequest, read_requests
from server.replay.llm_world import Funds, assign
from storage.budget.audit import find_breaches
from storage.database import Database
from workers.budget.expiry import ExpiryJob
from workers.clock import ManualClock
from workers.runtime import Runtime, RuntimeOptions

CONCURRENCY_DEFAULT: Final = 16
CONCURRENCY_MAX: Final = 256
BUDGET_PERCENT_DEFAULT: Final = 65
BUDGET_PERCENT_MAX: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmOptions:
    """Raises ValueError for what makes no sense."""

    concurrency: int = CONCURRENCY_DEFAULT
    """Calls under way at once. With 1 the same options come to the same decisions."""
    budget_percent: int = BUDGET_PERCENT_DEFAULT
    """The tenant's budget, of all tokens that the trace used."""
    limit: int | None = None
    """Only the first requests."""

    def __post_init__(self) -> None:
        if not 1 <= self.concurrency <= CONCURRENCY_MAX:
            raise ValueError(f"the concurrency must be from 1 to {CONCURRENCY_MAX}")
        if not 0 <= self.budget_percent <= BUDGET_PERCENT_MAX:
            raise ValueError(f"the budget must be from 0 to {BUDGET_PERCENT_MAX} percent")
        if self.limit is not None and self.limit < 1:
            raise ValueError("the limit must be at least 1 request")


async def run(database_url: str, path: Path, *, options: LlmOptions, progress: Progress | None = None) -> LlmReport:
    """Replay the trace at `path` on a fresh, migrated database, and audit what came of it.

    Raises `TraceError` for a malformed file, `ReplayError` when the product refuses what it must not.
    """
    requests = read_requests(path, limit=options.limit)
    database = await Database.open(database_url)
    try:
        return await _replay(database, requests, options, progress or (lambda _done, _total: None))
    finally:
        await database.close()


async def _replay(
    database: Database, requests: Sequence[LlmRequest], options: LlmOptions, progress: Progress
) -> LlmReport:
    clock, ledger = ManualClock(requests[0].came_at), ReplyLedger()
    runtime = Runtime(database, clock=clock, options=RuntimeOptions(lanes=1, runs_jobs=False))
    try:
        calls = await DeskCalls.open(runtime)
        jobs = tuple(assign(requests, tenant_id=TENANT))
        funds = Funds.of(jobs, budget_percent=options.budget_percent)
        agents = LlmAgents(calls, ledger)
        await agents.furnish(funds)
        drive = LlmDrive(agents, clock, jobs=jobs, funds=funds, concurrency=options.concurrency, progress=progress)
        await drive.run(ExpiryJob(runtime.budget_asker))
        balances = await calls.balances()
        async with database.transaction(isolation="repeatable_read") as connection:
            breaches = await find_breaches(connection, [TENANT])
        return make_report(
            requests,
            concurrency=options.concurrency,
            agents=agents,
            latencies=calls.latencies,
            balances=balances,
            wall_ms=drive.wall_ms,
            violations=[f"{each.rule}: {each.what}" for each in breaches]
            + ledger.wrong
            + ledger.audit_balances(balances),
        )
    finally:
        await runtime.stop()
