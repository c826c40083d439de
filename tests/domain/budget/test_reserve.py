"""Reserve, dry run and evaluate over one ledger and several (sections 2.2 to 2.4, scenarios 1 to 26)."""

from __future__ import annotations

from typing import Any

import pytest

from domain.amounts import INT64_MAX, Amount, Unit
from domain.budget.records import BudgetStatus, Tenant
from domain.budget.refusals import BudgetExceeded, BudgetNotFound, UnitMismatch
from domain.budget.values import Action, Caps, Decision, Subject
from domain.outcomes import InvalidInput
from tests.domain.budget.books import BOT, CHILD, PARENT, START, WHOLE, Books, budget

FROZEN, CLOSED = BudgetStatus.FROZEN, BudgetStatus.CLOSED


def test_the_whole_remainder_can_be_held() -> None:
    books = Books(budget(PARENT, 1_000))
    answer = books.accepted(books.reserve(1_000))
    assert (answer.decision, answer.reserved, answer.expires_at) == (Decision.ALLOW, 1_000, START + 60_000)
    assert answer.remaining_ttl_ms == 60_000
    assert answer.balances[0].remaining == 0
    books.has(rem=0, reserved=1_000, spent=0, debt=0, over=False)


def test_nothing_more_fits_then_but_a_hold_of_zero_does() -> None:
    books = Books(budget(PARENT, 1_000))
    books.hold(1_000)
    refusal = books.refused(books.reserve(1), "BUDGET_EXCEEDED")
    assert isinstance(refusal, BudgetExceeded)
    assert refusal.details() == {"scope": PARENT, "unit": Unit.TOKENS, "requested": 1, "remaining": 0}
    assert books.hold(0)


def test_a_hold_of_zero_fails_on_a_negative_remainder() -> None:
    books = Books(budget(PARENT, 100, spent=300))
    books.refused(books.reserve(0), "BUDGET_EXCEEDED")


def test_the_tightest_scope_decides_and_nothing_is_held_on_the_others() -> None:
    books = Books(budget(PARENT, 150), budget(CHILD, 1_000))
    books.hold(120, BOT)
    refusal = books.refused(books.reserve(40, BOT), "BUDGET_EXCEEDED")
    assert isinstance(refusal, BudgetExceeded)
    assert refusal.scope == PARENT
    books.has(CHILD, rem=880, reserved=120)
    books.has(PARENT, rem=30, reserved=120)


def test_a_budget_in_another_unit_is_told_by_the_widest_scope_that_has_one() -> None:
    books = Books(budget(PARENT), budget(PARENT, unit=Unit.CREDITS), budget(CHILD, unit=Unit.RISK_POINTS))
    refusal = books.refused(books.reserve(1, BOT, unit=Unit.USD_MICROCENTS), "UNIT_MISMATCH")
    assert isinstance(refusal, UnitMismatch)
    assert (refusal.scope, refusal.requested_unit) == (PARENT, Unit.USD_MICROCENTS)
    assert refusal.expected_units == (Unit.CREDITS, Unit.TOKENS)


@pytest.mark.parametrize("kind", ["dry run", "evaluate", "debit"])
def test_a_wrong_unit_refuses_previews_and_debits_too(kind: str) -> None:
    books = Books(budget(PARENT))
    command = {
        "dry run": books.reserve(1, unit=Unit.USD_MICROCENTS, dry_run=True),
        "evaluate": books.evaluate(1, unit=Unit.USD_MICROCENTS),
        "debit": books.debit(1, unit=Unit.USD_MICROCENTS),
    }[kind]
    refusal = books.refused(command, "UNIT_MISMATCH")
    assert isinstance(refusal, UnitMismatch)
    assert (refusal.scope, refusal.expected_units) == (PARENT, (Unit.TOKENS,))


def test_the_unit_is_looked_for_scope_by_scope() -> None:
    books = Books(budget(PARENT), budget(CHILD, 10, unit=Unit.USD_MICROCENTS))
    books.hold(10, BOT, unit=Unit.USD_MICROCENTS)
    books.has(CHILD, unit=Unit.USD_MICROCENTS, reserved=10)
    books.has(PARENT, reserved=0)


def test_no_budget_in_any_unit_is_not_found_live_and_a_deny_in_previews() -> None:
    books = Books(budget("tenant:acme/agent:other"))
    refusal = books.refused(books.reserve(1, BOT), "BUDGET_NOT_FOUND")
    assert isinstance(refusal, BudgetNotFound)
    assert refusal.message == f"Budget not found for provided scope: {CHILD}"
    assert books.accepted(books.reserve(1, BOT, dry_run=True)).reason_code == "BUDGET_NOT_FOUND"
    assert books.accepted(books.evaluate(1, BOT)).reason_code == "BUDGET_NOT_FOUND"
    books.refused(books.debit(1, BOT), "BUDGET_NOT_FOUND")


