"""Keys that requests were sent with on this node: all of them counted, and of those that are not valid somebody is told
(`api_key.auth_failed`, 8.2).

Nothing of it is in the way of a request: it is noted in memory and written down by a job. What a node has noted and not
written is lost with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from domain.credentials import Unfit
from domain.events import NewEvent
from domain.identity import SYSTEM
from domain.terms import MINUTE_MS
from storage.attempts import flush_attempts
from storage.database import Database, read_clock
from storage.events import append_events
from workers import measures
from workers.announcing import payload_of, present
from workers.clock import Clock
from workers.ids import IdSource
from workers.schedule import Ran

AUTH_FAILED: Final = "api_key.auth_failed"
TOLD_A_MINUTE: Final = 60
"""Failures that a node tells of in a minute, the others it only counts: whoever knocks must not be able to fill a disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The request that a key came with."""

    request_id: str | None
    trace_id: str | None
    source_ip: str | None
    trace_flags: str | None = None


@dataclass(frozen=True, slots=True)
class _Failure:
    unfit: Unfit
    attempt: Attempt
    at: int


class AttemptLog:
    """One object a node."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counts: dict[tuple[str, int], list[int]] = {}
        self._failures: deque[_Failure] = deque(maxlen=2 * TOLD_A_MINUTE)
        self._minute = -1
        self._told = 0

    def succeeded(self, tenant_id: str) -> None:
        self._count(tenant_id, self._clock.local_ms(), succeeded=1, failed=0)

    def failed(self, unfit: Unfit, attempt: Attempt) -> None:
        now = self._clock.local_ms()
        self._count(unfit.tenant_id or SYSTEM, now, succeeded=0, failed=1)
        is_told = self._is_told(now)
        measures.AUTH_FAILURES.labels(reason=unfit.reason, told=str(is_told).lower()).inc()
        if is_told:
            self._failures.append(_Failure(unfit, attempt, now))

    def _count(self, tenant_id: str, now: int, *, succeeded: int, failed: int) -> None:
        counts = self._counts.setdefault((tenant_id, now - now % MINUTE_MS), [0, 0])
        counts[0] += succeeded
        counts[1] += failed

    def _is_told(self, now: int) -> bool:
        minute = now // MINUTE_MS
        if minute != self._minute:
            self._minute, self._told = minute, 0
        self._told += 1
        return self._told <= TOLD_A_MINUTE

    async def flush(self, database: Database, ids: IdSource) -> Ran:
        """Write down what was noted since the last time. Raises `storage.database.Unavailable`; nothing is lost then."""
        counts, self._counts = self._counts, {}
        failures = tuple(self._failures)
        self._failures.clear()
        if not counts:
            return Ran(counts={"failures": 0})
        try:
            async with database.transaction() as connection:
                await flush_attempts(connection, counts)
                now = self._clock.instant(await read_clock(connection))
                await append_events(connection, [_event(each, ids) for each in failures], recorded_at=now)
        except BaseException:
            self._take_back(counts, failures)
            raise
        return Ran(counts={"failures": len(failures)})

    def _take_back(self, counts: dict[tuple[str, int], list[int]], failures: Sequence[_Failure]) -> None:
        for key, (succeeded, failed) in counts.items():
            kept = self._counts.setdefault(key, [0, 0])
            kept[0] += succeeded
            kept[1] += failed
        self._failures.extendleft(reversed(failures))


def _event(failure: _Failure, ids: IdSource) -> NewEvent:
    """It is the key's tenant's, as far as somebody has shown that they hold the key; and for operators only (8.2)."""
    unfit, attempt = failure.unfit, failure.attempt
    who = {"key_id": unfit.key_id, "source_ip": attempt.source_ip}
    facts = present({**who, "key_name": unfit.key_name, "failure_reason": unfit.reason})
    return NewEvent(
        event_id=ids.new("evt"),
        tenant_id=unfit.tenant_id or SYSTEM,
        type=AUTH_FAILED,
        occurred_at=failure.at,
        payload=payload_of(AUTH_FAILED, facts, actor={"type": "api_key", **who}, trace_flags=attempt.trace_flags),
        request_id=attempt.request_id,
        trace_id=attempt.trace_id,
        is_for_operators=True,
    )
