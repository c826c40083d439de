"""Moving the balances of one budget, and telling what that move changed (sections 2.3 and 8.2).

Amounts change through `move`, and in the close cascade. Whoever calls `move` has made sure with `fits` that the result
fits 64 bits, or knows why it must.
"""

from __future__ import annotations

from domain.amounts import INT64_MAX, INT64_MIN
from domain.budget.events import MILLION, BudgetEvent, BudgetOverLimit, BudgetThreshold, EventType
from domain.budget.records import Budget
from domain.budget.state import BudgetState
from domain.budget.values import Origin

RISING = "rising"
FALLING = "falling"


def fits(budget: Budget, *, allocated: int = 0, reserved: int = 0, spent: int = 0, debt: int = 0) -> bool:
    """Whether every balance, and what would remain, still fits 64 bits after these changes."""
    return (
        budget.allocated + allocated <= INT64_MAX
        and budget.reserved + reserved <= INT64_MAX
        and budget.spent + spent <= INT64_MAX
        and budget.debt + debt <= INT64_MAX
        and budget.remaining + allocated - reserved - spent - debt >= INT64_MIN
    )


def move(
    state: BudgetState,
    budget: Budget,
    *,
    now: int,
    origin: Origin | None,
    allocated: int = 0,
    reserved: int = 0,
    spent: int = 0,
    debt: int = 0,
    capped: bool | None = None,
) -> None:
    """Add these (possibly negative) amounts to the balances; `capped` sets or clears that mark, None leaves it."""
    allocated_before, used_before, was_over = budget.allocated, budget.spent + budget.reserved, budget.is_over_limit
    remaining_before = allocated_before - used_before - budget.debt
    budget.allocated += allocated
    budget.reserved += reserved
    budget.spent += spent
    budget.debt += debt
    if capped is not None:
        budget.capped = capped
    budget.updated_at = now
    assert_in_range(budget)
    state.touch_balances(budget)
    if budget.is_over_limit is not was_over:
        tell_over_limit(state, budget, now=now, origin=origin)
    used = used_before + reserved + spent
    # Most moves stay below the lowest threshold: one comparison shows that they cross none.
    if allocated or max(used, used_before) * MILLION >= state.lowest_threshold * allocated_before:
        _tell_thresholds(state, budget, used_before, allocated_before, now=now, origin=origin)
    if remaining_before > 0 and budget.remaining == 0:
        facts = _threshold_facts(budget, MILLION, RISING)
        state.publish(_event(EventType.BUDGET_EXHAUSTED, budget, facts, now=now, origin=origin))


def assert_in_range(budget: Budget) -> None:
    """I3, and that every number can be kept. A failure here is a fault of ours, never a client's."""
    in_range = (
        0 <= budget.allocated <= INT64_MAX
        and 0 <= budget.reserved <= INT64_MAX
        and 0 <= budget.spent <= INT64_MAX
        and 0 <= budget.debt <= INT64_MAX
        and budget.remaining >= INT64_MIN
    )
    assert in_range, f"out of range: {budget} (I1, I3)"


def tell_over_limit(state: BudgetState, budget: Budget, *, now: int, origin: Origin | None) -> None:
    """Entered or exited: `is_over_limit` is no longer what it was."""
    is_over, limit = budget.is_over_limit, budget.overdraft_limit
    facts = BudgetOverLimit(
        scope=budget.scope_path,
        unit=budget.unit,
        debt=budget.debt,
        overdraft_limit=limit,
        is_over_limit=is_over,
        debt_utilization_millionths=budget.debt * MILLION // limit if limit else None,
    )
    kind = EventType.BUDGET_OVER_LIMIT_ENTERED if is_over else EventType.BUDGET_OVER_LIMIT_EXITED
    state.publish(_event(kind, budget, facts, now=now, origin=origin))


def _tell_thresholds(
    state: BudgetState, budget: Budget, used_before: int, allocated_before: int, *, now: int, origin: Origin | None
) -> None:
    """One event for each threshold that utilization has crossed, in the order in which it passed them."""
    used, allocated = budget.spent + budget.reserved, budget.allocated
    crossed = [
        threshold
        for threshold in state.thresholds
        if _reaches(used, allocated, threshold) != _reaches(used_before, allocated_before, threshold)
    ]
    if not crossed:
        return
    direction = RISING if _reaches(used, allocated, crossed[0]) else FALLING
    for threshold in crossed if direction == RISING else reversed(crossed):
        facts = _threshold_facts(budget, threshold, direction)
        state.publish(_event(EventType.BUDGET_THRESHOLD_CROSSED, budget, facts, now=now, origin=origin))


def _reaches(used: int, allocated: int, threshold: int) -> bool:
    """Whether used / allocated is at least the threshold. Anything used of nothing is above every threshold."""
    return used > 0 and used * MILLION >= threshold * allocated


def _threshold_facts(budget: Budget, threshold: int, direction: str) -> BudgetThreshold:
    used, allocated = budget.spent + budget.reserved, budget.allocated
    return BudgetThreshold(
        scope=budget.scope_path,
        unit=budget.unit,
        threshold_millionths=threshold,
        utilization_millionths=used * MILLION // allocated if allocated else None,
        allocated=allocated,
        remaining=budget.remaining,
        spent=budget.spent,
        reserved=budget.reserved,
        direction=direction,
    )


def _event(
    kind: EventType, budget: Budget, facts: BudgetThreshold | BudgetOverLimit, *, now: int, origin: Origin | None
) -> BudgetEvent:
    return BudgetEvent(type=kind, occurred_at=now, scope=budget.scope_path, facts=facts, origin=origin)
