"""Deciding from memory, before the database is asked: what both contexts have in common."""

from __future__ import annotations

from typing import Final

from storage.premises import Verdict
from workers import measures
from workers.clock import Clock

SOON_MS: Final = 20
"""What falls due within it is left to the lock mode: it would likely pass while decisions are under way."""
VALID_MAX_MS: Final = 1_000
"""How old the instant of a decision may be when it is written, where nothing falls due in between."""


def hear(verdict: Verdict, now_ms: int, *, context: str, clock: Clock) -> bool:
    """Take in what the database said and what its clock shows; whether the decisions stand."""
    if verdict is Verdict.SET_BACK:
        clock.database.forget()
    clock.database.see(now_ms)
    measures.AHEAD.labels(context, verdict.value).inc()
    return verdict is Verdict.SETTLED
