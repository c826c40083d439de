"""Committing, releasing, debiting over the wire (sections 1.2, 1.3, 1.6, 2.5 to 2.7; scenarios 28 to 54)."""

from __future__ import annotations

import pytest

from domain.amounts import INT64_MAX
from tests.edges.cycles.world import ACME, ADMIN, BOT, TENANT, TOKENS, World, ok, refused, tokens, usd

BOTH = {"tenant": ACME, "agent": "bot"}
AVAILABLE, OVERDRAFT, REJECT = "ALLOW_IF_AVAILABLE", "ALLOW_WITH_OVERDRAFT", "REJECT"


@pytest.mark.parametrize(
    ("actual", "released"), [(5_000, None), (4_999, 1), (0, 5_000)], ids=["all of it", "less", "nothing"]
)
async def test_s28_s29_what_was_not_used_comes_back(world: World, actual: int, released: int | None) -> None:
    await world.budget(TENANT, 10_000)
    body = ok(await world.commit(await world.held(5_000), actual))
    assert (body["status"], body["charged"]) == ("COMMITTED", tokens(actual))
    assert body.get("released") == (None if released is None else tokens(released))
    assert await world.numbers(TENANT, "remaining", "reserved", "spent") == (10_000 - actual, 0, actual)


async def test_s31_more_than_was_held_is_charged_while_it_lasts(world: World) -> None:
    await world.budget(TENANT, 10_000)
    body = ok(await world.commit(await world.held(1_000), 2_000))
    assert body["charged"] == tokens(2_000)
    assert "is_over_limit" not in body["balances"][0]


@pytest.mark.parametrize("policy", [AVAILABLE, OVERDRAFT])
async def test_s32_a_cut_charge_marks_only_the_budget_that_could_not_pay(world: World, policy: str) -> None:
    await world.budget(TENANT, 150)
    await world.budget(BOT, 1_000)
    body = ok(await world.commit(await world.held(100, subject=BOTH, overage_policy=policy), 200))
    assert body["charged"] == tokens(150)
    assert await world.numbers(TENANT, "remaining", "is_over_limit") == (0, True)
    assert await world.numbers(BOT, "remaining", "is_over_limit") == (850, False)
    assert body["balances"][0]["is_over_limit"] is True


async def test_under_reject_nothing_beyond_the_estimate_is_charged_and_the_hold_stays(world: World) -> None:
    await world.budget(TENANT, 10_000)
    reservation_id = await world.held(100, overage_policy=REJECT)
    assert refused(await world.commit(reservation_id, 101)) == (409, "BUDGET_EXCEEDED")
    assert await world.numbers(TENANT, "reserved", "spent") == (100, 0)
    assert ok(await world.commit(reservation_id, 100))["charged"] == tokens(100)


@pytest.mark.parametrize(
    ("actual", "expected"), [(200_000, 100_000), (200_001, None), (500_000, None)], ids=["at the limit", "one", "far"]
)
async def test_s34_s35_only_the_part_that_nothing_funds_is_debt(
    world: World, actual: int, expected: int | None
) -> None:
    await world.budget(TENANT, 1_000_000, overdraft=100_000)
    ok(await world.debit(900_000), 201)
    reservation_id = await world.held(1_000, overage_policy=OVERDRAFT)
    answer = await world.commit(reservation_id, actual)
    if expected is None:
        assert refused(answer) == (409, "OVERDRAFT_LIMIT_EXCEEDED")
        assert await world.numbers(TENANT, "remaining", "reserved", "debt") == (99_000, 1_000, 0)
        assert ok(await world.get(f"/v1/reservations/{reservation_id}"))["status"] == "ACTIVE"
        return
    balance = ok(answer)["balances"][0]
    assert balance["debt"] == tokens(expected)
    assert balance["overdraft_limit"] == tokens(100_000)
    assert await world.numbers(TENANT, "debt", "is_over_limit") == (expected, False)


async def test_s37_a_budget_without_a_limit_cuts_what_the_other_one_owes(world: World) -> None:
    await world.budget(TENANT, 500)
    await world.budget(BOT, 100, overdraft=500)
    body = ok(await world.commit(await world.held(100, subject=BOTH, overage_policy=OVERDRAFT), 1_200))
    assert body["charged"] == tokens(500)
    assert await world.numbers(TENANT, "remaining", "is_over_limit") == (0, True)
    assert await world.numbers(BOT, "remaining", "debt", "is_over_limit") == (-400, 400, False)
    assert body["balances"][1]["remaining"] == tokens(-400)


async def test_s38_nothing_is_applied_when_one_budget_may_not_owe_its_part(world: World) -> None:
    await world.budget(TENANT, 1_000)
    await world.budget(BOT, 100, overdraft=500)
    reservation_id = await world.held(100, subject=BOTH, overage_policy=OVERDRAFT)
    assert refused(await world.commit(reservation_id, 1_200)) == (409, "OVERDRAFT_LIMIT_EXCEEDED")
    assert await world.numbers(TENANT, "spent", "reserved") == (0, 100)
    assert await world.numbers(BOT, "spent", "reserved", "debt") == (0, 100, 0)


async def test_s40_a_commit_is_in_the_unit_of_its_hold(world: World) -> None:
    await world.budget(TENANT, 1_000)
    reservation_id = await world.held(100)
    assert refused(await world.commit(reservation_id, usd(100))) == (400, "UNIT_MISMATCH")
    assert ok(await world.get(f"/v1/reservations/{reservation_id}"))["status"] == "ACTIVE"


