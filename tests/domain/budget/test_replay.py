"""Idempotent replay and the fingerprint of a request (section 4, scenarios 52 and 55 to 76)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from domain.amounts import INT64_MAX, Amount, Unit
from domain.budget.commands import GRACE_DEFAULT_MS
from domain.budget.records import Tenant, TenantStatus
from domain.budget.replay import fingerprint
from domain.budget.values import Action, Metrics, Subject
from tests.domain.budget.books import AIA, BOT, OPERATOR, PARENT, REJECT, WHOLE, Books, budget


def again(command: Any, **changes: Any) -> Any:
    """The same request once more, as a client's retry makes it: a new id, the same key."""
    fresh = {"reservation_id": "rsv_retry"} if type(command).__name__ == "Reserve" else {}
    fresh |= {"debit_id": "dbt_retry"} if type(command).__name__ == "Debit" else {}
    return replace(command, **(fresh | changes))


def test_a_retried_reserve_is_the_same_hold_with_its_lifetime_told_anew() -> None:
    books = Books(budget(PARENT, 1_000))
    command = books.reserve(400)
    first = books.accepted(command)
    books.wait(1_500)
    second = books.repeated(again(command))
    assert second.remaining_ttl_ms == 58_500
    assert replace(second, remaining_ttl_ms=first.remaining_ttl_ms) == first
    books.has(reserved=400)
    assert list(books.state.reservations) == [first.reservation_id]


def test_thirty_two_equal_requests_make_one_hold() -> None:
    books = Books(budget(PARENT, 1_000))
    command = books.reserve(400)
    books.accepted(command)
    ids = {books.repeated(again(command)).reservation_id for _ in range(31)}
    assert ids == {command.reservation_id}
    books.has(reserved=400)


def test_the_key_of_a_reserve_with_another_content_is_refused() -> None:
    books = Books(budget(PARENT, 1_000))
    command = books.reserve(400)
    books.accepted(command)
    refusal = books.refused(again(command, estimate=Amount(Unit.TOKENS, 401)), "IDEMPOTENCY_MISMATCH")
    assert refusal.details() == {"idempotency_key": command.idempotency_key}


@pytest.mark.parametrize("dry_first", [True, False])
def test_a_dry_run_and_a_live_request_share_their_keys(dry_first: bool) -> None:
    books = Books(budget(PARENT, 1_000))
    command = books.reserve(1, dry_run=dry_first)
    books.accepted(command)
    books.refused(again(command, dry_run=not dry_first), "IDEMPOTENCY_MISMATCH")


def test_each_operation_has_its_own_keys() -> None:
    books = Books(budget(PARENT, 1_000))
    key: dict[str, Any] = {"idempotency_key": "K"}
    books.accepted(books.evaluate(1, **key))
    first = books.hold(1, **key)
    second = books.hold(1)
    books.accepted(books.extend(first, 10, **key))
    books.accepted(books.extend(second, 20, **key))
    books.accepted(books.commit(first, 1, **key))
    books.accepted(books.commit(second, 1, **key))
    books.accepted(books.debit(1, **key))
    books.accepted(books.fund("CREDIT", 1, **key))


def test_a_late_commit_is_recovered_by_a_debit_under_its_own_key() -> None:
    books = Books(budget(PARENT, 1_000))
    held = books.hold(100)
    books.wait(65_001)
    late = books.commit(held, 80)
    books.refused(late, "RESERVATION_EXPIRED")
    recovery = books.debit(80, idempotency_key=late.idempotency_key, metadata={"recovered_reservation_id": held})
    assert books.accepted(recovery).charged == 80
    books.has(spent=80, reserved=0)


def test_two_tenants_may_use_one_key() -> None:
    mine, theirs = Books(budget(PARENT)), Books(budget(PARENT), tenant=Tenant(tenant_id="b"))
    mine_command = mine.reserve(1, idempotency_key="K")
    theirs_command = theirs.reserve(1, Subject(agent="x"), idempotency_key="K")
    assert mine_command.request_key != theirs_command.request_key


