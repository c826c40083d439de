"""Holding budget over the wire: scopes, the scan of the budgets, previews, shapes (sections 1.1, 1.5, 2; scenarios 1 to 26)."""

from __future__ import annotations

from typing import Any

import pytest

from domain.amounts import INT64_MAX
from tests.edges.cycles.world import ACME, ADMIN, BOT, TENANT, TOKENS, USD, B, World, ok, refused, tokens, usd

EXCEEDED = (409, "BUDGET_EXCEEDED")
BOTH = {"tenant": ACME, "agent": "bot"}


async def test_s1_all_that_remains_can_be_held(world: World) -> None:
    await world.budget(TENANT, 1_000)
    body = ok(await world.reserve(1_000, ttl_ms=30_000))
    assert body == {
        "decision": "ALLOW",
        "reservation_id": body["reservation_id"],
        "affected_scopes": [TENANT],
        "scope_path": TENANT,
        "reserved": tokens(1_000),
        "expires_at_ms": B + 30_000,
        "remaining_ttl_ms": 30_000,
        "balances": [
            {
                "scope": TENANT,
                "scope_path": TENANT,
                "remaining": tokens(0),
                "reserved": tokens(1_000),
                "spent": tokens(0),
                "allocated": tokens(1_000),
            }
        ],
    }
    assert await world.numbers(TENANT, "remaining", "reserved") == (0, 1_000)


async def test_s2_one_more_is_too_much_and_nothing_fits_always(world: World) -> None:
    await world.budget(TENANT, 1_000)
    await world.held(1_000)
    assert refused(await world.reserve(1)) == EXCEEDED
    assert ok(await world.reserve(0))["reserved"] == tokens(0)


async def test_s4_the_wider_scope_is_enforced_and_nothing_is_held_below(world: World) -> None:
    await world.budget(TENANT, 150)
    await world.budget(BOT, 1_000)
    await world.held(120, subject=BOTH)
    answer = await world.reserve(40, subject=BOTH)
    assert refused(answer) == EXCEEDED
    assert answer.json()["details"] == {"scope": TENANT, "unit": TOKENS, "requested": 40, "remaining": 30}
    assert await world.numbers(BOT, "reserved") == (120,)


async def test_s5_scopes_without_a_budget_are_named_and_passed_over(world: World) -> None:
    await world.budget(TENANT, 1_000)
    body = ok(await world.reserve(1, subject=BOTH))
    assert (body["affected_scopes"], body["scope_path"]) == ([TENANT, BOT], BOT)
    assert [balance["scope_path"] for balance in body["balances"]] == [TENANT]


async def test_a_balance_names_the_last_segment_of_its_path(world: World) -> None:
    await world.budget(TENANT, 1_000)
    await world.budget(BOT, 500)
    (_, leaf) = ok(await world.reserve(1, subject=BOTH))["balances"]
    assert (leaf["scope"], leaf["scope_path"]) == ("agent:bot", BOT)


@pytest.mark.parametrize("preview", [False, True])
async def test_s7_s8_another_unit_is_a_mistake_of_the_request(world: World, preview: bool) -> None:
    await world.budget(TENANT, 1_000)
    answer = await world.reserve(usd(5), dry_run=preview)
    assert refused(answer) == (400, "UNIT_MISMATCH")
    assert answer.json()["details"] == {"scope": TENANT, "requested_unit": USD, "expected_units": [TOKENS]}
    assert refused(await world.decide(usd(5))) == (400, "UNIT_MISMATCH")
    assert refused(await world.debit(usd(5))) == (400, "UNIT_MISMATCH")


async def test_only_the_budgets_in_the_unit_take_part(world: World) -> None:
    await world.budget(TENANT, 10)
    await world.budget(BOT, usd(1_000))
    body = ok(await world.reserve(usd(900), subject=BOTH))
    assert [balance["scope_path"] for balance in body["balances"]] == [BOT]


async def test_no_budget_in_any_unit_is_not_found_live_and_a_denial_in_a_preview(world: World) -> None:
    answer = await world.reserve(1, subject=BOTH)
    assert refused(answer) == (404, "NOT_FOUND")
    assert answer.json()["message"] == f"Budget not found for provided scope: {BOT}"
    assert refused(await world.debit(1)) == (404, "NOT_FOUND")
    preview = ok(await world.reserve(1, subject=BOTH, dry_run=True))
    assert preview == {
        "decision": "DENY",
        "affected_scopes": [TENANT, BOT],
        "scope_path": BOT,
        "reason_code": "BUDGET_NOT_FOUND",
    }
    assert ok(await world.decide(1, subject=BOTH)) == {
        "decision": "DENY",
        "affected_scopes": [TENANT, BOT],
        "reason_code": "BUDGET_NOT_FOUND",
    }


