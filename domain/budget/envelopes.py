"""Events as the published wire shows them (8.1): to those who list them, and to webhooks.

The books keep facts in whole numbers: instants in epoch ms, ratios in millionths. Here they become what the documents say:
RFC 3339 texts and fractions. Pure, so that a list and a delivery of the same event are the same to the byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from domain.budget.events import BY_ITSELF, MILLION
from domain.events import EventRecord
from domain.instants import show_instant

CATEGORIES: Final = ("budget", "tenant", "api_key", "policy", "reservation", "system", "webhook")
"""What a type of the published enumeration begins with, before the point."""
TENANT_CATEGORIES: Final = ("budget", "reservation", "tenant")
"""Those whose events a tenant sees; the others are operators' (8.2)."""

_NAMES: Final = {
    "budget": """
        created updated funded debited reset reset_spent debt_repaid frozen unfrozen closed
        closed_via_tenant_cascade threshold_crossed exhausted over_limit_entered over_limit_exited debt_incurred
        burn_rate_anomaly
    """,
    "reservation": """
        denied denial_rate_spike expired expiry_rate_spike commit_overage released_via_tenant_cascade
    """,
    "tenant": """
        created updated suspended reactivated closed settings_changed
    """,
    "webhook": """
        created updated paused resumed disabled deleted disabled_via_tenant_cascade
    """,
    "api_key": """
        created revoked revoked_via_tenant_cascade expired permissions_changed auth_failed auth_failure_rate_spike
    """,
    "policy": """
        created updated deleted
    """,
    "system": """
        store_connection_lost store_connection_restored high_latency webhook_delivery_failed webhook_test
    """,
}
PUBLISHED_TYPES: Final = frozenset(f"{category}.{name}" for category, names in _NAMES.items() for name in names.split())
"""The 51 types of the published enumeration. Earmark emits most of them; anybody may ask for, or subscribe to, the rest."""

BY_SERVER: Final = "cycles-server"
BY_ADMIN: Final = "cycles-admin"
BY_SWEEPER: Final = "expiry-sweeper"
BY_DETECTOR: Final = "anomaly-detector"

_ADMIN_CATEGORIES: Final = frozenset({"tenant", "api_key", "policy", "webhook"})
_RUNTIME_BUDGETS: Final = frozenset(
    {
        "budget.threshold_crossed",
        "budget.exhausted",
        "budget.over_limit_entered",
        "budget.over_limit_exited",
        "budget.debt_incurred",
    }
)
"""Types of the category budget that follow from spending; the rest is an operator's doing."""
_ANOMALIES: Final = ("_spike", "_anomaly")
_MILLIONTHS: Final = "_millionths"


def category_of(kind: str) -> str:
    return kind.partition(".")[0]


def is_published(kind: str) -> bool:
    """Whether the published wire knows events of this type: those about grants are not its."""
    return category_of(kind) in CATEGORIES


def envelope(event: EventRecord) -> dict[str, Any]:
    """The closed envelope. `tenant_id` is `__system__` where no tenant is concerned; what is not there is left out."""
    payload = event.payload
    shown: dict[str, Any] = {
        "event_id": event.event_id,
        "event_type": event.type,
        "category": category_of(event.type),
        "timestamp": show_instant(event.occurred_at),
        "tenant_id": event.tenant_id,
        "scope": payload.get("scope"),
        "actor": payload.get("actor"),
        "source": _source(event.type, payload),
        "data": _data(payload.get("data") or {}),
        "correlation_id": payload.get("correlation_id"),
        "request_id": event.request_id,
        "trace_id": event.trace_id,
    }
    return {name: value for name, value in shown.items() if value is not None}


def _source(kind: str, payload: Mapping[str, Any]) -> str:
    if payload.get("source") == BY_ITSELF:
        return BY_SWEEPER
    if kind.endswith(_ANOMALIES):
        return BY_DETECTOR
    category = category_of(kind)
    is_admin = category in _ADMIN_CATEGORIES or (category == "budget" and kind not in _RUNTIME_BUDGETS)
    return BY_ADMIN if is_admin else BY_SERVER


def _data(facts: Mapping[str, Any]) -> dict[str, Any]:
    return dict(_shown(name, value) for name, value in facts.items())


def _shown(name: str, value: Any) -> tuple[str, Any]:
    if name.endswith(_MILLIONTHS) and isinstance(value, int):
        return name.removesuffix(_MILLIONTHS), value / MILLION
    if name.endswith("_at") and isinstance(value, int):
        return name, show_instant(value)
    return name, value