def test_a_refusal_burns_no_key() -> None:
    books = Books(budget(PARENT, 10))
    command = books.reserve(11)
    books.refused(command, "BUDGET_EXCEEDED")
    books.accepted(books.fund("CREDIT", 1))
    assert books.accepted(command).reserved == 11
    other = books.reserve(5)
    books.refused(other, "BUDGET_EXCEEDED")
    books.accepted(again(other, estimate=Amount(Unit.TOKENS, 0)))


def test_a_denied_preview_is_remembered_as_the_answer_it_is() -> None:
    books = Books(budget(PARENT, 10))
    dry, decided = books.reserve(11, dry_run=True), books.evaluate(11)
    first = books.accepted(dry), books.accepted(decided)
    books.accepted(books.fund("CREDIT", 100))
    assert (books.repeated(dry), books.repeated(decided)) == first


def test_a_lost_answer_to_a_commit_comes_back_with_the_balances_of_then() -> None:
    books = Books(budget(PARENT, 1_000))
    command = books.commit(books.hold(100), 60)
    first = books.accepted(command)
    books.spend(500)
    books.accepted(books.fund("RESET", 5))
    books.wait(10_000_000)
    assert books.repeated(command) == first


def test_a_release_is_repeated_under_its_key_and_final_under_another() -> None:
    books = Books(budget(PARENT, 1_000))
    held = books.hold(100)
    command = books.release(held)
    first = books.accepted(command)
    assert books.repeated(command) == first
    books.refused(books.release(held), "RESERVATION_FINALIZED")
    books.refused(again(command, reason="other"), "IDEMPOTENCY_MISMATCH")


@pytest.mark.parametrize("end", ["commit", "release", "expiry"])
def test_retries_about_a_hold_that_is_over_tell_no_lifetime(end: str) -> None:
    books = Books(budget(PARENT, 1_000))
    command = books.reserve(100)
    held = books.accepted(command).reservation_id
    extend = books.extend(held, 1_000_000)
    extended = books.accepted(extend)
    if end == "commit":
        books.accepted(books.commit(held, 100))
    elif end == "release":
        books.accepted(books.release(held))
    else:
        books.wait(1_065_001)
    assert books.repeated(command).remaining_ttl_ms == 0
    assert replace(books.repeated(extend), remaining_ttl_ms=extended.remaining_ttl_ms) == extended
    assert books.repeated(extend).remaining_ttl_ms == 0


def test_a_retried_reserve_keeps_its_first_expiry_after_an_extension() -> None:
    books = Books(budget(PARENT, 1_000))
    command = books.reserve(100)
    first = books.accepted(command)
    books.accepted(books.extend(command.reservation_id, 30_000))
    books.wait(20_000)
    second = books.repeated(command)
    assert (second.expires_at, second.remaining_ttl_ms) == (first.expires_at, 40_000)
    books.wait(45_000)
    assert books.repeated(command).remaining_ttl_ms == 0


def test_a_retried_extension_is_the_same_one_and_uses_up_nothing() -> None:
    books = Books(budget(PARENT), tenant=Tenant(tenant_id="acme", max_extensions=1))
    held = books.hold(1)
    command = books.extend(held, 30_000)
    first = books.accepted(command)
    books.wait(1_000)
    assert books.repeated(command) == replace(first, remaining_ttl_ms=first.remaining_ttl_ms - 1_000)
    books.refused(again(command, extend_by_ms=1), "IDEMPOTENCY_MISMATCH")
    books.refused(books.extend(held, 1), "MAX_EXTENSIONS_EXCEEDED")


def test_a_retried_debit_charges_once_and_answers_the_same() -> None:
    books = Books(budget(PARENT, 1_000))
    command = books.debit(100)
    first = books.accepted(command)
    assert books.repeated(again(command)) == first
    books.has(spent=100)