async def test_s11_six_levels_are_six_scopes_in_canonical_order(world: World) -> None:
    await world.budget(TENANT, 1_000)
    levels = {"toolset": "t", "agent": "a", "workflow": "f", "app": "p", "workspace": "w", "tenant": ACME}
    body = ok(await world.reserve(1, subject=levels))
    deepest = f"{TENANT}/workspace:w/app:p/workflow:f/agent:a/toolset:t"
    segments = deepest.split("/")
    assert body["affected_scopes"] == ["/".join(segments[: depth + 1]) for depth in range(6)]
    assert body["scope_path"] == deepest


async def test_s13_the_case_of_a_name_makes_no_other_budget(world: World) -> None:
    await world.budget(BOT, 10)
    body = ok(await world.reserve(10, subject={"tenant": ACME, "agent": "Bot"}))
    assert body["scope_path"] == BOT
    shown = ok(await world.get(f"/v1/reservations/{body['reservation_id']}"))
    assert shown["subject"] == {"tenant": ACME, "agent": "Bot"}


@pytest.mark.parametrize("agent", ["a/b", "a:b", "a b", "a\u00e4", "x" * 129, "a\n"])
async def test_s14_a_name_of_other_letters_is_refused(world: World, agent: str) -> None:
    assert refused(await world.reserve(1, subject={"tenant": ACME, "agent": agent})) == (400, "INVALID_REQUEST")


async def test_s16_a_frozen_budget_refuses_live_and_denies_previews(world: World) -> None:
    await world.budget(TENANT, 1_000)
    ok(await world.ask("POST", "/v1/admin/budgets/freeze", by=ADMIN, scope=TENANT, unit=TOKENS))
    assert refused(await world.reserve(1)) == (409, "BUDGET_FROZEN")
    assert refused(await world.debit(1)) == (409, "BUDGET_FROZEN")
    preview = ok(await world.reserve(1, dry_run=True))
    assert (preview["decision"], preview["reason_code"]) == ("DENY", "BUDGET_FROZEN")
    assert "balances" not in preview
    assert "reserved" not in preview


async def test_s17_the_widest_budget_speaks_first(world: World) -> None:
    await world.budget(TENANT, 10)
    await world.budget(BOT, 1_000)
    ok(await world.ask("POST", "/v1/admin/budgets/freeze", by=ADMIN, scope=BOT, unit=TOKENS))
    assert refused(await world.reserve(11, subject=BOTH)) == EXCEEDED
    assert refused(await world.reserve(10, subject=BOTH)) == (409, "BUDGET_FROZEN")


async def test_s20_debt_within_its_limit_blocks_nothing_and_above_it_everything_new(world: World) -> None:
    await world.budget(TENANT, 1_000, overdraft=500)
    ok(await world.debit(1_100, overage_policy="ALLOW_WITH_OVERDRAFT"), 201)
    ok(await world.fund("CREDIT", 100))
    ok(await world.fund("CREDIT", 900))
    ok(await world.reserve(900))
    lowered = {"overdraft_limit": tokens(0)}
    ok(await world.debit(100, overage_policy="ALLOW_WITH_OVERDRAFT"), 201)
    ok(await world.ask("PATCH", "/v1/admin/budgets", lowered, by=ADMIN, scope=TENANT, unit=TOKENS))
    assert (await world.ledger())["is_over_limit"] is True
    assert refused(await world.reserve(0)) == (409, "OVERDRAFT_LIMIT_EXCEEDED")
    preview = ok(await world.decide(0))
    assert (preview["decision"], preview["reason_code"]) == ("DENY", "OVERDRAFT_LIMIT_EXCEEDED")


async def test_s22_a_budget_made_later_is_not_charged_by_an_older_hold(world: World) -> None:
    await world.budget(BOT, 1_000)
    reservation_id = await world.held(100, subject=BOTH)
    await world.budget(TENANT, 1_000)
    body = ok(await world.commit(reservation_id, 100))
    assert [balance["scope_path"] for balance in body["balances"]] == [BOT]
    assert await world.numbers(TENANT, "spent", "reserved") == (0, 0)


