"""Rows of budget tables to domain things and back. A row to write is a mapping that the flush sends as JSON.

Subjects, actions, caps and the like are `json` columns: they are decoded with their types, so that what does not fit is
noticed here and not in a decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, TypeVar

import msgspec

from domain.amounts import Unit
from domain.budget.patterns import ScopePattern, parse_pattern
from domain.budget.records import (
    Budget,
    BudgetReservation,
    BudgetStatus,
    DirectDebit,
    ExpiryPolicy,
    Funding,
    Policy,
    PolicyStatus,
    RateKind,
    RateLimits,
    RateWindow,
    ReservationStatus,
    RolloverPolicy,
    Tenant,
    TenantStatus,
    TtlOverride,
)
from domain.budget.values import Action, Caps, Metrics, OveragePolicy, Subject
from storage.database import Row

Value = TypeVar("Value")
Columns: TypeAlias = Mapping[str, Any] | Row
"""As a query gives it, or as JSON has it."""


def typed(value: Any, kind: type[Value]) -> Value | None:
    """The value of a `json` column that may be empty."""
    return None if value is None else msgspec.convert(value, kind)


# -- tenants -----------------------------------------------------------------------------------------------------------


def tenant_of(row: Columns, name: str) -> Tenant:
    """`row` is a head; the name is the registry's."""
    return Tenant(
        tenant_id=row["tenant_id"],
        status=_tenant_status(row["status"]),
        name=name,
        metadata=row["metadata"],
        default_overage_policy=_overage(row["default_overage_policy"]),
        default_ttl_ms=row["default_ttl_ms"],
        max_ttl_ms=row["max_ttl_ms"],
        max_extensions=row["max_extensions"],
        expiry_policy=ExpiryPolicy(row["expiry_policy"]),
        parent_tenant_id=row["parent_tenant_id"],
        denies_on_any_debt=row["denies_on_any_debt"],
        extension_lead_max_ms=row["extension_lead_max_ms"],
        clock_at=row["clock_at"],
        suspended_at=row["suspended_at"],
        closed_at=row["closed_at"],
        version=row["version"],
    )


def tenant_row(
    tenant: Tenant, *, next_expiry_at: int | None, outbox_seq: int, updated_at: int | None
) -> dict[str, Any]:
    return {
        "tenant_id": tenant.tenant_id,
        "status": tenant.status,
        "metadata": tenant.metadata,
        "default_overage_policy": tenant.default_overage_policy,
        "default_ttl_ms": tenant.default_ttl_ms,
        "max_ttl_ms": tenant.max_ttl_ms,
        "max_extensions": tenant.max_extensions,
        "expiry_policy": tenant.expiry_policy,
        "parent_tenant_id": tenant.parent_tenant_id,
        "denies_on_any_debt": tenant.denies_on_any_debt,
        "extension_lead_max_ms": tenant.extension_lead_max_ms,
        "clock_at": tenant.clock_at,
        "suspended_at": tenant.suspended_at,
        "closed_at": tenant.closed_at,
        "updated_at": updated_at,
        "next_expiry_at": next_expiry_at,
        "version": tenant.version,
        "outbox_seq": outbox_seq,
    }


def moved_head_row(tenant: Tenant, *, next_expiry_at: int | None, outbox_seq: int) -> dict[str, Any]:
    """What every turn changes of a head."""
    return {
        "tenant_id": tenant.tenant_id,
        "clock_at": tenant.clock_at,
        "next_expiry_at": next_expiry_at,
        "version": tenant.version,
        "outbox_seq": outbox_seq,
    }


# -- budgets -----------------------------------------------------------------------------------------------------------


def budget_of(row: Columns) -> Budget:
    return Budget(
        budget_id=row["budget_id"],
        scope_path=row["scope_path"],
        unit=Unit(row["unit"]),
        allocated=row["allocated"],
        created_at=row["created_at"],
        reserved=row["reserved"],
        spent=row["spent"],
        debt=row["debt"],
        overdraft_limit=row["overdraft_limit"],
        capped=row["capped"],
        status=BudgetStatus(row["status"]),
        commit_overage_policy=_overage(row["commit_overage_policy"]),
        caps=typed(row["caps"], Caps),
        rollover_policy=RolloverPolicy(row["rollover_policy"]),
        period_start_at=row["period_start_at"],
        period_end_at=row["period_end_at"],
        metadata=row["metadata"],
        updated_at=row["updated_at"],
        closed_at=row["closed_at"],
    )


