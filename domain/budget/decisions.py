"""The table command -> decision, and what a decision has to have read (DESIGN, turns).

A turn calls `advance`, then `decide` for each command in order with the same instant, then flushes what changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from domain.budget.budgets import decide_budget_status, decide_create_budget, decide_update_budget
from domain.budget.commands import (
    AnyCommand,
    CloseBudget,
    Commit,
    CreateBudget,
    CreatePolicy,
    CreateTenant,
    Debit,
    Evaluate,
    ExpireDue,
    Extend,
    FreezeBudget,
    Fund,
    KeyedCommand,
    Release,
    ReservationCommand,
    Reserve,
    UnfreezeBudget,
    UpdateBudget,
    UpdatePolicy,
    UpdateTenant,
)
from domain.budget.debits import decide_debit
from domain.budget.funding import decide_fund
from domain.budget.policies import decide_create_policy, decide_update_policy
from domain.budget.records import TenantStatus
from domain.budget.repeats import BudgetOutcome
from domain.budget.reservations import decide_evaluate, decide_extend, decide_reserve
from domain.budget.scopes import derive_scopes
from domain.budget.settlement import advance, decide_commit, decide_release
from domain.budget.state import BudgetState
from domain.budget.tenants import decide_create_tenant, decide_update_tenant
from domain.outcomes import Accepted, Refusal
from domain.replay import RequestKey


def decide_expire_due(state: BudgetState, _command: ExpireDue, now: int) -> Accepted[int]:
    """How many holds were overdue beyond what the turn has expired already; refuses nothing."""
    return Accepted(advance(state, now))


DECISIONS: Final[Mapping[type, Callable[[BudgetState, Any, int], BudgetOutcome[Any]]]] = {
    Reserve: decide_reserve,
    Evaluate: decide_evaluate,
    Commit: decide_commit,
    Release: decide_release,
    Extend: decide_extend,
    Debit: decide_debit,
    Fund: decide_fund,
    CreateBudget: decide_create_budget,
    UpdateBudget: decide_update_budget,
    FreezeBudget: decide_budget_status,
    UnfreezeBudget: decide_budget_status,
    CloseBudget: decide_budget_status,
    CreatePolicy: decide_create_policy,
    UpdatePolicy: decide_update_policy,
    CreateTenant: decide_create_tenant,
    UpdateTenant: decide_update_tenant,
    ExpireDue: decide_expire_due,
}


def decide(state: BudgetState, command: AnyCommand, now: int) -> BudgetOutcome[Any]:
    """Accepted whole, repeated, or refused whole. `now` is the turn's instant, read under the tenant's lock."""
    assert command.tenant_id == state.tenant.tenant_id, "a command for another tenant"
    return DECISIONS[type(command)](state, command, now)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """What must be in a partial state, where it exists, besides the tenant, its policies and their rate windows.

    Of a named reservation, its budgets as well; and overdue ones with theirs, so that `advance` can give them back.
    """

    scopes: tuple[str, ...] = ()
    """Budgets at these paths, in every unit: a mismatch is told by the units that are there."""
    reservation_id: str | None = None
    request_key: RequestKey | None = None
    """The remembered answer; where it names a reservation, that reservation too, for its remaining lifetime."""
    whole_tenant: bool = False


def reads_of(command: AnyCommand) -> Reads:
    """A command that its shape will refuse may need nothing."""
    key = command.request_key if isinstance(command, KeyedCommand) else None
    if isinstance(command, UpdateTenant):
        return Reads(whole_tenant=command.status is TenantStatus.CLOSED, request_key=key)
    if isinstance(command, ReservationCommand):
        return Reads(reservation_id=command.reservation_id, request_key=key)
    return Reads(scopes=_scopes_of(command), request_key=key)


def _scopes_of(command: AnyCommand) -> tuple[str, ...]:
    if isinstance(command, Reserve | Evaluate | Debit):
        scopes = derive_scopes(command.subject)
        return () if isinstance(scopes, Refusal) else scopes
    scope = getattr(command, "scope", None)
    return () if scope is None else (scope.lower(),)
