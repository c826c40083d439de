"""What lists of webhooks and of their deliveries can be asked for. What is None is not asked about."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from domain.budget.queries import OPEN, Window
from domain.webhooks.deliveries import DeliveryStatus
from domain.webhooks.subscriptions import Status


class WebhookSort(StrEnum):
    CREATED_AT = "created_at"
    URL = "url"
    TENANT_ID = "tenant_id"
    STATUS = "status"
    FAILURES = "consecutive_failures"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookQuery:
    """`event_type`: named by the subscription. `search` looks at the id and the URL."""

    status: Status | None = None
    event_type: str | None = None
    search: str | None = None
    sort_by: WebhookSort = WebhookSort.CREATED_AT
    descending: bool = True


class DeliverySort(StrEnum):
    CREATED_AT = "created_at"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryQuery:
    """`attempted`: by the last attempt, or by the queueing of what has had none."""

    status: DeliveryStatus | None = None
    attempted: Window = OPEN
    sort_by: DeliverySort = DeliverySort.CREATED_AT
    descending: bool = True
