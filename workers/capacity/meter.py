"""`vps.grants`: the job that writes the usage of hours that are over (R38..R47)."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Final

from domain.terms import hour_start
from storage.capacity.metering import DueKey, due_keys, meter
from storage.database import Trouble, Unavailable, trouble_of
from workers import measures
from workers.capacity.asking import CapacityAsker
from workers.capacity.boundaries import advance_all
from workers.schedule import Ran

log = logging.getLogger("earmark.meter")

KEYS_MAX: Final = 50
"""Reservations that one transaction locks: all of them wait while it writes, and each row is looked up among them."""


class MeterJob:
    """Run it as often as you like, on as many nodes as you like: each hour is written once (R41, T71)."""

    def __init__(self, asker: CapacityAsker) -> None:
        self._asker = asker

    async def run_once(self) -> Ran:
        """Write everything that is owed up to the last full hour, however long nobody has (T73).

        Reservations in trouble are left for the next run; raises `Unavailable` when the database is.
        """
        database = self._asker.database
        async with database.acquire() as connection:
            hour_end = hour_start(await self._asker.now(connection))
        counts: Counter[str] = Counter(reservations=0, records=0, waiting=0, failed=0)
        after = ""
        while True:
            async with database.acquire() as connection:
                page = await due_keys(connection, hour_end=hour_end, after=after, limit=KEYS_MAX)
            if not page:
                return Ran(counts=dict(counts))
            await self._catch_up(page)
            counts["reservations"] += len(page)
            await self._meter([due.key for due in page], hour_end, counts)
            after = page[-1].key

    async def _catch_up(self, page: Sequence[DueKey]) -> None:
        """Boundaries come before the hours that they divide (R16); one that cannot be applied makes its key wait."""
        if late := [due.key for due in page if due.has_boundary]:
            await advance_all(self._asker, late)

    async def _meter(self, keys: Sequence[str], hour_end: int, counts: Counter[str]) -> None:
        """Write these, and if that fails each alone, so that one in trouble does not keep the others."""
        try:
            await self._drain(keys, hour_end, counts)
        except Exception as error:
            if _is_outage(error):
                raise
            if len(keys) == 1:
                log.warning("hours of %s wait: %s", keys[0], error, exc_info=not isinstance(error, Unavailable))
                counts["failed"] += 1
                return
            for key in keys:
                await self._meter([key], hour_end, counts)

    async def _drain(self, keys: Sequence[str], hour_end: int, counts: Counter[str]) -> None:
        has_more = True
        while has_more:
            async with self._asker.database.transaction() as connection:
                metered = await meter(connection, keys, hour_end=hour_end, instant=self._asker.clock.instant)
            for name, records in metered.records.items():
                measures.USAGE_RECORDS.labels(meter=name).inc(records)
                counts["records"] += records
            has_more = metered.has_more
        counts["waiting"] += len(metered.waiting)


def _is_outage(error: Exception) -> bool:
    """Whether the database is away, so that trying the next reservation would only take longer to say so."""
    if not isinstance(error, Unavailable):
        return False
    return error.__cause__ is None or trouble_of(error.__cause__) is not Trouble.BUSY