async def test_s41_a_budget_that_was_frozen_since_still_settles(world: World) -> None:
    await world.budget(TENANT, 1_000)
    first, second = await world.held(100), await world.held(100)
    ok(await world.ask("POST", "/v1/admin/budgets/freeze", by=ADMIN, scope=TENANT, unit=TOKENS))
    ok(await world.commit(first, 70))
    ok(await world.release(second))
    assert await world.numbers(TENANT, "spent", "reserved") == (70, 0)


async def test_a_release_gives_all_of_it_back(world: World) -> None:
    await world.budget(TENANT, 1_000)
    reservation_id = await world.held(400)
    body = ok(await world.release(reservation_id, reason="not needed"))
    assert (body["status"], body["released"], body["balances"][0]["remaining"]) == (
        "RELEASED",
        tokens(400),
        tokens(1_000),
    )
    shown = ok(await world.get(f"/v1/reservations/{reservation_id}"))
    assert shown["status"] == "RELEASED"
    assert shown["finalized_at_ms"] == world.clock.now
    assert "committed" not in shown


async def test_a_committed_hold_shows_what_was_charged(world: World) -> None:
    await world.budget(TENANT, 1_000)
    reservation_id = await world.held(400, metadata={"at": "reserve"})
    metrics = {"tokens_input": 3, "latency_ms": 9, "model_version": "m-1", "custom": {"x": [1]}}
    ok(await world.commit(reservation_id, 300, metadata={"at": "commit"}, metrics=metrics))
    shown = ok(await world.get(f"/v1/reservations/{reservation_id}"))
    assert (shown["status"], shown["committed"], shown["reserved"]) == ("COMMITTED", tokens(300), tokens(400))
    assert (shown["metadata"], shown["committed_metadata"]) == ({"at": "reserve"}, {"at": "commit"})


FINALIZED = (409, "RESERVATION_FINALIZED")


@pytest.mark.parametrize("end", ["commit", "release"])
async def test_a_hold_ends_once(world: World, end: str) -> None:
    await world.budget(TENANT, 1_000)
    reservation_id = await world.held(100)
    ok(await (world.commit(reservation_id, 50) if end == "commit" else world.release(reservation_id)))
    assert refused(await world.commit(reservation_id, 50)) == FINALIZED
    assert refused(await world.release(reservation_id)) == FINALIZED
    assert refused(await world.extend(reservation_id, 1)) == FINALIZED


@pytest.mark.parametrize(
    "changes",
    [
        {"actual": None},
        {"actual": {"unit": TOKENS}},
        {"metrics": {"cost": 1}},
        {"metrics": {"tokens_input": -1}},
        {"metrics": {"model_version": "v" * 129}},
        {"idempotency_key": ""},
        {"idempotency_key": "k" * 257},
        {"overage_policy": REJECT},
    ],
)
async def test_what_a_commit_may_not_say(world: World, changes: dict[str, object]) -> None:
    await world.budget(TENANT, 1_000)
    assert refused(await world.commit(await world.held(1), 1, **changes)) == (400, "INVALID_REQUEST")


# -- direct debits -----------------------------------------------------------------------------------------------------


async def test_a_debit_is_applied_at_once(world: World) -> None:
    await world.budget(TENANT, 1_000)
    body = ok(await world.debit(400, client_time_ms=0, metadata={"why": "batch"}), 201)
    assert body == {"status": "APPLIED", "event_id": body["event_id"], "balances": body["balances"]}
    assert await world.numbers(TENANT, "spent", "remaining") == (400, 600)


async def test_s46_a_cut_debit_says_what_was_charged(world: World) -> None:
    await world.budget(TENANT, 50)
    await world.budget(BOT, 1_000)
    body = ok(await world.debit(100, subject=BOTH, overage_policy=AVAILABLE), 201)
    assert body["charged"] == tokens(50)
    assert await world.numbers(TENANT, "remaining", "is_over_limit") == (0, True)
    assert await world.numbers(BOT, "remaining", "is_over_limit") == (950, False)


async def test_s47_a_debit_cut_to_nothing_is_a_success(world: World) -> None:
    await world.budget(TENANT, 0)
    assert ok(await world.debit(100), 201)["charged"] == tokens(0)
    assert await world.numbers(TENANT, "spent", "is_over_limit") == (0, True)


async def test_s49_a_rejected_debit_is_applied_nowhere(world: World) -> None:
    await world.budget(TENANT, 1_000)
    await world.budget(BOT, 50)
    answer = await world.debit(100, subject=BOTH, overage_policy=REJECT)
    assert refused(answer) == (409, "BUDGET_EXCEEDED")
    assert await world.numbers(TENANT, "spent") == (0,)


async def test_s50_debits_run_into_debt_up_to_its_limit(world: World) -> None:
    await world.budget(TENANT, 1_000, overdraft=500)
    for amount, debt in ((1_200, 200), (300, 500)):
        ok(await world.debit(amount, overage_policy=OVERDRAFT), 201)
        assert await world.numbers(TENANT, "debt", "remaining") == (debt, -debt)
    assert refused(await world.debit(1, overage_policy=OVERDRAFT)) == (409, "OVERDRAFT_LIMIT_EXCEEDED")


async def test_a_sum_that_64_bits_cannot_hold_is_refused_and_never_a_fault(world: World) -> None:
    await world.budget(TENANT, INT64_MAX, overdraft=INT64_MAX)
    ok(await world.debit(INT64_MAX, overage_policy=OVERDRAFT), 201)
    ok(await world.debit(INT64_MAX, overage_policy=OVERDRAFT), 201)
    assert (await world.debit(INT64_MAX, overage_policy=OVERDRAFT)).status_code in (400, 409)
    assert await world.numbers(TENANT, "spent", "debt") == (INT64_MAX, INT64_MAX)
    assert refused(await world.fund("CREDIT", 1)) == (400, "INVALID_REQUEST")
