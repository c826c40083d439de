"""What is told of transitions, once each (section 8.2, scenarios 118 and 119)."""

from __future__ import annotations

from typing import Any

import pytest

from domain.amounts import Amount, Unit
from domain.budget.events import (
    BudgetOverLimit,
    BudgetThreshold,
    DebtIncurred,
    EventType,
    ReservationDenied,
)
from domain.budget.values import Subject
from tests.domain.budget.books import AIA, AWO, BOT, CALL, CALLER, CHILD, PARENT, START, Books, budget

THRESHOLD, EXHAUSTED = EventType.BUDGET_THRESHOLD_CROSSED, EventType.BUDGET_EXHAUSTED
ENTERED, EXITED = EventType.BUDGET_OVER_LIMIT_ENTERED, EventType.BUDGET_OVER_LIMIT_EXITED


def crossings(books: Books) -> list[tuple[str, int, str]]:
    return [
        (event.facts.scope, event.facts.threshold_millionths, event.facts.direction)
        for event in books.events
        if event.type is THRESHOLD and isinstance(event.facts, BudgetThreshold)
    ]


def test_a_budget_is_exhausted_once_when_its_last_is_taken() -> None:
    books = Books(budget(PARENT, 5))
    books.hold(5)
    assert books.event_types().count(EXHAUSTED) == 1
    facts = books.events[-1].facts
    assert isinstance(facts, BudgetThreshold)
    assert (facts.remaining, facts.reserved, facts.utilization_millionths) == (0, 5, 1_000_000)
    books.hold(0)
    assert not books.events


def test_each_scope_is_exhausted_for_itself() -> None:
    books = Books(budget(PARENT, 10), budget(CHILD, 5))
    books.hold(5, BOT)
    assert [event.scope for event in books.events if event.type is EXHAUSTED] == [CHILD]


def test_thresholds_are_told_as_they_are_passed_upwards_and_downwards() -> None:
    books = Books(budget(PARENT, 1_000))
    held = books.hold(799)
    assert crossings(books) == []
    first = books.hold(1)
    assert crossings(books) == [(PARENT, 800_000, "rising")]
    books.hold(100)
    assert crossings(books) == []
    books.hold(100)
    assert crossings(books) == [(PARENT, 950_000, "rising"), (PARENT, 1_000_000, "rising")]
    books.accepted(books.release(held))
    assert crossings(books) == [
        (PARENT, 1_000_000, "falling"),
        (PARENT, 950_000, "falling"),
        (PARENT, 800_000, "falling"),
    ]
    books.accepted(books.release(first))
    assert crossings(books) == []


def test_settling_within_the_estimate_moves_no_utilization_that_it_keeps() -> None:
    books = Books(budget(PARENT, 1_000))
    held = books.hold(900)
    books.accepted(books.commit(held, 900))
    assert crossings(books) == []


def test_funding_and_resizing_cross_thresholds_too() -> None:
    books = Books(budget(PARENT, 1_000))
    books.spend(900)
    books.accepted(books.fund("CREDIT", 1_000))
    assert crossings(books) == [(PARENT, 800_000, "falling")]
    books.accepted(books.fund("RESET", 900))
    assert [threshold for _, threshold, _ in crossings(books)] == [800_000, 950_000, 1_000_000]
    assert EXHAUSTED in books.event_types()
    books.accepted(books.fund("RESET_SPENT", 900))
    assert [threshold for _, threshold, _ in crossings(books)] == [1_000_000, 950_000, 800_000]


def test_utilization_above_the_allocation_is_told_in_millionths() -> None:
    books = Books(budget(PARENT, 100, 500))
    books.accepted(books.debit(50, overage_policy=AWO))
    books.accepted(books.fund("RESET", 40))
    facts = [event.facts for event in books.events if isinstance(event.facts, BudgetThreshold)]
    assert [fact.utilization_millionths for fact in facts] == [1_250_000] * 3


def test_use_of_a_budget_without_an_allocation_is_above_every_threshold() -> None:
    books = Books(budget(PARENT, 0, 100, spent=1))
    books.accepted(books.fund("CREDIT", 10))
    assert [threshold for _, threshold, _ in crossings(books)] == [1_000_000, 950_000, 800_000]
    books.accepted(books.fund("DEBIT", 9))
    assert [direction for _, _, direction in crossings(books)] == ["rising"] * 3
    unused = Books(budget(PARENT, 0))
    unused.hold(0)
    assert crossings(unused) == []


@pytest.mark.parametrize(("thresholds", "told"), [((), []), ((0,), [0]), ((500_000, 250_000), [250_000, 500_000])])
def test_the_thresholds_are_those_that_the_state_is_given(thresholds: tuple[int, ...], told: list[int]) -> None:
    books = Books(budget(PARENT, 100))
    books.state.thresholds = tuple(sorted(thresholds))
    books.state.lowest_threshold = min(thresholds, default=2**128)
    books.hold(60)
    assert [threshold for _, threshold, _ in crossings(books)] == told


