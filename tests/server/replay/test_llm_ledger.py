"""The replay client's own ledger: what it finds when it is told things that cannot be."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from domain.amounts import Unit
from domain.budget.values import Balance
from server.replay.llm_calls import Charged, Held
from server.replay.llm_ledger import ListedHold, ReplyLedger, refuse_impossible
from server.replay.llm_trace import LlmRequest
from server.replay.llm_wire import refuse_untimely
from server.replay.llm_world import KINDS, Agent, Job
from server.replay.wire import Told

STRICT, THRIFTY, _ = (Agent(tenant_id="t", app="conv", kind=kind) for kind in KINDS)
MS = 1_000_000


def held(agent: Agent = THRIFTY, *, number: int = 1, amount: int = 100) -> Held:
    request = LlmRequest(came_at=0, app="conv", context_tokens=50, generated_tokens=50)
    return Held(
        reservation_id=f"rsv_{number}",
        amount=amount,
        expires_at=60_000,
        remaining_ttl_ms=1_000,
        has_caps=False,
        max_tokens=None,
        grace_ms=500,
        job=Job(number=number, agent=agent, request=request),
        asked_ns=0,
        told_ns=10 * MS,
    )


def balance(scope: str, **amounts: int) -> Balance:
    names = ("allocated", "reserved", "spent", "debt", "overdraft_limit")
    return Balance(
        scope_path=scope, unit=Unit.TOKENS, is_over_limit=False, **{name: amounts.get(name, 0) for name in names}
    )


def charged(amount: int, agent: Agent = THRIFTY) -> Charged:
    return Charged(amount=amount, balances=[balance(scope) for scope in agent.scopes])


def balances(**amounts: int) -> list[Balance]:
    return [balance(scope, **amounts) for scope in THRIFTY.scopes]


def ledger_with_a_commit_and_a_hold() -> ReplyLedger:
    """Of 1000 tokens, 80 are charged and 100 held."""
    ledger = ReplyLedger()
    for scope in THRIFTY.scopes:
        ledger.note_allocated(scope, 1_000)
    first, second = held(), held(number=2)
    ledger.note_held(first)
    ledger.note_held(second)
    ledger.note_committed(first, 80, charged(80))
    return ledger


def test_a_ledger_that_agrees_finds_nothing() -> None:
    ledger = ledger_with_a_commit_and_a_hold()
    assert ledger.audit_balances(balances(allocated=1_000, spent=70, debt=10, reserved=100, overdraft_limit=10)) == []
    assert ledger.audit_holds(listed()) == []
    assert ledger.wrong == []
    assert ledger.charged == 80


@pytest.mark.parametrize(
    ("amounts", "rule"),
    [
        ({"allocated": 1_000, "spent": 81, "reserved": 100}, "I5 "),
        ({"allocated": 1_000, "spent": 80, "reserved": 0}, "I2 "),
        ({"allocated": 999, "spent": 80, "reserved": 100}, "answers"),
        ({"allocated": 1_000, "spent": -20, "debt": 100, "reserved": 100, "overdraft_limit": 100}, "I3 "),
    ],
)
def test_balances_that_do_not_follow_from_the_answers_are_found(amounts: dict[str, int], rule: str) -> None:
    wrong = ledger_with_a_commit_and_a_hold().audit_balances(balances(**amounts))
    assert len(wrong) == 2, wrong
    assert all(text.startswith(rule) for text in wrong)


def test_a_budget_that_is_not_shown_is_found() -> None:
    wrong = ledger_with_a_commit_and_a_hold().audit_balances(balances(allocated=1_000, spent=80, reserved=100)[:1])
    assert [text.partition(":")[0] for text in wrong] == ["answers"]


def test_more_held_than_there_is_is_found() -> None:
    assert refuse_impossible(balance("tenant:t", allocated=100, reserved=60, spent=50, overdraft_limit=9))
    assert refuse_impossible(balance("tenant:t", allocated=100, debt=10, overdraft_limit=9))
    assert refuse_impossible(balance("tenant:t", allocated=100, spent=100, debt=9, overdraft_limit=9)) == []


def listed(**changes: object) -> list[ListedHold]:
    first = {"reservation_id": "rsv_1", "key": "reserve-1", "state": "COMMITTED", "amount": 100, "charged": 80}
    second = ListedHold(reservation_id="rsv_2", key="reserve-2", state="ACTIVE", amount=100, charged=None)
    return [ListedHold(**{**first, **changes}), second]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "rows",
    [
        listed()[:1],
        [*listed(), listed()[0]],
        listed(state="EXPIRED"),
        listed(charged=79),
        [*listed(), ListedHold(reservation_id="rsv_3", key="reserve-3", state="ACTIVE", amount=1, charged=None)],
    ],
)
def test_a_hold_that_is_missing_doubled_changed_or_new_is_found(rows: list[ListedHold]) -> None:
    assert ledger_with_a_commit_and_a_hold().audit_holds(rows)


def _held_twice(ledger: ReplyLedger) -> None:
    ledger.note_held(held())
    ledger.note_held(held())


def _ended_twice(ledger: ReplyLedger) -> None:
    ledger.note_held(held())
    ledger.note_released(held())
    ledger.note_committed(held(), 10, charged(10))


def _charged_too_much(ledger: ReplyLedger) -> None:
    ledger.note_held(held())
    ledger.note_committed(held(), 10, charged(11))


def _cut_below_the_hold(ledger: ReplyLedger) -> None:
    ledger.note_held(held())
    ledger.note_committed(held(), 200, charged(99))


def _cut_though_strict(ledger: ReplyLedger) -> None:
    ledger.note_held(held(STRICT))
    ledger.note_committed(held(STRICT), 100, charged(99, STRICT))


def _told_of_other_budgets(ledger: ReplyLedger) -> None:
    ledger.note_debited(THRIFTY.scopes, 10, charged(10, STRICT))


@pytest.mark.parametrize(
    "story",
    [_held_twice, _ended_twice, _charged_too_much, _cut_below_the_hold, _cut_though_strict, _told_of_other_budgets],
)
def test_an_answer_that_cannot_be_is_found_by_itself(story: Callable[[ReplyLedger], None]) -> None:
    ledger = ReplyLedger()
    story(ledger)
    assert len(ledger.wrong) == 1, ledger.wrong


def told(status: int, *, first_asked_ms: int, told_ms: int) -> Told:
    return Told(status=status, body=b"", first_asked_ns=first_asked_ms * MS, asked_ns=0, told_ns=told_ms * MS)


def test_a_settlement_long_after_the_grace_is_found_and_one_that_came_in_time_may_not_be_refused() -> None:
    """Held between 0 and 10 ms, for 1.5 s with the grace: over between 1500 and 1510."""
    assert refuse_untimely(held(), told(200, first_asked_ms=1_512, told_ms=1_513))
    assert refuse_untimely(held(), told(200, first_asked_ms=1_511, told_ms=1_600)) == []
    assert refuse_untimely(held(), told(410, first_asked_ms=1_400, told_ms=1_499))
    assert refuse_untimely(held(), told(410, first_asked_ms=1_400, told_ms=1_500)) == []
