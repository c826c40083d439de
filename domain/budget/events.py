"""What happened to budgets, as typed values in the order in which it happened (section 8).

Every emission is a transition: nothing is said twice while a condition lasts, and never on a replay. Instants inside
facts are epoch ms and ratios are millionths; how they look on a wire, and the id and number of an event, come later.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Final

from domain.amounts import Unit
from domain.budget.values import Action, Origin, OveragePolicy, Subject

MILLION: Final = 1_000_000

DONE, CREATED = 200, 201

BY_REQUEST: Final = "request"
BY_ITSELF: Final = "expiry"
"""The source of an event that nobody asked for: a hold's time was over."""


class EventType(StrEnum):
    BUDGET_CREATED = "budget.created"
    BUDGET_UPDATED = "budget.updated"
    BUDGET_FUNDED = "budget.funded"
    BUDGET_DEBITED = "budget.debited"
    BUDGET_RESET = "budget.reset"
    BUDGET_RESET_SPENT = "budget.reset_spent"
    BUDGET_DEBT_REPAID = "budget.debt_repaid"
    BUDGET_FROZEN = "budget.frozen"
    BUDGET_UNFROZEN = "budget.unfrozen"
    BUDGET_CLOSED = "budget.closed"
    BUDGET_CLOSED_VIA_CASCADE = "budget.closed_via_tenant_cascade"
    BUDGET_THRESHOLD_CROSSED = "budget.threshold_crossed"
    BUDGET_EXHAUSTED = "budget.exhausted"
    BUDGET_OVER_LIMIT_ENTERED = "budget.over_limit_entered"
    BUDGET_OVER_LIMIT_EXITED = "budget.over_limit_exited"
    BUDGET_DEBT_INCURRED = "budget.debt_incurred"
    RESERVATION_DENIED = "reservation.denied"
    RESERVATION_EXPIRED = "reservation.expired"
    RESERVATION_COMMIT_OVERAGE = "reservation.commit_overage"
    RESERVATION_RELEASED_VIA_CASCADE = "reservation.released_via_tenant_cascade"
    TENANT_CREATED = "tenant.created"
    TENANT_UPDATED = "tenant.updated"
    TENANT_SUSPENDED = "tenant.suspended"
    TENANT_REACTIVATED = "tenant.reactivated"
    TENANT_CLOSED = "tenant.closed"
    TENANT_SETTINGS_CHANGED = "tenant.settings_changed"
    API_KEY_REVOKED_VIA_CASCADE = "api_key.revoked_via_tenant_cascade"
    POLICY_CREATED = "policy.created"
    POLICY_UPDATED = "policy.updated"

    @property
    def category(self) -> str:
        return self.value.partition(".")[0]


_CHAINED: Final = frozenset(
    {
        EventType.BUDGET_THRESHOLD_CROSSED,
        EventType.BUDGET_EXHAUSTED,
        EventType.BUDGET_OVER_LIMIT_ENTERED,
        EventType.BUDGET_OVER_LIMIT_EXITED,
        EventType.BUDGET_DEBT_INCURRED,
        EventType.RESERVATION_DENIED,
    }
)


