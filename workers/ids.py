"""New ids: time-ordered, so that indexes grow at one end; random enough that nobody guesses one."""

from __future__ import annotations

import os
import struct
from typing import Final

from domain.identity import PAIRS, encode_bits
from workers.clock import Clock

_STEPS: Final = struct.Struct("<512I")
"""Random steps are fetched so many at once: asking the system for four bytes costs more than making the id."""
_LOW_MAX: Final = 1 << 50


class IdSource:
    """Makes ids that sort by creation inside one process, also within one millisecond."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_ms = 0
        self._front = ""
        """The characters that all ids of one millisecond share."""
        self._low = _LOW_MAX
        self._steps: list[int] = []

    def new(self, prefix: str) -> str:
        """`prefix` and 26 characters: 48 bits of milliseconds, 80 of randomness that only grow within a millisecond."""
        now = self._clock.local_ms()
        if now > self._last_ms:
            self._begin(now)
        else:
            self._low += 1 + self._step()
            if self._low >= _LOW_MAX:
                self._begin(self._last_ms + 1)
        low, two = self._low, PAIRS  # spelled out, for every command and every event needs one
        last = f"{two[low >> 40]}{two[low >> 30 & 1023]}{two[low >> 20 & 1023]}{two[low >> 10 & 1023]}{two[low & 1023]}"
        return f"{prefix}_{self._front}{last}"

    def _begin(self, milliseconds: int) -> None:
        """Ids of another millisecond."""
        self._last_ms = milliseconds
        chance = int.from_bytes(os.urandom(10))
        self._front = encode_bits(milliseconds, characters=10) + encode_bits(chance >> 50, characters=6)
        self._low = (chance & (_LOW_MAX - 1)) >> 1  # room to count up without running over

    def _step(self) -> int:
        if not self._steps:
            self._steps.extend(_STEPS.unpack(os.urandom(_STEPS.size)))
        return self._steps.pop()