@pytest.mark.parametrize(
    ("parent", "child", "amount", "code", "scope"),
    [
        ({"status": FROZEN}, {}, 1, "BUDGET_FROZEN", PARENT),
        ({"status": CLOSED}, {}, 1, "BUDGET_CLOSED", PARENT),
        ({"allocated": 5}, {"status": FROZEN}, 6, "BUDGET_EXCEEDED", PARENT),
        ({}, {"status": FROZEN}, 6, "BUDGET_FROZEN", CHILD),
        ({"status": FROZEN, "capped": True, "allocated": 0}, {}, 1, "BUDGET_FROZEN", PARENT),
        ({"capped": True, "debt": 5}, {}, 1, "OVERDRAFT_LIMIT_EXCEEDED", PARENT),
        ({"debt": 501, "limit": 500}, {}, 0, "OVERDRAFT_LIMIT_EXCEEDED", PARENT),
        ({"capped": True}, {}, 10_000, "OVERDRAFT_LIMIT_EXCEEDED", PARENT),
        ({}, {"capped": True}, 0, "OVERDRAFT_LIMIT_EXCEEDED", CHILD),
    ],
)
def test_the_first_budget_that_says_no_answers_live_and_in_previews(
    parent: dict[str, Any], child: dict[str, Any], amount: int, code: str, scope: str
) -> None:
    books = Books(budget(PARENT, **parent), budget(CHILD, **child))
    refusal = books.refused(books.reserve(amount, BOT), code)
    assert getattr(refusal, "scope", None) == scope
    preview = books.accepted(books.reserve(amount, BOT, dry_run=True))
    assert (preview.decision, preview.reason_code) == (Decision.DENY, code)
    decided = books.accepted(books.evaluate(amount, BOT))
    assert (decided.decision, decided.reason_code) == (Decision.DENY, code)


def test_debt_blocks_where_no_overdraft_is_allowed_and_the_over_limit_mark_comes_first() -> None:
    """Scenario 19 needs a seeded budget: a debt above a limit of zero sets the mark, which would win."""
    seeded = budget(PARENT, 1_000, debt=100)
    assert seeded.is_over_limit
    books = Books(seeded)
    books.refused(books.reserve(1), "OVERDRAFT_LIMIT_EXCEEDED")


def test_debt_within_its_limit_does_not_block() -> None:
    books = Books(budget(PARENT, 1_000, limit=500, debt=100))
    books.has(rem=900, over=False)
    assert books.accepted(books.evaluate(900)).decision is Decision.ALLOW
    books.hold(900)


def test_a_strict_tenant_blocks_on_any_debt() -> None:
    books = Books(budget(PARENT, 1_000, limit=500, debt=100))
    books.accepted(books.set_tenant(denies_on_any_debt=True))
    refusal = books.refused(books.reserve(1), "DEBT_OUTSTANDING")
    assert refusal.details() == {"scope": PARENT, "unit": Unit.TOKENS, "debt": 100}
    assert books.accepted(books.evaluate(1)).reason_code == "DEBT_OUTSTANDING"
    books.accepted(books.fund("REPAY_DEBT", 100))
    books.hold(1)


def test_a_budget_made_later_is_not_charged_by_older_holds() -> None:
    books = Books(budget(CHILD, 1_000))
    held = books.hold(100, BOT)
    books.accepted(books.create_budget(PARENT, 1_000))
    answer = books.accepted(books.commit(held, 60))
    assert [balance.scope_path for balance in answer.balances] == [CHILD]
    books.has(PARENT, spent=0, reserved=0)
    books.has(CHILD, spent=60, reserved=0)


def test_caps_of_the_requests_own_budget_are_told() -> None:
    caps = Caps(max_tokens=100)
    books = Books(budget(PARENT, caps=Caps(max_tokens=1)), budget(CHILD, caps=caps))
    for command in (books.reserve(1, BOT), books.reserve(1, BOT, dry_run=True), books.evaluate(1, BOT)):
        answer = books.accepted(command)
        assert (answer.decision, answer.caps) == (Decision.ALLOW_WITH_CAPS, caps)
    elsewhere = books.accepted(books.reserve(1, Subject(tenant="acme", agent="other")))
    assert (elsewhere.decision, elsewhere.caps) == (Decision.ALLOW, None)


def test_amounts_are_exact_to_the_last_unit_of_64_bits() -> None:
    books = Books(budget(PARENT, INT64_MAX))
    answer = books.accepted(books.reserve(INT64_MAX))
    assert (answer.reserved, answer.balances[0].remaining) == (INT64_MAX, 0)
    books.refused(books.reserve(1), "BUDGET_EXCEEDED")


