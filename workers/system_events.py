"""What a node tells operators of its own state (8.2): its database was lost and is back, and its turns have become slow.

While the database is lost nothing can be written, so both events of it are, once it is back, each with its own instant.
"""

from __future__ import annotations

from typing import Any, Final

from domain.events import NewEvent
from domain.identity import SYSTEM
from storage.database import Database, read_clock
from storage.events import append_events
from workers import measures
from workers.announcing import payload_of
from workers.clock import Clock
from workers.ids import IdSource
from workers.schedule import Ran

CONNECTION_LOST: Final = "system.store_connection_lost"
CONNECTION_RESTORED: Final = "system.store_connection_restored"
HIGH_LATENCY: Final = "system.high_latency"

SLOW_MS: Final = 1_000
"""A turn that takes longer, from its lock to its commit, is slow. It is a bucket of the histogram."""
SLOW_SHARE: Final = 100
"""One in so many may be slow: what is told is that the 99th percentile is above."""
TURNS_LEAST: Final = 100
"""Fewer turns between two looks tell nothing."""


class SystemEvents:
    """One object a node."""

    def __init__(self, database: Database, clock: Clock, ids: IdSource, *, node: str) -> None:
        self._database = database
        self._clock = clock
        self._ids = ids
        self._node = node
        self._lost_at: int | None = None
        self._seen = _turns()
        self._is_slow = False

    def connection_lost(self) -> None:
        if self._lost_at is None:
            self._lost_at = self._clock.local_ms()

    async def connection_restored(self) -> None:
        """Raises `storage.database.Unavailable` when it is lost again: then it is told the next time."""
        if (lost_at := self._lost_at) is None:
            return
        now = self._clock.local_ms()
        facts = {"component": "store", "details": {"node": self._node}}
        lost = {"message": "the connection to the database was lost", "severity": "critical", **facts}
        back = {"message": "the connection to the database is back", "severity": "info", **facts}
        back["details"] = {"node": self._node, "lost_for_ms": max(0, now - lost_at)}
        await self._tell((CONNECTION_LOST, lost_at, lost), (CONNECTION_RESTORED, now, back))
        self._lost_at = None

    async def run_once(self) -> Ran:
        """The job `system.latency`: tell when the turns since the last look were slow, and those before it were not."""
        turns, quick = _turns()
        turns_since, slow_since = turns - self._seen[0], (turns - quick) - (self._seen[0] - self._seen[1])
        was_slow, is_slow = self._is_slow, turns_since >= TURNS_LEAST and slow_since * SLOW_SHARE > turns_since
        if is_slow and not was_slow:
            details = {"node": self._node, "turns": turns_since, "slow": slow_since, "slow_from_ms": SLOW_MS}
            message = f"more than one in {SLOW_SHARE} turns took longer than {SLOW_MS} ms"
            facts = {"component": "turns", "message": message, "severity": "warning", "details": details}
            await self._tell((HIGH_LATENCY, self._clock.local_ms(), facts))
        self._seen, self._is_slow = (turns, quick), is_slow
        return Ran(counts={"turns": turns_since, "slow": slow_since})

    async def _tell(self, *told: tuple[str, int, dict[str, Any]]) -> None:
        async with self._database.transaction() as connection:
            now = self._clock.instant(await read_clock(connection))
            events = [
                NewEvent(
                    event_id=self._ids.new("evt"),
                    tenant_id=SYSTEM,
                    type=kind,
                    occurred_at=at,
                    payload=payload_of(kind, facts, actor={"type": "system"}),
                    is_for_operators=True,
                )
                for kind, at, facts in told
            ]
            await append_events(connection, events, recorded_at=now)


def _turns() -> tuple[int, int]:
    """(turns so far, those of them that were not slow), of both contexts."""
    turns = quick = 0.0
    for metric in measures.TURN_SECONDS.collect():
        for sample in metric.samples:
            if sample.name.endswith("_count"):
                turns += sample.value
            elif sample.name.endswith("_bucket") and float(sample.labels["le"]) * 1_000 == SLOW_MS:
                quick += sample.value
    return int(turns), int(quick)
