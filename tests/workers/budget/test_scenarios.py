"""The scenarios of section 12 through the desk, on a real database. The arithmetic itself has its tests in the domain."""

from __future__ import annotations

from typing import Any

import pytest

from domain.amounts import INT64_MAX, Amount, Unit
from domain.budget.records import FundingOperation, TenantStatus
from domain.budget.values import Caps, Decision, Metrics, Subject
from tests.budget_world import (
    ACME,
    AIA,
    AWO,
    BOT,
    CHILD,
    PARENT,
    REJECT,
    TOKENS,
    WHOLE,
    BudgetWorld,
    accepted,
    refused,
    repeated,
)

# -- reserve -----------------------------------------------------------------------------------------------------------


async def test_a_budget_can_be_held_to_its_last_token(world: BudgetWorld) -> None:
    """1, 2."""
    await world.budget()
    answer = accepted(await world.reserve(1_000, WHOLE))
    assert (answer.decision, answer.reserved, answer.remaining_ttl_ms) == (Decision.ALLOW, 1_000, 60_000)
    await world.has(remaining=0, reserved=1_000)
    refused(await world.reserve(1, WHOLE), "BUDGET_EXCEEDED")
    accepted(await world.reserve(0, WHOLE))


async def test_every_budget_above_must_hold_and_none_is_touched_otherwise(world: BudgetWorld) -> None:
    """4, 17."""
    await world.budget(PARENT, 150)
    await world.budget(CHILD, 1_000)
    accepted(await world.reserve(120))
    assert refused(await world.reserve(40), "BUDGET_EXCEEDED").scope == PARENT
    await world.has(CHILD, reserved=120)


async def test_scopes_without_a_budget_are_told_and_skipped(world: BudgetWorld) -> None:
    """5, 10, 11, 13."""
    await world.budget(PARENT)
    answer = accepted(await world.reserve(1, Subject(tenant=ACME, agent="Bot")))
    assert answer.affected_scopes == (PARENT, CHILD)
    assert [balance.scope_path for balance in answer.balances] == [PARENT]
    await world.budget(CHILD, 10)
    refused(await world.reserve(11, Subject(tenant=ACME, agent="Bot")), "BUDGET_EXCEEDED")


@pytest.mark.parametrize("ask", ["reserve", "dry_run", "evaluate"])
async def test_another_unit_is_a_mismatch_for_all_three(world: BudgetWorld, ask: str) -> None:
    """7, 8."""
    await world.budget()
    dollars = Amount(Unit.USD_MICROCENTS, 1)
    given: dict[str, Any] = {"estimate": dollars} | ({"dry_run": True} if ask == "dry_run" else {})
    way = world.evaluate if ask == "evaluate" else world.reserve
    refusal: Any = refused(await way(1, **given), "UNIT_MISMATCH")
    assert (refusal.scope, refusal.requested_unit, refusal.expected_units) == (
        PARENT,
        Unit.USD_MICROCENTS,
        (Unit.TOKENS,),
    )


async def test_a_frozen_or_closed_budget_takes_no_hold_and_settles_what_it_has(world: BudgetWorld) -> None:
    """16, 41, 53."""
    await world.budget()
    first, second = await world.hold(10), await world.hold(20)
    desk, place = world.node.budgets, {"scope": PARENT, "unit": TOKENS}
    accepted(await desk.freeze_budget(world.acme, **place, reason="audit"))
    refused(await world.reserve(1), "BUDGET_FROZEN")
    refused(await world.debit(1), "BUDGET_FROZEN")
    refused(await world.fund("CREDIT", 1), "BUDGET_FROZEN")
    assert accepted(await world.reserve(1, dry_run=True)).reason_code == "BUDGET_FROZEN"
    accepted(await world.commit(first, 10))
    accepted(await desk.unfreeze_budget(world.acme, **place))
    accepted(await desk.close_budget(world.acme, **place))
    refused(await world.reserve(1), "BUDGET_CLOSED")
    accepted(await world.release(second))
    await world.has(spent=10, reserved=0)
    assert [type_ for type_ in await world.event_types() if type_.startswith("budget.")] == [
        "budget.created",
        "budget.frozen",
        "budget.unfrozen",
        "budget.closed",
    ]