def budget_row(tenant_id: str, budget: Budget) -> dict[str, Any]:
    return {
        "tenant_id": tenant_id,
        "scope_path": budget.scope_path,
        "unit": budget.unit,
        "budget_id": budget.budget_id,
        "allocated": budget.allocated,
        "reserved": budget.reserved,
        "spent": budget.spent,
        "debt": budget.debt,
        "overdraft_limit": budget.overdraft_limit,
        "capped": budget.capped,
        "status": budget.status,
        "commit_overage_policy": budget.commit_overage_policy,
        "caps": budget.caps,
        "rollover_policy": budget.rollover_policy,
        "period_start_at": budget.period_start_at,
        "period_end_at": budget.period_end_at,
        "metadata": budget.metadata,
        "created_at": budget.created_at,
        "updated_at": budget.updated_at,
        "closed_at": budget.closed_at,
    }


def balances_row(tenant_id: str, budget: Budget) -> dict[str, Any]:
    """What holding and spending change of a budget."""
    return {
        "tenant_id": tenant_id,
        "scope_path": budget.scope_path,
        "unit": budget.unit,
        "budget_id": budget.budget_id,
        "allocated": budget.allocated,
        "reserved": budget.reserved,
        "spent": budget.spent,
        "debt": budget.debt,
        "capped": budget.capped,
        "updated_at": budget.updated_at,
    }


# -- reservations ------------------------------------------------------------------------------------------------------


def reservation_of(row: Columns) -> BudgetReservation:
    return BudgetReservation(
        reservation_id=row["reservation_id"],
        idempotency_key=row["idempotency_key"],
        subject=msgspec.convert(row["subject"], Subject),
        action=msgspec.convert(row["action"], Action),
        unit=Unit(row["unit"]),
        estimate=row["estimate"],
        scope_path=row["scope_path"],
        affected_scopes=prefixes(row["scope_path"]),
        budgeted_scopes=tuple(row["budgeted_scopes"]),
        overage_policy=OveragePolicy(row["overage_policy"]),
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        ttl_ms=row["ttl_ms"],
        grace_ms=row["grace_ms"],
        max_extensions=row["max_extensions"],
        extensions_used=row["extensions_used"],
        status=ReservationStatus(row["status"]),
        metadata=row["metadata"],
        charged=row["charged"],
        debts=tuple(row["debts"]),
        finalized_at=row["finalized_at"],
        committed_metadata=row["committed_metadata"],
        metrics=typed(row["metrics"], Metrics),
        release_reason=row["release_reason"],
    )


def reservation_row(tenant_id: str, reservation: BudgetReservation) -> dict[str, Any]:
    return {
        "tenant_id": tenant_id,
        "reservation_id": reservation.reservation_id,
        "idempotency_key": reservation.idempotency_key,
        "subject": reservation.subject.content(),
        "action": reservation.action,
        "unit": reservation.unit,
        "estimate": reservation.estimate,
        "scope_path": reservation.scope_path,
        "budgeted_scopes": reservation.budgeted_scopes,
        "overage_policy": reservation.overage_policy,
        "created_at": reservation.created_at,
        "expires_at": reservation.expires_at,
        "ttl_ms": reservation.ttl_ms,
        "grace_ms": reservation.grace_ms,
        "max_extensions": reservation.max_extensions,
        "extensions_used": reservation.extensions_used,
        "status": reservation.status,
        "metadata": reservation.metadata,
        "charged": reservation.charged,
        "debts": reservation.debts,
        "finalized_at": reservation.finalized_at,
        "committed_metadata": reservation.committed_metadata,
        "metrics": reservation.metrics,
        "release_reason": reservation.release_reason,
    }


def hold_row(tenant_id: str, reservation: BudgetReservation) -> dict[str, Any]:
    """What settling and extending change of a reservation."""
    return {
        "tenant_id": tenant_id,
        "reservation_id": reservation.reservation_id,
        "expires_at": reservation.expires_at,
        "extensions_used": reservation.extensions_used,
        "status": reservation.status,
        "charged": reservation.charged,
        "debts": reservation.debts,
        "finalized_at": reservation.finalized_at,
        "committed_metadata": reservation.committed_metadata,
        "metrics": reservation.metrics,
        "release_reason": reservation.release_reason,
    }


