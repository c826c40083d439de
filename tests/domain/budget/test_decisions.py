"""The table of decisions, what each has to have read, and the hold of exact amounts (DESIGN, decisions and turns)."""

from __future__ import annotations

import typing
from typing import Any

import pytest

from domain import amounts
from domain.amounts import INT64_MAX, Unit, is_amount, is_signed_amount, saturating_sum
from domain.budget import commands, refusals
from domain.budget.decisions import DECISIONS, Reads, reads_of
from domain.budget.records import TenantStatus
from domain.budget.refusals import Denial
from domain.budget.state import Changes
from domain.budget.values import Subject
from domain.outcomes import Refusal
from tests.domain.budget.books import BOT, CHILD, PARENT, Books, budget


def test_every_command_has_a_decision() -> None:
    assert set(DECISIONS) == set(typing.get_args(commands.AnyCommand))


def test_every_refusal_of_budgets_has_its_own_code() -> None:
    ours = [kind for kind in vars(refusals).values() if isinstance(kind, type) and issubclass(kind, Refusal)]
    codes = [kind.code for kind in ours if kind is not Refusal]
    assert len(codes) == len(set(codes))
    denials = {kind.code for kind in ours if issubclass(kind, Denial)} - {"DENIED"}
    assert denials == {
        "BUDGET_NOT_FOUND",
        "BUDGET_EXCEEDED",
        "BUDGET_FROZEN",
        "BUDGET_CLOSED",
        "OVERDRAFT_LIMIT_EXCEEDED",
        "DEBT_OUTSTANDING",
        "TENANT_CLOSED",
        "TENANT_SUSPENDED",
        "LIMIT_EXCEEDED",
    }


def test_a_command_names_what_it_has_to_read() -> None:
    books = Books(budget(PARENT))
    reserve, commit, fund = books.reserve(1, BOT), books.commit("rsv_1", 1), books.fund("CREDIT", 1, "Tenant:ACME")
    assert reads_of(reserve) == Reads(scopes=(PARENT, CHILD), request_key=reserve.request_key)
    assert reads_of(commit) == Reads(reservation_id="rsv_1", request_key=commit.request_key)
    assert reads_of(fund) == Reads(scopes=(PARENT,), request_key=fund.request_key)
    for of_child in (books.create_budget(CHILD, 1), books.freeze(CHILD)):
        assert reads_of(of_child) == Reads(scopes=(CHILD,), request_key=of_child.request_key)
    closing = books.set_tenant(TenantStatus.CLOSED)
    assert reads_of(closing) == Reads(whole_tenant=True, request_key=closing.request_key)
    for of_tenant in (books.set_tenant(TenantStatus.SUSPENDED), books.create_policy()):
        assert reads_of(of_tenant) == Reads(request_key=of_tenant.request_key)
    malformed = books.reserve(1, Subject(agent="a/b"))
    assert reads_of(malformed) == Reads(request_key=malformed.request_key)


def test_changes_are_taken_once_and_name_what_is_new() -> None:
    books = Books(budget(PARENT), budget(CHILD))
    held = books.hold(1, BOT)
    changes = books.last_changes
    assert set(changes.budgets) == {(PARENT, Unit.TOKENS), (CHILD, Unit.TOKENS)}
    assert (changes.new_budgets, changes.new_reservations) == (set(), {held})
    assert len(changes.remembered) == 1
    assert bool(changes)
    assert not books.state.take_changes()
    books.accepted(books.commit(held, 1))
    assert books.last_changes.new_reservations == set()
    assert set(books.last_changes.reservations) == {held}


def test_no_changes_are_false_and_any_kind_is_true() -> None:
    assert not Changes()
    assert Changes(tenant=True)


def test_a_row_that_is_here_is_newer_than_one_that_is_read_again() -> None:
    books = Books(budget(PARENT, 1_000))
    held = books.hold(100)
    books.state.admit_budget(budget(PARENT, 5))
    books.has(rem=900)
    stale = books.state.reservations[held]
    books.state.admit_reservation(stale)
    assert books.state.reservations[held] is stale


@pytest.mark.parametrize(
    ("value", "amount", "signed"),
    [
        (0, True, True),
        (INT64_MAX, True, True),
        (INT64_MAX + 1, False, False),
        (-1, False, True),
        (amounts.INT64_MIN, False, True),
        (amounts.INT64_MIN - 1, False, False),
        (1.0, False, False),
        ("1", False, False),
        (True, False, False),
        (None, False, False),
    ],
)
def test_an_amount_is_an_exact_integer_of_64_bits(value: Any, amount: bool, signed: bool) -> None:
    assert (is_amount(value), is_signed_amount(value)) == (amount, signed)


def test_a_total_that_only_informs_is_held_at_the_most() -> None:
    assert saturating_sum([1, 2]) == 3
    assert saturating_sum([INT64_MAX, 1]) == INT64_MAX
