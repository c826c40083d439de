"""The direct debit (section 2.7, scenarios 46 to 54)."""

from __future__ import annotations

from typing import Any

import pytest

from domain.amounts import INT64_MAX, Unit
from domain.budget.events import DebtIncurred, EventType
from domain.budget.records import BudgetStatus
from tests.domain.budget.books import AIA, AWO, BOT, CHILD, PARENT, REJECT, Books, budget


def test_a_charge_is_cut_to_what_the_tightest_scope_has_left() -> None:
    books = Books(budget(PARENT, 50), budget(CHILD, 1_000))
    answer = books.accepted(books.debit(100, BOT, overage_policy=AIA))
    assert (answer.charged, answer.was_cut) == (50, True)
    books.has(PARENT, rem=0, spent=50, over=True)
    books.has(CHILD, rem=950, spent=50, over=False)


def test_a_charge_cut_to_nothing_is_accepted() -> None:
    books = Books(budget(PARENT, 10))
    books.spend(10)
    answer = books.accepted(books.debit(100))
    assert (answer.charged, answer.was_cut) == (0, True)
    books.has(rem=0, spent=10, over=True)


def test_what_remains_is_charged_in_full_without_a_mark() -> None:
    books = Books(budget(PARENT, 100))
    answer = books.accepted(books.debit(100))
    assert (answer.charged, answer.was_cut) == (100, False)
    books.has(rem=0, spent=100, over=False)
    (row,) = books.last_changes.debits
    assert (row.debit_id, row.charged, row.budgeted_scopes, row.debts) == (answer.debit_id, 100, (PARENT,), ())


def test_reject_refuses_more_than_remains_on_any_scope() -> None:
    books = Books(budget(PARENT, 1_000), budget(CHILD, 50))
    refusal = books.refused(books.debit(100, BOT, overage_policy=REJECT), "BUDGET_EXCEEDED")
    assert refusal.details()["scope"] == CHILD
    assert books.accepted(books.debit(50, BOT, overage_policy=REJECT)).charged == 50


def test_overdraft_grows_to_its_limit_and_no_further() -> None:
    books = Books(budget(PARENT, 1_000, 500))
    books.accepted(books.debit(1_200, overage_policy=AWO))
    books.has(rem=-200, spent=1_000, debt=200)
    books.accepted(books.debit(300, overage_policy=AWO))
    books.has(rem=-500, spent=1_000, debt=500, over=False)
    books.refused(books.debit(1, overage_policy=AWO), "OVERDRAFT_LIMIT_EXCEEDED")


def test_a_budget_past_its_limit_lets_through_what_it_can_fund_and_nothing_else() -> None:
    books = Books(budget(PARENT, 1_000, 50, debt=100))
    books.has(rem=900, over=True)
    assert books.accepted(books.debit(900, overage_policy=AWO)).charged == 900
    books.has(rem=0, spent=900, debt=100)
    books.refused(books.debit(1, overage_policy=AWO), "OVERDRAFT_LIMIT_EXCEEDED")


def test_a_cut_to_nothing_does_not_pass_a_budget_that_is_past_its_limit() -> None:
    """The parent cuts the charge to nothing, so the child takes no new debt; its old one is past the limit all the same."""
    books = Books(budget(PARENT, 0), budget(CHILD, 10, 50, debt=100))
    refusal = books.refused(books.debit(5, BOT, overage_policy=AWO), "OVERDRAFT_LIMIT_EXCEEDED")
    assert refusal.details() == {
        "scope": CHILD,
        "unit": Unit.TOKENS,
        "debt": 100,
        "overdraft_limit": 50,
        "deficit": 0,
    }


def test_new_debt_is_told_without_a_reservation() -> None:
    books = Books(budget(PARENT, 10, 500))
    books.accepted(books.debit(30, overage_policy=AWO))
    facts = books.events[0].facts
    assert isinstance(facts, DebtIncurred)
    assert (facts.reservation_id, facts.debt_incurred, facts.total_debt) == (None, 20, 20)


@pytest.mark.parametrize("status", [BudgetStatus.FROZEN, BudgetStatus.CLOSED])
def test_a_frozen_or_closed_scope_refuses_and_nothing_is_applied(status: BudgetStatus) -> None:
    books = Books(budget(PARENT, 100), budget(CHILD, 100, status=status))
    books.refused(books.debit(1, BOT), f"BUDGET_{status.value}")


def test_the_widest_scope_answers_first() -> None:
    books = Books(budget(PARENT, 10), budget(CHILD, 100, status=BudgetStatus.FROZEN))
    books.refused(books.debit(11, BOT, overage_policy=REJECT), "BUDGET_EXCEEDED")
    books.refused(books.debit(11, BOT, overage_policy=AIA), "BUDGET_FROZEN")


@pytest.mark.parametrize("fields", [{"capped": True}, {"debt": 5, "limit": 1}])
def test_debt_and_the_over_limit_mark_do_not_block_debits(fields: dict[str, Any]) -> None:
    books = Books(budget(PARENT, 100, **fields))
    books.refused(books.reserve(1), "OVERDRAFT_LIMIT_EXCEEDED")
    assert books.accepted(books.debit(10)).charged == 10


def test_the_clients_clock_has_no_effect() -> None:
    books = Books(budget(PARENT, 100))
    answer = books.accepted(books.debit(1, client_time_ms=0))
    assert answer.decided_at == books.now
    assert books.last_changes.debits[0].client_time_ms == 0
    books.refused(books.debit(1, client_time_ms=-1), "INVALID_INPUT")


def test_an_overflowing_total_is_refused() -> None:
    books = Books(budget(PARENT, 0, INT64_MAX, spent=INT64_MAX))
    books.refused(books.debit(INT64_MAX, overage_policy=AWO), "INVALID_INPUT")
    books.accepted(books.debit(1, overage_policy=AWO))
    books.has(debt=1, rem=-INT64_MAX - 1)


def test_a_debit_computes_its_own_set_of_budgets() -> None:
    books = Books(budget(PARENT, 100), budget(PARENT, 100, unit=Unit.CREDITS), budget(CHILD, 100))
    books.accepted(books.debit(5, BOT))
    books.has(PARENT, spent=5)
    books.has(CHILD, spent=5)
    books.has(PARENT, unit=Unit.CREDITS, spent=0)


def test_a_debit_that_takes_the_last_of_a_budget_says_so() -> None:
    books = Books(budget(PARENT, 100, spent=99))
    books.accepted(books.debit(1))
    assert EventType.BUDGET_EXHAUSTED in books.event_types()


def test_the_overage_policy_is_resolved_as_for_holds() -> None:
    books = Books(budget(PARENT, 10, commit_overage_policy=REJECT))
    books.refused(books.debit(11), "BUDGET_EXCEEDED")
    assert books.accepted(books.debit(11, overage_policy=AIA)).charged == 10
