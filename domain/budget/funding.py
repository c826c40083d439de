"""The five operations that change what a budget has to give (section 2.8; table in `_PLANS`).

| operation | allocated | spent | debt | remaining |
|---|---|---|---|---|
| CREDIT x | + x | + r | - r | + x, with r = min(debt, x): debt is repaid first and stays on record as spent (5) |
| DEBIT x | - x | | | - x, refused when less remains |
| RESET x | = x | | | may become negative |
| RESET_SPENT x, s | = x | = s | | may become negative |
| REPAY_DEBT x | + x - r | | - r | + x, with r = min(debt, x): a surplus is a credit (30) |

All but DEBIT clear the mark of a cut charge (4). The numbers in brackets are decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from domain.budget.admission import exceeded, refuse_status
from domain.budget.answers import FundAnswer
from domain.budget.balances import fits, move
from domain.budget.budgets import find_budget, state_of
from domain.budget.commands import Fund
from domain.budget.events import AuditEntry, BudgetEvent, BudgetLifecycle, EventType
from domain.budget.records import Budget, Funding, FundingOperation
from domain.budget.repeats import BudgetOutcome, accept, repeated
from domain.budget.shapes import REASON_MAX, check_amount, check_key, check_length, overflows
from domain.budget.state import BudgetState
from domain.budget.tenancy import refuse_scope
from domain.budget.values import Balance
from domain.outcomes import Accepted, InvalidInput, Refusal


class _Plan(NamedTuple):
    """What is added to each balance."""

    allocated: int
    spent: int = 0
    debt: int = 0


def _credit(budget: Budget, amount: int, _spent: int) -> _Plan:
    repaid = min(budget.debt, amount)
    return _Plan(amount, spent=repaid, debt=-repaid)


def _debit(_budget: Budget, amount: int, _spent: int) -> _Plan:
    return _Plan(-amount)


def _reset(budget: Budget, amount: int, _spent: int) -> _Plan:
    return _Plan(amount - budget.allocated)


def _reset_spent(budget: Budget, amount: int, spent: int) -> _Plan:
    return _Plan(amount - budget.allocated, spent=spent - budget.spent)


def _repay_debt(budget: Budget, amount: int, _spent: int) -> _Plan:
    repaid = min(budget.debt, amount)
    return _Plan(amount - repaid, debt=-repaid)


_PLANS: Final[Mapping[FundingOperation, Callable[[Budget, int, int], _Plan]]] = {
    FundingOperation.CREDIT: _credit,
    FundingOperation.DEBIT: _debit,
    FundingOperation.RESET: _reset,
    FundingOperation.RESET_SPENT: _reset_spent,
    FundingOperation.REPAY_DEBT: _repay_debt,
}

_EVENTS: Final = {
    FundingOperation.CREDIT: EventType.BUDGET_FUNDED,
    FundingOperation.DEBIT: EventType.BUDGET_DEBITED,
    FundingOperation.RESET: EventType.BUDGET_RESET,
    FundingOperation.RESET_SPENT: EventType.BUDGET_RESET_SPENT,
    FundingOperation.REPAY_DEBT: EventType.BUDGET_DEBT_REPAID,
}


def decide_fund(state: BudgetState, command: Fund, now: int) -> BudgetOutcome[FundAnswer]:
    """Change what one budget has to give. A suspended tenant can be funded. As a part of a bulk action, what would change
    nothing is passed over: it is accepted, and neither remembered nor told.

    Refuses in this order: INVALID_INPUT, ACCESS_DENIED, IDEMPOTENCY_MISMATCH, TENANT_CLOSED, BUDGET_NOT_FOUND,
    BUDGET_FROZEN or BUDGET_CLOSED, BUDGET_EXCEEDED (DEBIT), INVALID_INPUT (overflow).
    """
    if (invalid := _check_fund(command)) is not None:
        return invalid
    if (refusal := refuse_scope(command, command.scope.lower())) is not None:
        return refusal
    if (repeat := repeated(state, command, FundAnswer, now)) is not None:
        return repeat
    budget = find_budget(state, command)
    if isinstance(budget, Refusal):
        return budget
    if (refused := refuse_status(budget)) is not None:
        return refused
    if command.kind is FundingOperation.DEBIT and budget.remaining < command.amount.amount:
        return exceeded(budget, command.amount.amount)
    spent = 0 if command.spent is None else command.spent.amount
    plan = _PLANS[command.kind](budget, command.amount.amount, spent)
    if not fits(budget, allocated=plan.allocated, spent=plan.spent, debt=plan.debt):
        return overflows()
    if command.bulk is not None and _is_idle(command, budget, plan):
        balance = budget.balance()
        return Accepted(
            FundAnswer(
                budget_id=budget.budget_id, operation=command.kind, before=balance, after=balance, decided_at=now
            )
        )
    return accept(state, command, _fund(state, command, budget, plan, now), now)


def _is_idle(command: Fund, budget: Budget, plan: _Plan) -> bool:
    """Nothing would be different, the mark of a cut charge included."""
    return plan == _Plan(0) and (not budget.capped or command.kind is FundingOperation.DEBIT)


def _check_fund(command: Fund) -> InvalidInput | None:
    return (
        check_key(command)
        or check_amount(command.amount, field="amount", unit=command.unit)
        or check_amount(command.spent, field="spent", unit=command.unit)
        or check_length(command.reason, field="reason", most=REASON_MAX)
    )


def _fund(state: BudgetState, command: Fund, budget: Budget, plan: _Plan, now: int) -> FundAnswer:
    before = budget.balance()
    _tell(state, command, budget, plan, now)
    move(
        state,
        budget,
        now=now,
        origin=command.origin,
        allocated=plan.allocated,
        spent=plan.spent,
        debt=plan.debt,
        capped=None if command.kind is FundingOperation.DEBIT else False,
    )
    after = budget.balance()
    state.add_funding(_record(command, budget, before, after, now))
    return FundAnswer(budget_id=budget.budget_id, operation=command.kind, before=before, after=after, decided_at=now)


def _record(command: Fund, budget: Budget, before: Balance, after: Balance, now: int) -> Funding:
    return Funding(
        funding_id=command.funding_id,
        budget_id=budget.budget_id,
        operation=command.kind,
        amount=command.amount.amount,
        spent_given=_spent_given(command),
        before=before,
        after=after,
        created_at=now,
        idempotency_key=command.idempotency_key,
        reason=command.reason,
        metadata=command.metadata,
    )


def _spent_given(command: Fund) -> int | None:
    """Only RESET_SPENT reads it."""
    if command.kind is not FundingOperation.RESET_SPENT or command.spent is None:
        return None
    return command.spent.amount


def _tell(state: BudgetState, command: Fund, budget: Budget, plan: _Plan, now: int) -> None:
    """The funding itself, ahead of the transitions that it causes; and its audit entry."""
    before = budget.balance()
    after = before._replace(
        allocated=before.allocated + plan.allocated, spent=before.spent + plan.spent, debt=before.debt + plan.debt
    )
    is_reset = command.kind is FundingOperation.RESET_SPENT
    facts = BudgetLifecycle(
        ledger_id=budget.budget_id,
        scope=budget.scope_path,
        unit=budget.unit,
        operation=command.kind.value,
        previous_state=state_of(before, budget.status),
        new_state=state_of(after, budget.status),
        spent_override_provided=command.spent is not None if is_reset else None,
        reason=command.reason,
    )
    kind = _EVENTS[command.kind]
    event = BudgetEvent(
        type=kind,
        occurred_at=now,
        scope=budget.scope_path,
        facts=facts,
        origin=command.origin,
        correlation_id=command.bulk,
    )
    state.publish(event)
    if command.bulk is None:
        state.audit(_entry(command, budget, now))


def _entry(command: Fund, budget: Budget, now: int) -> AuditEntry:
    return AuditEntry(
        operation="fundBudget",
        recorded_at=now,
        resource_type="budget",
        resource_id=budget.budget_id,
        origin=command.origin,
        scope=budget.scope_path,
        unit=budget.unit,
        amount=command.amount.amount,
        reason=command.reason,
        metadata={"operation": command.kind.value},
    )
