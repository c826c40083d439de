"""The one place where tests and replays put their own time. Everybody else gets the instant with the turn (R3)."""

from __future__ import annotations

import time
from typing import Final, Protocol

DRIFT: Final = 0.001
"""How much faster than the database's a host's clock may run: more than any that is kept in step."""


class DatabaseTime:
    """What the database's clock shows by now, at least: it was seen to show something, and that much has passed since.

    Never ahead of that clock unless it was set back, and behind it by the time that its last answer was under way. Good
    for deciding before the database is asked, which then says whether it agrees.
    """

    def __init__(self) -> None:
        self._seen_ms: float | None = None
        self._seen_at = 0.0

    def see(self, database_ms: int) -> None:
        """The clock was read as this, a moment ago."""
        now = time.monotonic()
        if self._seen_ms is None or database_ms > self._estimate(now, self._seen_ms):
            self._seen_ms, self._seen_at = database_ms, now

    def forget(self) -> None:
        """The clock was set back: what was seen before says nothing."""
        self._seen_ms = None

    def estimate(self) -> int | None:
        """None before the clock was seen for the first time."""
        return None if self._seen_ms is None else int(self._estimate(time.monotonic(), self._seen_ms))

    def _estimate(self, now: float, seen_ms: float) -> float:
        return seen_ms + (now - self._seen_at) * 1_000 * (1 - DRIFT)


class Clock(Protocol):
    database: DatabaseTime

    def instant(self, database_ms: int) -> int:
        """The instant of a turn, in epoch milliseconds, given the database's clock as read under the lock."""

    def local_ms(self) -> int:
        """About now, for ids and for waiting: never for a decision."""


class DatabaseClock:
    """The clock of production: PostgreSQL's. Hosts' clocks decide nothing (D15)."""

    def __init__(self) -> None:
        self.database = DatabaseTime()

    def instant(self, database_ms: int) -> int:
        return database_ms

    def local_ms(self) -> int:
        return time.time_ns() // 1_000_000


class ManualClock:
    """Time that stands still until it is set: for tests and for replaying a trace."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.database = DatabaseTime()

    def instant(self, database_ms: int) -> int:
        return self.now

    def local_ms(self) -> int:
        return self.now

    def advance(self, milliseconds: int) -> int:
        self.now += milliseconds
        return self.now
