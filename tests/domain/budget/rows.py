"""A stand-in for storage in tests: rows by key, written from `Changes` alone and read as a partial state needs them."""

from __future__ import annotations

import copy
from typing import Any

from domain.amounts import Unit
from domain.budget.decisions import Reads
from domain.budget.records import (
    Budget,
    BudgetReservation,
    DirectDebit,
    Funding,
    FundingOperation,
    ReservationStatus,
    Tenant,
)
from domain.budget.replay import RememberedAnswer
from domain.budget.state import BudgetState, Changes
from domain.replay import RequestKey


class Rows:
    """Nothing in here is shared with a state: rows go in and out as copies."""

    def __init__(self, tenant: Tenant, budgets: list[Budget]) -> None:
        self.tenant = copy.deepcopy(tenant)
        self.budgets = {(row.scope_path, row.unit): copy.deepcopy(row) for row in budgets}
        self.opened = {key: row.allocated for key, row in self.budgets.items()}
        self.reservations: dict[str, BudgetReservation] = {}
        self.remembered: dict[RequestKey, RememberedAnswer] = {}
        self.debits: list[DirectDebit] = []
        self.fundings: list[Funding] = []

    def flush(self, state: BudgetState, changes: Changes) -> None:
        """Insert what is new, update what was there, and refuse to mix the two up."""
        clock_at = state.tenant.clock_at
        if changes.tenant:
            self.tenant = copy.deepcopy(state.tenant)
        self.tenant.clock_at = clock_at
        self._put(self.budgets, changes.budgets, changes.new_budgets)
        self._put(self.reservations, changes.reservations, changes.new_reservations)
        self._put(self.remembered, changes.remembered, set(changes.remembered))
        for key in changes.new_budgets:
            self.opened[key] = self.budgets[key].allocated
        self.debits += changes.debits
        self.fundings += changes.fundings

    def _put(self, rows: dict[Any, Any], changed: dict[Any, Any], new: set[Any]) -> None:
        assert new <= set(changed), "a new row that is not written"
        for key, row in changed.items():
            assert (key in rows) is (key not in new), f"{key} inserted twice or updated before it was there"
            rows[key] = copy.deepcopy(row)

    def load(self, reads: Reads, now: int) -> BudgetState:
        """Only what `reads` names and what is overdue; everything for a command that needs the whole tenant."""
        remembered = {}
        if reads.request_key is not None and reads.request_key in self.remembered:
            remembered = {reads.request_key: self.remembered[reads.request_key]}
        holds = self._holds(reads, remembered, now)
        scopes = set(reads.scopes) | {scope for hold in holds for scope in hold.affected_scopes}
        return BudgetState(
            copy.deepcopy(self.tenant),
            [copy.deepcopy(row) for row in self.budgets.values() if reads.whole_tenant or row.scope_path in scopes],
            [copy.deepcopy(hold) for hold in holds],
            remembered=copy.deepcopy(remembered),
            is_complete=reads.whole_tenant,
        )

    def _holds(self, reads: Reads, remembered: dict[RequestKey, RememberedAnswer], now: int) -> list[BudgetReservation]:
        named = {reads.reservation_id}
        named |= {getattr(answer.answer, "reservation_id", None) for answer in remembered.values()}
        active = ReservationStatus.ACTIVE
        return [
            hold
            for hold in self.reservations.values()
            if hold.reservation_id in named
            or (hold.status is active and (reads.whole_tenant or hold.settles_until < now))
        ]

    def recount(self) -> dict[tuple[str, Unit], tuple[int, int, int, int]]:
        """(allocated, reserved, spent, debt) of every budget, told by the other rows alone."""
        return {key: self._recount(*key) for key in self.budgets}

    def _recount(self, scope: str, unit: Unit) -> tuple[int, int, int, int]:
        allocated, reserved, spent, debt = self.opened[scope, unit], 0, 0, 0
        settled: list[Any] = [*self.debits]
        for hold in self.reservations.values():
            if hold.unit is not unit or scope not in hold.budgeted_scopes:
                continue
            if hold.status is ReservationStatus.ACTIVE:
                reserved += hold.estimate
            elif hold.status is ReservationStatus.COMMITTED:
                settled.append(hold)
        for row in settled:
            if row.unit is unit and scope in row.budgeted_scopes:
                owed = row.debts[row.budgeted_scopes.index(scope)] if row.debts else 0
                spent, debt = spent + row.charged - owed, debt + owed
        for funding in self.fundings:
            if (funding.after.scope_path, funding.after.unit) == (scope, unit):
                before, after = funding.before, funding.after
                allocated += after.allocated - before.allocated
                spent += after.spent - before.spent
                debt += after.debt - before.debt
                assert funding.operation is not FundingOperation.DEBIT or after.remaining >= 0
        return allocated, reserved, spent, debt