def test_the_over_limit_mark_is_told_once_on_the_way_in_and_once_on_the_way_out() -> None:
    books = Books(budget(PARENT, 100))
    first, second = books.hold(50), books.hold(50)
    books.accepted(books.commit(first, 60))
    assert books.event_types() == [EventType.RESERVATION_COMMIT_OVERAGE, ENTERED]
    facts = books.events[1].facts
    assert facts == BudgetOverLimit(
        scope=PARENT,
        unit=Unit.TOKENS,
        debt=0,
        overdraft_limit=0,
        is_over_limit=True,
        debt_utilization_millionths=None,
    )
    books.accepted(books.commit(second, 60))
    assert ENTERED not in books.event_types()
    books.accepted(books.fund("CREDIT", 100))
    assert books.event_types().count(EXITED) == 1
    books.accepted(books.fund("CREDIT", 100))
    assert EXITED not in books.event_types()


def test_debt_is_told_for_each_budget_that_takes_some_and_only_then() -> None:
    books = Books(budget(PARENT, 100, 500), budget(CHILD, 1_000, 500))
    held = books.hold(100, BOT, overage_policy=AWO)
    books.accepted(books.commit(held, 250))
    (facts,) = [event.facts for event in books.events if isinstance(event.facts, DebtIncurred)]
    assert facts == DebtIncurred(
        scope=PARENT,
        unit=Unit.TOKENS,
        reservation_id=held,
        debt_incurred=150,
        total_debt=150,
        overdraft_limit=500,
        overage_policy=AWO,
    )
    books.accepted(books.update_budget(overdraft_limit=Amount(Unit.TOKENS, 300)))
    books.accepted(books.debit(150, overage_policy=AWO))
    (facts,) = [event.facts for event in books.events if isinstance(event.facts, DebtIncurred)]
    assert (facts.debt_incurred, facts.total_debt, facts.reservation_id) == (150, 300, None)


def test_an_overage_is_told_when_the_actual_is_more_than_the_estimate_and_not_otherwise() -> None:
    books = Books(budget(PARENT, 10_000))
    for actual, told in ((99, False), (100, False), (101, True)):
        books.accepted(books.commit(books.hold(100), actual))
        assert (EventType.RESERVATION_COMMIT_OVERAGE in books.event_types()) is told


@pytest.mark.parametrize("kind", ["live", "dry run", "evaluate"])
def test_a_denial_is_told_live_and_in_previews(kind: str) -> None:
    books = Books(budget(PARENT, 10), budget(CHILD, 1_000))
    command: Any = {
        "live": books.reserve(11, BOT),
        "dry run": books.reserve(11, BOT, dry_run=True),
        "evaluate": books.evaluate(11, BOT),
    }[kind]
    books.ask(command)
    (event,) = books.events
    assert (event.type, event.scope, event.occurred_at) == (EventType.RESERVATION_DENIED, PARENT, START)
    assert event.origin is CALLER
    assert event.facts == ReservationDenied(
        scope=PARENT,
        unit=Unit.TOKENS,
        reason_code="BUDGET_EXCEEDED",
        requested_amount=11,
        remaining=10,
        action=CALL,
        subject=BOT,
    )
    books.ask(command)
    assert len(books.events) == (1 if kind == "live" else 0)


def test_a_denied_debit_and_a_wrong_unit_are_not_told() -> None:
    books = Books(budget(PARENT, 10))
    books.refused(books.reserve(1, unit=Unit.CREDITS), "UNIT_MISMATCH")
    assert not books.events
    books.accepted(books.freeze())
    books.refused(books.debit(1), "BUDGET_FROZEN")
    assert not books.events


def test_a_normal_life_of_a_hold_tells_nothing() -> None:
    books = Books(budget(PARENT, 1_000))
    for command in (books.reserve(10, reservation_id="r"), books.extend("r", 5), books.commit("r", 5)):
        books.accepted(command)
        assert not books.events


def test_facts_are_plain_values_without_the_absent_ones() -> None:
    books = Books(budget(PARENT, 10))
    books.ask(books.reserve(11, Subject(tenant="acme", dimensions={"team": "red"}), overage_policy=AIA))
    assert books.events[0].facts.data() == {
        "scope": PARENT,
        "unit": "TOKENS",
        "reason_code": "BUDGET_EXCEEDED",
        "requested_amount": 11,
        "remaining": 10,
        "action": {"kind": "llm.completion", "name": "gpt", "tags": []},
        "subject": {"tenant": "acme", "dimensions": {"team": "red"}},
    }


def test_an_event_belongs_to_the_category_of_its_type() -> None:
    assert {kind.category for kind in EventType} == {"budget", "reservation", "tenant", "policy", "api_key"}
