"""Commit in every branch of the three overage policies, and release (sections 2.5 and 2.6, scenarios 28 to 44)."""

from __future__ import annotations

from typing import Any

import pytest

from domain.amounts import INT64_MAX, Unit
from domain.budget.answers import CommitAnswer
from domain.budget.events import CommitOverage, EventType
from domain.budget.records import ReservationStatus
from domain.budget.refusals import BudgetExceeded, OverdraftLimitExceeded, UnitMismatch
from domain.budget.values import Metrics, OveragePolicy, Subject
from tests.domain.budget.books import AIA, AWO, BOT, CHILD, OPERATOR, PARENT, REJECT, START, Books, budget


def settled(books: Books, held: str, actual: int) -> CommitAnswer:
    answer = books.accepted(books.commit(held, actual))
    assert isinstance(answer, CommitAnswer)
    assert books.state.reservations[held].status is ReservationStatus.COMMITTED
    assert books.state.reservations[held].charged == answer.charged
    return answer


@pytest.mark.parametrize("policy", [REJECT, AIA, AWO])
@pytest.mark.parametrize(("actual", "released"), [(5_000, None), (0, 5_000), (4_999, 1), (1, 4_999)])
def test_an_actual_within_the_estimate_gives_the_rest_back(
    policy: OveragePolicy, actual: int, released: int | None
) -> None:
    books = Books(budget(PARENT, 10_000), budget(CHILD, 6_000))
    answer = settled(books, books.hold(5_000, BOT, overage_policy=policy), actual)
    assert (answer.charged, answer.released, answer.finalized_at) == (actual, released, START)
    books.has(PARENT, rem=10_000 - actual, reserved=0, spent=actual, debt=0, over=False)
    books.has(CHILD, rem=6_000 - actual, reserved=0, spent=actual, debt=0, over=False)
    assert [balance.remaining for balance in answer.balances] == [10_000 - actual, 6_000 - actual]


def test_a_hold_of_nothing_can_be_charged() -> None:
    books = Books(budget(PARENT, 100))
    answer = settled(books, books.hold(0), 60)
    assert (answer.charged, answer.released) == (60, None)


def test_an_overage_that_remains_is_charged_in_full() -> None:
    books = Books(budget(PARENT, 10_000))
    assert settled(books, books.hold(1_000, overage_policy=AIA), 2_000).charged == 2_000
    books.has(rem=8_000, reserved=0, spent=2_000, over=False)


@pytest.mark.parametrize("policy", [AIA, AWO])
def test_a_cut_charge_marks_only_the_scopes_that_could_not_cover_it(policy: OveragePolicy) -> None:
    books = Books(budget(PARENT, 150), budget(CHILD, 1_000))
    answer = settled(books, books.hold(100, BOT, overage_policy=policy), 200)
    assert (answer.charged, answer.released) == (150, None)
    books.has(PARENT, rem=0, reserved=0, spent=150, debt=0, over=True)
    books.has(CHILD, rem=850, reserved=0, spent=150, debt=0, over=False)


def test_reject_refuses_any_overage_and_keeps_the_hold() -> None:
    books = Books(budget(PARENT, 10_000))
    held = books.hold(1_000, overage_policy=REJECT)
    command = books.commit(held, 1_001)
    refusal = books.refused(command, "BUDGET_EXCEEDED")
    assert isinstance(refusal, BudgetExceeded)
    assert (refusal.requested, refusal.estimate) == (1_001, 1_000)
    smaller = books.commit(held, 1_000, idempotency_key=command.idempotency_key)
    assert books.accepted(smaller).charged == 1_000


def spent_and_held() -> tuple[Books, str]:
    """Scenario 34: one budget of a million with an overdraft limit of 100 000, 900 000 spent and 1 000 held."""
    books = Books(budget(PARENT, 1_000_000, limit=100_000))
    books.spend(900_000)
    held = books.hold(1_000, overage_policy=AWO)
    books.has(rem=99_000, reserved=1_000, spent=900_000, debt=0)
    return books, held


