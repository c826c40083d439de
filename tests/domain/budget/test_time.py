"""Lifetimes, grace to the millisecond, extensions, expiry (section 3, scenarios 77 to 91)."""

from __future__ import annotations

from typing import Any

import pytest

from domain.budget.commands import ExpireDue
from domain.budget.decisions import decide
from domain.budget.events import EventType, ReservationExpired
from domain.budget.records import ExpiryPolicy, ReservationStatus, Tenant
from domain.budget.settlement import advance
from domain.terms import INSTANT_MAX
from tests.domain.budget.books import BOT, CALLER, CHILD, PARENT, START, TENANT_ID, Books, budget


def books_of(**settings: Any) -> Books:
    return Books(budget(PARENT, 1_000), tenant=Tenant(tenant_id=TENANT_ID, **settings))


@pytest.mark.parametrize(
    ("settings", "asked", "granted"),
    [
        ({}, None, 60_000),
        ({}, 1_000, 1_000),
        ({}, 86_400_000, 3_600_000),
        ({"max_ttl_ms": 86_400_000}, 86_400_000, 86_400_000),
        ({"max_ttl_ms": 10_000}, 60_000, 10_000),
        ({"max_ttl_ms": 10_000}, None, 10_000),
        ({"default_ttl_ms": 5_000}, None, 5_000),
        ({"default_ttl_ms": 5_000}, 7_000, 7_000),
    ],
)
def test_a_lifetime_is_asked_for_or_the_default_and_cut_to_the_maximum(
    settings: dict[str, int], asked: int | None, granted: int
) -> None:
    books = books_of(**settings)
    answer = books.accepted(books.reserve(1, ttl_ms=asked))
    assert (answer.expires_at, answer.remaining_ttl_ms) == (START + granted, granted)


@pytest.mark.parametrize("way", ["commit", "release"])
@pytest.mark.parametrize("grace", [0, 1, 5_000, 60_000])
def test_a_hold_settles_until_the_last_millisecond_of_its_grace(way: str, grace: int) -> None:
    for late, accepted in ((0, True), (1, False)):
        books = books_of()
        held = books.hold(10, grace_ms=grace)
        books.wait(60_000 + grace + late)
        command = books.commit(held, 10) if way == "commit" else books.release(held)
        if accepted:
            books.accepted(command)
            continue
        refusal = books.refused(command, "RESERVATION_EXPIRED")
        assert refusal.details() == {"reservation_id": held, "expires_at": START + 60_000, "grace_ms": grace}


def test_the_default_grace_is_five_seconds() -> None:
    books = books_of()
    assert books.state.reservations[books.hold(1)].grace_ms == 5_000


def test_a_hold_can_be_extended_at_its_expiry_and_not_a_millisecond_later() -> None:
    books = books_of()
    held = books.hold(1, grace_ms=60_000)
    books.wait(60_000)
    assert books.accepted(books.extend(held, 1)).remaining_ttl_ms == 1
    books.wait(2)
    books.refused(books.extend(held, 1_000), "RESERVATION_EXPIRED")
    books.accepted(books.commit(held, 1))


def test_an_extension_counts_from_the_expiry_and_changes_nothing_else() -> None:
    books = books_of()
    held = books.hold(10)
    books.wait(50_000)
    answer = books.accepted(books.extend(held, 30_000))
    assert (answer.expires_at, answer.remaining_ttl_ms) == (START + 90_000, 40_000)
    row = books.state.reservations[held]
    assert (row.estimate, row.grace_ms, row.ttl_ms, row.extensions_used) == (10, 5_000, 60_000, 1)
    books.has(reserved=10)
    assert not books.last_changes.budgets


@pytest.mark.parametrize(("by_ms", "accepted"), [(0, False), (1, True), (86_400_000, True), (86_400_001, False)])
def test_an_extension_is_a_millisecond_to_a_day(by_ms: int, accepted: bool) -> None:
    books = books_of()
    command = books.extend(books.hold(1), by_ms)
    if accepted:
        books.accepted(command)
    else:
        books.refused(command, "INVALID_INPUT")


@pytest.mark.parametrize("most", [0, 1, 3])
def test_extensions_are_counted_against_what_was_allowed_when_the_hold_was_made(most: int) -> None:
    books = books_of(max_extensions=most)
    held = books.hold(1)
    books.accepted(books.set_tenant(max_extensions=99))
    for _ in range(most):
        books.accepted(books.extend(held, 1))
    refusal = books.refused(books.extend(held, 1), "MAX_EXTENSIONS_EXCEEDED")
    assert refusal.details()["max_extensions"] == most


def test_ten_extensions_are_allowed_by_default() -> None:
    books = books_of()
    held = books.hold(1)
    for _ in range(10):
        books.accepted(books.extend(held, 86_400_000))
    books.refused(books.extend(held, 1), "MAX_EXTENSIONS_EXCEEDED")


def test_expiry_comes_before_the_count_of_extensions() -> None:
    books = books_of(max_extensions=0)
    held = books.hold(1)
    books.refused(books.extend(held, 1), "MAX_EXTENSIONS_EXCEEDED")
    books.wait(60_001)
    books.refused(books.extend(held, 1), "RESERVATION_EXPIRED")


