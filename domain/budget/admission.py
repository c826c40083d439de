"""Whether a hold would fit: the one evaluation behind reserve, dry run and evaluate (sections 2.2 and 2.4).

It changes nothing (I8). A live reserve then applies the verdict; a preview tells it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from domain.amounts import Amount, Unit
from domain.budget.governing import caps_of, refuse_rate, winning_policy
from domain.budget.records import Budget, BudgetStatus, Policy, RateKind
from domain.budget.refusals import (
    BudgetClosed,
    BudgetExceeded,
    BudgetFrozen,
    BudgetNotFound,
    DebtOutstanding,
    Denial,
    OverdraftLimitExceeded,
    UnitMismatch,
)
from domain.budget.state import NO_BUDGETS, BudgetState
from domain.budget.tenancy import refuse_inactive
from domain.budget.values import Caps


class Verdict(NamedTuple):
    """It holds: on these budgets, from the widest scope down, under this policy and these caps."""

    budgets: list[Budget]
    policy: Policy | None
    caps: Caps | None


def evaluate(state: BudgetState, scopes: Sequence[str], estimate: Amount, now: int) -> Verdict | Denial | UnitMismatch:
    """Refuses in this order: TENANT_CLOSED, TENANT_SUSPENDED, LIMIT_EXCEEDED, then the first budget that says no.

    Each budget, from the widest scope down: BUDGET_FROZEN, BUDGET_CLOSED, OVERDRAFT_LIMIT_EXCEEDED, DEBT_OUTSTANDING,
    BUDGET_EXCEEDED. Without any budget in the unit: UNIT_MISMATCH, or BUDGET_NOT_FOUND when there is none in any unit.
    """
    if (refusal := refuse_inactive(state)) is not None:
        return refusal
    policy = winning_policy(state, scopes[-1], now)
    if (refused := refuse_rate(state, policy, RateKind.RESERVATIONS, now)) is not None:
        return refused
    budgets = state.taking_part(scopes, estimate.unit)
    strict = state.tenant.denies_on_any_debt
    for budget in budgets:
        if (denial := refuse_hold(budget, estimate.amount, strict=strict)) is not None:
            return denial
    if not budgets:
        return refuse_unbudgeted(state, scopes, estimate.unit)
    return Verdict(budgets, policy, caps_of(scopes[-1], policy=policy, budgets=budgets))


def refuse_hold(budget: Budget, amount: int, *, strict: bool = False) -> Denial | None:
    """One budget's answer to a new hold. `remaining == amount` passes; so does 0, unless what remains is negative."""
    if budget.status is not BudgetStatus.ACTIVE:
        return refuse_status(budget)
    if budget.is_over_limit:
        return _over_limit(budget)
    if strict and budget.debt > 0:  # a debt without any overdraft limit is over its limit already
        return _in_debt(budget)
    if budget.remaining < amount:
        return exceeded(budget, amount)
    return None


def refuse_status(budget: Budget) -> BudgetFrozen | BudgetClosed | None:
    scope, unit = budget.scope_path, budget.unit
    if budget.status is BudgetStatus.FROZEN:
        return BudgetFrozen(scope=scope, unit=unit, message=f"the budget of {scope} is frozen")
    if budget.status is BudgetStatus.CLOSED:
        return BudgetClosed(scope=scope, unit=unit, message=f"the budget of {scope} is closed")
    return None


def refuse_unbudgeted(state: BudgetState, scopes: Sequence[str], unit: Unit) -> UnitMismatch | BudgetNotFound:
    """No budget in this unit: the widest scope that has others tells which (section 2.2)."""
    for scope in scopes:
        units = tuple(sorted(state.budgets.get(scope, NO_BUDGETS)))
        if units:
            message = f"{scope} has budgets in {', '.join(units)}, not in {unit.value}"
            return UnitMismatch(scope=scope, requested_unit=unit, expected_units=units, message=message)
    return BudgetNotFound(scope=scopes[-1], unit=unit, message=f"Budget not found for provided scope: {scopes[-1]}")


def exceeded(budget: Budget, amount: int) -> BudgetExceeded:
    scope, remaining = budget.scope_path, budget.remaining
    return BudgetExceeded(
        scope=scope,
        unit=budget.unit,
        requested=amount,
        remaining=remaining,
        message=f"Insufficient remaining budget for scope {scope}: {remaining} remain, {amount} are asked for",
    )


def _over_limit(budget: Budget) -> OverdraftLimitExceeded:
    return OverdraftLimitExceeded(
        scope=budget.scope_path,
        unit=budget.unit,
        debt=budget.debt,
        overdraft_limit=budget.overdraft_limit,
        message=f"the budget of {budget.scope_path} is over its limit until it is funded",
    )


def _in_debt(budget: Budget) -> DebtOutstanding:
    message = f"the budget of {budget.scope_path} has a debt of {budget.debt} to repay first"
    return DebtOutstanding(scope=budget.scope_path, unit=budget.unit, debt=budget.debt, message=message)
