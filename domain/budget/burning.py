"""When a budget is used up much faster than before (8.2, EventDataBurnRateAnomaly): measured in windows, told when it begins.

What burns is what is charged, debt included: a debt that is repaid becomes spent and burns nothing. A window is compared
with the average of those before it, an hour of them by default; without at least three of them, or while they were all
empty, there is nothing to compare with.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Final

from domain.amounts import INT64_MAX, Unit
from domain.budget.events import MILLION
from domain.budget.rates import WINDOW_MS
from domain.terms import MINUTE_MS, SECOND_MS

ANOMALY: Final = "budget.burn_rate_anomaly"
HISTORY_MOST: Final = 12
"""Windows that the average is over: an hour by default."""
HISTORY_LEAST: Final = 3
"""Fewer are no history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BurnLevel:
    """A multiple of the average from which on somebody wants to be told. `tenant_id` None: whoever's budget it is."""

    multiplier_millionths: int
    window_ms: int = WINDOW_MS
    tenant_id: str | None = None

    def is_reached_by(self, ratio_millionths: int | None) -> bool:
        return ratio_millionths is not None and ratio_millionths >= self.multiplier_millionths


PUBLISHED_BURN: Final = BurnLevel(multiplier_millionths=3 * MILLION)
"""The defaults that the protocol names: three times, in five minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Burning:
    """What is kept of a budget's windows. `burned`: by window, the last one last, in which something was charged.
    `ratio_millionths`: of that one to the average before; None: there was nothing to compare with."""

    spent: int
    debt: int
    window_ends_at: int
    burned: tuple[int, ...] = ()
    ratio_millionths: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Burned:
    """A budget of which something was charged since the end of its last window. `was_reset`: what is spent was set, so
    nobody knows how much of the difference was charged. `before` None: it is seen for the first time."""

    tenant_id: str
    budget_id: str
    scope: str
    unit: Unit
    spent: int
    debt: int
    remaining: int
    was_reset: bool
    before: Burning | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    budget: Burned
    level: BurnLevel
    burned: int
    """In the window."""
    ratio_millionths: int
    window_ends_at: int

    def facts(self) -> dict[str, Any]:
        """Rates are per minute; `multiplier` is what the rate came to, not what was asked for."""
        rate = self.burned * MINUTE_MS * MILLION // self.level.window_ms
        left = max(0, self.budget.remaining)
        return {
            "scope": self.budget.scope,
            "unit": self.budget.unit.value,
            "current_rate_millionths": rate,
            "baseline_rate_millionths": rate * MILLION // self.ratio_millionths,
            "multiplier_millionths": self.ratio_millionths,
            "window_seconds": self.level.window_ms // SECOND_MS,
            "projected_exhaustion_minutes_millionths": left
            * self.level.window_ms
            * MILLION
            // (self.burned * MINUTE_MS),
        }

    def correlation_id(self) -> str:
        """The same whoever finds it: the budget and the window."""
        budget = self.budget
        name = f"{budget.tenant_id}\n{budget.scope}\n{budget.unit}\n{self.level.window_ms}\n{self.window_ends_at}"
        return f"burn_rate:{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def advance_burning(budget: Burned, *, window_ends_at: int, window_ms: int) -> Burning:
    """What is kept of the budget now that this window is over. Its history begins when it is seen for the first time."""
    before = budget.before
    if before is None:
        return Burning(spent=budget.spent, debt=budget.debt, window_ends_at=window_ends_at)
    charged = budget.spent + budget.debt - before.spent - before.debt
    burned = 0 if budget.was_reset else min(max(0, charged), INT64_MAX)
    silent = (window_ends_at - before.window_ends_at) // window_ms - 1
    history = (*before.burned, *[0] * min(silent, HISTORY_MOST))[-HISTORY_MOST:]
    return Burning(
        spent=budget.spent,
        debt=budget.debt,
        window_ends_at=window_ends_at,
        burned=(*history, burned)[-HISTORY_MOST:],
        ratio_millionths=_ratio(burned, history),
    )


def find_anomalies(budget: Burned, after: Burning, *, levels: list[BurnLevel], window_ms: int) -> list[Anomaly]:
    """What begins in this window. The levels are of windows of this length."""
    before, ratio = budget.before, after.ratio_millionths
    if before is None or ratio is None:
        return []
    is_next = after.window_ends_at - before.window_ends_at == window_ms
    last = before.ratio_millionths if is_next else None
    return [
        Anomaly(
            budget=budget,
            level=level,
            burned=after.burned[-1],
            ratio_millionths=ratio,
            window_ends_at=after.window_ends_at,
        )
        for level in levels
        if level.tenant_id in (None, budget.tenant_id) and level.is_reached_by(ratio) and not level.is_reached_by(last)
    ]


def _ratio(burned: int, history: tuple[int, ...]) -> int | None:
    total = sum(history)
    if len(history) < HISTORY_LEAST or total == 0:
        return None
    return min(burned * len(history) * MILLION // total, INT64_MAX)