async def test_caps_of_the_scope_come_with_the_decision(world: BudgetWorld) -> None:
    """23."""
    await world.budget()
    await world.budget(CHILD, caps=Caps(max_tokens=5, tool_allowlist=("search",)))
    answer = accepted(await world.reserve(1))
    assert (answer.decision, answer.caps) == (Decision.ALLOW_WITH_CAPS, Caps(max_tokens=5, tool_allowlist=("search",)))
    assert accepted(await world.reserve(1, WHOLE)).caps is None


async def test_the_largest_amount_fits_and_a_larger_one_is_refused(world: BudgetWorld) -> None:
    """25, 26."""
    await world.budget(PARENT, INT64_MAX)
    accepted(await world.reserve(INT64_MAX, WHOLE))
    await world.has(remaining=0, reserved=INT64_MAX)
    for amount in (INT64_MAX + 1, -1, 1.5, "5", True, None):
        refused(await world.reserve(amount, WHOLE), "INVALID_INPUT")  # type: ignore[arg-type]


# -- commit ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("estimate", "actual", "charged", "released"),
    [(500, 500, 500, None), (500, 0, 0, 500), (100, 40, 40, 60), (100, 200, 200, None)],
)
async def test_a_commit_charges_what_was_used(
    world: BudgetWorld, *, estimate: int, actual: int, charged: int, released: int | None
) -> None:
    """28, 29, 31."""
    await world.budget()
    answer = accepted(await world.commit(await world.hold(estimate, overage_policy=AIA), actual))
    assert (answer.charged, answer.released) == (charged, released)
    await world.has(spent=charged, reserved=0, remaining=1_000 - charged)


@pytest.mark.parametrize("policy", [AIA, AWO])
async def test_an_overage_is_cut_to_the_tightest_budget_which_is_marked(world: BudgetWorld, policy: Any) -> None:
    """32."""
    await world.budget(PARENT, 150)
    await world.budget(CHILD, 1_000)
    assert accepted(await world.commit(await world.hold(100, overage_policy=policy), 200)).charged == 150
    await world.has(PARENT, remaining=0, is_over_limit=True)
    await world.has(CHILD, remaining=850, is_over_limit=False)
    refused(await world.reserve(0, WHOLE), "OVERDRAFT_LIMIT_EXCEEDED")
    accepted(await world.fund("CREDIT", 10))
    accepted(await world.reserve(10, WHOLE))


async def test_debt_goes_to_its_limit_and_no_further(world: BudgetWorld) -> None:
    """34, 35."""
    await world.budget(PARENT, 1_000_000, 100_000)
    accepted(await world.debit(900_000))
    first, second = await world.hold(500, overage_policy=AWO), await world.hold(500, overage_policy=AWO)
    accepted(await world.release(second))
    refused(await world.commit(first, 200_001), "OVERDRAFT_LIMIT_EXCEEDED")
    await world.has(remaining=99_500, reserved=500, debt=0)
    accepted(await world.commit(first, 200_000))
    await world.has(debt=100_000, is_over_limit=False, remaining=-100_000)


async def test_a_refused_commit_can_be_sent_again_with_less(world: BudgetWorld) -> None:
    await world.budget()
    hold = await world.hold(100, overage_policy=REJECT)
    refused(await world.commit(hold, 101, idempotency_key="k"), "BUDGET_EXCEEDED")
    assert accepted(await world.commit(hold, 100, idempotency_key="k", metrics=Metrics(latency_ms=3))).charged == 100


async def test_a_budget_made_later_is_not_charged_by_older_holds(world: BudgetWorld) -> None:
    """22."""
    await world.budget(CHILD)
    hold = await world.hold(10)
    await world.budget(PARENT)
    accepted(await world.commit(hold, 10))
    await world.has(PARENT, spent=0)
    await world.has(CHILD, spent=10)


# -- debits ------------------------------------------------------------------------------------------------------------


async def test_a_debit_is_cut_or_refused_or_owed_as_its_policy_says(world: BudgetWorld) -> None:
    """46, 47, 49, 50."""
    await world.budget(PARENT, 50, 0)
    refused(await world.debit(100, overage_policy=REJECT), "BUDGET_EXCEEDED")
    answer = accepted(await world.debit(100, overage_policy=AIA))
    assert (answer.charged, answer.was_cut) == (50, True)
    assert accepted(await world.debit(100, overage_policy=AIA)).charged == 0
    await world.has(spent=50, is_over_limit=True)


