"""One tenant's books for tests: short ways to say a command, with keys and ids made up in order."""

from __future__ import annotations

from itertools import count
from typing import Any

from domain.amounts import Amount, Unit
from domain.budget.commands import (
    CloseBudget,
    Commit,
    CreateBudget,
    CreatePolicy,
    CreateTenant,
    Debit,
    Evaluate,
    Extend,
    FreezeBudget,
    Fund,
    Release,
    Reserve,
    UnfreezeBudget,
    UpdateBudget,
    UpdatePolicy,
    UpdateTenant,
)
from domain.budget.decisions import decide
from domain.budget.events import BudgetEvent, EventType
from domain.budget.invariants import check_invariants
from domain.budget.records import Budget, FundingOperation, Policy, Tenant, TenantStatus
from domain.budget.replay import Repeated
from domain.budget.settlement import advance
from domain.budget.state import BudgetState, Changes
from domain.budget.values import Action, ActorType, Origin, OveragePolicy, Subject
from domain.outcomes import Accepted, Refusal

START = 1_800_000_000_000
TENANT_ID = "acme"
PARENT = "tenant:acme"
CHILD = "tenant:acme/agent:bot"
CALLER = Origin(actor_type=ActorType.API_KEY, key_id="key_1", request_id="req_1", trace_id="0" * 31 + "1")
OPERATOR = Origin(actor_type=ActorType.ADMIN_ON_BEHALF_OF, request_id="req_admin")
WHOLE = Subject(tenant=TENANT_ID)
BOT = Subject(tenant=TENANT_ID, agent="bot")
CALL = Action(kind="llm.completion", name="gpt")

REJECT = OveragePolicy.REJECT
AIA = OveragePolicy.ALLOW_IF_AVAILABLE
AWO = OveragePolicy.ALLOW_WITH_OVERDRAFT


def budget(scope_path: str = PARENT, allocated: int = 1_000, limit: int = 0, **fields: Any) -> Budget:
    unit = fields.pop("unit", Unit.TOKENS)
    return Budget(
        budget_id=f"ldg_{scope_path}_{unit}",
        scope_path=scope_path,
        unit=unit,
        allocated=allocated,
        overdraft_limit=limit,
        created_at=START,
        **fields,
    )


