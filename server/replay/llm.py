"""`earmark replay llm`: an hour of real requests to language models through the budget desk, under the trace's clock.

Each request holds an estimate of its tokens and settles with the actual ones. A few come back late, and a few never.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

from domain.budget.queries import BudgetQuery
from domain.budget.values import Balance
from domain.outcomes import Refusal
from server.replay.drive import Progress
from server.replay.llm_drive import LlmDrive, LlmTally
from server.replay.llm_report import LlmReport
from server.replay.llm_trace import LlmRequest, read_requests
from server.replay.llm_world import TENANT, assign, make_llm_world
from server.replay.world import ReplayError
from storage.budget.audit import find_breaches
from storage.database import Database
from workers.clock import ManualClock
from workers.request import Caller
from workers.runtime import Runtime, RuntimeOptions

CONCURRENCY_DEFAULT: Final = 16
CONCURRENCY_MAX: Final = 256
BUDGET_PERCENT_DEFAULT: Final = 65
BUDGET_PERCENT_MAX: Final = 1_000
BUDGETS_SHOWN: Final = 200


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
    clock = ManualClock(requests[0].came_at)
    runtime = Runtime(database, clock=clock, options=RuntimeOptions(lanes=1, runs_jobs=False))
    try:
        jobs = tuple(assign(requests))
        world = await make_llm_world(runtime, jobs, budget_percent=options.budget_percent)
        drive = LlmDrive(runtime, clock, world, jobs, concurrency=options.concurrency, progress=progress)
        await drive.run()
        ledger = await _ledger(runtime, world.caller)
        return await _report(database, drive, ledger, requests, options)
    finally:
        await runtime.stop()


async def _ledger(runtime: Runtime, caller: Caller) -> tuple[Balance, ...]:
    seen = await runtime.budget_reads.budgets(caller, query=BudgetQuery(), limit=BUDGETS_SHOWN)
    if isinstance(seen, Refusal) or seen.has_more:
        raise ReplayError("the budgets cannot be read in one page")
    return tuple(each.budget.balance() for each in seen.items)


async def _report(
    database: Database,
    drive: LlmDrive,
    ledger: Sequence[Balance],
    requests: Sequence[LlmRequest],
    options: LlmOptions,
) -> LlmReport:
    async with database.transaction(isolation="repeatable_read") as connection:
        breaches = await find_breaches(connection, [TENANT])
    total = sum_tallies(drive.tallies.values())
    return LlmReport(
        requests=len(requests),
        span_ms=requests[-1].came_at - requests[0].came_at,
        concurrency=options.concurrency,
        tallies={**dict(sorted(drive.tallies.items())), "all": total},
        denials=dict(drive.denials.most_common()),
        ledger=ledger,
        latencies=drive.latencies,
        wall_ms=drive.wall_ms,
        violations=[f"{each.rule}: {each.what}" for each in breaches] + audit_answers(ledger, total),
    )


def audit_answers(ledger: Sequence[Balance], total: LlmTally) -> list[str]:
    """What clients were told against what the tenant's budget says; and every hold of a run that is over is over."""
    charged = sum(each.spent + each.debt for each in ledger if each.scope_path == f"tenant:{TENANT}")
    held = [each.scope_path for each in ledger if each.reserved]
    wrong = [f"answers: {total.charged} tokens charged as told, {charged} on the ledger"]
    if charged == total.charged:
        wrong = []
    return wrong + [f"answers: {scope} still holds something after every grace" for scope in held]


def sum_tallies(tallies: Iterable[LlmTally]) -> LlmTally:
    """Field by field."""
    each_of = list(tallies)
    return LlmTally(**{each.name: sum(getattr(tally, each.name) for tally in each_of) for each in fields(LlmTally)})