def test_a_bounded_lead_holds_extensions_back_and_never_shortens_a_hold() -> None:
    books = books_of(extension_lead_max_ms=70_000)
    held = books.hold(1)
    assert books.accepted(books.extend(held, 50_000)).expires_at == START + 70_000
    books.accepted(books.set_tenant(extension_lead_max_ms=1_000))
    answer = books.accepted(books.extend(held, 50_000))
    assert (answer.expires_at, answer.extensions_used) == (START + 70_000, 2)


def test_an_expiry_past_the_last_instant_is_refused() -> None:
    books = Books(budget(PARENT), at=INSTANT_MAX - 100_000)
    held = books.hold(1)
    books.refused(books.extend(held, 86_400_000), "INVALID_INPUT")
    books.accepted(books.extend(held, 40_000))


def test_an_overdue_hold_is_given_back_once_after_its_grace() -> None:
    books = Books(budget(PARENT, 1_000), budget(CHILD, 500))
    held = books.hold(300, BOT)
    books.wait(65_000)
    assert advance(books.state, books.now) == 0
    books.has(PARENT, reserved=300)
    books.wait(1)
    assert advance(books.state, books.now) == 1
    assert advance(books.state, books.now) == 0
    books.has(PARENT, rem=1_000, reserved=0)
    books.has(CHILD, rem=500, reserved=0)
    row = books.state.reservations[held]
    assert (row.status, row.finalized_at) == (ReservationStatus.EXPIRED, None)


def test_an_expiry_is_told_with_the_instant_at_which_it_was_due() -> None:
    books = books_of()
    held = books.hold(30, ttl_ms=10_000)
    books.accepted(books.extend(held, 5_000))
    books.wait(3_600_000)
    books.accepted(books.evaluate(1))
    event = books.events[0]
    assert (event.type, event.scope, event.origin) == (EventType.RESERVATION_EXPIRED, PARENT, None)
    assert event.occurred_at == books.now
    assert event.facts == ReservationExpired(
        reservation_id=held,
        scope=PARENT,
        unit=books.state.reservations[held].unit,
        estimated_amount=30,
        created_at=START,
        expired_at=START + 20_001,
        ttl_ms=10_000,
        extensions_used=1,
    )


def test_what_is_overdue_makes_room_for_a_new_hold_in_the_same_turn() -> None:
    books = books_of()
    books.hold(1_000)
    books.wait(65_000)
    books.refused(books.reserve(1), "BUDGET_EXCEEDED")
    books.wait(1)
    books.hold(1_000)


def test_an_extended_hold_is_overdue_by_its_new_expiry_only() -> None:
    books = books_of()
    held = books.hold(10)
    books.accepted(books.extend(held, 30_000))
    books.wait(95_000)
    assert advance(books.state, books.now) == 0
    books.wait(1)
    assert advance(books.state, books.now) == 1


def test_holds_expire_in_the_order_in_which_they_fell_due() -> None:
    books = books_of()
    late, early, middle = (books.hold(1, ttl_ms=ttl) for ttl in (9_000, 1_000, 5_000))
    books.wait(100_000)
    advance(books.state, books.now)
    events = books.state.take_changes().events
    assert [event.facts.data()["reservation_id"] for event in events] == [early, middle, late]


def test_one_turn_expires_a_bounded_number_and_the_next_goes_on() -> None:
    books = books_of()
    for _ in range(5):
        books.hold(1)
    books.wait(100_000)
    assert [advance(books.state, books.now, limit=2) for _ in range(4)] == [2, 2, 1, 0]


def test_what_a_bounded_turn_left_over_is_refused_as_expired_all_the_same() -> None:
    books = books_of()
    held = books.hold(10)
    books.wait(65_001)
    row = books.state.reservations[held]
    assert (row.status, row.status_at(books.now)) == (ReservationStatus.ACTIVE, ReservationStatus.EXPIRED)
    for command in (books.commit(held, 1), books.release(held), books.extend(held, 1)):
        assert getattr(decide(books.state, command, books.now), "code", None) == "RESERVATION_EXPIRED"


def test_a_commit_just_in_time_keeps_the_expiry_from_happening() -> None:
    books = books_of()
    held = books.hold(10)
    books.wait(65_000)
    books.accepted(books.commit(held, 10))
    books.wait(10_000)
    assert advance(books.state, books.now) == 0
    books.has(spent=10, reserved=0)


@pytest.mark.parametrize("policy", list(ExpiryPolicy))
def test_every_expiry_policy_acts_as_auto_release(policy: ExpiryPolicy) -> None:
    books = books_of(expiry_policy=policy)
    books.hold(10)
    books.wait(65_001)
    assert advance(books.state, books.now) == 1


def test_the_job_asks_for_nothing_but_expiries() -> None:
    books = books_of()
    books.hold(10)
    books.wait(65_001)
    answer = books.accepted(ExpireDue(tenant_id=TENANT_ID, origin=CALLER))
    assert answer == 0, "the turn had done it before"
    assert books.event_types() == [EventType.RESERVATION_EXPIRED]


def test_the_next_expiry_is_known_for_a_timer() -> None:
    books = books_of()
    assert books.state.next_expiry_at() is None
    books.hold(10)
    assert books.state.next_expiry_at() == START + 65_001


def test_time_never_goes_back() -> None:
    books = books_of()
    advance(books.state, START + 10)
    assert books.state.tenant.clock_at == START + 10
    with pytest.raises(AssertionError, match="backwards"):
        advance(books.state, START + 9)
