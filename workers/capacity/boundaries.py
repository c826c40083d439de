"""The job that has starts and ends of grants applied (R15, R16): it asks the actors, who do it in every turn anyway.

So it decides nothing and being late changes nothing but the delay of events; there is no fixed number a tick (B35).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from domain.capacity.commands import Advance
from storage.capacity.boundaries import FIRST, due_reservations, next_boundary_at
from storage.database import read_clock
from workers import measures
from workers.capacity.asking import CapacityAsker
from workers.schedule import Ran

log = logging.getLogger("earmark.boundaries")

PAGE: Final = 1_000
"""Reservations that are asked at once: a few turns of every lane, so that no lane waits for the next page."""


class BoundaryJob:
    """`vps.boundaries`. Several nodes may run it at once: whoever locks a reservation first leaves nothing to do."""

    def __init__(self, asker: CapacityAsker) -> None:
        self._asker = asker

    async def run_once(self) -> Ran:
        """Apply everything that is due; when the next boundary is due."""
        database = self._asker.database
        async with database.acquire() as connection:
            now = await self._asker.now(connection)
        counts = {"reservations": 0, "boundaries": 0, "failed": 0}
        after = FIRST
        while True:
            async with database.acquire() as connection:
                page = await due_reservations(connection, now=now, after=after, limit=PAGE)
            if not page:
                break
            failed = await advance_all(self._asker, [due.key for due in page])
            counts["reservations"] += len(page) - len(failed)
            counts["failed"] += len(failed)
            counts["boundaries"] += sum(due.boundaries for due in page if due.key not in failed)
            after = page[-1]
        measures.BOUNDARIES.inc(counts["boundaries"])
        return Ran(counts=counts, wake_in_ms=await self._wake_in_ms(now))

    async def _wake_in_ms(self, now: int) -> int | None:
        """How long until the next boundary after `now`, by the clock that decides it: the host's may be off."""
        async with self._asker.database.acquire() as connection:
            due_at = await next_boundary_at(connection, after=now)
            if due_at is None:
                return None
            return max(0, due_at - self._asker.clock.instant(await read_clock(connection)))


async def advance_all(asker: CapacityAsker, keys: Iterable[str]) -> set[str]:
    """Have these reservations apply what is due; the ones that could not. They stay due, so nothing is lost."""
    keys = list(keys)
    replies = await asyncio.gather(*(asker.ask(key, Advance()) for key in keys), return_exceptions=True)
    failed: dict[str, BaseException] = {}
    for key, reply in zip(keys, replies, strict=True):
        if isinstance(reply, asyncio.CancelledError):
            raise reply
        if isinstance(reply, BaseException):
            failed[key] = reply
    if failed:
        log.warning("%d reservations could not be advanced: %s", len(failed), next(iter(failed.values())))
    return set(failed)
