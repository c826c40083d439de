"""The five funding operations and what clears the over-limit mark (section 2.8, scenarios 119, 127, 128)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from domain.amounts import INT64_MAX, Amount, Unit
from domain.budget.events import BudgetLifecycle, EventType
from domain.budget.records import BudgetStatus, FundingOperation
from tests.domain.budget.books import AIA, AWO, PARENT, START, Books, budget


@pytest.mark.parametrize(
    ("start", "operation", "amount", "spent", "after"),
    [
        ({}, "CREDIT", 600, None, {"allocated": 1_600, "rem": 1_600}),
        (
            {"debt": 500, "spent": 1_000, "limit": 500},
            "CREDIT",
            600,
            None,
            {"allocated": 1_600, "rem": 100, "debt": 0, "spent": 1_500},
        ),
        (
            {"debt": 500, "spent": 1_000, "limit": 500},
            "CREDIT",
            200,
            None,
            {"allocated": 1_200, "rem": -300, "debt": 300, "spent": 1_200},
        ),
        ({"spent": 300}, "DEBIT", 700, None, {"allocated": 300, "rem": 0, "spent": 300}),
        ({"spent": 300, "reserved": 0}, "RESET", 100, None, {"allocated": 100, "rem": -200, "spent": 300}),
        ({"spent": 300}, "RESET", 5_000, None, {"allocated": 5_000, "rem": 4_700, "spent": 300}),
        (
            {"spent": 300, "debt": 20, "limit": 50},
            "RESET_SPENT",
            2_000,
            None,
            {"allocated": 2_000, "rem": 1_980, "spent": 0, "debt": 20},
        ),
        ({"spent": 300}, "RESET_SPENT", 100, 250, {"allocated": 100, "rem": -150, "spent": 250}),
        (
            {"spent": 1_000, "debt": 300, "limit": 400},
            "REPAY_DEBT",
            100,
            None,
            {"allocated": 1_000, "rem": -200, "spent": 1_000, "debt": 200},
        ),
        (
            {"spent": 1_000, "debt": 300, "limit": 400},
            "REPAY_DEBT",
            450,
            None,
            {"allocated": 1_150, "rem": 150, "spent": 1_000, "debt": 0},
        ),
        ({}, "CREDIT", 5, 999, {"allocated": 1_005, "rem": 1_005, "spent": 0}),
        ({}, "CREDIT", 0, None, {"allocated": 1_000, "rem": 1_000}),
    ],
)
def test_each_operation_moves_exactly_its_balances(
    start: dict[str, int], operation: str, amount: int, spent: int | None, after: dict[str, Any]
) -> None:
    books = Books(budget(PARENT, 1_000, **start))
    before = books.state.all_budgets()[0].balance()
    answer = books.accepted(books.fund(operation, amount, spent=spent))
    found = books.state.all_budgets()[0]
    assert found.allocated == after.pop("allocated")
    books.has(**after)
    assert (answer.before, answer.after, answer.decided_at) == (before, found.balance(), START)
    (row,) = books.last_changes.fundings
    assert (row.operation, row.amount, row.before, row.after) == (operation, amount, before, found.balance())
    assert row.spent_given == (spent if operation == "RESET_SPENT" else None)


def test_holds_carry_over_a_new_period() -> None:
    books = Books(budget(PARENT, 1_000))
    books.spend(300)
    held = books.hold(200)
    books.accepted(books.fund("RESET_SPENT", 500))
    books.has(rem=300, reserved=200, spent=0)
    books.accepted(books.commit(held, 150))
    books.has(rem=350, reserved=0, spent=150)


def test_more_than_remains_cannot_be_taken_away() -> None:
    books = Books(budget(PARENT, 1_000))
    books.hold(600)
    refusal = books.refused(books.fund("DEBIT", 401), "BUDGET_EXCEEDED")
    assert refusal.details() == {"scope": PARENT, "unit": Unit.TOKENS, "requested": 401, "remaining": 400}
    books.accepted(books.fund("DEBIT", 400))
    books.has(rem=0)


def test_a_smaller_allocation_leaves_a_negative_remainder_that_is_not_over_its_limit() -> None:
    books = Books(budget(PARENT, 1_000))
    books.spend(300)
    books.accepted(books.fund("RESET", 100))
    books.has(rem=-200, over=False)
    books.refused(books.reserve(0), "BUDGET_EXCEEDED")


@pytest.mark.parametrize("status", [BudgetStatus.FROZEN, BudgetStatus.CLOSED])
@pytest.mark.parametrize("operation", list(FundingOperation))
def test_a_frozen_or_closed_budget_cannot_be_funded(status: BudgetStatus, operation: FundingOperation) -> None:
    books = Books(budget(PARENT, 1_000, status=status))
    books.refused(books.fund(operation, 1), f"BUDGET_{status.value}")


@pytest.mark.parametrize(
    ("start", "operation", "amount", "spent"),
    [
        ({"allocated": INT64_MAX}, "CREDIT", 1, None),
        ({"allocated": INT64_MAX}, "REPAY_DEBT", 1, None),
        ({"allocated": 10, "spent": INT64_MAX, "debt": 5, "limit": 9}, "CREDIT", 5, None),
        ({"allocated": INT64_MAX, "spent": INT64_MAX, "debt": 2, "limit": 9}, "RESET", 0, None),
        ({"allocated": 0, "debt": 2, "limit": 9}, "RESET_SPENT", 0, INT64_MAX),
    ],
)
def test_a_result_beyond_64_bits_is_refused(
    start: dict[str, int], operation: str, amount: int, spent: int | None
) -> None:
    books = Books(budget(PARENT, **start))
    refusal = books.refused(books.fund(operation, amount, spent=spent), "INVALID_INPUT")
    assert refusal.details()["reason"] == "overflow"


@pytest.mark.parametrize(("operation", "cleared"), [(kind, kind != "DEBIT") for kind in FundingOperation])
def test_every_operation_but_debit_clears_the_mark_of_a_cut_charge(operation: str, cleared: bool) -> None:
    books = Books(budget(PARENT, 1_000))
    books.accepted(books.debit(2_000, overage_policy=AIA))
    books.has(rem=0, over=True)
    amount = {"DEBIT": 0, "RESET": 1_000, "RESET_SPENT": 1_000}.get(operation, 10)
    books.accepted(books.fund(operation, amount))
    books.has(over=not cleared)
    assert (EventType.BUDGET_OVER_LIMIT_EXITED in books.event_types()) is cleared


def test_a_debt_at_its_limit_is_within_it_and_above_it_is_not() -> None:
    books = Books(budget(PARENT, 0, limit=100))
    books.accepted(books.debit(100, overage_policy=AWO))
    books.has(debt=100, over=False)
    books.accepted(books.update_budget(overdraft_limit=Amount(Unit.TOKENS, 99)))
    books.has(debt=100, over=True)
    assert books.event_types() == [EventType.BUDGET_UPDATED, EventType.BUDGET_OVER_LIMIT_ENTERED]
    books.refused(books.reserve(0), "OVERDRAFT_LIMIT_EXCEEDED")
    books.accepted(books.fund("REPAY_DEBT", 1))
    books.has(debt=99, over=False)
    assert books.event_types()[:2] == [EventType.BUDGET_DEBT_REPAID, EventType.BUDGET_OVER_LIMIT_EXITED]


def test_a_new_overdraft_limit_clears_the_mark_and_other_updates_do_not() -> None:
    books = Books(budget(PARENT, 100))
    books.accepted(books.debit(200))
    books.accepted(books.update_budget(commit_overage_policy=AWO, metadata={"owner": "x"}))
    books.has(over=True)
    books.accepted(books.update_budget(overdraft_limit=Amount(Unit.TOKENS, 0)))
    books.has(over=False)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"idempotency_key": ""}, "idempotency_key"),
        ({"amount": Amount(Unit.CREDITS, 1)}, "amount.unit"),
        ({"spent": Amount(Unit.CREDITS, 1)}, "spent.unit"),
        ({"spent": Amount(Unit.TOKENS, -1)}, "spent.amount"),
        ({"reason": "r" * 513}, "reason"),
    ],
)
def test_a_malformed_funding_is_refused_by_the_field(fields: dict[str, Any], field: str) -> None:
    books = Books(budget(PARENT))
    command = books.fund("RESET_SPENT", 1)
    refusal = books.refused(replace(command, **fields), "INVALID_INPUT")
    assert refusal.details()["field"] == field


def test_a_budget_that_is_not_there_cannot_be_funded() -> None:
    books = Books(budget(PARENT))
    refusal = books.refused(books.fund("CREDIT", 1, "tenant:acme/agent:x"), "BUDGET_NOT_FOUND")
    assert refusal.details() == {"scope": "tenant:acme/agent:x", "unit": Unit.TOKENS}
    books.accepted(books.fund("CREDIT", 1, "Tenant:ACME"))


@pytest.mark.parametrize(("spent", "given"), [(None, False), (0, True), (7, True)])
def test_a_new_period_tells_whether_its_spending_was_stated(spent: int | None, given: bool) -> None:
    books = Books(budget(PARENT, 1_000, spent=40))
    books.accepted(books.fund("RESET_SPENT", 500, spent=spent, reason="June"))
    facts = books.events[0].facts
    assert isinstance(facts, BudgetLifecycle)
    assert facts.spent_override_provided is given
    assert facts.reason == "June"
    assert facts.previous_state is not None
    assert facts.new_state is not None
    assert (facts.previous_state["spent"], facts.new_state["spent"]) == (40, spent or 0)


@pytest.mark.parametrize(
    ("operation", "event"),
    [
        ("CREDIT", "budget.funded"),
        ("DEBIT", "budget.debited"),
        ("RESET", "budget.reset"),
        ("RESET_SPENT", "budget.reset_spent"),
        ("REPAY_DEBT", "budget.debt_repaid"),
    ],
)
def test_each_operation_has_its_event_and_leaves_an_audit_entry(operation: str, event: str) -> None:
    books = Books(budget(PARENT, 1_000))
    books.accepted(books.fund(operation, 10))
    assert books.event_types()[0] == event
    facts = books.events[0].facts
    assert isinstance(facts, BudgetLifecycle)
    found = books.state.all_budgets()[0]
    assert facts.new_state == {
        "allocated": found.allocated,
        "remaining": found.remaining,
        "debt": found.debt,
        "spent": found.spent,
        "reserved": found.reserved,
        "status": "ACTIVE",
    }
    (entry,) = books.last_changes.audit
    assert (entry.operation, entry.amount, entry.metadata) == ("fundBudget", 10, {"operation": operation})
