"""When denials, expiries or failed authentications have become frequent (8.2, EventDataRateSpike): counted in windows, told
when one begins it.

Windows lie side by side on the clock, so every node counts the same ones. A spike is told of in the first window whose rate
is above the threshold, and not again while the rate stays there. A handful of requests is no rate.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
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
    AUTH_FAILURE_RATE = "auth_failure_rate"
    """Keys that were not valid, among those that requests were sent with."""


EVENT_OF: Final[Mapping[Metric, str]] = {
    Metric.DENIAL_RATE: "reservation.denial_rate_spike",
    Metric.EXPIRY_RATE: "reservation.expiry_rate_spike",
    Metric.AUTH_FAILURE_RATE: "api_key.auth_failure_rate_spike",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A rate above which somebody wants to be told. `tenant_id` None: whoever's rate it is."""

    metric: Metric
    threshold_millionths: int
    window_ms: int = WINDOW_MS
    tenant_id: str | None = None

    def is_exceeded_by(self, activity: Activity) -> bool:
        many, among = activity.of(self.metric)
        return among >= SAMPLES_LEAST and many * MILLION > self.threshold_millionths * among


PUBLISHED_LEVELS: Final = (
    Level(metric=Metric.DENIAL_RATE, threshold_millionths=100_000),
    Level(metric=Metric.EXPIRY_RATE, threshold_millionths=50_000),
    Level(metric=Metric.AUTH_FAILURE_RATE, threshold_millionths=100_000),
)
"""The defaults that the protocol names: 0.1, 0.05 and 0.1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What one tenant's requests came to in one window. `known` and `refused`: the keys that they were sent with."""

    created: int = 0
    denied: int = 0
    expired: int = 0
    known: int = 0
    refused: int = 0

    def of(self, metric: Metric) -> tuple[int, int]:
        """(how many, among how many)."""
        if metric is Metric.DENIAL_RATE:
            return self.denied, self.denied + self.created
        if metric is Metric.AUTH_FAILURE_RATE:
            return self.refused, self.refused + self.known
        return self.expired, max(self.created, self.expired)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spike:
    tenant_id: str
    level: Level
    rate_millionths: int
    samples: int
    window_ends_at: int

    @property
    def metric(self) -> Metric:
        return self.level.metric

    @property
    def type(self) -> str:
        return EVENT_OF[self.metric]

    def facts(self) -> dict[str, Any]:
        return {
            "metric": self.metric.value,
            "current_rate_millionths": self.rate_millionths,
            "threshold_rate_millionths": self.level.threshold_millionths,
            "window_seconds": self.level.window_ms // SECOND_MS,
            "sample_count": self.samples,
        }

    def correlation_id(self) -> str:
        """The same whoever finds it: the tenant, what was counted, and the window."""
        name = f"{self.tenant_id}\n{self.metric.value}\n{self.level.window_ms}\n{self.window_ends_at}"
        return f"rate_spike:{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def window_end(at: int, *, window_ms: int = WINDOW_MS) -> int:
    """The end of the last window that was over at an instant."""
    return at - at % window_ms


def find_spikes(
    tenant_id: str, *, before: Activity, now: Activity, window_ends_at: int, levels: Iterable[Level] = PUBLISHED_LEVELS
) -> list[Spike]:
    """What begins in this window, given the one before it. The levels are of windows of this length."""
    found = []
    for level in levels:
        is_meant = level.tenant_id in (None, tenant_id)
        if is_meant and level.is_exceeded_by(now) and not level.is_exceeded_by(before):
            many, among = now.of(level.metric)
            found.append(
                Spike(
                    tenant_id=tenant_id,
                    level=level,
                    rate_millionths=many * MILLION // among,
                    samples=among,
                    window_ends_at=window_ends_at,
                )
            )
    return found
