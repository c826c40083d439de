"""The job that has overdue budget reservations given back (section 3): it asks the actors, whose turns do it anyway.

So it decides nothing, and being late changes nothing but the delay of events: nobody goes by a stored status.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from domain.budget.commands import ExpireDue
from domain.budget.values import ActorType, Origin
from storage.budget.due import FIRST, due_tenants, next_due_at
from storage.database import read_clock
from workers import measures
from workers.budget.asking import BudgetAsker
from workers.schedule import Ran

log = logging.getLogger("earmark.expiry")

PAGE: Final = 500
"""Tenants that are asked at once: a few turns of every lane, so that no lane waits for the next page."""
BY_ITSELF: Final = Origin(actor_type=ActorType.SCHEDULER)


class ExpiryJob:
    """`budget.expiry`. Several nodes may run it at once: whoever locks a tenant first leaves nothing to do."""

    def __init__(self, asker: BudgetAsker) -> None:
        self._asker = asker

    async def run_once(self) -> Ran:
        """Have every tenant give back what is overdue; when something may be due next.

        A tenant with more than a turn takes stays due, and the run after this one, at once, goes on with it.
        """
        async with self._asker.database.acquire() as connection:
            now = await self._asker.now(connection)
        counts = {"tenants": 0, "failed": 0}
        after = FIRST
        while True:
            async with self._asker.database.acquire() as connection:
                page = await due_tenants(connection, now=now, after=after, limit=PAGE)
            if not page:
                break
            failed = await self._expire([due.tenant_id for due in page])
            counts["tenants"] += len(page) - failed
            counts["failed"] += failed
            after = page[-1]
        measures.EXPIRED_TENANTS.inc(counts["tenants"])
        return Ran(counts=counts, wake_in_ms=await self._wake_in_ms(now, retry=bool(counts["failed"])))

    async def _expire(self, tenant_ids: Sequence[str]) -> int:
        """Ask these tenants; how many could not. They stay due, so nothing is lost."""
        asks = (self._asker.ask(ExpireDue(tenant_id=tenant_id, origin=BY_ITSELF)) for tenant_id in tenant_ids)
        replies = await asyncio.gather(*asks, return_exceptions=True)
        errors = [reply for reply in replies if isinstance(reply, BaseException)]
        for error in errors:
            if isinstance(error, asyncio.CancelledError):
                raise error
        if errors:
            log.warning("%d tenants could not give back what is overdue: %s", len(errors), errors[0])
        return len(errors)

    async def _wake_in_ms(self, now: int, *, retry: bool) -> int | None:
        """How long until the next one, by the clock that decides it; what failed waits for the next tick."""
        async with self._asker.database.acquire() as connection:
            due_at = await next_due_at(connection, after=now if retry else -1)
            if due_at is None:
                return None
            return max(0, due_at - self._asker.clock.instant(await read_clock(connection)))
