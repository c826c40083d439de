"""Retention: events, webhooks' deliveries, remembered answers, signed evidence and the audit log are removed when they are
old. Nothing else ever is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from domain.terms import DAY_MS
from domain.webhooks.deliveries import OVERDUE, OVERDUE_MS
from storage.attempts import expire_attempts
from storage.budget.answers import forget_answers as forget_budget_answers
from storage.budget.audit_log import expire_entries
from storage.budget.bulk import forget_runs
from storage.budget.evidence import expire_evidence
from storage.database import Database, read_clock
from storage.events import expire_events, page_streams
from storage.replay import forget_answers
from storage.webhooks.deliveries import expire_deleted, expire_deliveries, flush_overdue
from workers.budget.audit_log import UNKNOWN_TENANT
from workers.budget.bulk import REMEMBERED_MS
from workers.capacity.turn import CREATE_GRANT
from workers.clock import Clock
from workers.schedule import Ran

EVENT_DAYS_LEAST: Final = 7
"""What clients are promised to find when they come back (D47)."""
EVENT_DAYS: Final = 30
ANSWER_DAYS: Final = 30
AUDIT_DAYS: Final = 400
"""A year that is to be accounted for, and time to do it."""
UNKNOWN_DAYS: Final = 30
"""Who had no valid key and tried: of use as long as somebody looks into it."""
EVIDENCE_DAYS: Final = 400
"""As long as the log of what it is evidence of. The keys that signed stay: somebody may have kept a copy."""
DELIVERY_DAYS: Final = 14
"""What became of webhooks' deliveries: for looking into what went wrong lately."""
ATTEMPTS_MS: Final = 3 * DAY_MS
"""The longest window that rates are counted in is a day; it is compared with the one before."""
KEPT_ANSWERS: Final = (CREATE_GRANT,)
"""Operations whose answers live as long as what they made (D19): a key that made a grant is taken until it is gone."""
ROWS_MAX: Final = 1_000
"""Rows that one transaction removes: short, so that nobody waits for it."""
STREAMS_MAX: Final = 500
"""Streams that are read at once."""


class RetentionJob:
    """Raises ValueError when events are to be kept shorter than is promised."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        *,
        event_days: int = EVENT_DAYS,
        answer_days: int = ANSWER_DAYS,
        audit_days: int = AUDIT_DAYS,
        evidence_days: int = EVIDENCE_DAYS,
        delivery_days: int = DELIVERY_DAYS,
    ) -> None:
        if event_days < EVENT_DAYS_LEAST:
            raise ValueError(f"events are kept for at least {EVENT_DAYS_LEAST} days, not {event_days}")
        self._database = database
        self._clock = clock
        self._event_ms = event_days * DAY_MS
        self._answer_ms = answer_days * DAY_MS
        self._audit_ms = audit_days * DAY_MS
        self._evidence_ms = evidence_days * DAY_MS
        self._delivery_ms = delivery_days * DAY_MS

    async def run_once(self) -> Ran:
        """Remove everything that is too old, in small transactions."""
        async with self._database.acquire() as connection:
            now = self._clock.instant(await read_clock(connection))
        streams = await self._expire_events(before=now - self._event_ms)
        before = now - self._answer_ms
        answers = await self._remove(partial(forget_answers, before=before, keep=KEPT_ANSWERS))
        # Each carries its own time, which the protocol sets (section 4.4).
        answers += await self._remove(partial(forget_budget_answers, now=now))
        await self._remove(partial(forget_runs, before=now - REMEMBERED_MS))
        entries = await self._remove(partial(expire_entries, before=now - self._audit_ms))
        unknown_ms = min(UNKNOWN_DAYS * DAY_MS, self._audit_ms)
        entries += await self._remove(partial(expire_entries, before=now - unknown_ms, tenant_id=UNKNOWN_TENANT))
        await self._remove(partial(expire_attempts, before=now - ATTEMPTS_MS))
        evidence = await self._remove(partial(expire_evidence, before=now - self._evidence_ms))
        deliveries = await self._expire_deliveries(now)
        counts = {"streams": streams, "answers": answers, "audit": entries, "evidence": evidence}
        return Ran(counts={**counts, "deliveries": deliveries})

    async def _expire_events(self, *, before: int) -> int:
        """How many streams had something to remove."""
        shortened, after = 0, ""
        while True:
            async with self._database.acquire() as connection:
                streams = await page_streams(connection, after=after, limit=STREAMS_MAX)
            if not streams:
                return shortened
            for stream in streams:
                shortened += await self._shorten(stream, before=before)
            after = streams[-1]

    async def _shorten(self, stream: str, *, before: int) -> bool:
        was_shortened = False
        while await self._remove_some(stream, before=before):
            was_shortened = True
        return was_shortened

    async def _remove_some(self, stream: str, *, before: int) -> bool:
        async with self._database.transaction() as connection:
            return await expire_events(connection, stream, before=before, limit=ROWS_MAX)

    async def _expire_deliveries(self, now: int) -> int:
        """Rows removed. What waits for too long, behind a pause for instance, is given up first."""
        await self._remove(partial(flush_overdue, before=now - OVERDUE_MS, now=now, error=OVERDUE))
        removed = await self._remove(partial(expire_deliveries, before=now - self._delivery_ms))
        return removed + await self._remove(expire_deleted)

    async def _remove(self, some: Callable[..., Awaitable[int]]) -> int:
        """Remove all that there is, some rows at a time. How many there were."""
        total = 0
        while True:
            async with self._database.transaction() as connection:
                removed = await some(connection, limit=ROWS_MAX)
            total += removed
            if removed < ROWS_MAX:
                return total
