"""Webhooks and deliveries as the documents show them, and refusals about them in this wire's words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from domain.instants import show_instant
from domain.outcomes import Accepted, InvalidInput, InvalidState, NotFound, Refusal
from domain.webhooks.deliveries import Delivery
from domain.webhooks.messages import MASK
from domain.webhooks.refusals import NO_WEBHOOK
from domain.webhooks.subscriptions import MILLION, Subscription
from server.rest.cycles.answers import Document
from server.rest.cycles.failures import ErrorCode, Failure

STATES: Final = {"closed": (409, ErrorCode.TENANT_CLOSED), "deleted": (409, ErrorCode.TENANT_CLOSED)}
STATES_OF_REQUESTS: Final = {"full": (400, ErrorCode.LIMIT_EXCEEDED)}
"""The state that forbids something, as the wire calls it. Any other one is a plain 409."""


def show_subscription(webhook: Subscription) -> Document:
    """Secrets are masked, or left out."""
    policy, health = webhook.retry_policy, webhook.health
    shown: Document = {
        "subscription_id": webhook.subscription_id,
        "tenant_id": webhook.tenant_id,
        "name": webhook.name,
        "description": webhook.description,
        "url": webhook.url,
        "event_types": list(webhook.event_types),
        "event_categories": list(webhook.event_categories),
        "scope_filter": webhook.scope_filter,
        "thresholds": None if webhook.thresholds is None else dict(webhook.thresholds),
        "headers": dict.fromkeys(webhook.header_names, MASK) if webhook.header_names else None,
        "status": webhook.status.value,
        "retry_policy": {
            "max_retries": policy.max_retries,
            "initial_delay_ms": policy.initial_delay_ms,
            "backoff_multiplier": policy.backoff_millionths / MILLION,
            "max_delay_ms": policy.max_delay_ms,
        },
        "disable_after_failures": webhook.disable_after_failures,
        "consecutive_failures": health.consecutive_failures,
        "created_at": show_instant(webhook.created_at),
        "metadata": None if webhook.metadata is None else dict(webhook.metadata),
    }
    instants = {
        "updated_at": webhook.updated_at,
        "last_triggered_at": health.last_triggered_at,
        "last_success_at": health.last_success_at,
        "last_failure_at": health.last_failure_at,
    }
    return _stated(shown) | _instants(instants)


def show_delivery(delivery: Delivery) -> Document:
    """`attempted_at` must be there: before the first attempt it is when it was queued."""
    attempted_at = delivery.created_at if delivery.attempted_at is None else delivery.attempted_at
    shown: Document = {
        "delivery_id": delivery.delivery_id,
        "subscription_id": delivery.subscription_id,
        "event_id": delivery.event_id,
        "event_type": delivery.event_type,
        "status": delivery.status.value,
        "attempted_at": show_instant(attempted_at),
        "attempts": delivery.attempts,
        "response_status": delivery.response_status,
        "response_time_ms": delivery.response_time_ms,
        "error_message": delivery.error,
        "trace_id": delivery.trace.trace_id,
        "trace_flags": delivery.trace.flags,
        "traceparent_inbound_valid": delivery.trace.was_given,
    }
    instants = {"completed_at": delivery.completed_at, "next_retry_at": delivery.next_attempt_at}
    return _stated(shown) | _instants(instants)


def in_our_words(outcome: Any) -> Refusal | Failure:
    """A refusal of the desks of webhooks."""
    assert isinstance(outcome, Refusal), "nothing is remembered without an idempotency key"
    if outcome is NO_WEBHOOK or (isinstance(outcome, InvalidInput) and outcome.field == "webhook_id"):
        return Failure(status=404, error=ErrorCode.WEBHOOK_NOT_FOUND, message=NO_WEBHOOK.message)
    if isinstance(outcome, NotFound):
        return Failure(status=404, error=ErrorCode.TENANT_NOT_FOUND, message=outcome.message)
    states = STATES | STATES_OF_REQUESTS
    if isinstance(outcome, InvalidState) and outcome.state in states:
        status, error = states[outcome.state]
        return Failure(status=status, error=error, message=outcome.message)
    if isinstance(outcome, InvalidInput) and outcome.field == "idempotencyKey":
        return replace(outcome, field="idempotency_key")
    return outcome


def answer_of(outcome: Any) -> Any:
    """What an accepted outcome holds; None for a refusal."""
    return outcome.answer if isinstance(outcome, Accepted) else None


def _stated(shown: Document) -> Document:
    return {name: value for name, value in shown.items() if value is not None}


def _instants(at: dict[str, int | None]) -> Document:
    return {name: show_instant(instant) for name, instant in at.items() if instant is not None}