async def test_a_debit_is_charged_once_under_its_key_also_beside_a_commit_of_that_key(world: BudgetWorld) -> None:
    """52, 74: the recovery of a lost commit."""
    await world.budget()
    hold = await world.hold(10)
    accepted(await world.commit(hold, 10, idempotency_key="k"))
    first = accepted(await world.debit(5, idempotency_key="k", metadata={"recovered_reservation_id": hold}))
    again = repeated(await world.debit(5, idempotency_key="k", metadata={"recovered_reservation_id": hold}))
    assert again == first
    await world.has(spent=15)


# -- idempotency -------------------------------------------------------------------------------------------------------


async def test_a_replay_tells_what_was_told_but_for_the_time_that_is_left(world: BudgetWorld) -> None:
    """55, 65."""
    await world.budget()
    first = accepted(await world.reserve(10, idempotency_key="k"))
    world.clock.advance(1_000)
    again = repeated(await world.reserve(10, idempotency_key="k"))
    assert (first.remaining_ttl_ms, again.remaining_ttl_ms) == (60_000, 59_000)
    assert again.expires_at == first.expires_at
    accepted(await world.commit(first.reservation_id, 10))
    over = repeated(await world.reserve(10, idempotency_key="k"))
    assert over.remaining_ttl_ms == 0
    assert over.balances == first.balances


async def test_keys_are_apart_by_operation_and_reservation_and_tenant(world: BudgetWorld) -> None:
    """58, 59, 68, 73."""
    await world.budget()
    await world.budget("tenant:other", by=world.other)
    accepted(await world.evaluate(10, idempotency_key="k"))
    accepted(await world.reserve(10, idempotency_key="k", dry_run=True))
    refused(await world.reserve(10, idempotency_key="k"), "IDEMPOTENCY_MISMATCH")
    accepted(await world.reserve(10, Subject(tenant="other"), by=world.other, idempotency_key="k"))
    first, second = await world.hold(1), await world.hold(1)
    accepted(await world.extend(first, 1_000, idempotency_key="k"))
    refused(await world.extend(first, 2_000, idempotency_key="k"), "IDEMPOTENCY_MISMATCH")
    accepted(await world.extend(second, 2_000, idempotency_key="k"))


async def test_a_denial_burns_no_key_and_a_previewed_one_is_kept(world: BudgetWorld) -> None:
    """61, and section 4.2: a decision is a success."""
    await world.budget(PARENT, 10)
    refused(await world.reserve(11, idempotency_key="k"), "BUDGET_EXCEEDED")
    assert accepted(await world.evaluate(11, idempotency_key="k")).decision is Decision.DENY
    accepted(await world.fund("CREDIT", 100))
    accepted(await world.reserve(11, idempotency_key="k"))
    assert repeated(await world.evaluate(11, idempotency_key="k")).decision is Decision.DENY


async def test_a_lost_commit_is_told_as_it_was_whatever_has_happened_since(world: BudgetWorld) -> None:
    """62, 64, 98."""
    await world.budget()
    hold, given_back = await world.hold(10), await world.hold(20)
    first = accepted(await world.commit(hold, 7, idempotency_key="k"))
    released = accepted(await world.release(given_back, idempotency_key="k"))
    accepted(await world.debit(100))
    accepted(await world.node.budgets.freeze_budget(world.acme, scope=PARENT, unit=TOKENS))
    accepted(await world.node.budgets.update_tenant(world.root, tenant_id=ACME, status=TenantStatus.CLOSED))
    assert repeated(await world.commit(hold, 7, idempotency_key="k")) == first
    assert repeated(await world.release(given_back, idempotency_key="k")) == released
    refused(await world.commit(hold, 7, idempotency_key="another"), "TENANT_CLOSED")


async def test_a_replay_publishes_nothing(world: BudgetWorld) -> None:
    """76."""
    await world.budget(PARENT, 10)
    accepted(await world.reserve(10, WHOLE, idempotency_key="k"))
    told = await world.event_types()
    assert told.count("budget.exhausted") == 1
    repeated(await world.reserve(10, WHOLE, idempotency_key="k"))
    assert await world.event_types() == told


async def test_keys_have_one_to_256_characters(world: BudgetWorld) -> None:
    """71."""
    await world.budget()
    for key in ("", "k" * 257):
        refused(await world.reserve(1, idempotency_key=key), "INVALID_INPUT")
    accepted(await world.reserve(1, idempotency_key="k" * 256))


