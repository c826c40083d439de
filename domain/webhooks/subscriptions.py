"""A subscription: what it says, what it may not say, and what a change of it is (8.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from domain.budget.shapes import check_length, check_range
from domain.outcomes import InvalidInput
from domain.shapes import quoted
from domain.terms import HOUR_MS, MINUTE_MS, SECOND_MS
from domain.webhooks.messages import refuse_headers
from domain.webhooks.selectors import SCOPE_FILTER_MAX, refuse_selectors

NAME_MAX: Final = 256
DESCRIPTION_MAX: Final = 1_024
SECRET_MAX: Final = 512
"""Characters of a signing secret. HMAC folds a longer one anyway."""
SUBSCRIPTIONS_MAX: Final = 200
"""Subscriptions of one owner: every event of a tenant is held against all of its own."""
FAILURES_MAX: Final = 1_000_000
MILLION: Final = 1_000_000


class Status(StrEnum):
    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    """By its owner. What happens meanwhile is not queued; what was queued before waits."""
    DISABLED = "DISABLED"
    """By itself, after too many failures, or because its tenant was closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often a failed delivery is tried again, and after which pauses. The multiplier is in millionths: 2 is 2 000 000."""

    max_retries: int = 5
    initial_delay_ms: int = SECOND_MS
    backoff_millionths: int = 2 * MILLION
    max_delay_ms: int = MINUTE_MS

    def delay_ms(self, retry: int) -> int:
        """The pause before retry 1, 2, …: min(initial * multiplier^(retry-1), longest), rounded down to whole ms."""
        exact: int = self.initial_delay_ms * self.backoff_millionths ** (retry - 1) // MILLION ** (retry - 1)
        return min(exact, self.max_delay_ms)


DEFAULT_RETRIES: Final = RetryPolicy()
DEFAULT_FAILURES: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How deliveries go. `is_failing`: the last attempt failed. Instants in epoch ms."""

    consecutive_failures: int = 0
    """Of deliveries that were given up; any success resets it."""
    is_failing: bool = False
    last_triggered_at: int | None = None
    last_success_at: int | None = None
    last_failure_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """As it may be shown: of secret things only that they are there. `version` counts its changes."""

    subscription_id: str
    tenant_id: str
    """The owner: a tenant, or `__system__`."""
    url: str
    event_types: tuple[str, ...]
    event_categories: tuple[str, ...] = ()
    name: str | None = None
    description: str | None = None
    scope_filter: str | None = None
    thresholds: Mapping[str, Any] | None = None
    header_names: tuple[str, ...] = ()
    retry_policy: RetryPolicy = DEFAULT_RETRIES
    disable_after_failures: int = DEFAULT_FAILURES
    metadata: Mapping[str, Any] | None = None
    status: Status = Status.ACTIVE
    health: Health = field(default_factory=Health)
    created_at: int
    updated_at: int | None = None
    version: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change that was accepted. `changed_fields` without the status; nothing at all changed when both say so."""

    before: Subscription
    after: Subscription
    changed_fields: tuple[str, ...]

    @property
    def has_new_status(self) -> bool:
        return self.before.status is not self.after.status

    @property
    def is_nothing(self) -> bool:
        return not self.changed_fields and not self.has_new_status


OPEN_FIELDS: Final[tuple[str, ...]] = (
    "name",
    "description",
    "url",
    "event_types",
    "event_categories",
    "scope_filter",
    "thresholds",
    "retry_policy",
    "disable_after_failures",
    "metadata",
)
"""What can be changed and shown. The signing secret and the headers' values are kept apart, sealed."""

_CLEARABLE: Final = ("name", "description", "scope_filter")
"""Texts that an empty one takes away."""


def refuse_subscription(subscription: Subscription) -> InvalidInput | None:
    """The whole state as it would be kept. Refuses INVALID_INPUT, fields in the order of this function."""
    policy = subscription.retry_policy
    return (
        check_length(subscription.name, field="name", most=NAME_MAX)
        or check_length(subscription.description, field="description", most=DESCRIPTION_MAX)
        or check_length(subscription.scope_filter, field="scope_filter", most=SCOPE_FILTER_MAX)
        or refuse_selectors(subscription.tenant_id, subscription.event_types, subscription.event_categories)
        or check_range(policy.max_retries, field="retry_policy.max_retries", least=0, most=10)
        or check_range(policy.initial_delay_ms, field="retry_policy.initial_delay_ms", least=100, most=MINUTE_MS)
        or _refuse_backoff(policy.backoff_millionths)
        or check_range(policy.max_delay_ms, field="retry_policy.max_delay_ms", least=SECOND_MS, most=HOUR_MS)
        or check_range(subscription.disable_after_failures, field="disable_after_failures", least=1, most=FAILURES_MAX)
        or _refuse_thresholds(subscription.thresholds or {})
    )


