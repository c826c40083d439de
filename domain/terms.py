"""Time as every rule sees it: integer epoch milliseconds and half-open terms [startsAt, endsAt) (R1)."""

from __future__ import annotations

from typing import Final

SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 86_400_000

INSTANT_MAX: Final = 2**53 - 1
"""The largest instant that a JSON number carries exactly everywhere (D24, D25)."""

START_TOLERANCE_MS: Final = 5 * MINUTE_MS
"""How far in the past a term may start when it is made, inclusive (R7)."""


def hour_start(instant: int) -> int:
    """The start of the UTC clock hour that holds `instant` (R39)."""
    return instant - instant % HOUR_MS


def overlap_ms(*, from_a: int, to_a: int, from_b: int, to_b: int) -> int:
    """How long two half-open intervals share, never negative."""
    return max(0, min(to_a, to_b) - max(from_a, from_b))