# -- funding -----------------------------------------------------------------------------------------------------------


async def test_funding_repays_first_and_never_takes_what_is_not_there(world: BudgetWorld) -> None:
    """127, 128."""
    await world.budget(PARENT, 1_000, 500)
    accepted(await world.debit(1_500, overage_policy=AWO))
    await world.has(debt=500, remaining=-500)
    answer = accepted(await world.fund("CREDIT", 600, reason="top up"))
    assert (answer.before.debt, answer.after.debt, answer.after.remaining) == (500, 0, 100)
    refused(await world.fund("DEBIT", 101), "BUDGET_EXCEEDED")
    accepted(await world.fund("RESET_SPENT", 100, spent=Amount(TOKENS, 30)))
    await world.has(allocated=100, spent=30, remaining=70)


async def test_a_funding_happens_once_under_its_key_and_its_keys_are_the_tenants(world: BudgetWorld) -> None:
    await world.budget()
    await world.budget("tenant:other", by=world.other)
    accepted(await world.fund("CREDIT", 5, idempotency_key="k"))
    repeated(await world.fund("CREDIT", 5, idempotency_key="k"))
    refused(await world.fund("CREDIT", 6, idempotency_key="k"), "IDEMPOTENCY_MISMATCH")
    place = {"scope": "tenant:other", "tenant_id": "other"}
    refused(await world.fund("CREDIT", 5, **place, idempotency_key="k"), "ACCESS_DENIED")
    desk = world.node.budgets
    for _ in range(2):  # without a key, two requests are two fundings
        accepted(await world.fund("CREDIT", 1, idempotency_key=None))
    given: dict[str, Any] = {
        "unit": TOKENS,
        "kind": FundingOperation.CREDIT,
        "amount": Amount(TOKENS, 5),
        "idempotency_key": "k",
    }
    accepted(await desk.fund(world.root, **place, **given))
    await world.has(allocated=1_007)


# -- events ------------------------------------------------------------------------------------------------------------


async def test_events_tell_transitions_once_with_who_caused_them(world: BudgetWorld) -> None:
    """118, 119, and the envelope of 8.1."""
    await world.budget(PARENT, 5)
    refused(await world.reserve(6, WHOLE), "BUDGET_EXCEEDED")
    accepted(await world.reserve(5, WHOLE))
    accepted(await world.reserve(0, WHOLE))
    events = await world.events()
    types = [event.type for event in events]
    assert types == [
        "budget.created",
        "reservation.denied",
        *["budget.threshold_crossed"] * 3,
        "budget.exhausted",
    ]
    denied, *running_out = events[1:]
    chain = denied.payload["correlation_id"]
    assert {event.payload["correlation_id"] for event in running_out} == {chain}
    assert denied.payload == {
        "category": "reservation",
        "source": "request",
        "scope": PARENT,
        "correlation_id": chain,
        "actor": {"type": "api_key", "key_id": "key_acme"},
        "data": {
            "scope": PARENT,
            "unit": "TOKENS",
            "reason_code": "BUDGET_EXCEEDED",
            "requested_amount": 6,
            "remaining": 5,
            "action": {"kind": "llm.completion", "name": "gpt", "tags": []},
            "subject": {"tenant": ACME},
        },
    }
    assert [event.seq for event in events] == [1, 2, 3, 4, 5, 6]
    mirrored = await world.events("*")
    assert [event.event_id for event in mirrored] == [event.event_id for event in events]


async def test_a_subject_of_another_tenant_is_forbidden_and_so_is_its_reservation(world: BudgetWorld) -> None:
    """92, 109."""
    await world.budget()
    hold = await world.hold(10)
    for ask in (world.reserve(1, BOT, by=world.other), world.debit(1, BOT, by=world.other)):
        refused(await ask, "ACCESS_DENIED")
    refused(await world.commit(hold, 1, by=world.other), "ACCESS_DENIED")
    refused(await world.release(hold, by=world.other), "ACCESS_DENIED")
    refused(await world.commit("rsv_unknown", 1), "NOT_FOUND")
    refused(await world.commit("r" * 128, 1), "NOT_FOUND")
    refused(await world.commit("r" * 129, 1), "INVALID_INPUT")
    await world.has(reserved=10)
