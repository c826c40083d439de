"""The job that tells of budgets that are used up much faster than before: `budget.burn_rate_anomaly` (8.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from domain.budget.burning import ANOMALY, Anomaly, Burned, BurnLevel, advance_burning, find_anomalies
from domain.budget.rates import window_end
from storage.budget.burning import FIRST, flush_burning, page_burned
from storage.budget.rates import flush_counted_until, lock_counted_until
from storage.database import AnyConnection
from workers.announcing import Announcer
from workers.budget.asking import BudgetAsker
from workers.budget.rates import mark_of
from workers.budget.watched import PublishedThresholds, Thresholds, by_window, tenants_of
from workers.schedule import Ran

MARK: Final = "budget.burning.window"
PAGE: Final = 1_000
"""Budgets of one transaction."""


class BurnJob:
    """`budget.burning`. What is charged by the time it runs counts as charged in the window that is over.

    After a pause of the whole service that took longer than a window, histories begin anew: nobody knows when in it what
    was charged. Two nodes at once, or a run that was cut off, tell each anomaly once: whoever writes a budget's window.
    """

    def __init__(self, asker: BudgetAsker, announcer: Announcer, thresholds: Thresholds | None = None) -> None:
        self._asker = asker
        self._announcer = announcer
        self._thresholds = thresholds or PublishedThresholds()

    async def run_once(self) -> Ran:
        """Measure the windows that are over; how many budgets were charged in them, and how many anomalies began."""
        async with self._asker.database.acquire() as connection:
            await self._thresholds.load(connection)
        budgets = anomalies = 0
        for window_ms, levels in by_window(self._thresholds.burns()).items():
            measured, told = await self._measure(levels, window_ms)
            budgets, anomalies = budgets + measured, anomalies + told
        return Ran(counts={"budgets": budgets, "anomalies": anomalies})

    async def _measure(self, levels: list[BurnLevel], window_ms: int) -> tuple[int, int]:
        """(budgets, anomalies) of one length of windows."""
        mark = mark_of(MARK, window_ms)
        async with self._asker.database.transaction() as connection:
            now = await self._asker.now(connection)
            last = window_end(now, window_ms=window_ms)
            counted = await lock_counted_until(connection, mark, first=last - window_ms)
        if counted >= last:
            return 0, 0
        budgets = anomalies = 0
        after = FIRST
        while True:
            async with self._asker.database.transaction() as connection:
                page = await page_burned(
                    connection,
                    window_ms=window_ms,
                    window_ends_at=last,
                    tenant_ids=tenants_of(levels),
                    after=after,
                    limit=PAGE,
                )
                if not page:
                    await flush_counted_until(connection, mark, last)
                    return budgets, anomalies
                after = (page[-1].tenant_id, page[-1].budget_id)
                if counted < last - window_ms:
                    page = [replace(budget, before=None) for budget in page]
                anomalies += await self._advance(connection, page, levels, window_ms=window_ms, ends_at=last)
                budgets += len(page)

    async def _advance(
        self,
        connection: AnyConnection,
        page: Sequence[Burned],
        levels: list[BurnLevel],
        *,
        window_ms: int,
        ends_at: int,
    ) -> int:
        """How many anomalies began."""
        kept = [(budget, advance_burning(budget, window_ends_at=ends_at, window_ms=window_ms)) for budget in page]
        written = await flush_burning(connection, kept, window_ms=window_ms)
        found = [
            anomaly
            for budget, after in kept
            if (budget.tenant_id, budget.budget_id) in written
            for anomaly in find_anomalies(budget, after, levels=levels, window_ms=window_ms)
        ]
        now = await self._asker.now(connection)
        for anomaly in found:
            await self._tell(connection, anomaly, now=now)
        return len(found)

    async def _tell(self, connection: AnyConnection, anomaly: Anomaly, *, now: int) -> None:
        await self._announcer.tell(
            connection,
            ANOMALY,
            tenant_id=anomaly.budget.tenant_id,
            data=anomaly.facts(),
            now=now,
            caller=None,
            correlation_id=anomaly.correlation_id(),
            scope=anomaly.budget.scope,
            level_millionths=anomaly.level.multiplier_millionths,
        )