class Facts:
    """What an event says. The fields have the names of the published payloads."""

    __slots__ = ()

    def data(self) -> dict[str, Any]:
        """The fields that are there, as plain values."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {name: _plain(value) for name, value in values.items() if value is not None}


def _plain(value: Any) -> Any:
    return value.content() if isinstance(value, Subject | Action) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLifecycle(Facts):
    ledger_id: str
    scope: str
    unit: Unit
    operation: str
    previous_state: Mapping[str, Any] | None = None
    new_state: Mapping[str, Any] | None = None
    spent_override_provided: bool | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetThreshold(Facts):
    """`utilization_millionths` = (spent + reserved) / allocated, rounded down; None while nothing is allocated."""

    scope: str
    unit: Unit
    threshold_millionths: int
    utilization_millionths: int | None
    allocated: int
    remaining: int
    spent: int
    reserved: int
    direction: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetOverLimit(Facts):
    """`debt_utilization_millionths` = debt / overdraft_limit, rounded down; None without a limit."""

    scope: str
    unit: Unit
    debt: int
    overdraft_limit: int
    is_over_limit: bool
    debt_utilization_millionths: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DebtIncurred(Facts):
    scope: str
    unit: Unit
    reservation_id: str | None
    debt_incurred: int
    total_debt: int
    overdraft_limit: int
    overage_policy: OveragePolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationDenied(Facts):
    scope: str
    unit: Unit
    reason_code: str
    requested_amount: int
    remaining: int | None
    action: Action
    subject: Subject
    policy_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationExpired(Facts):
    reservation_id: str
    scope: str
    unit: Unit
    estimated_amount: int
    created_at: int
    expired_at: int
    ttl_ms: int
    extensions_used: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOverage(Facts):
    """`actual_amount` is what was asked for, not what was charged; `debt_incurred` sums the scopes, held at 2^63-1."""

    reservation_id: str
    scope: str
    unit: Unit
    estimated_amount: int
    actual_amount: int
    overage: int
    overage_policy: OveragePolicy
    debt_incurred: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantCascade(Facts):
    """About a budget (`ledger_id`, `scope`, `unit`) or about an API key (`key_id`, `name`)."""

    ledger_id: str | None = None
    key_id: str | None = None
    name: str | None = None
    scope: str | None = None
    unit: Unit | None = None
    prior_status: str | None = None
    new_status: str | None = None
    released_amount: int | None = None
    cascade_reason: str = "tenant_closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantLifecycle(Facts):
    """`previous_status` is None for a tenant that was made now."""

    tenant_id: str
    previous_status: str | None
    new_status: str
    changed_fields: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChange(Facts):
    policy_id: str
    name: str
    scope_pattern: str
    changed_fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetEvent:
    """`occurred_at` is the turn's instant, so a tenant's stream is in the order of time. Origin None: nobody asked."""

    type: EventType
    occurred_at: int
    scope: str | None
    facts: Facts
    origin: Origin | None = None
    correlation_id: str | None = None

    def payload(self, tenant_id: str) -> dict[str, Any]:
        """What is published with it, beside type and instants: the envelope of section 8.1, and the facts as `data`."""
        origin = self.origin
        envelope: dict[str, Any] = {
            "category": self.type.category,
            "source": BY_ITSELF if origin is None else BY_REQUEST,
            "scope": self.scope,
            "correlation_id": self.correlation_id or self._chain(tenant_id),
            "actor": None if origin is None else origin.actor(),
            "trace_flags": None if origin is None else origin.trace_flags,
        }
        present = {name: value for name, value in envelope.items() if value is not None}
        return present | {"data": self.facts.data()}

    def _chain(self, tenant_id: str) -> str | None:
        """The same for everything that tells of one ledger's running out: its thresholds, its debt and the denials."""
        if self.type not in _CHAINED:
            return None
        name = f"{tenant_id}\n{self.scope}\n{getattr(self.facts, 'unit', '')}"
        return f"budget_chain:{hashlib.sha256(name.encode()).hexdigest()[:32]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One request that an operator may have to account for. That of a change is written in the same flush as the change.

    `operation` is the protocol's name of it and `status` its status in HTTP, whichever edge it came over. `subject` and
    `action` are those of the budget reservation that it was about.
    """

    operation: str
    recorded_at: int
    resource_type: str | None
    resource_id: str | None
    origin: Origin
    status: int = DONE
    error_code: str | None = None
    subject: Subject | None = None
    action: Action | None = None
    scope: str | None = None
    unit: Unit | None = None
    amount: int | None = None
    reason: str | None = None
    correlation_id: str | None = None
    metadata: Mapping[str, Any] | None = None