@pytest.mark.parametrize("amount", [INT64_MAX + 1, -1, 1.5, 5.0, "5", True, None])
def test_anything_but_an_integer_of_64_bits_is_refused(amount: Any) -> None:
    books = Books(budget(PARENT, INT64_MAX))
    held = books.hold(1)
    bad = Amount(Unit.TOKENS, amount)
    for command in (
        books.reserve(0, estimate=bad),
        books.evaluate(0, estimate=bad),
        books.debit(0, actual=bad),
        books.commit(held, 0, actual=bad),
        books.fund("CREDIT", 0, amount=bad),
    ):
        books.refused(command, "INVALID_INPUT")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"idempotency_key": ""}, "idempotency_key"),
        ({"idempotency_key": "k" * 257}, "idempotency_key"),
        ({"action": Action(kind=" ", name="n")}, "action.kind"),
        ({"action": Action(kind="k" * 65, name="n")}, "action.kind"),
        ({"action": Action(kind="k", name="")}, "action.name"),
        ({"action": Action(kind="k", name="n" * 257)}, "action.name"),
        ({"action": Action(kind="k", name="n", tags=("t",) * 11)}, "action.tags"),
        ({"action": Action(kind="k", name="n", tags=("t" * 65,))}, "action.tags"),
        ({"ttl_ms": 999}, "ttl_ms"),
        ({"ttl_ms": 86_400_001}, "ttl_ms"),
        ({"grace_ms": -1}, "grace_period_ms"),
        ({"grace_ms": 60_001}, "grace_period_ms"),
        ({"subject": Subject(tenant="acme", agent="a/b")}, "subject.agent"),
        ({"subject": Subject()}, "subject"),
    ],
)
def test_a_malformed_request_is_refused_by_the_field(fields: dict[str, Any], field: str) -> None:
    books = Books(budget(PARENT))
    refusal = books.refused(books.reserve(1, **fields), "INVALID_INPUT")
    assert isinstance(refusal, InvalidInput)
    assert refusal.field == field


@pytest.mark.parametrize(
    "fields",
    [
        {"idempotency_key": "k" * 256},
        {"action": Action(kind="k" * 64, name="n" * 256, tags=("t" * 64,) * 10)},
        {"ttl_ms": 1_000},
        {"ttl_ms": 86_400_000},
        {"grace_ms": 0},
        {"grace_ms": 60_000},
    ],
)
def test_the_edges_of_the_ranges_are_accepted(fields: dict[str, Any]) -> None:
    books = Books(budget(PARENT))
    books.accepted(books.reserve(1, **fields))


def test_another_tenant_in_the_subject_is_forbidden_and_compared_as_sent() -> None:
    books = Books(budget(PARENT))
    for tenant in ("other", "Acme"):
        for command in (
            books.reserve(1, Subject(tenant=tenant)),
            books.evaluate(1, Subject(tenant=tenant)),
            books.debit(1, Subject(tenant=tenant)),
        ):
            books.refused(command, "ACCESS_DENIED")


def test_a_subject_without_a_tenant_spends_within_the_callers_tenant_only() -> None:
    """Scenario 107: the path is the same string for two tenants, the books are not."""
    mine, theirs = (
        Books(budget("workspace:prod", 10)),
        Books(budget("workspace:prod", 10), tenant=Tenant(tenant_id="b")),
    )
    prod = Subject(workspace="prod")
    mine.hold(10, prod)
    theirs.has("workspace:prod", reserved=0)
    theirs.hold(10, prod)


def test_a_dry_run_tells_what_would_be_held_and_holds_nothing() -> None:
    books = Books(budget(PARENT, 100), budget(CHILD, 50))
    before = books.snapshot()
    answer = books.accepted(books.reserve(50, BOT, dry_run=True))
    assert (answer.decision, answer.reserved, answer.scope_path) == (Decision.ALLOW, 50, CHILD)
    assert (answer.reservation_id, answer.expires_at, answer.remaining_ttl_ms) == (None, None, None)
    assert [balance.remaining for balance in answer.balances] == [100, 50]
    assert books.snapshot() == before
    assert not books.last_changes.budgets
    assert not books.last_changes.reservations


def test_a_denied_preview_lists_its_scopes_and_no_balances() -> None:
    books = Books(budget(PARENT, 100))
    answer = books.accepted(books.reserve(101, BOT, dry_run=True))
    assert answer.affected_scopes == (PARENT, CHILD)
    assert (answer.reserved, answer.caps, answer.balances) == (None, None, ())
    decided = books.accepted(books.evaluate(101, WHOLE))
    assert decided.affected_scopes == (PARENT,)


def test_what_is_fixed_at_reserve_time_is_on_the_hold() -> None:
    books = Books(budget(PARENT), budget(CHILD))
    held = books.state.reservations[books.hold(7, BOT, ttl_ms=5_000, grace_ms=0, metadata={"run": 1})]
    assert (held.estimate, held.unit, held.ttl_ms, held.grace_ms) == (7, Unit.TOKENS, 5_000, 0)
    assert held.budgeted_scopes == held.affected_scopes == (PARENT, CHILD)
    assert (held.created_at, held.expires_at, held.settles_until) == (START, START + 5_000, START + 5_000)
    assert held.metadata == {"run": 1}