def test_only_the_unfunded_part_becomes_debt_and_a_debt_at_its_limit_is_not_over() -> None:
    books, held = spent_and_held()
    assert settled(books, held, 200_000).charged == 200_000
    books.has(rem=-100_000, reserved=0, spent=1_000_000, debt=100_000, over=False)


@pytest.mark.parametrize("actual", [200_001, 500_000])
def test_a_deficit_past_the_overdraft_limit_is_refused_whole(actual: int) -> None:
    books, held = spent_and_held()
    refusal = books.refused(books.commit(held, actual), "OVERDRAFT_LIMIT_EXCEEDED")
    assert isinstance(refusal, OverdraftLimitExceeded)
    assert (refusal.debt, refusal.overdraft_limit, refusal.deficit) == (0, 100_000, actual - 100_000)
    books.has(rem=99_000, reserved=1_000, debt=0)
    assert books.state.reservations[held].status is ReservationStatus.ACTIVE
    assert settled(books, held, 1_000).charged == 1_000


def test_overdraft_is_cut_by_a_scope_without_a_limit_before_the_others_go_into_debt() -> None:
    books = Books(budget(PARENT, 500, 0), budget(CHILD, 100, 500))
    held = books.hold(100, BOT, overage_policy=AWO)
    assert settled(books, held, 1_200).charged == 500
    books.has(PARENT, rem=0, spent=500, debt=0, over=True)
    books.has(CHILD, rem=-400, spent=100, debt=400, over=False)
    assert books.state.reservations[held].debts == (0, 400)


def test_overdraft_that_is_still_too_much_after_the_cut_is_refused() -> None:
    books = Books(budget(PARENT, 1_000, 0), budget(CHILD, 100, 500))
    held = books.hold(100, BOT, overage_policy=AWO)
    refusal = books.refused(books.commit(held, 1_200), "OVERDRAFT_LIMIT_EXCEEDED")
    assert isinstance(refusal, OverdraftLimitExceeded)
    assert (refusal.scope, refusal.deficit) == (CHILD, 900)


def test_the_two_deficits_of_one_budget_are_decided_one_after_the_other() -> None:
    """Scenario 133: with a limit of 5 000, two commits that are each 4 000 short cannot both pass."""
    books = Books(budget(PARENT, 200, 5_000))
    first, second = (books.hold(100, overage_policy=AWO) for _ in range(2))
    assert settled(books, first, 4_100).charged == 4_100
    books.refused(books.commit(second, 4_100), "OVERDRAFT_LIMIT_EXCEEDED")
    books.has(rem=-4_000, debt=4_000, reserved=100, over=False)


def test_a_negative_remainder_funds_nothing() -> None:
    books = Books(budget(PARENT, 100, 1_000))
    held = books.hold(100, overage_policy=AWO)
    books.accepted(books.fund("RESET", 40))
    books.has(rem=-60)
    assert settled(books, held, 130).charged == 130
    books.has(rem=-90, spent=100, debt=30, over=False)


def test_a_negative_remainder_cuts_the_whole_overage() -> None:
    books = Books(budget(PARENT, 100))
    held = books.hold(100, overage_policy=AIA)
    books.accepted(books.fund("RESET", 40))
    assert settled(books, held, 130).charged == 100
    books.has(rem=-60, spent=100, debt=0, over=True)


def test_another_unit_than_the_estimates_is_refused() -> None:
    books = Books(budget(PARENT))
    held = books.hold(10)
    refusal = books.refused(books.commit(held, 10, unit=Unit.USD_MICROCENTS), "UNIT_MISMATCH")
    assert isinstance(refusal, UnitMismatch)
    assert (refusal.scope, refusal.expected_units) == (None, (Unit.TOKENS,))


