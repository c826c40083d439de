"""What is told about webhooks themselves: their lives, and deliveries that were given up (8.2).

The envelope's fields are those of the budget context, so that the same lists, subscriptions and receivers take them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from domain.budget.events import BY_REQUEST
from domain.budget.values import Origin
from domain.events import NewEvent
from domain.identity import SYSTEM
from domain.webhooks.deliveries import Delivery
from domain.webhooks.subscriptions import Change, Status, Subscription

CASCADE_REASON: Final = "tenant_closed"


class EventType(StrEnum):
    CREATED = "webhook.created"
    UPDATED = "webhook.updated"
    PAUSED = "webhook.paused"
    RESUMED = "webhook.resumed"
    DISABLED = "webhook.disabled"
    DELETED = "webhook.deleted"
    DISABLED_VIA_CASCADE = "webhook.disabled_via_tenant_cascade"
    DELIVERY_FAILED = "system.webhook_delivery_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookEvent:
    """Origin None: nobody asked, it came to be so. All of them are for operators (8.2)."""

    type: EventType
    tenant_id: str
    data: dict[str, Any]
    correlation_id: str | None = None
    origin: Origin | None = None
    request_id: str | None = None
    trace_id: str | None = None

    def publish(self, event_id: str, *, at: int) -> NewEvent:
        return NewEvent(
            event_id=event_id,
            tenant_id=self.tenant_id,
            type=self.type,
            occurred_at=at,
            payload=self._payload(),
            request_id=self.request_id,
            trace_id=self.trace_id,
            is_for_operators=True,
        )

    def _payload(self) -> dict[str, Any]:
        origin = self.origin
        told: dict[str, Any] = {
            "category": self.type.value.partition(".")[0],
            "source": BY_REQUEST,
            "correlation_id": self.correlation_id,
            "actor": {"type": "system"} if origin is None else origin.actor(),
            "trace_flags": None if origin is None else origin.trace_flags,
            "data": self.data,
        }
        return {name: value for name, value in told.items() if value is not None}


def created(subscription: Subscription, origin: Origin) -> WebhookEvent:
    return _lifecycle(
        EventType.CREATED,
        subscription,
        _data(subscription, new=subscription.status),
        f"webhook_create:{subscription.subscription_id}",
        origin,
    )


def changed(change: Change, origin: Origin, *, correlation_id: str | None = None) -> WebhookEvent:
    """Exactly one for a change: of the status where it is another one, with whatever else was changed beside it."""
    after = change.after
    kind = EventType.UPDATED
    if change.has_new_status:
        kind = EventType.RESUMED if after.status is Status.ACTIVE else EventType.PAUSED
    data = _data(after, previous=change.before.status, new=after.status, fields=change.changed_fields)
    own = f"webhook_update:{after.subscription_id}:{origin.request_id or ''}"
    return _lifecycle(kind, after, data, correlation_id or own, origin)


def deleted(subscription: Subscription, origin: Origin, *, correlation_id: str | None = None) -> WebhookEvent:
    data = _data(subscription, previous=subscription.status)
    own = f"webhook_delete:{subscription.subscription_id}"
    return _lifecycle(EventType.DELETED, subscription, data, correlation_id or own, origin)


def disabled(before: Subscription, *, reason: str, batch: str) -> WebhookEvent:
    """By the dispatcher. `batch` names what was the last straw."""
    return WebhookEvent(
        type=EventType.DISABLED,
        tenant_id=before.tenant_id,
        data=_data(before, previous=before.status, new=Status.DISABLED) | {"disable_reason": reason},
        correlation_id=f"webhook_auto_disable:{before.subscription_id}:{batch}",
    )


def disabled_with_tenant(
    before: Subscription, *, correlation_id: str | None, request_id: str | None, trace_id: str | None
) -> WebhookEvent:
    """The tenant was closed: what was told of that ties this to it."""
    data = {
        "subscription_id": before.subscription_id,
        "name": before.name,
        "prior_status": before.status.value,
        "new_status": Status.DISABLED.value,
        "cascade_reason": CASCADE_REASON,
    }
    return WebhookEvent(
        type=EventType.DISABLED_VIA_CASCADE,
        tenant_id=before.tenant_id,
        data={name: value for name, value in data.items() if value is not None},
        correlation_id=correlation_id,
        request_id=request_id,
        trace_id=trace_id,
    )


def delivery_failed(subscription: Subscription, delivery: Delivery) -> WebhookEvent:
    """To operators: one delivery was given up after all its attempts."""
    details = {
        "subscription_id": subscription.subscription_id,
        "tenant_id": subscription.tenant_id,
        "delivery_id": delivery.delivery_id,
        "event_id": delivery.event_id,
        "event_type": delivery.event_type,
        "attempts": delivery.attempts,
        "response_status": delivery.response_status,
        "error_message": delivery.error,
    }
    return WebhookEvent(
        type=EventType.DELIVERY_FAILED,
        tenant_id=SYSTEM,
        data={
            "component": "webhook_dispatcher",
            "message": f"a delivery to {subscription.subscription_id} was given up",
            "severity": "warning",
            "details": {name: value for name, value in details.items() if value is not None},
        },
        trace_id=delivery.trace.trace_id,
    )


def is_about_itself(kind: str, data: Any, subscription_id: str) -> bool:
    """Whether a receiver would be told, through itself, that it cannot be reached: that could go on for ever."""
    if kind != EventType.DELIVERY_FAILED or not isinstance(data, dict):
        return False
    return bool(data.get("details", {}).get("subscription_id") == subscription_id)


def _lifecycle(
    kind: EventType, subscription: Subscription, data: dict[str, Any], correlation_id: str, origin: Origin
) -> WebhookEvent:
    return WebhookEvent(
        type=kind,
        tenant_id=subscription.tenant_id,
        data=data,
        correlation_id=correlation_id,
        origin=origin,
        request_id=origin.request_id,
        trace_id=origin.trace_id,
    )


def _data(
    subscription: Subscription,
    *,
    previous: Status | None = None,
    new: Status | None = None,
    fields: tuple[str, ...] = (),
) -> dict[str, Any]:
    data = {
        "subscription_id": subscription.subscription_id,
        "tenant_id": subscription.tenant_id,
        "previous_status": None if previous is None else previous.value,
        "new_status": None if new is None else new.value,
        "changed_fields": list(fields),
    }
    return {name: value for name, value in data.items() if value is not None}