def test_a_retried_funding_adds_once() -> None:
    books = Books(budget(PARENT, 1_000))
    command = books.fund("CREDIT", 100)
    first = books.accepted(command)
    assert books.repeated(command) == first
    books.has(rem=1_100)
    books.refused(again(command, scope="tenant:acme/agent:bot"), "IDEMPOTENCY_MISMATCH")


@pytest.mark.parametrize("flip", [TenantStatus.CLOSED, TenantStatus.SUSPENDED])
def test_retries_come_before_the_tenants_status(flip: TenantStatus) -> None:
    books = Books(budget(PARENT, 1_000))
    reserve, debit, decided, dry = (
        books.reserve(100),
        books.debit(1),
        books.evaluate(1),
        books.reserve(1, dry_run=True),
    )
    answers = [books.accepted(command) for command in (reserve, debit, decided, dry)]
    commit = books.commit(reserve.reservation_id, 60)
    committed = books.accepted(commit)
    books.accepted(books.set_tenant(flip))
    assert books.repeated(reserve) == replace(answers[0], remaining_ttl_ms=0)
    assert [books.repeated(command) for command in (debit, decided, dry)] == answers[1:]
    assert books.repeated(commit) == committed


def test_retries_come_before_the_state_of_the_budget() -> None:
    books = Books(budget(PARENT, 1_000))
    command = books.reserve(1_000)
    first = books.accepted(command)
    books.accepted(books.freeze())
    assert books.repeated(command) == first


def test_a_forgotten_key_is_new() -> None:
    books = Books(budget(PARENT, 1_000))
    command = books.reserve(100)
    books.accepted(command)
    books.wait(1)
    books.state.forget_settled(answered_before=books.now)
    assert books.accepted(again(command)).reservation_id == "rsv_retry"
    books.has(reserved=200)


def test_forgetting_keeps_active_holds_and_younger_answers() -> None:
    books = Books(budget(PARENT, 1_000))
    command = books.reserve(100)
    books.accepted(command)
    done = books.hold(50)
    books.accepted(books.release(done))
    books.state.forget_settled(answered_before=books.now)
    assert list(books.state.reservations) == [command.reservation_id]
    books.repeated(command)


# -- the fingerprint --------------------------------------------------------------------------------------------------

Builder = Callable[[Books], Any]

SAME: list[tuple[Builder, Builder]] = [
    (lambda b: b.reserve(1), lambda b: b.reserve(1, dry_run=False, grace_ms=GRACE_DEFAULT_MS)),
    (lambda b: b.reserve(1), lambda b: b.reserve(1, origin=OPERATOR, scope_filter=("tenant:acme",))),
    (
        lambda b: b.reserve(1, metadata={"a": 1, "b": {"x": 1, "y": 2}}),
        lambda b: b.reserve(1, metadata={"b": {"y": 2, "x": 1}, "a": 1}),
    ),
    (lambda b: b.evaluate(1), lambda b: b.evaluate(1, metadata=None)),
    (lambda b: b.debit(1, metrics=None), lambda b: b.debit(1)),
]

