"""When denials or expiries have become frequent (8.2, EventDataRateSpike): counted in windows, told when one begins it.

Windows lie side by side on the clock, so every node counts the same ones. A spike is told of in the first window whose rate
is above the threshold, and not again while the rate stays there. A handful of requests is no rate.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from domain.budget.events import MILLION
from domain.terms import MINUTE_MS, SECOND_MS

WINDOW_MS: Final = 5 * MINUTE_MS
SAMPLES_LEAST: Final = 20
"""Fewer than these in a window tell nothing, however they went."""


class Metric(StrEnum):
    DENIAL_RATE = "denial_rate"
    """Denials among all that was asked for: denials and reservations."""
    EXPIRY_RATE = "expiry_rate"
    """Holds that ran out, among those that were made; at most all."""


THRESHOLDS: Final[Mapping[Metric, int]] = {Metric.DENIAL_RATE: 100_000, Metric.EXPIRY_RATE: 50_000}
"""In millionths: the published defaults of 0.1 and 0.05."""
EVENT_OF: Final[Mapping[Metric, str]] = {
    Metric.DENIAL_RATE: "reservation.denial_rate_spike",
    Metric.EXPIRY_RATE: "reservation.expiry_rate_spike",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What one tenant's requests came to in one window."""

    created: int = 0
    denied: int = 0
    expired: int = 0

    def of(self, metric: Metric) -> tuple[int, int]:
        """(how many, among how many)."""
        if metric is Metric.DENIAL_RATE:
            return self.denied, self.denied + self.created
        return self.expired, max(self.created, self.expired)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spike:
    tenant_id: str
    metric: Metric
    rate_millionths: int
    samples: int
    window_ends_at: int

    @property
    def type(self) -> str:
        return EVENT_OF[self.metric]

    def facts(self) -> dict[str, Any]:
        return {
            "metric": self.metric.value,
            "current_rate_millionths": self.rate_millionths,
            "threshold_rate_millionths": THRESHOLDS[self.metric],
            "window_seconds": WINDOW_MS // SECOND_MS,
            "sample_count": self.samples,
        }

    def correlation_id(self) -> str:
        """The same whoever finds it: the tenant, what was counted, and the window."""
        name = f"{self.tenant_id}\n{self.metric.value}\n{WINDOW_MS}\n{self.window_ends_at}"
        return f"rate_spike:{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def window_end(at: int) -> int:
    """The end of the last window that was over at an instant."""
    return at - at % WINDOW_MS


def find_spikes(tenant_id: str, *, before: Activity, now: Activity, window_ends_at: int) -> list[Spike]:
    """What begins in this window, given the one before it."""
    found = []
    for metric in Metric:
        many, among = now.of(metric)
        if _is_above(now, metric) and not _is_above(before, metric):
            found.append(
                Spike(
                    tenant_id=tenant_id,
                    metric=metric,
                    rate_millionths=many * MILLION // among,
                    samples=among,
                    window_ends_at=window_ends_at,
                )
            )
    return found


def _is_above(activity: Activity, metric: Metric) -> bool:
    many, among = activity.of(metric)
    return among >= SAMPLES_LEAST and many * MILLION > THRESHOLDS[metric] * among
