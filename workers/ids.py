"""New ids: time-ordered, so that indexes grow at one end; random enough that nobody guesses one."""

from __future__ import annotations

import os

from domain.identity import encode_id
from workers.clock import Clock


class IdSource:
    """Makes ids that sort by creation inside one process, also within one millisecond."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_ms = 0
        self._last_random = 0

    def new(self, prefix: str) -> str:
        """`prefix` and 26 characters: 48 bits of milliseconds, 80 of randomness that only grow within a millisecond."""
        now = self._clock.local_ms()
        if now > self._last_ms:
            self._last_ms = now
            self._last_random = int.from_bytes(os.urandom(10)) >> 1  # room to count up without running over
        else:
            self._last_random += 1 + int.from_bytes(os.urandom(4))
        return f"{prefix}_{encode_id(self._last_ms, self._last_random.to_bytes(10))}"
