"""The job that tells of frequent denials, expiries and failed authentications: the `…_rate_spike` events of 8.2."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from domain.budget.rates import WINDOW_MS, Activity, Level, Spike, find_spikes, window_end
from domain.terms import SECOND_MS
from storage.budget.rates import flush_counted_until, lock_counted_until, read_activity
from storage.database import AnyConnection
from workers.announcing import Announcer
from workers.budget.asking import BudgetAsker
from workers.budget.watched import PublishedThresholds, Thresholds, by_window, tenants_of
from workers.schedule import Ran

SETTLE_MS: Final = 10 * SECOND_MS
"""How long after its end a window is counted: by then what happened in it stands in the streams."""
WINDOWS_MAX: Final = 12
"""Windows of one run: after a pause of the whole service, an hour of it. Of windows that subscriptions ask for, one."""
MARK: Final = "budget.rates.window"
_NOTHING: Final = Activity()


class RatesJob:
    """`budget.rates`. Each window is counted once, on whichever node locks the mark first."""

    def __init__(self, asker: BudgetAsker, announcer: Announcer, thresholds: Thresholds | None = None) -> None:
        self._asker = asker
        self._announcer = announcer
        self._thresholds = thresholds or PublishedThresholds()

    async def run_once(self) -> Ran:
        """Count the windows that are over; how many, and how many spikes began in them."""
        async with self._asker.database.acquire() as connection:
            await self._thresholds.load(connection)
        windows = spikes = 0
        for window_ms, levels in by_window(self._thresholds.levels()).items():
            counted, told = await self._count(levels, window_ms)
            windows, spikes = windows + counted, spikes + told
        return Ran(counts={"windows": windows, "spikes": spikes})

    async def _count(self, levels: Sequence[Level], window_ms: int) -> tuple[int, int]:
        """(windows, spikes) of one length."""
        windows = spikes = 0
        tenants = tenants_of(levels)
        async with self._asker.database.transaction() as connection:
            now = await self._asker.now(connection)
            last = window_end(now - SETTLE_MS, window_ms=window_ms)
            mark = mark_of(MARK, window_ms)
            counted = await lock_counted_until(connection, mark, first=last)
            most = WINDOWS_MAX if window_ms == WINDOW_MS else 1
            until = max(counted, last - most * window_ms)
            read = partial(read_activity, connection, window_ms=window_ms, tenant_ids=tenants)
            activity = await read(window_ends_at=until) if until < last else {}
            while until < last:
                until += window_ms
                before, activity = activity, await read(window_ends_at=until)
                windows += 1
                for tenant_id, seen in sorted(activity.items()):
                    for spike in find_spikes(
                        tenant_id,
                        before=before.get(tenant_id, _NOTHING),
                        now=seen,
                        window_ends_at=until,
                        levels=levels,
                    ):
                        spikes += 1
                        await self._tell(connection, spike, now=now)
            if until > counted:
                await flush_counted_until(connection, mark, until)
        return windows, spikes

    async def _tell(self, connection: AnyConnection, spike: Spike, *, now: int) -> None:
        await self._announcer.tell(
            connection,
            spike.type,
            tenant_id=spike.tenant_id,
            data=spike.facts(),
            now=now,
            caller=None,
            correlation_id=spike.correlation_id(),
        )


def mark_of(name: str, window_ms: int) -> str:
    """What the mark of windows of this length is called."""
    return name if window_ms == WINDOW_MS else f"{name}.{window_ms // SECOND_MS}"