@pytest.mark.parametrize("way", ["freeze", "close"])
def test_a_budget_frozen_or_closed_after_the_reserve_still_settles(way: str) -> None:
    books = Books(budget(PARENT, 1_000))
    first, second = books.hold(100), books.hold(200)
    books.accepted(getattr(books, way)())
    assert settled(books, first, 150).charged == 150
    assert books.accepted(books.release(second)).released == 200
    books.has(rem=850, reserved=0, spent=150)


@pytest.mark.parametrize("mark", [{"capped": True}, {"debt": 50, "limit": 10}])
def test_a_budget_over_its_limit_still_settles(mark: dict[str, Any]) -> None:
    books = Books(budget(PARENT, 1_000))
    held = books.hold(100)
    found = books.state.budget(PARENT, Unit.TOKENS)
    assert found is not None
    found.capped, found.debt, found.overdraft_limit = (
        mark.get("capped", False),
        mark.get("debt", 0),
        mark.get("limit", 0),
    )
    books.refused(books.reserve(1), "OVERDRAFT_LIMIT_EXCEEDED")
    assert settled(books, held, 40).charged == 40
    books.has(over=True)


def test_an_overage_is_told_with_what_was_asked_for() -> None:
    books = Books(budget(PARENT, 150))
    held = books.hold(100, overage_policy=AIA)
    settled(books, held, 200)
    facts = books.events[0].facts
    assert isinstance(facts, CommitOverage)
    assert (facts.actual_amount, facts.overage, facts.debt_incurred, facts.overage_policy) == (200, 100, 0, AIA)


def test_debt_that_sums_past_64_bits_over_six_scopes_is_told_saturated_and_kept_exact() -> None:
    near = INT64_MAX - 10
    subject = Subject(tenant="acme", workspace="w", app="p", workflow="f", agent="g", toolset="t")
    books = Books(budget(PARENT, 0))
    paths = books.accepted(books.reserve(0, subject, dry_run=True)).affected_scopes
    books = Books(*(budget(path, 0, INT64_MAX) for path in paths))
    held = books.hold(0, subject, overage_policy=AWO)
    assert settled(books, held, near).charged == near
    for path in paths:
        books.has(path, rem=-near, spent=0, debt=near, over=False)
    overage = books.events[0]
    assert overage.type is EventType.RESERVATION_COMMIT_OVERAGE
    assert overage.facts.data()["debt_incurred"] == INT64_MAX
    assert [event.facts.data()["debt_incurred"] for event in books.events[1:7]] == [near] * 6


def test_a_spent_total_that_would_leave_64_bits_is_refused_and_not_wrapped() -> None:
    """Only an operator's correction can bring a budget there: nothing that was held can by itself."""
    books = Books(budget(PARENT, INT64_MAX))
    held = books.hold(INT64_MAX)
    refused = books.fund("RESET_SPENT", 0, spent=INT64_MAX)
    books.refused(refused, "INVALID_INPUT")
    books.accepted(books.fund("RESET_SPENT", INT64_MAX, spent=INT64_MAX))
    refusal = books.refused(books.commit(held, INT64_MAX), "INVALID_INPUT")
    assert refusal.details()["reason"] == "overflow"
    assert books.accepted(books.release(held)).released == INT64_MAX


def test_a_release_gives_back_the_whole_estimate_on_every_scope() -> None:
    books = Books(budget(PARENT, 1_000), budget(CHILD, 500))
    held = books.hold(300, BOT)
    answer = books.accepted(books.release(held, reason="not needed"))
    assert (answer.released, answer.finalized_at) == (300, START)
    books.has(PARENT, rem=1_000, reserved=0, spent=0)
    books.has(CHILD, rem=500, reserved=0, spent=0)
    assert books.state.reservations[held].release_reason == "not needed"
    assert not books.last_changes.audit


def test_an_operators_release_leaves_an_audit_entry_on_one_line() -> None:
    books = Books(budget(PARENT, 1_000))
    held = books.hold(300)
    books.accepted(books.release(held, origin=OPERATOR, reason="[INCIDENT]\r\nhung"))
    (entry,) = books.last_changes.audit
    assert (entry.operation, entry.resource_id, entry.reason) == ("releaseReservation", held, "[INCIDENT] hung")
    assert entry.metadata == {"actor_type": "admin_on_behalf_of"}
    assert entry.origin is OPERATOR


