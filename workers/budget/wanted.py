"""What the desk's methods take, by keyword. What is left out is as the command of that name has it; in an update it stays.

`tenant_id`: None is the caller's own. `idempotency_key`: where it may be left out, the desk makes one, and a retry of the
client's is another request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Required, TypedDict

from domain.amounts import Amount, Unit
from domain.budget.records import (
    ExpiryPolicy,
    FundingOperation,
    PolicyStatus,
    RateLimits,
    RolloverPolicy,
    TenantStatus,
    TtlOverride,
)
from domain.budget.values import Action, Caps, Metrics, OveragePolicy, Subject

# -- holding and spending ----------------------------------------------------------------------------------------------


class Asked(TypedDict, total=False):
    """What every request for work has."""

    idempotency_key: Required[str]
    metadata: Mapping[str, Any] | None


class ToEvaluate(Asked, total=False):
    subject: Required[Subject]
    action: Required[Action]
    estimate: Required[Amount]


class ToReserve(ToEvaluate, total=False):
    ttl_ms: int | None
    grace_ms: int | None
    overage_policy: OveragePolicy | None
    dry_run: bool


class ToCommit(Asked, total=False):
    reservation_id: Required[str]
    actual: Required[Amount]
    metrics: Metrics | None


class ToExtend(Asked, total=False):
    reservation_id: Required[str]
    extend_by_ms: Required[int]


class ToDebit(Asked, total=False):
    subject: Required[Subject]
    action: Required[Action]
    actual: Required[Amount]
    overage_policy: OveragePolicy | None
    metrics: Metrics | None
    client_time_ms: int | None


# -- governing ---------------------------------------------------------------------------------------------------------


class Governing(TypedDict, total=False):
    tenant_id: str | None
    idempotency_key: str | None


class OfBudget(Governing, total=False):
    scope: Required[str]
    unit: Required[Unit]
    metadata: Mapping[str, Any] | None


class ToFund(OfBudget, total=False):
    kind: Required[FundingOperation]
    amount: Required[Amount]
    spent: Amount | None
    reason: str | None


class ToCreateBudget(OfBudget, total=False):
    allocated: Required[Amount]
    overdraft_limit: Amount | None
    commit_overage_policy: OveragePolicy | None
    rollover_policy: RolloverPolicy
    period_start_at: int | None
    period_end_at: int | None
    caps: Caps | None


class ToUpdateBudget(OfBudget, total=False):
    overdraft_limit: Amount | None
    commit_overage_policy: OveragePolicy | None


class ToChangeStatus(OfBudget, total=False):
    reason: str | None


class Rules(Governing, total=False):
    """What a policy says."""

    description: str | None
    caps: Caps | None
    commit_overage_policy: OveragePolicy | None
    ttl_override: TtlOverride | None
    rate_limits: RateLimits | None
    effective_from_at: int | None
    effective_until_at: int | None


class ToCreatePolicy(Rules, total=False):
    name: Required[str]
    scope_pattern: Required[str]
    priority: int


class ToUpdatePolicy(Rules, total=False):
    policy_id: Required[str]
    name: str | None
    priority: int | None
    status: PolicyStatus | None


class Defaults(TypedDict, total=False):
    """What holds in a tenant where neither request nor policy says otherwise."""

    idempotency_key: str | None
    metadata: Mapping[str, Any] | None
    default_overage_policy: OveragePolicy | None
    default_ttl_ms: int | None
    max_ttl_ms: int | None
    max_extensions: int | None


class ToCreateTenant(Defaults, total=False):
    name: Required[str]
    parent_tenant_id: str | None
    expiry_policy: ExpiryPolicy


class ToUpdateTenant(Defaults, total=False):
    name: str | None
    status: TenantStatus | None
    expiry_policy: ExpiryPolicy | None
    denies_on_any_debt: bool | None
    extension_lead_max_ms: int | None
