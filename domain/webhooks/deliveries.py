"""One event on its way to one receiver: attempts, the pauses between them, and what the subscription learns of it (8.4)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from domain.terms import DAY_MS
from domain.webhooks.messages import Trace
from domain.webhooks.subscriptions import Health, RetryPolicy, Status, Subscription

OVERDUE_MS: Final = DAY_MS
"""What waits longer, behind a pause or a dead receiver, is not sent any more."""
OVERDUE: Final = "not delivered within a day"
CANCELLED: Final = "the subscription was disabled for good"
EVENT_GONE: Final = "the event is no longer kept"
TOO_MANY_FAILURES: Final = "consecutive_failures_exceeded_threshold"
ERROR_MAX: Final = 300


class DeliveryStatus(StrEnum):
    PENDING = "PENDING"
    """Queued, not attempted yet."""
    RETRYING = "RETRYING"
    """Attempted in vain, to be tried again at `next_attempt_at`."""
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    """Given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """`place` is the event's number in the mirror stream, by which first attempts are ordered; None for a test."""

    subscription_id: str
    delivery_id: str
    place: int | None
    event_id: str
    event_type: str
    status: DeliveryStatus = DeliveryStatus.PENDING
    attempts: int = 0
    created_at: int
    attempted_at: int | None = None
    completed_at: int | None = None
    next_attempt_at: int | None = None
    response_status: int | None = None
    response_time_ms: int | None = None
    error: str | None = None
    replay_id: str | None = None
    trace: Trace

    @property
    def is_open(self) -> bool:
        return self.status in (DeliveryStatus.PENDING, DeliveryStatus.RETRYING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What came of one request. `error` says why there is no status, or why this one is no success."""

    response_status: int | None = None
    response_time_ms: int = 0
    error: str | None = None

    @property
    def succeeded(self) -> bool:
        return self.error is None and self.response_status is not None and 200 <= self.response_status < 300


def settle(delivery: Delivery, attempt: Attempt, policy: RetryPolicy, *, now: int) -> Delivery:
    """The delivery after an attempt that ended at `now`. Whatever is no 2xx is a failure, 410 and redirects too.

    Retry n is due min(initial * multiplier^(n-1), longest) after attempt n; after `max_retries` of them it is given up.
    """
    attempts = delivery.attempts + 1
    tried = replace(
        delivery,
        attempts=attempts,
        attempted_at=now,
        next_attempt_at=None,
        response_status=attempt.response_status,
        response_time_ms=attempt.response_time_ms,
        error=None if attempt.error is None else attempt.error[:ERROR_MAX],
    )
    if attempt.succeeded:
        return replace(tried, status=DeliveryStatus.SUCCESS, completed_at=now)
    if attempts > policy.max_retries:
        return replace(tried, status=DeliveryStatus.FAILED, completed_at=now)
    return replace(tried, status=DeliveryStatus.RETRYING, next_attempt_at=now + policy.delay_ms(attempts))


def give_up(delivery: Delivery, *, error: str, now: int) -> Delivery:
    """Without another attempt."""
    return replace(delivery, status=DeliveryStatus.FAILED, error=error, completed_at=now, next_attempt_at=None)


def is_overdue(delivery: Delivery, *, now: int) -> bool:
    return now - delivery.created_at > OVERDUE_MS


def health_after(health: Health, delivery: Delivery, *, now: int) -> Health:
    """What the subscription learns of an attempt. A delivery that is given up counts once, however often it was tried."""
    if delivery.status is DeliveryStatus.SUCCESS:
        return replace(health, consecutive_failures=0, is_failing=False, last_triggered_at=now, last_success_at=now)
    given_up = int(delivery.status is DeliveryStatus.FAILED)
    return replace(
        health,
        consecutive_failures=health.consecutive_failures + given_up,
        is_failing=True,
        last_triggered_at=now,
        last_failure_at=now,
    )


def is_worn_out(subscription: Subscription) -> bool:
    """Whether it must be disabled: as many deliveries in a row were given up as it allows."""
    is_too_many = subscription.health.consecutive_failures >= subscription.disable_after_failures
    return is_too_many and subscription.status is not Status.DISABLED
