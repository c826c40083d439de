"""The job that tells of frequent denials and expiries: `reservation.denial_rate_spike` and `.expiry_rate_spike` (8.2)."""

from __future__ import annotations

from typing import Final

from domain.budget.rates import WINDOW_MS, Activity, find_spikes, window_end
from domain.terms import SECOND_MS
from storage.budget.rates import flush_counted_until, lock_counted_until, read_activity
from workers.announcing import Announcer
from workers.budget.asking import BudgetAsker
from workers.schedule import Ran

SETTLE_MS: Final = 10 * SECOND_MS
"""How long after its end a window is counted: by then what happened in it stands in the streams."""
WINDOWS_MAX: Final = 12
"""Windows of one run: after a pause of the whole service, an hour of it."""
_NOTHING: Final = Activity()


class RatesJob:
    """`budget.rates`. Each window is counted once, on whichever node locks the mark first."""

    def __init__(self, asker: BudgetAsker, announcer: Announcer) -> None:
        self._asker = asker
        self._announcer = announcer

    async def run_once(self) -> Ran:
        """Count the windows that are over; how many, and how many spikes began in them."""
        windows = spikes = 0
        async with self._asker.database.transaction() as connection:
            now = await self._asker.now(connection)
            last = window_end(now - SETTLE_MS)
            counted = await lock_counted_until(connection, first=last)
            until = max(counted, last - WINDOWS_MAX * WINDOW_MS)
            while until < last:
                before = await read_activity(connection, window_ends_at=until, window_ms=WINDOW_MS)
                until += WINDOW_MS
                activity = await read_activity(connection, window_ends_at=until, window_ms=WINDOW_MS)
                windows += 1
                for tenant_id, seen in sorted(activity.items()):
                    for spike in find_spikes(
                        tenant_id, before=before.get(tenant_id, _NOTHING), now=seen, window_ends_at=until
                    ):
                        spikes += 1
                        await self._announcer.tell(
                            connection,
                            spike.type,
                            tenant_id=tenant_id,
                            data=spike.facts(),
                            now=now,
                            caller=None,
                            correlation_id=spike.correlation_id(),
                        )
            if until > counted:
                await flush_counted_until(connection, until)
        return Ran(counts={"windows": windows, "spikes": spikes})
