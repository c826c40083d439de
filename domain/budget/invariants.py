"""What must hold of a tenant's books at any moment (section 2.3). A breach is a fault of ours, so it is an assertion.

I1 (remaining) and I6 (one unit) cannot be broken by construction: the one is derived, the other never assigned. I5, I7
and I8 speak about steps, not about a state; the tests hold every step against them.
"""

from __future__ import annotations

from collections import defaultdict

from domain.amounts import Unit
from domain.budget.balances import assert_in_range
from domain.budget.records import BudgetReservation, BudgetStatus, ReservationStatus, TenantStatus
from domain.budget.state import BudgetState

_FINALIZED = (ReservationStatus.COMMITTED, ReservationStatus.RELEASED)


def check_invariants(state: BudgetState) -> None:
    """I1 and I3 of every budget, I4 and I6 of every reservation, I2 when all active reservations are known."""
    for budget in state.all_budgets():
        assert_in_range(budget)
        assert budget.overdraft_limit >= 0, budget.scope_path
    for reservation in state.reservations.values():
        _check_reservation(state, reservation)
    if state.is_complete:
        _check_reserved(state)
    if state.tenant.status is TenantStatus.CLOSED:
        _check_closed(state)


def _check_reservation(state: BudgetState, reservation: BudgetReservation) -> None:
    """I4: exactly one way out, and what tells of it fits the status."""
    name, status = reservation.reservation_id, reservation.status
    assert (reservation.finalized_at is not None) == (status in _FINALIZED), f"{name} finalized_at"
    assert (reservation.charged is not None) == (status is ReservationStatus.COMMITTED), f"{name} charged (I4)"
    assert reservation.estimate >= 0, f"{name} estimate"
    assert reservation.budgeted_scopes, f"{name} is held on nothing"
    assert set(reservation.budgeted_scopes) <= set(reservation.affected_scopes), f"{name} scopes"
    assert reservation.extensions_used <= reservation.max_extensions, f"{name} extensions"
    state.held_budgets(reservation)  # I6: each has a budget in this very unit


def _check_reserved(state: BudgetState) -> None:
    """I2: what is reserved on a budget is the sum of the active holds that froze it."""
    held: defaultdict[tuple[str, Unit], int] = defaultdict(int)
    for reservation in state.reservations.values():
        if reservation.status is ReservationStatus.ACTIVE:
            for scope in reservation.budgeted_scopes:
                held[scope, reservation.unit] += reservation.estimate
    for budget in state.all_budgets():
        expected = held[budget.scope_path, budget.unit]
        assert budget.reserved == expected, f"{budget.scope_path} reserved {budget.reserved}, held {expected} (I2)"


def _check_closed(state: BudgetState) -> None:
    """Nothing of a closed tenant is open (mode A of the cascade)."""
    assert all(budget.status is BudgetStatus.CLOSED for budget in state.all_budgets())
    assert all(held.status is not ReservationStatus.ACTIVE for held in state.reservations.values())
