"""A budget's own life: create, update, freeze, unfreeze, close (sections 7 and 11.3)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from domain.amounts import Amount, Unit
from domain.budget.events import BudgetLifecycle, EventType
from domain.budget.records import BudgetStatus, RolloverPolicy, TenantStatus
from domain.budget.values import Caps
from tests.domain.budget.books import AWO, CHILD, PARENT, START, Books, budget


def test_a_new_budget_has_its_allocation_and_nothing_else() -> None:
    books = Books()
    made = books.accepted(books.create_budget("Tenant:Acme/Agent:Bot", 500, commit_overage_policy=AWO))
    assert (made.scope_path, made.allocated, made.remaining, made.status) == (CHILD, 500, 500, BudgetStatus.ACTIVE)
    assert (made.overdraft_limit, made.is_over_limit, made.created_at) == (0, False, START)
    assert books.last_changes.new_budgets == {(CHILD, Unit.TOKENS)}
    assert books.event_types() == [EventType.BUDGET_CREATED]
    assert [entry.operation for entry in books.last_changes.audit] == ["createBudget"]


def test_the_answer_is_a_copy_that_later_changes_do_not_reach() -> None:
    books = Books()
    made = books.accepted(books.create_budget(PARENT, 500))
    books.hold(100)
    assert made.reserved == 0


def test_a_scope_has_one_budget_a_unit() -> None:
    books = Books(budget(PARENT))
    refusal = books.refused(books.create_budget("TENANT:acme", 1), "DUPLICATE_RESOURCE")
    assert refusal.details() == {"resource": "budget", "resource_id": "ldg_tenant:acme_TOKENS"}
    books.accepted(books.create_budget(PARENT, 1, unit=Unit.CREDITS))


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"scope": "tenant:other"}, "scope"),
        ({"allocated": Amount(Unit.TOKENS, -1)}, "allocated.amount"),
        ({"allocated": Amount(Unit.CREDITS, 1)}, "allocated.unit"),
        ({"overdraft_limit": Amount(Unit.CREDITS, 1)}, "overdraft_limit.unit"),
        ({"overdraft_limit": Amount(Unit.TOKENS, 2**63)}, "overdraft_limit.amount"),
        ({"caps": Caps(max_tokens=-1)}, "caps.max_tokens"),
        ({"caps": Caps(tool_denylist=("t" * 257,))}, "caps"),
        ({"period_start_at": 2, "period_end_at": 2}, "period_end"),
    ],
)
def test_a_malformed_budget_is_refused_by_the_field(fields: dict[str, Any], field: str) -> None:
    books = Books()
    refusal = books.refused(replace(books.create_budget(PARENT, 1), **fields), "INVALID_INPUT")
    assert refusal.details()["field"] == field


def test_a_period_and_its_rollover_are_kept_as_they_are() -> None:
    books = Books()
    fields: dict[str, Any] = {
        "rollover_policy": RolloverPolicy.CARRY_FORWARD,
        "period_start_at": 1,
        "period_end_at": 2,
        "metadata": {"k": "v"},
    }
    made = books.accepted(books.create_budget(PARENT, 1, **fields))
    assert {name: getattr(made, name) for name in fields} == fields


def test_a_suspended_tenant_gets_no_new_budgets_and_a_closed_one_none_at_all() -> None:
    books = Books(budget(PARENT))
    books.accepted(books.set_tenant(TenantStatus.SUSPENDED))
    refusal = books.refused(books.create_budget(CHILD, 1), "INVALID_INPUT")
    assert refusal.details()["reason"] == "tenant-suspended"
    books.accepted(books.set_tenant(TenantStatus.CLOSED))
    books.refused(books.create_budget(CHILD, 1), "TENANT_CLOSED")


def test_freezing_stops_new_work_and_funding_until_it_is_undone() -> None:
    books = Books(budget(PARENT, 1_000))
    frozen = books.accepted(books.freeze(reason="incident"))
    assert frozen.status is BudgetStatus.FROZEN
    facts = books.events[0].facts
    assert isinstance(facts, BudgetLifecycle)
    assert (facts.operation, facts.reason) == ("STATUS_CHANGE", "incident")
    for command in (books.reserve(1), books.debit(1), books.fund("CREDIT", 1)):
        books.refused(command, "BUDGET_FROZEN")
    books.accepted(books.update_budget(overdraft_limit=Amount(Unit.TOKENS, 5)))
    assert books.accepted(books.unfreeze()).status is BudgetStatus.ACTIVE
    assert books.event_types() == [EventType.BUDGET_UNFROZEN]
    books.hold(1)


@pytest.mark.parametrize(
    ("status", "way", "code"),
    [
        (BudgetStatus.FROZEN, "freeze", "BUDGET_FROZEN"),
        (BudgetStatus.ACTIVE, "unfreeze", "INVALID_STATE"),
        (BudgetStatus.CLOSED, "freeze", "BUDGET_CLOSED"),
        (BudgetStatus.CLOSED, "unfreeze", "BUDGET_CLOSED"),
        (BudgetStatus.CLOSED, "close", "BUDGET_CLOSED"),
        (BudgetStatus.CLOSED, "update_budget", "BUDGET_CLOSED"),
    ],
)
def test_a_transition_that_is_none_is_refused(status: BudgetStatus, way: str, code: str) -> None:
    books = Books(budget(PARENT, status=status))
    books.refused(getattr(books, way)(), code)


@pytest.mark.parametrize("status", [BudgetStatus.ACTIVE, BudgetStatus.FROZEN])
def test_closing_is_for_good(status: BudgetStatus) -> None:
    books = Books(budget(PARENT, status=status))
    closed = books.accepted(books.close())
    assert (closed.status, closed.closed_at) == (BudgetStatus.CLOSED, START)
    for command in (books.reserve(1), books.debit(1), books.fund("CREDIT", 1)):
        books.refused(command, "BUDGET_CLOSED")


def test_an_update_changes_what_is_given_and_nothing_else() -> None:
    books = Books(budget(PARENT, 1_000, limit=5, metadata={"a": 1}))
    updated = books.accepted(books.update_budget(commit_overage_policy=AWO))
    assert (updated.commit_overage_policy, updated.overdraft_limit, updated.metadata) == (AWO, 5, {"a": 1})
    updated = books.accepted(books.update_budget(overdraft_limit=Amount(Unit.TOKENS, 0), metadata={}))
    assert (updated.commit_overage_policy, updated.overdraft_limit, updated.metadata) == (AWO, 0, {})
    books.refused(books.update_budget(overdraft_limit=Amount(Unit.CREDITS, 0)), "INVALID_INPUT")


@pytest.mark.parametrize("way", ["freeze", "unfreeze", "close", "update_budget"])
def test_a_budget_that_is_not_there_is_not_found(way: str) -> None:
    Books().refused(getattr(Books(), way)(), "BUDGET_NOT_FOUND")


@pytest.mark.parametrize("way", ["freeze", "unfreeze", "close"])
def test_a_reason_has_at_most_512_characters(way: str) -> None:
    books = Books(budget(PARENT, status=BudgetStatus.ACTIVE if way == "freeze" else BudgetStatus.FROZEN))
    books.refused(getattr(books, way)(reason="r" * 513), "INVALID_INPUT")
    books.accepted(getattr(books, way)(reason="r" * 512))
