"""Amounts of one unit as exact 64-bit integers: money, tokens, credits. Never a float, never a wrap.

Python's integers do not overflow and PostgreSQL's `bigint` does, so every sum that is kept is checked here first: what
does not fit is refused (section 2.8 of the budget rules), it is never cut or wrapped.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final, NamedTuple

INT64_MAX: Final = 2**63 - 1
INT64_MIN: Final = -(2**63)


class Unit(StrEnum):
    """What is counted. One lifecycle of a budget reservation is in one unit (I6)."""

    USD_MICROCENTS = "USD_MICROCENTS"
    """10^-8 US dollars."""
    TOKENS = "TOKENS"
    CREDITS = "CREDITS"
    RISK_POINTS = "RISK_POINTS"


class Amount(NamedTuple):
    """An amount as a client states it: 0..INT64_MAX of one unit."""

    unit: Unit
    amount: int


def is_amount(value: Any) -> bool:
    """An exact integer in 0..INT64_MAX. A bool is an `int` to Python and is not one here; nor is 5.0 or "5"."""
    return type(value) is int and 0 <= value <= INT64_MAX


def is_signed_amount(value: Any) -> bool:
    return type(value) is int and INT64_MIN <= value <= INT64_MAX


def saturating_sum(values: Iterable[int]) -> int:
    """The sum, held at INT64_MAX: for totals that only inform, over budgets that are each exact."""
    return min(sum(values), INT64_MAX)
