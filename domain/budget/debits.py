"""The direct debit: spend without a hold, on all budgets of the subject or on none (section 2.7, I7).

Debt and the over-limit mark block new holds only, never a debit: it tells of what has happened already (decision 38).
"""

from __future__ import annotations

from collections.abc import Sequence

from domain.budget.admission import exceeded, refuse_status, refuse_unbudgeted
from domain.budget.answers import DebitAnswer
from domain.budget.balances import fits
from domain.budget.commands import Debit
from domain.budget.governing import overage_of, winning_policy
from domain.budget.overage import Overage, settle_overage
from domain.budget.records import Budget, DirectDebit
from domain.budget.refusals import Denial, OverdraftLimitExceeded
from domain.budget.repeats import BudgetOutcome, accept, repeated
from domain.budget.scopes import derive_scopes
from domain.budget.settlement import apply_overage
from domain.budget.shapes import check_debit, overflows
from domain.budget.state import BudgetState
from domain.budget.tenancy import refuse_inactive, refuse_request
from domain.budget.values import OveragePolicy
from domain.outcomes import Refusal


def decide_debit(state: BudgetState, command: Debit, now: int) -> BudgetOutcome[DebitAnswer]:
    """Charge the actual, or what the overage policy lets through of it. The client's own clock plays no part.

    Refuses in this order: INVALID_INPUT, ACCESS_DENIED, IDEMPOTENCY_MISMATCH, TENANT_CLOSED, TENANT_SUSPENDED; each
    budget from the widest scope down BUDGET_FROZEN, BUDGET_CLOSED, BUDGET_EXCEEDED (REJECT); UNIT_MISMATCH or
    BUDGET_NOT_FOUND; OVERDRAFT_LIMIT_EXCEEDED; INVALID_INPUT (overflow).
    """
    if (invalid := check_debit(command)) is not None:
        return invalid
    scopes = derive_scopes(command.subject)
    if isinstance(scopes, Refusal):
        return scopes
    if (refusal := refuse_request(state, command, command.subject, scopes)) is not None:
        return refusal
    if (repeat := repeated(state, command, DebitAnswer, now)) is not None:
        return repeat
    if (refused := refuse_inactive(state)) is not None:
        return refused
    budgets = state.taking_part(scopes, command.actual.unit)
    policy = _policy_of(state, command, scopes, budgets, now)
    for budget in budgets:
        if (denial := _refuse_debit(budget, command.actual.amount, policy)) is not None:
            return denial
    if not budgets:
        return refuse_unbudgeted(state, scopes, command.actual.unit)
    overage = _overage(budgets, command.actual.amount, policy)
    if isinstance(overage, Refusal):
        return overage
    if not _all_fit(budgets, overage):
        return overflows("actual.amount")
    answer = _debit(state, command, budgets, scopes=scopes, overage=overage, policy=policy, now=now)
    return accept(state, command, answer, now)


def _policy_of(
    state: BudgetState, command: Debit, scopes: Sequence[str], budgets: Sequence[Budget], now: int
) -> OveragePolicy:
    governing = winning_policy(state, scopes[-1], now)
    return overage_of(command.overage_policy, policy=governing, budgets=budgets, tenant=state.tenant)


def _refuse_debit(budget: Budget, amount: int, policy: OveragePolicy) -> Denial | None:
    if (refusal := refuse_status(budget)) is not None:
        return refusal
    if policy is OveragePolicy.REJECT and budget.remaining < amount:
        return exceeded(budget, amount)
    return None


def _overage(budgets: Sequence[Budget], amount: int, policy: OveragePolicy) -> Overage | OverdraftLimitExceeded:
    if policy is OveragePolicy.REJECT:  # every budget covers it, or it was refused
        return Overage(amount, (0,) * len(budgets), (False,) * len(budgets))
    return settle_overage(budgets, amount, policy)


def _all_fit(budgets: Sequence[Budget], overage: Overage) -> bool:
    return all(
        fits(budget, spent=overage.charged - debt, debt=debt)
        for budget, debt in zip(budgets, overage.debts, strict=True)
    )


def _debit(
    state: BudgetState,
    command: Debit,
    budgets: Sequence[Budget],
    *,
    scopes: tuple[str, ...],
    overage: Overage,
    policy: OveragePolicy,
    now: int,
) -> DebitAnswer:
    apply_overage(
        state,
        budgets,
        overage,
        estimate=0,
        charged=overage.charged,
        policy=policy,
        reservation_id=None,
        now=now,
        origin=command.origin,
    )
    state.add_debit(_record(command, budgets, scopes=scopes, overage=overage, policy=policy, now=now))
    return DebitAnswer(
        debit_id=command.debit_id,
        unit=command.actual.unit,
        actual=command.actual.amount,
        charged=overage.charged,
        decided_at=now,
        balances=tuple(budget.balance() for budget in budgets),
    )


def _record(
    command: Debit,
    budgets: Sequence[Budget],
    *,
    scopes: Sequence[str],
    overage: Overage,
    policy: OveragePolicy,
    now: int,
) -> DirectDebit:
    return DirectDebit(
        debit_id=command.debit_id,
        idempotency_key=command.idempotency_key,
        subject=command.subject,
        action=command.action,
        unit=command.actual.unit,
        actual=command.actual.amount,
        charged=overage.charged,
        scope_path=scopes[-1],
        budgeted_scopes=tuple(budget.scope_path for budget in budgets),
        debts=overage.debts if any(overage.debts) else (),
        overage_policy=policy,
        created_at=now,
        metrics=command.metrics,
        client_time_ms=command.client_time_ms,
        metadata=command.metadata,
    )