@pytest.mark.parametrize("settle", ["commit", "release"])
def test_a_hold_ends_exactly_once(settle: str) -> None:
    books = Books(budget(PARENT, 1_000))
    held = books.hold(300)
    books.accepted(books.commit(held, 100) if settle == "commit" else books.release(held))
    after = books.numbers_of()
    for command in (books.commit(held, 100), books.release(held), books.extend(held, 1)):
        refusal = books.refused(command, "RESERVATION_FINALIZED")
        assert refusal.details()["status"] in {"COMMITTED", "RELEASED"}
    books.wait(10_000_000)
    books.accepted(books.evaluate(0))
    assert books.numbers_of() == after


def test_unknown_holds_are_not_found_and_those_of_others_forbidden() -> None:
    books = Books(budget(PARENT))
    books.state.foreign_reservations.add("rsv_theirs")
    for identifier, code in (("rsv_none", "NOT_FOUND"), ("x" * 128, "NOT_FOUND"), ("rsv_theirs", "ACCESS_DENIED")):
        books.refused(books.commit(identifier, 1), code)
        books.refused(books.release(identifier), code)
        books.refused(books.extend(identifier, 1), code)
    for identifier in ("x" * 129, ""):
        books.refused(books.commit(identifier, 1), "INVALID_INPUT")
        books.refused(books.release(identifier), "INVALID_INPUT")
        books.refused(books.extend(identifier, 1), "INVALID_INPUT")


def test_metrics_and_metadata_of_a_commit_are_kept() -> None:
    books = Books(budget(PARENT))
    held = books.hold(10)
    metrics = Metrics(tokens_input=1, latency_ms=2, model_version="m", custom={"x": [1]})
    books.accepted(books.commit(held, 5, metrics=metrics, metadata={"step": 2}))
    row = books.last_changes.reservations[held]
    assert (row.metrics, row.committed_metadata, row.metadata) == (metrics, {"step": 2}, None)


@pytest.mark.parametrize(
    "metrics", [{"tokens_input": -1}, {"latency_ms": 1.5}, {"model_version": "v" * 129}, {"tokens_output": True}]
)
def test_malformed_metrics_are_refused(metrics: dict[str, Any]) -> None:
    books = Books(budget(PARENT))
    held = books.hold(10)
    books.refused(books.commit(held, 5, metrics=Metrics(**metrics)), "INVALID_INPUT")
    books.refused(books.debit(5, metrics=Metrics(**metrics)), "INVALID_INPUT")


@pytest.mark.parametrize(
    ("asked", "near", "wide", "tenant", "taken"),
    [
        (None, None, None, None, AIA),
        (None, None, None, REJECT, REJECT),
        (None, None, AWO, REJECT, AWO),
        (None, REJECT, AWO, None, REJECT),
        (AIA, REJECT, AWO, REJECT, AIA),
    ],
)
def test_the_overage_policy_is_that_of_the_request_then_the_nearest_budget_then_the_tenant(
    asked: OveragePolicy | None,
    near: OveragePolicy | None,
    wide: OveragePolicy | None,
    tenant: OveragePolicy | None,
    taken: OveragePolicy,
) -> None:
    books = Books(budget(PARENT, commit_overage_policy=wide), budget(CHILD, commit_overage_policy=near))
    books.accepted(books.set_tenant(default_overage_policy=tenant))
    assert books.state.reservations[books.hold(1, BOT, overage_policy=asked)].overage_policy is taken


def test_the_overage_policy_is_fixed_when_the_hold_is_made() -> None:
    books = Books(budget(PARENT, 1_000))
    held = books.hold(10)
    books.accepted(books.update_budget(commit_overage_policy=REJECT))
    assert settled(books, held, 20).charged == 20
