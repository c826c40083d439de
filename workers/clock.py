"""The one place where tests and replays put their own time. Everybody else gets the instant with the turn (R3)."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def instant(self, database_ms: int) -> int:
        """The instant of a turn, in epoch milliseconds, given the database's clock as read under the lock."""

    def local_ms(self) -> int:
        """About now, for ids and for waiting: never for a decision."""


class DatabaseClock:
    """The clock of production: PostgreSQL's. Hosts' clocks decide nothing (D15)."""

    def instant(self, database_ms: int) -> int:
        return database_ms

    def local_ms(self) -> int:
        return time.time_ns() // 1_000_000


class ManualClock:
    """Time that stands still until it is set: for tests and for replaying a trace."""

    def __init__(self, now: int) -> None:
        self.now = now

    def instant(self, database_ms: int) -> int:
        return self.now

    def local_ms(self) -> int:
        return self.now

    def advance(self, milliseconds: int) -> int:
        self.now += milliseconds
        return self.now