class Books:
    """A complete state with a clock. Every decision is followed by a check of all invariants."""

    def __init__(
        self, *budgets: Budget, tenant: Tenant | None = None, policies: tuple[Policy, ...] = (), at: int = START
    ) -> None:
        tenant = tenant or Tenant(tenant_id=TENANT_ID)
        self.state = BudgetState(tenant, budgets, policies=policies, is_complete=True)
        self.now = at
        self.numbers = count(1)
        self.last_changes = Changes()

    # -- deciding ------------------------------------------------------------------------------------------------

    def ask(self, command: Any) -> Any:
        """The turn of one command. `last_changes` is what it would flush."""
        self.catch_up()
        outcome = decide(self.state, command, self.now)
        check_invariants(self.state)
        self.last_changes = self.state.take_changes()
        return outcome

    def catch_up(self) -> None:
        advance(self.state, self.now)

    def accepted(self, command: Any) -> Any:
        outcome = self.ask(command)
        assert isinstance(outcome, Accepted), outcome
        return outcome.answer

    def repeated(self, command: Any) -> Any:
        self.catch_up()
        self.state.take_changes()
        outcome = self.ask(command)
        assert isinstance(outcome, Repeated), outcome
        assert not self.last_changes, "a replay changes nothing"
        return outcome.answer

    def refused(self, command: Any, code: str) -> Refusal:
        """The refusal, which must leave all balances and holds as they were (I7)."""
        self.catch_up()
        before = self.snapshot()
        outcome = self.ask(command)
        assert isinstance(outcome, Refusal), outcome
        assert outcome.code == code, outcome
        assert self.snapshot() == before, "a refusal changed the books"
        assert not self.last_changes.remembered, "a refusal burned its key"
        return outcome

    def snapshot(self) -> Any:
        balances = sorted(budget.balance() for budget in self.state.all_budgets())
        holds = sorted((held.reservation_id, held.status, held.expires_at) for held in self.state.reservations.values())
        return balances, holds

    def wait(self, milliseconds: int) -> None:
        self.now += milliseconds

    @property
    def events(self) -> list[BudgetEvent]:
        return self.last_changes.events

    def event_types(self) -> list[EventType]:
        return [event.type for event in self.events]

    def numbers_of(self, scope_path: str = PARENT, unit: Unit = Unit.TOKENS) -> dict[str, Any]:
        found = self.state.budget(scope_path, unit)
        assert found is not None
        return {
            "rem": found.remaining,
            "reserved": found.reserved,
            "spent": found.spent,
            "debt": found.debt,
            "over": found.is_over_limit,
        }

    def has(self, scope_path: str = PARENT, *, unit: Unit = Unit.TOKENS, **expected: Any) -> None:
        numbers = self.numbers_of(scope_path, unit)
        assert {name: numbers[name] for name in expected} == expected, scope_path

    # -- commands ------------------------------------------------------------------------------------------------

    def reserve(self, amount: int, subject: Subject = WHOLE, *, unit: Unit = Unit.TOKENS, **fields: Any) -> Reserve:
        number = next(self.numbers)
        values: dict[str, Any] = {
            "tenant_id": self.state.tenant.tenant_id,
            "origin": CALLER,
            "idempotency_key": f"reserve-{number}",
            "reservation_id": f"rsv_{number}",
            "subject": subject,
            "action": CALL,
            "estimate": Amount(unit, amount),
        }
        return Reserve(**(values | fields))

    def evaluate(self, amount: int, subject: Subject = WHOLE, *, unit: Unit = Unit.TOKENS, **fields: Any) -> Evaluate:
        values: dict[str, Any] = {
            "tenant_id": self.state.tenant.tenant_id,
            "origin": CALLER,
            "idempotency_key": f"evaluate-{next(self.numbers)}",
            "subject": subject,
            "action": CALL,
            "estimate": Amount(unit, amount),
        }
        return Evaluate(**(values | fields))

    def commit(self, reservation_id: str, amount: int, *, unit: Unit = Unit.TOKENS, **fields: Any) -> Commit:
        values: dict[str, Any] = {
            "tenant_id": self.state.tenant.tenant_id,
            "origin": CALLER,
            "idempotency_key": f"commit-{next(self.numbers)}",
            "reservation_id": reservation_id,
            "actual": Amount(unit, amount),
        }
        return Commit(**(values | fields))

    def release(self, reservation_id: str, **fields: Any) -> Release:
        values: dict[str, Any] = {
            "tenant_id": self.state.tenant.tenant_id,
            "origin": CALLER,
            "idempotency_key": f"release-{next(self.numbers)}",
            "reservation_id": reservation_id,
        }
        return Release(**(values | fields))

    def extend(self, reservation_id: str, by_ms: int, **fields: Any) -> Extend:
        values: dict[str, Any] = {
            "tenant_id": self.state.tenant.tenant_id,
            "origin": CALLER,
            "idempotency_key": f"extend-{next(self.numbers)}",
            "reservation_id": reservation_id,
            "extend_by_ms": by_ms,
        }
        return Extend(**(values | fields))

    def debit(self, amount: int, subject: Subject = WHOLE, *, unit: Unit = Unit.TOKENS, **fields: Any) -> Debit:
        number = next(self.numbers)
        values: dict[str, Any] = {
            "tenant_id": self.state.tenant.tenant_id,
            "origin": CALLER,
            "idempotency_key": f"debit-{number}",
            "debit_id": f"dbt_{number}",
            "subject": subject,
            "action": CALL,
            "actual": Amount(unit, amount),
        }
        return Debit(**(values | fields))

    def fund(self, kind: str, amount: int, /, scope: str = PARENT, *, spent: int | None = None, **fields: Any) -> Fund:
        number = next(self.numbers)
        values: dict[str, Any] = {
            "tenant_id": self.state.tenant.tenant_id,
            "origin": OPERATOR,
            "idempotency_key": f"fund-{number}",
            "funding_id": f"fnd_{number}",
            "scope": scope,
            "unit": Unit.TOKENS,
            "kind": FundingOperation(kind),
            "amount": Amount(Unit.TOKENS, amount),
            "spent": None if spent is None else Amount(Unit.TOKENS, spent),
        }
        return Fund(**(values | fields))

    def create_budget(self, scope: str, allocated: int, **fields: Any) -> CreateBudget:
        unit = fields.pop("unit", Unit.TOKENS)
        number = next(self.numbers)
        values: dict[str, Any] = {
            "tenant_id": self.state.tenant.tenant_id,
            "origin": OPERATOR,
            "idempotency_key": f"create-{number}",
            "budget_id": f"ldg_{number}",
            "scope": scope,
            "unit": unit,
            "allocated": Amount(unit, allocated),
        }
        return CreateBudget(**(values | fields))

    def update_budget(self, scope: str = PARENT, **fields: Any) -> UpdateBudget:
        return UpdateBudget(**self._of_budget(scope, fields))

    def freeze(self, scope: str = PARENT, **fields: Any) -> FreezeBudget:
        return FreezeBudget(**self._of_budget(scope, fields))

    def unfreeze(self, scope: str = PARENT, **fields: Any) -> UnfreezeBudget:
        return UnfreezeBudget(**self._of_budget(scope, fields))

    def close(self, scope: str = PARENT, **fields: Any) -> CloseBudget:
        return CloseBudget(**self._of_budget(scope, fields))

    def set_tenant(self, status: TenantStatus | None = None, **fields: Any) -> UpdateTenant:
        return UpdateTenant(**self._governed(fields | {"status": status}))

    def create_tenant(self, **fields: Any) -> CreateTenant:
        return CreateTenant(**self._governed(fields))

    def create_policy(self, pattern: str = PARENT, name: str = "p", **fields: Any) -> CreatePolicy:
        values = {"policy_id": f"pol_{name}", "name": name, "scope_pattern": pattern}
        return CreatePolicy(**self._governed(values | fields))

    def update_policy(self, which: str = "p", /, **fields: Any) -> UpdatePolicy:
        return UpdatePolicy(**self._governed({"policy_id": f"pol_{which}"} | fields))

    def _of_budget(self, scope: str, fields: dict[str, Any]) -> dict[str, Any]:
        return self._governed({"scope": scope, "unit": Unit.TOKENS} | fields)

    def _governed(self, fields: dict[str, Any]) -> dict[str, Any]:
        frame = {
            "tenant_id": self.state.tenant.tenant_id,
            "origin": OPERATOR,
            "idempotency_key": f"govern-{next(self.numbers)}",
        }
        return frame | fields

    # -- what tests do all the time ------------------------------------------------------------------------------

    def hold(self, amount: int, subject: Subject = WHOLE, **fields: Any) -> str:
        """Reserve and return the id."""
        answer = self.accepted(self.reserve(amount, subject, **fields))
        assert answer.reservation_id is not None
        return str(answer.reservation_id)

    def spend(self, amount: int, subject: Subject = WHOLE) -> None:
        """Reserve and commit the same amount."""
        self.accepted(self.commit(self.hold(amount, subject), amount))