async def test_s23_caps_come_with_their_decision_and_only_then(world: World) -> None:
    await world.budget(TENANT, 1_000)
    assert "caps" not in ok(await world.reserve(1))
    caps = {"max_tokens": 100, "tool_allowlist": ["search"], "cooldown_ms": 0}
    policy = {"tenant_id": ACME, "name": "careful", "scope_pattern": f"{TENANT}/*", "caps": caps}
    ok(await world.post("/v1/admin/policies", policy, by=ADMIN), 201)
    live = ok(await world.reserve(1, subject=BOTH))
    preview = ok(await world.reserve(1, subject=BOTH, dry_run=True))
    decided = ok(await world.decide(1, subject=BOTH))
    for body in (live, preview, decided):
        assert (body["decision"], body["caps"]) == ("ALLOW_WITH_CAPS", caps)


async def test_s25_64_bits_are_held_exactly(world: World) -> None:
    await world.budget(TENANT, INT64_MAX)
    body = ok(await world.reserve(INT64_MAX))
    assert body["reserved"] == tokens(9_223_372_036_854_775_807)
    assert body["balances"][0]["remaining"] == tokens(0)
    assert refused(await world.reserve(INT64_MAX + 1)) == (400, "INVALID_REQUEST")


@pytest.mark.parametrize("amount", [-1, 1.5, 5.0, "5", True, None])
async def test_s26_an_amount_is_an_integer_that_is_not_negative(world: World, amount: Any) -> None:
    await world.budget(TENANT, 10)
    answer = await world.reserve({"unit": TOKENS, "amount": amount})
    assert refused(answer) == (400, "INVALID_REQUEST")
    assert answer.json()["details"]["field"].startswith("estimate")


async def test_a_dry_run_holds_nothing_and_has_neither_id_nor_expiry(world: World) -> None:
    await world.budget(TENANT, 1_000)
    body = ok(await world.reserve(400, dry_run=True))
    assert body == {
        "decision": "ALLOW",
        "affected_scopes": [TENANT],
        "scope_path": TENANT,
        "reserved": tokens(400),
        "balances": body["balances"],
    }
    assert body["balances"][0]["remaining"] == tokens(1_000)
    assert await world.numbers(TENANT, "reserved") == (0,)
    assert ok(await world.get("/v1/reservations"))["reservations"] == []


async def test_decide_allows_without_holding(world: World) -> None:
    await world.budget(TENANT, 10)
    assert ok(await world.decide(10)) == {"decision": "ALLOW", "affected_scopes": [TENANT]}
    assert ok(await world.decide(11))["reason_code"] == "BUDGET_EXCEEDED"
    assert refused(await world.decide(1, ttl_ms=5_000)) == (400, "INVALID_REQUEST")


@pytest.mark.parametrize(
    "changes",
    [
        {"subject": {}},
        {"subject": {"dimensions": {"run": "1"}}},
        {"subject": {"tenant": ACME, "team": "x"}},
        {"subject": {"tenant": ACME, "dimensions": {str(number): "x" for number in range(17)}}},
        {"subject": {"tenant": ACME, "dimensions": {"run": "x" * 257}}},
        {"action": {"kind": "", "name": "n"}},
        {"action": {"kind": "k" * 65, "name": "n"}},
        {"action": {"kind": "k", "name": " "}},
        {"action": {"kind": "k", "name": "n" * 257}},
        {"action": {"kind": "k", "name": "n", "tags": ["t"] * 11}},
        {"action": {"kind": "k", "name": "n", "tags": ["t" * 65]}},
        {"overage_policy": "MAYBE"},
        {"surprise": 1},
    ],
)
async def test_what_the_schema_forbids_is_an_invalid_request(world: World, changes: dict[str, Any]) -> None:
    await world.budget(TENANT, 10)
    assert refused(await world.reserve(1, **changes)) == (400, "INVALID_REQUEST")


async def test_dimensions_and_metadata_come_back_as_they_were_sent(world: World) -> None:
    await world.budget(TENANT, 10)
    subject = {"tenant": ACME, "dimensions": {"run_id": "7", "Cost Centre": "\u00e4 b"}}
    metadata = {"z": [1, 2.5, None, {"deep": True}], "a": "\U0001f600", "big": 2**70}
    action = {"kind": "k", "name": "n", "tags": ["x", "y"]}
    reservation_id = await world.held(1, subject=subject, metadata=metadata, action=action)
    shown = ok(await world.get(f"/v1/reservations/{reservation_id}"))
    assert (shown["subject"], shown["metadata"], shown["action"]) == (subject, metadata, action)
