"""From when on a subscription wants to be told (8.3, WebhookThresholdConfig): its own thresholds, or the published ones.

An event says which threshold it is about, and goes to those who asked for that one. So a subscription gets what it asked
for, whatever others ask for, and each threshold is watched once, however many want it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from domain.budget.burning import ANOMALY, PUBLISHED_BURN, BurnLevel
from domain.budget.envelopes import category_of
from domain.budget.events import MILLION, EventType
from domain.budget.rates import EVENT_OF, PUBLISHED_LEVELS, Level, Metric
from domain.budget.state import DEFAULT_THRESHOLDS
from domain.events import EventRecord
from domain.identity import SYSTEM
from domain.terms import SECOND_MS
from domain.webhooks.selectors import matches

CROSSED: Final = EventType.BUDGET_THRESHOLD_CROSSED.value
_METRIC_OF: Final = {kind: metric for metric, kind in EVENT_OF.items()}
_FIELD_OF: Final = {
    Metric.DENIAL_RATE: "denial_rate_threshold",
    Metric.EXPIRY_RATE: "expiry_rate_threshold",
    Metric.AUTH_FAILURE_RATE: "auth_failure_rate_threshold",
}
_PUBLISHED: Final = {level.metric: level for level in PUBLISHED_LEVELS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What one subscription, or all of them together, want to be told of beyond the published thresholds."""

    utilizations: frozenset[int] = frozenset()
    """In millionths of the allocation."""
    levels: frozenset[Level] = frozenset()
    burns: frozenset[BurnLevel] = frozenset()


def utilizations_of(given: Mapping[str, Any] | None) -> tuple[int, ...]:
    """In millionths."""
    named = None if given is None else given.get("budget_utilization")
    return DEFAULT_THRESHOLDS if named is None else tuple(_millionths(each) for each in named)


def level_of(given: Mapping[str, Any] | None, metric: Metric, *, tenant_id: str | None = None) -> Level:
    given, published = given or {}, _PUBLISHED[metric]
    named, seconds = given.get(_FIELD_OF[metric]), given.get("rate_window_seconds")
    return Level(
        metric=metric,
        threshold_millionths=published.threshold_millionths if named is None else _millionths(named),
        window_ms=published.window_ms if seconds is None else seconds * SECOND_MS,
        tenant_id=tenant_id,
    )


def burn_of(given: Mapping[str, Any] | None, *, tenant_id: str | None = None) -> BurnLevel:
    given = given or {}
    named, seconds = given.get("burn_rate_multiplier"), given.get("burn_rate_window_seconds")
    return BurnLevel(
        multiplier_millionths=PUBLISHED_BURN.multiplier_millionths if named is None else _millionths(named),
        window_ms=PUBLISHED_BURN.window_ms if seconds is None else seconds * SECOND_MS,
        tenant_id=tenant_id,
    )


def wanted_by(
    owner: str, types: Collection[str], categories: Collection[str], given: Mapping[str, Any] | None
) -> Wanted:
    """What has to be watched for a subscription; what it does not subscribe to is watched for nobody."""
    tenant_id = None if owner == SYSTEM else owner

    def is_selected(kind: str) -> bool:
        return kind in types or category_of(kind) in categories

    levels = [level_of(given, metric, tenant_id=tenant_id) for metric, kind in EVENT_OF.items() if is_selected(kind)]
    return Wanted(
        utilizations=frozenset(utilizations_of(given) if is_selected(CROSSED) else ()),
        levels=frozenset(levels),
        burns=frozenset([burn_of(given, tenant_id=tenant_id)] if is_selected(ANOMALY) else ()),
    )


def goes_to(
    event: EventRecord,
    kind: str,
    *,
    owner: str,
    types: Collection[str],
    categories: Collection[str],
    scope_filter: str | None,
    thresholds: Mapping[str, Any] | None,
) -> bool:
    """Whether a subscription selects an event, and asked for the threshold that it is about. `kind`: its published type."""
    is_selected = matches(
        owner=owner,
        types=types,
        categories=categories,
        scope_filter=scope_filter,
        kind=kind,
        subject=event.tenant_id,
        scope=event.payload.get("scope"),
    )
    return is_selected and is_asked_for(event.type, event.payload, thresholds)


def is_asked_for(kind: str, payload: Mapping[str, Any], given: Mapping[str, Any] | None) -> bool:
    """Whether an event of a type that a subscription gets is about a threshold of its own; others always are."""
    facts = payload.get("data") or {}
    if kind == CROSSED:
        return facts.get("threshold_millionths") in utilizations_of(given)
    if kind == ANOMALY:
        burn = burn_of(given)
        asked = (burn.multiplier_millionths, burn.window_ms // SECOND_MS)
        return (payload.get("level_millionths"), facts.get("window_seconds")) == asked
    if (metric := _METRIC_OF.get(kind)) is not None:
        level = level_of(given, metric)
        asked = (level.threshold_millionths, level.window_ms // SECOND_MS)
        return (facts.get("threshold_rate_millionths"), facts.get("window_seconds")) == asked
    return True


def _millionths(value: float) -> int:
    """A number of a document; what is finer than a millionth is the same."""
    return round(value * MILLION)
