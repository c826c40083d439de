"""Decisions about a budget itself: create, update, freeze, unfreeze, close (sections 2.8, 7 and 11.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from domain.budget.admission import refuse_status
from domain.budget.balances import tell_over_limit
from domain.budget.commands import (
    BudgetCommand,
    BudgetStatusCommand,
    CloseBudget,
    CreateBudget,
    FreezeBudget,
    Fund,
    UnfreezeBudget,
    UpdateBudget,
)
from domain.budget.events import CREATED, DONE, AuditEntry, BudgetEvent, BudgetLifecycle, EventType
from domain.budget.records import Budget, BudgetStatus, TenantStatus
from domain.budget.refusals import BudgetNotFound, Duplicate
from domain.budget.repeats import BudgetOutcome, accept, repeated
from domain.budget.scopes import parse_budget_scope
from domain.budget.shapes import REASON_MAX, check_amount, check_caps, check_key, check_length, invalid
from domain.budget.state import BudgetState
from domain.budget.tenancy import refuse_closed, refuse_scope
from domain.budget.values import Balance
from domain.outcomes import InvalidInput, InvalidState, Refusal


def decide_create_budget(state: BudgetState, command: CreateBudget, now: int) -> BudgetOutcome[Budget]:
    """Open a budget of one scope and unit with an allocation.

    Refuses in this order: INVALID_INPUT (shape, scope), ACCESS_DENIED, IDEMPOTENCY_MISMATCH, TENANT_CLOSED, INVALID_INPUT
    (the tenant is suspended), DUPLICATE_RESOURCE.
    """
    if (refusal := _check_create(command)) is not None:
        return refusal
    path = parse_budget_scope(command.scope, tenant_id=state.tenant.tenant_id)
    if isinstance(path, Refusal):
        return path
    if (denied := refuse_scope(command, path)) is not None:
        return denied
    if (repeat := repeated(state, command, Budget, now)) is not None:
        return repeat
    if (closed := refuse_closed(state)) is not None:
        return closed
    if state.tenant.status is TenantStatus.SUSPENDED:
        return invalid("tenant_id", "a suspended tenant gets no new budgets", reason="tenant-suspended")
    if (existing := state.budget(path, command.unit)) is not None:
        message = f"{path} has a budget in {command.unit.value} already"
        return Duplicate(resource="budget", resource_id=existing.budget_id, message=message)
    budget = _new_budget(command, path, now)
    state.add_budget(budget)
    _tell(state, command, budget, kind=EventType.BUDGET_CREATED, operation="CREATE", now=now, before=None)
    return accept(state, command, replace(budget), now)


def decide_update_budget(state: BudgetState, command: UpdateBudget, now: int) -> BudgetOutcome[Budget]:
    """Change what a budget allows. A new overdraft limit also clears the mark of a cut charge (decision 4).

    Refuses in this order: INVALID_INPUT, ACCESS_DENIED, IDEMPOTENCY_MISMATCH, TENANT_CLOSED, BUDGET_NOT_FOUND,
    BUDGET_CLOSED. A frozen budget can be updated.
    """
    limit = check_amount(command.overdraft_limit, field="overdraft_limit", unit=command.unit)
    if (refusal := check_key(command) or limit or refuse_scope(command, command.scope.lower())) is not None:
        return refusal
    if (repeat := repeated(state, command, Budget, now)) is not None:
        return repeat
    budget = find_budget(state, command)
    if isinstance(budget, Refusal):
        return budget
    if budget.status is BudgetStatus.CLOSED and (closed := refuse_status(budget)) is not None:
        return closed
    before, was_over = snapshot(budget), budget.is_over_limit
    _apply_update(budget, command, now)
    state.touch_budget(budget)
    _tell(state, command, budget, kind=EventType.BUDGET_UPDATED, operation="UPDATE", now=now, before=before)
    if budget.is_over_limit is not was_over:
        tell_over_limit(state, budget, now=now, origin=command.origin)
    return accept(state, command, replace(budget), now)


def decide_budget_status(state: BudgetState, command: BudgetStatusCommand, now: int) -> BudgetOutcome[Budget]:
    """Freeze an active budget, unfreeze a frozen one, close either; closed is for good. Holds on it still settle.

    Refuses in this order: INVALID_INPUT, ACCESS_DENIED, IDEMPOTENCY_MISMATCH, TENANT_CLOSED, BUDGET_NOT_FOUND,
    BUDGET_CLOSED, then BUDGET_FROZEN (frozen already) or INVALID_STATE (active already).
    """
    reason = check_length(command.reason, field="reason", most=REASON_MAX)
    if (refusal := check_key(command) or reason or refuse_scope(command, command.scope.lower())) is not None:
        return refusal
    if (repeat := repeated(state, command, Budget, now)) is not None:
        return repeat
    budget = find_budget(state, command)
    if isinstance(budget, Refusal):
        return budget
    if (refused := _refuse_transition(budget, command)) is not None:
        return refused
    before = snapshot(budget)
    kind, budget.status = _transition(command)
    budget.updated_at = now
    budget.closed_at = now if budget.status is BudgetStatus.CLOSED else None
    state.touch_budget(budget)
    _tell(
        state,
        command,
        budget,
        kind=kind,
        operation="STATUS_CHANGE",
        now=now,
        before=before,
        reason=command.reason,
    )
    return accept(state, command, replace(budget), now)


def find_budget(state: BudgetState, command: BudgetCommand | Fund) -> Budget | Refusal:
    """The named budget of a tenant that is not closed."""
    path = command.scope.lower()
    if (refusal := refuse_scope(command, path) or refuse_closed(state)) is not None:
        return refusal
    budget = state.budget(path, command.unit)
    if budget is None:
        message = f"{path} has no budget in {command.unit.value}"
        return BudgetNotFound(scope=path, unit=command.unit, message=message)
    return budget


def snapshot(budget: Budget, status: BudgetStatus | None = None) -> Mapping[str, Any]:
    """The fields that lifecycle events show before and after."""
    return state_of(budget.balance(), status or budget.status)


def state_of(balance: Balance, status: BudgetStatus) -> Mapping[str, Any]:
    return {
        "allocated": balance.allocated,
        "remaining": balance.remaining,
        "debt": balance.debt,
        "spent": balance.spent,
        "reserved": balance.reserved,
        "status": status.value,
    }


def _check_create(command: CreateBudget) -> InvalidInput | None:
    starts_at, ends_at = command.period_start_at, command.period_end_at
    if starts_at is not None and ends_at is not None and ends_at <= starts_at:
        return invalid("period_end", "a period ends after it starts", reason="range")
    return (
        check_key(command)
        or check_amount(command.allocated, field="allocated", unit=command.unit)
        or check_amount(command.overdraft_limit, field="overdraft_limit", unit=command.unit)
        or check_caps(command.caps)
    )


def _new_budget(command: CreateBudget, path: str, now: int) -> Budget:
    return Budget(
        budget_id=command.budget_id,
        scope_path=path,
        unit=command.unit,
        allocated=command.allocated.amount,
        created_at=now,
        overdraft_limit=0 if command.overdraft_limit is None else command.overdraft_limit.amount,
        commit_overage_policy=command.commit_overage_policy,
        caps=command.caps,
        rollover_policy=command.rollover_policy,
        period_start_at=command.period_start_at,
        period_end_at=command.period_end_at,
        metadata=command.metadata,
        updated_at=now,
    )


def _apply_update(budget: Budget, command: UpdateBudget, now: int) -> None:
    if command.overdraft_limit is not None:
        budget.overdraft_limit, budget.capped = command.overdraft_limit.amount, False
    if command.commit_overage_policy is not None:
        budget.commit_overage_policy = command.commit_overage_policy
    if command.metadata is not None:
        budget.metadata = command.metadata
    budget.updated_at = now


def _refuse_transition(budget: Budget, command: BudgetStatusCommand) -> Refusal | None:
    if budget.status is BudgetStatus.CLOSED:
        return refuse_status(budget)
    if isinstance(command, FreezeBudget):
        return refuse_status(budget)
    if isinstance(command, UnfreezeBudget) and budget.status is BudgetStatus.ACTIVE:
        return InvalidState(state=budget.status.value, message=f"the budget of {budget.scope_path} is active already")
    return None


def _transition(command: BudgetStatusCommand) -> tuple[EventType, BudgetStatus]:
    if isinstance(command, FreezeBudget):
        return EventType.BUDGET_FROZEN, BudgetStatus.FROZEN
    if isinstance(command, CloseBudget):
        return EventType.BUDGET_CLOSED, BudgetStatus.CLOSED
    return EventType.BUDGET_UNFROZEN, BudgetStatus.ACTIVE


_OPERATIONS = {
    EventType.BUDGET_CREATED: "createBudget",
    EventType.BUDGET_UPDATED: "updateBudget",
    EventType.BUDGET_FROZEN: "freezeBudget",
    EventType.BUDGET_UNFROZEN: "unfreezeBudget",
    EventType.BUDGET_CLOSED: "closeBudget",
}


def _tell(
    state: BudgetState,
    command: BudgetCommand,
    budget: Budget,
    *,
    kind: EventType,
    operation: str,
    now: int,
    before: Mapping[str, Any] | None,
    reason: str | None = None,
) -> None:
    """The event and the audit entry of one change."""
    facts = BudgetLifecycle(
        ledger_id=budget.budget_id,
        scope=budget.scope_path,
        unit=budget.unit,
        operation=operation,
        previous_state=before,
        new_state=snapshot(budget),
        reason=reason,
    )
    event = BudgetEvent(type=kind, occurred_at=now, scope=budget.scope_path, facts=facts, origin=command.origin)
    state.publish(event)
    entry = AuditEntry(
        operation=_OPERATIONS[kind],
        status=CREATED if kind is EventType.BUDGET_CREATED else DONE,
        recorded_at=now,
        resource_type="budget",
        resource_id=budget.budget_id,
        origin=command.origin,
        scope=budget.scope_path,
        unit=budget.unit,
        reason=reason,
        metadata=command.metadata,
    )
    state.audit(entry)