OTHER: list[tuple[Builder, Builder]] = [
    (lambda b: b.reserve(1), lambda b: b.reserve(2)),
    (lambda b: b.reserve(INT64_MAX), lambda b: b.reserve(INT64_MAX - 1)),
    (lambda b: b.reserve(1), lambda b: b.reserve(1, unit=Unit.CREDITS)),
    (lambda b: b.reserve(1), lambda b: b.reserve(1, BOT)),
    (lambda b: b.reserve(1, Subject(agent="Bot")), lambda b: b.reserve(1, Subject(agent="bot"))),
    (lambda b: b.reserve(1, Subject(agent="x")), lambda b: b.reserve(1, Subject(toolset="x"))),
    (lambda b: b.reserve(1), lambda b: b.reserve(1, Subject(tenant="acme", dimensions={"team": "red"}))),
    (lambda b: b.reserve(1), lambda b: b.reserve(1, action=Action(kind="llm.completion", name="other"))),
    (
        lambda b: b.reserve(1, action=Action(kind="k", name="n", tags=("a", "b"))),
        lambda b: b.reserve(1, action=Action(kind="k", name="n", tags=("b", "a"))),
    ),
    (lambda b: b.reserve(1), lambda b: b.reserve(1, ttl_ms=60_000)),
    (lambda b: b.reserve(1), lambda b: b.reserve(1, overage_policy=AIA)),
    (lambda b: b.reserve(1, overage_policy=REJECT), lambda b: b.reserve(1, overage_policy=AIA)),
    (lambda b: b.reserve(1, grace_ms=0), lambda b: b.reserve(1)),
    (lambda b: b.reserve(1), lambda b: b.reserve(1, metadata={})),
    (lambda b: b.reserve(1, metadata={"a": None}), lambda b: b.reserve(1, metadata={})),
    (lambda b: b.reserve(1, metadata={"a": 1}), lambda b: b.reserve(1, metadata={"a": "1"})),
    (lambda b: b.reserve(1, metadata={"a": True}), lambda b: b.reserve(1, metadata={"a": 1})),
    (lambda b: b.reserve(1, metadata={"a": 0.1}), lambda b: b.reserve(1, metadata={"a": 0.10000000000000002})),
    (lambda b: b.reserve(1, metadata={"a": "\u00e9"}), lambda b: b.reserve(1, metadata={"a": "e\u0301"})),
    (lambda b: b.commit("r", 1), lambda b: b.commit("s", 1)),
    (lambda b: b.commit("r", 1), lambda b: b.commit("r", 1, metrics=Metrics(latency_ms=1))),
    (lambda b: b.extend("r", 1), lambda b: b.extend("r", 2)),
    (lambda b: b.release("r"), lambda b: b.release("r", reason="")),
    (lambda b: b.debit(1), lambda b: b.debit(1, client_time_ms=1)),
    (lambda b: b.fund("CREDIT", 1), lambda b: b.fund("DEBIT", 1)),
    (lambda b: b.fund("RESET_SPENT", 1), lambda b: b.fund("RESET_SPENT", 1, spent=0)),
]


@pytest.mark.parametrize(("one", "two"), SAME)
def test_equal_requests_have_one_fingerprint(one: Builder, two: Builder) -> None:
    books = Books()
    assert one(books).fingerprint == two(books).fingerprint


@pytest.mark.parametrize(("one", "two"), OTHER)
def test_different_requests_have_different_fingerprints(one: Builder, two: Builder) -> None:
    books = Books()
    assert one(books).fingerprint != two(books).fingerprint


def test_the_key_and_the_ids_of_the_server_are_no_part_of_the_content() -> None:
    books = Books()
    assert books.reserve(1).fingerprint == books.reserve(1).fingerprint
    assert books.debit(1).fingerprint == books.debit(1).fingerprint


def test_a_lone_surrogate_is_content_like_any_other() -> None:
    assert fingerprint({"a": "\ud800"}) != fingerprint({"a": "\ud801"})


def test_the_fingerprint_is_32_bytes_and_stable() -> None:
    assert fingerprint({"b": 1, "a": None}) == fingerprint({"b": 1})
    canonical = b'{"a":9223372036854775807,"b":[2,0.1,"\xc3\xa9"]}'
    assert fingerprint({"b": [2, 0.1, "\u00e9"], "a": INT64_MAX}) == hashlib.sha256(canonical).digest()


def test_a_changed_default_does_not_turn_a_retry_into_a_mismatch() -> None:
    books = Books(budget(PARENT, 1_000))
    command = books.reserve(1, WHOLE)
    first = books.accepted(command)
    books.accepted(books.set_tenant(default_ttl_ms=5_000, default_overage_policy=REJECT))
    assert books.repeated(command) == first