def prefixes(scope_path: str) -> tuple[str, ...]:
    """The scopes that a path falls under, from the widest to itself."""
    ends = [at for at, letter in enumerate(scope_path) if letter == "/"]
    return (*(scope_path[:end] for end in ends), scope_path)


# -- what is only ever added -------------------------------------------------------------------------------------------


def debit_row(tenant_id: str, debit: DirectDebit) -> dict[str, Any]:
    return {
        "tenant_id": tenant_id,
        "debit_id": debit.debit_id,
        "idempotency_key": debit.idempotency_key,
        "subject": debit.subject.content(),
        "action": debit.action,
        "unit": debit.unit,
        "actual": debit.actual,
        "charged": debit.charged,
        "scope_path": debit.scope_path,
        "budgeted_scopes": debit.budgeted_scopes,
        "debts": debit.debts,
        "overage_policy": debit.overage_policy,
        "created_at": debit.created_at,
        "metrics": debit.metrics,
        "client_time_ms": debit.client_time_ms,
        "metadata": debit.metadata,
    }


def funding_row(tenant_id: str, funding: Funding) -> dict[str, Any]:
    return {
        "tenant_id": tenant_id,
        "funding_id": funding.funding_id,
        "budget_id": funding.budget_id,
        "operation": funding.operation,
        "amount": funding.amount,
        "spent_given": funding.spent_given,
        "before": funding.before._asdict(),
        "after": funding.after._asdict(),
        "created_at": funding.created_at,
        "idempotency_key": funding.idempotency_key,
        "reason": funding.reason,
        "metadata": funding.metadata,
    }


# -- policies ----------------------------------------------------------------------------------------------------------


def policy_of(row: Columns) -> Policy:
    return Policy(
        policy_id=row["policy_id"],
        name=row["name"],
        pattern=_pattern(row["scope_pattern"]),
        created_at=row["created_at"],
        description=row["description"],
        priority=row["priority"],
        caps=typed(row["caps"], Caps),
        commit_overage_policy=_overage(row["commit_overage_policy"]),
        ttl_override=typed(row["ttl_override"], TtlOverride),
        rate_limits=typed(row["rate_limits"], RateLimits),
        status=PolicyStatus(row["status"]),
        effective_from_at=row["effective_from_at"],
        effective_until_at=row["effective_until_at"],
        updated_at=row["updated_at"],
    )


def policy_row(tenant_id: str, policy: Policy) -> dict[str, Any]:
    return {
        "tenant_id": tenant_id,
        "policy_id": policy.policy_id,
        "name": policy.name,
        "scope_pattern": policy.pattern.text,
        "description": policy.description,
        "priority": policy.priority,
        "caps": policy.caps,
        "commit_overage_policy": policy.commit_overage_policy,
        "ttl_override": policy.ttl_override,
        "rate_limits": policy.rate_limits,
        "status": policy.status,
        "effective_from_at": policy.effective_from_at,
        "effective_until_at": policy.effective_until_at,
        "created_at": policy.created_at,
        "updated_at": policy.updated_at,
    }


def window_of(row: Columns) -> RateWindow:
    return RateWindow(
        policy_id=row["policy_id"], kind=RateKind(row["kind"]), minute_at=row["minute_at"], count=row["count"]
    )


def window_row(tenant_id: str, window: RateWindow) -> dict[str, Any]:
    return {
        "tenant_id": tenant_id,
        "policy_id": window.policy_id,
        "kind": window.kind,
        "minute_at": window.minute_at,
        "count": window.count,
    }


def _pattern(text: str) -> ScopePattern:
    pattern = parse_pattern(text)
    assert isinstance(pattern, ScopePattern), f"stored pattern {text!r}"
    return pattern


def _overage(word: str | None) -> OveragePolicy | None:
    return None if word is None else OveragePolicy(word)


def _tenant_status(word: str | None) -> TenantStatus | None:
    """None when it cannot be understood: then nothing is decided for the tenant (section 7)."""
    return TenantStatus(word) if word is not None and word in {*TenantStatus} else None
