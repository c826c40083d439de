"""The closed bodies about webhooks, in the documents' words. Ranges and lengths are refused by the decisions."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Literal

from domain.outcomes import InvalidInput
from domain.shapes import Shape
from domain.webhooks.subscriptions import (
    DEFAULT_FAILURES,
    DEFAULT_RETRIES,
    MILLION,
    RetryPolicy,
    Status,
)
from server.rest.cycles.requests import Closed
from workers.webhooks.desk import WebhookChanges


class RetryBody(Closed, frozen=True):
    max_retries: int | None = None
    initial_delay_ms: int | None = None
    backoff_multiplier: float | None = None
    max_delay_ms: int | None = None

    def value(self) -> RetryPolicy:
        """What is not given is as usual. Raises `Shape`."""
        given = {
            "max_retries": self.max_retries,
            "initial_delay_ms": self.initial_delay_ms,
            "backoff_millionths": None if self.backoff_multiplier is None else _millionths(self.backoff_multiplier),
            "max_delay_ms": self.max_delay_ms,
        }
        usual = {name: getattr(DEFAULT_RETRIES, name) for name in given}
        return RetryPolicy(**usual | {name: value for name, value in given.items() if value is not None})


def _millionths(multiplier: float) -> int:
    """The decimal that was written. Raises `Shape`."""
    exact = Decimal(str(multiplier)) * MILLION
    if exact != exact.to_integral_value():
        field = "retry_policy.backoff_multiplier"
        message = f"{field} has at most six digits behind the point"
        raise Shape(InvalidInput(field=field, reason="precision", message=message))
    return int(exact)


class SubscriptionBody(Closed, frozen=True):
    """What a new one and a change have in common."""

    event_categories: list[str] | None = None
    name: str | None = None
    description: str | None = None
    scope_filter: str | None = None
    thresholds: dict[str, Any] | None = None
    signing_secret: str | None = None
    headers: dict[str, str] | None = None
    retry_policy: RetryBody | None = None
    disable_after_failures: int | None = None
    metadata: dict[str, Any] | None = None

    def plain(self) -> dict[str, Any]:
        """What goes on as it is."""
        names = ("url", "name", "description", "scope_filter", "thresholds", "signing_secret", "headers", "metadata")
        return {name: getattr(self, name) for name in names}


class CreateBody(SubscriptionBody, frozen=True, kw_only=True):
    url: str
    event_types: list[str]

    def given(self) -> dict[str, Any]:
        """By the desk's names. Raises `Shape`."""
        failures = self.disable_after_failures
        return {
            **self.plain(),
            "event_types": self.event_types,
            "event_categories": self.event_categories or (),
            "retry_policy": DEFAULT_RETRIES if self.retry_policy is None else self.retry_policy.value(),
            "disable_after_failures": DEFAULT_FAILURES if failures is None else failures,
        }


class UpdateBody(SubscriptionBody, frozen=True):
    url: str | None = None
    event_types: list[str] | None = None
    status: Literal["ACTIVE", "PAUSED"] | None = None

    def changes(self) -> WebhookChanges:
        """Raises `Shape`."""
        return WebhookChanges(
            **self.plain(),
            disable_after_failures=self.disable_after_failures,
            event_types=None if self.event_types is None else tuple(self.event_types),
            event_categories=None if self.event_categories is None else tuple(self.event_categories),
            retry_policy=None if self.retry_policy is None else self.retry_policy.value(),
            status=None if self.status is None else Status(self.status),
        )


class ReplayBody(Closed, frozen=True, rename={"since": "from", "until": "to"}):
    since: str | None = None
    until: str | None = None
    event_types: list[str] | None = None
    max_events: int | None = None


class SecurityBody(Closed, frozen=True):
    blocked_cidr_ranges: list[str] | None = None
    allowed_url_patterns: list[str] | None = None
    allow_http: bool | None = None


class BulkFilter(Closed, frozen=True):
    tenant_id: str | None = None
    status: Status | None = None
    event_type: str | None = None
    search: str | None = None


class BulkBody(Closed, frozen=True):
    filter: BulkFilter
    action: Literal["PAUSE", "RESUME", "DELETE"]
    idempotency_key: str
    expected_count: int | None = None