def refuse_new(subscription: Subscription, *, secret: str | None, headers: Mapping[str, str]) -> InvalidInput | None:
    """A new one names at least one event type (8.3); a change may take them all away for categories."""
    if not subscription.event_types:
        message = "a new subscription needs at least one event type"
        return InvalidInput(field="event_types", reason="no-selector", message=message)
    return refuse_subscription(subscription) or refuse_secret(secret) or refuse_headers(headers)


def refuse_secret(secret: str | None) -> InvalidInput | None:
    return check_length(secret, field="signing_secret", least=1, most=SECRET_MAX)


def decide_update(
    before: Subscription,
    given: Mapping[str, Any],
    *,
    status: Status | None,
    has_new_secret: bool,
    header_names: tuple[str, ...] | None,
    now: int,
) -> Change | InvalidInput:
    """Change what is in `given` and keep the rest; the result as a whole must be acceptable (8.3).

    A new secret, and headers that are given, count as changed: what they were before is not looked at. Back to ACTIVE
    forgets the failures. Refuses INVALID_INPUT.
    """
    wanted: dict[str, Any] = {name: value or None if name in _CLEARABLE else value for name, value in given.items()}
    changed = [name for name in OPEN_FIELDS if name in wanted and wanted[name] != getattr(before, name)]
    after = replace(before, **{name: wanted[name] for name in changed})
    if (refusal := refuse_subscription(after)) is not None:
        return refusal
    if has_new_secret:
        changed.append("signing_secret")
    if header_names is not None:
        changed.append("headers")
        after = replace(after, header_names=header_names)
    if status is not None and status is not before.status:
        after = replace(after, status=status)
        if status is Status.ACTIVE:
            after = replace(after, health=replace(before.health, consecutive_failures=0, is_failing=False))
    change = Change(before=before, after=after, changed_fields=tuple(changed))
    if change.is_nothing:
        return change
    return replace(change, after=replace(after, updated_at=now, version=before.version + 1))


_THRESHOLDS: Final = {
    "burn_rate_multiplier": (1.5, None),
    "burn_rate_window_seconds": (60, 86_400),
    "denial_rate_threshold": (0, 1),
    "expiry_rate_threshold": (0, 1),
    "auth_failure_rate_threshold": (0, 1),
    "rate_window_seconds": (60, 86_400),
}
"""Field to its least and most. Whole seconds, or fractions that are only ever compared."""
UTILIZATIONS: Final = "budget_utilization"
UTILIZATIONS_MAX: Final = 20


def _refuse_backoff(millionths: int) -> InvalidInput | None:
    if MILLION <= millionths <= 10 * MILLION:
        return None
    field = "retry_policy.backoff_multiplier"
    return InvalidInput(field=field, reason="range", message=f"{field} must be from 1 to 10")


def _refuse_thresholds(given: Mapping[str, Any]) -> InvalidInput | None:
    """Kept as they are given."""
    for name, value in given.items():
        if name == UTILIZATIONS:
            is_list = isinstance(value, list | tuple) and len(value) <= UTILIZATIONS_MAX
            is_well = is_list and all(_is_number(each, 0, 1) for each in value)
        elif name in _THRESHOLDS:
            is_well = _is_number(value, *_THRESHOLDS[name]) and not (
                name.endswith("seconds") and type(value) is not int
            )
        else:
            message = f"{quoted(name)} is no threshold"
            return InvalidInput(field=f"thresholds.{name[:80]}", reason="unknown-field", message=message)
        if not is_well:
            field = f"thresholds.{name}"
            return InvalidInput(field=field, reason="range", message=f"{field} is out of range")
    return None


def _is_number(value: Any, least: float, most: float | None) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return least <= value and (most is None or value <= most)
