"""Budgets on the admin plane: opening, changing, freezing, funding, lists (sections 2.8, 11.3, 11.4; scenarios 127, 128)."""

from __future__ import annotations

from typing import Any

import pytest

from domain.amounts import INT64_MAX
from domain.instants import show_instant
from tests.edges.cycles.world import ACME, ADMIN, BOT, OTHER, TENANT, TOKENS, USD, B, World, ok, refused, tokens, usd

INVALID = (400, "INVALID_REQUEST")
PLACE = {"scope": TENANT, "unit": TOKENS}
OVERDRAFT = "ALLOW_WITH_OVERDRAFT"


async def test_a_budget_is_opened_whole(world: World) -> None:
    period = {"period_start": "2027-01-01T00:00:00.000Z", "period_end": "2027-02-01T00:00:00.000Z"}
    policies = {"commit_overage_policy": "REJECT", "rollover_policy": "CARRY_FORWARD"}
    made = await world.budget(TENANT, 1_000, overdraft=50, **period, **policies, metadata={"x": 1})
    assert made == {
        "ledger_id": made["ledger_id"],
        "tenant_id": ACME,
        "scope": TENANT,
        "scope_path": TENANT,
        "unit": TOKENS,
        "allocated": tokens(1_000),
        "remaining": tokens(1_000),
        "reserved": tokens(0),
        "spent": tokens(0),
        "debt": tokens(0),
        "overdraft_limit": tokens(50),
        "is_over_limit": False,
        "status": "ACTIVE",
        **policies,
        **period,
        "created_at": show_instant(B),
    } | {name: made[name] for name in made.keys() & {"updated_at"}}


async def test_a_tenant_opens_its_own_and_names_no_tenant(world: World) -> None:
    body = {"scope": BOT, "unit": TOKENS, "allocated": tokens(5)}
    made = await world.post("/v1/admin/budgets", body)
    assert ok(made, 201)["tenant_id"] == ACME
    assert made.headers["x-cycles-tenant"] == ACME
    assert refused(await world.post("/v1/admin/budgets", {**body, "tenant_id": ACME})) == INVALID
    assert refused(await world.post("/v1/admin/budgets", body, by=ADMIN)) == INVALID


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"scope": "agent:bot"}, INVALID),
        ({"scope": f"{TENANT}/toolset:x/agent:y"}, INVALID),
        ({"scope": f"{TENANT}/agent:*"}, INVALID),
        ({"scope": f"tenant:{OTHER}"}, INVALID),
        ({"scope": TENANT, "unit": "EUR"}, INVALID),
        ({"allocated": usd(5)}, INVALID),
        ({"allocated": tokens(-1)}, INVALID),
        ({"allocated": tokens(INT64_MAX + 1)}, INVALID),
        ({"overdraft_limit": usd(5)}, INVALID),
        ({"rollover_policy": "SOMEHOW"}, INVALID),
        ({"period_start": "2027-02-01T00:00:00Z", "period_end": "2027-01-01T00:00:00Z"}, INVALID),
        ({"period_start": "soon"}, INVALID),
        ({"caps": {}}, INVALID),
        ({"tenant_id": "nobody", "scope": "tenant:nobody"}, (400, "TENANT_NOT_FOUND")),
    ],
)
async def test_what_a_new_budget_may_not_be(world: World, changes: dict[str, Any], expected: tuple[int, str]) -> None:
    body = {"tenant_id": ACME, "scope": BOT, "unit": TOKENS, "allocated": tokens(5), **changes}
    assert refused(await world.post("/v1/admin/budgets", body, by=ADMIN)) == expected


async def test_a_scope_has_one_budget_a_unit(world: World) -> None:
    await world.budget(TENANT, 5)
    body = {"tenant_id": ACME, "scope": "Tenant:ACME", "unit": TOKENS, "allocated": tokens(5)}
    assert refused(await world.post("/v1/admin/budgets", body, by=ADMIN)) == (409, "DUPLICATE_RESOURCE")
    await world.budget(TENANT, usd(5))


async def test_a_suspended_tenant_gets_no_new_budget(world: World) -> None:
    await world.set_tenant(status="SUSPENDED")
    body = {"tenant_id": ACME, "scope": BOT, "unit": TOKENS, "allocated": tokens(5)}
    assert refused(await world.post("/v1/admin/budgets", body, by=ADMIN)) == INVALID


async def test_a_budget_is_found_by_its_scope_and_unit_only(world: World) -> None:
    await world.budget(BOT, 5)
    assert ok(await world.get("/v1/admin/budgets/lookup", scope=BOT.upper(), unit=TOKENS))["scope"] == BOT
    missing = (404, "BUDGET_NOT_FOUND")
    for by in (ACME, ADMIN):
        assert refused(await world.get("/v1/admin/budgets/lookup", by=by, scope=TENANT, unit=TOKENS)) == missing
        assert refused(await world.get("/v1/admin/budgets/lookup", by=by, scope=BOT, unit=USD)) == missing
        assert refused(await world.get("/v1/admin/budgets/lookup", by=by, scope=BOT)) == INVALID
        assert refused(await world.get("/v1/admin/budgets/lookup", by=by, scope=BOT, unit="EUR")) == INVALID
    assert refused(await world.get("/v1/admin/budgets/lookup", by=ADMIN, scope="agent:bot", unit=TOKENS)) == INVALID
    await world.add_tenant(OTHER)
    assert refused(await world.get("/v1/admin/budgets/lookup", by=OTHER, scope=BOT, unit=TOKENS)) == missing


async def test_a_key_needs_the_permission_for_budgets(world: World) -> None:
    await world.add_key("runtime-only", permissions=["reservations:create", "balances:read"])
    body = {"scope": TENANT, "unit": TOKENS, "allocated": tokens(5)}
    lacking = (403, "INSUFFICIENT_PERMISSIONS")
    assert refused(await world.post("/v1/admin/budgets", body, by="runtime-only")) == lacking
    assert refused(await world.get("/v1/admin/budgets", by="runtime-only")) == lacking


async def test_a_change_is_told_and_what_is_not_named_stays(world: World) -> None:
    await world.budget(TENANT, 100)
    changes = {"overdraft_limit": tokens(7), "commit_overage_policy": OVERDRAFT, "metadata": {"x": 1}}
    world.clock.advance(1)
    shown = ok(await world.ask("PATCH", "/v1/admin/budgets", changes, by=ADMIN, **PLACE))
    assert (shown["overdraft_limit"], shown["commit_overage_policy"]) == (tokens(7), OVERDRAFT)
    assert shown["updated_at"] == show_instant(B + 1)
    assert refused(await world.ask("PATCH", "/v1/admin/budgets", {"allocated": 1}, by=ADMIN, **PLACE)) == INVALID
    other = {"scope": BOT, "unit": TOKENS}
    assert refused(await world.ask("PATCH", "/v1/admin/budgets", {}, by=ADMIN, **other)) == (404, "BUDGET_NOT_FOUND")


async def test_a_budget_is_frozen_and_thawed_once_each(world: World) -> None:
    await world.budget(TENANT, 100)
    freeze, unfreeze = "/v1/admin/budgets/freeze", "/v1/admin/budgets/unfreeze"
    assert refused(await world.ask("POST", unfreeze, by=ADMIN, **PLACE)) == (409, "INVALID_REQUEST")
    shown = ok(await world.post(freeze, {"reason": "audit", "metadata": {"ticket": 7}}, by=ADMIN, **PLACE))
    assert shown["status"] == "FROZEN"
    frozen = (409, "BUDGET_FROZEN")
    assert refused(await world.ask("POST", freeze, by=ADMIN, **PLACE)) == frozen
    assert refused(await world.fund("CREDIT", 1)) == frozen
    ok(await world.ask("PATCH", "/v1/admin/budgets", {"overdraft_limit": tokens(1)}, by=ADMIN, **PLACE))
    assert ok(await world.post(unfreeze, {}, by=ADMIN, **PLACE))["status"] == "ACTIVE"
    assert refused(await world.post(freeze, {"reason": "r" * 513}, by=ADMIN, **PLACE)) == INVALID
    assert refused(await world.post(freeze, {"why": "x"}, by=ADMIN, **PLACE)) == INVALID


# -- funding -----------------------------------------------------------------------------------------------------------


async def test_funding_tells_how_it_was_and_how_it_is(world: World) -> None:
    await world.budget(TENANT, 100)
    ok(await world.debit(30), 201)
    assert ok(await world.fund("CREDIT", 50)) == {
        "operation": "CREDIT",
        "timestamp": show_instant(B),
        "previous_allocated": tokens(100),
        "new_allocated": tokens(150),
        "previous_remaining": tokens(70),
        "new_remaining": tokens(120),
        "previous_debt": tokens(0),
        "new_debt": tokens(0),
        "previous_spent": tokens(30),
        "new_spent": tokens(30),
    }


async def test_s127_a_credit_repays_debt_first(world: World) -> None:
    await world.budget(TENANT, 1_000, overdraft=500)
    ok(await world.debit(1_500, overage_policy=OVERDRAFT), 201)
    assert await world.numbers(TENANT, "debt", "remaining", "spent") == (500, -500, 1_000)
    ok(await world.fund("CREDIT", 600))
    assert await world.numbers(TENANT, "debt", "remaining", "allocated", "spent") == (0, 100, 1_600, 1_500)


async def test_s128_taking_and_resetting(world: World) -> None:
    await world.budget(TENANT, 500)
    ok(await world.debit(300), 201)
    held = await world.held(50)
    assert refused(await world.fund("DEBIT", 151)) == (409, "BUDGET_EXCEEDED")
    ok(await world.fund("DEBIT", 150))
    ok(await world.fund("RESET", 100))
    assert await world.numbers(TENANT, "remaining", "is_over_limit") == (-250, False)
    assert refused(await world.reserve(0)) == (409, "BUDGET_EXCEEDED")
    ok(await world.fund("RESET_SPENT", 400, spent=tokens(20)))
    assert await world.numbers(TENANT, "spent", "reserved", "remaining") == (20, 50, 330)
    ok(await world.fund("RESET_SPENT", 400))
    assert await world.numbers(TENANT, "spent", "reserved", "remaining") == (0, 50, 350)
    ok(await world.release(held))


async def test_repaying_debt_keeps_the_surplus_as_a_credit(world: World) -> None:
    await world.budget(TENANT, 100, overdraft=50)
    ok(await world.debit(140, overage_policy=OVERDRAFT), 201)
    ok(await world.fund("REPAY_DEBT", 60))
    assert await world.numbers(TENANT, "debt", "allocated", "remaining") == (0, 120, 20)


async def test_s4_a_cut_charge_blocks_until_the_budget_is_funded(world: World) -> None:
    await world.budget(TENANT, 10)
    ok(await world.debit(11), 201)
    assert refused(await world.reserve(0)) == (409, "OVERDRAFT_LIMIT_EXCEEDED")
    ok(await world.fund("DEBIT", 0))
    assert (await world.ledger())["is_over_limit"] is True
    ok(await world.fund("CREDIT", 5))
    ok(await world.reserve(5))


@pytest.mark.parametrize(
    ("changes", "params"),
    [
        ({"operation": "STEAL"}, {}),
        ({"amount": usd(1)}, {}),
        ({"amount": tokens(-1)}, {}),
        ({"amount": 5}, {}),
        ({"spent": tokens(-1)}, {}),
        ({"reason": "r" * 513}, {}),
        ({"idempotency_key": ""}, {}),
        ({"idempotency_key": "k" * 257}, {}),
        ({"currency": "x"}, {}),
        ({}, {"tenant_id": ""}),
        ({}, {"scope": ""}),
        ({}, {"unit": "EUR"}),
    ],
)
async def test_what_a_funding_may_not_say(world: World, changes: dict[str, Any], params: dict[str, Any]) -> None:
    await world.budget(TENANT, 10)
    body = {"operation": "CREDIT", "amount": tokens(1), **changes}
    place = {**PLACE, "tenant_id": ACME, **params}
    assert refused(await world.post("/v1/admin/budgets/fund", body, by=ADMIN, **place)) == INVALID


async def test_a_tenant_funds_its_own_whatever_tenant_it_names(world: World) -> None:
    await world.budget(TENANT, 10)
    body = {"operation": "CREDIT", "amount": tokens(1)}
    ok(await world.post("/v1/admin/budgets/fund", body, **PLACE, tenant_id=OTHER))
    assert await world.numbers(TENANT, "allocated") == (11,)
    nowhere = {"scope": BOT, "unit": TOKENS}
    assert refused(await world.post("/v1/admin/budgets/fund", body, **nowhere)) == (404, "BUDGET_NOT_FOUND")
    answer = await world.post("/v1/admin/budgets/fund", body, by=ADMIN, **PLACE, tenant_id="nobody")
    assert refused(answer) == (404, "TENANT_NOT_FOUND")


# -- lists -------------------------------------------------------------------------------------------------------------


@pytest.fixture
async def several(world: World) -> None:
    """ACME: 100 of which 90 are spent, a bot in debt, dollars that are frozen. OTHER: nothing allocated."""
    await world.add_tenant(OTHER)
    await world.budget(TENANT, 100)
    await world.budget(BOT, 40, overdraft=100)
    await world.budget(TENANT, usd(1_000))
    await world.budget(f"tenant:{OTHER}", 0)
    ok(await world.debit(90, subject={"tenant": ACME, "agent": "bot"}, overage_policy=OVERDRAFT), 201)
    ok(await world.post("/v1/admin/budgets/freeze", {}, by=ADMIN, scope=TENANT, unit=USD))


async def listed(world: World, *, by: str = ADMIN, **params: Any) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    cursor: dict[str, str] = {}
    while True:
        body = ok(await world.get("/v1/admin/budgets", by=by, **params, **cursor))
        found += [(ledger["scope"], ledger["unit"]) for ledger in body["ledgers"]]
        if not body["has_more"]:
            return found
        cursor = {"cursor": body["next_cursor"]}


MAIN, AGENT, DOLLARS, THEIRS = (TENANT, TOKENS), (BOT, TOKENS), (TENANT, USD), (f"tenant:{OTHER}", TOKENS)


@pytest.mark.usefixtures("several")
@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, {MAIN, AGENT, DOLLARS, THEIRS}),
        ({"limit": 1}, {MAIN, AGENT, DOLLARS, THEIRS}),
        ({"tenant_id": ACME}, {MAIN, AGENT, DOLLARS}),
        ({"tenant_id": "nobody"}, set()),
        ({"scope_prefix": BOT}, {AGENT}),
        ({"scope_prefix": BOT[:-1]}, set()),
        ({"scope_prefix": f"{TENANT}/agent:"}, {AGENT}),
        ({"scope_prefix": f"{TENANT}/"}, {AGENT}),
        ({"scope_prefix": TENANT}, {MAIN, AGENT, DOLLARS}),
        ({"unit": USD}, {DOLLARS}),
        ({"status": "FROZEN"}, {DOLLARS}),
        ({"has_debt": "true"}, {AGENT}),
        ({"has_debt": "false"}, {MAIN, DOLLARS, THEIRS}),
        ({"over_limit": "true"}, set()),
        ({"utilization_min": "0.9", "tenant_id": ACME}, {MAIN, AGENT}),
        ({"utilization_min": "0.900001", "tenant_id": ACME}, {AGENT}),
        ({"utilization_min": "0"}, {MAIN, AGENT, DOLLARS, THEIRS}),
        ({"utilization_max": "0"}, {DOLLARS, THEIRS}),
        ({"utilization_max": "0.9"}, {MAIN, DOLLARS, THEIRS}),
        ({"search": "OTHER"}, {THEIRS}),
        ({"search": "bot", "unit": USD}, set()),
    ],
)
async def test_budgets_are_listed_by_what_they_are(
    world: World, params: dict[str, Any], expected: set[tuple[str, str]]
) -> None:
    found = await listed(world, **params)
    assert (len(found), set(found)) == (len(expected), expected)


@pytest.mark.usefixtures("several")
@pytest.mark.parametrize(
    ("params", "first"),
    [
        ({"sort_by": "debt"}, AGENT),
        ({"sort_by": "utilization"}, AGENT),
        ({"sort_by": "scope", "sort_dir": "desc"}, THEIRS),
        ({"sort_by": "tenant_id", "sort_dir": "desc"}, THEIRS),
        ({"sort_by": "unit", "sort_dir": "desc"}, DOLLARS),
        ({"sort_by": "status", "sort_dir": "desc"}, DOLLARS),
    ],
)
async def test_and_in_any_order(world: World, params: dict[str, Any], first: tuple[str, str]) -> None:
    found = await listed(world, limit=2, **params)
    assert (found[0], len(found)) == (first, 4)


@pytest.mark.usefixtures("several")
@pytest.mark.parametrize("limit", ["101", "100000000", "0", "-5"])
async def test_a_limit_without_bounds_is_served_as_far_as_a_page_goes(world: World, limit: str) -> None:
    """The document declares none for this list."""
    body = ok(await world.get("/v1/admin/budgets", by=ADMIN, limit=limit))
    assert len(body["ledgers"]) == (4 if int(limit) > 4 else 1)


@pytest.mark.usefixtures("several")
async def test_a_tenant_sees_its_own_whatever_it_asks_for(world: World) -> None:
    assert set(await listed(world, by=OTHER, tenant_id=ACME)) == {THEIRS}
    await world.add_key("confined", scope_filter=["agent:bot"])
    assert await listed(world, by="confined") == [AGENT]


@pytest.mark.parametrize(
    "params",
    [
        {"limit": "many"},
        {"unit": "EUR"},
        {"status": "GONE"},
        {"over_limit": "perhaps"},
        {"utilization_min": "1.1"},
        {"utilization_min": "half"},
        {"utilization_min": "0.5", "utilization_max": "0.4"},
        {"sort_by": "size"},
        {"cursor": "x"},
        {"search": "x" * 129},
    ],
)
async def test_a_malformed_list_is_refused(world: World, params: dict[str, Any]) -> None:
    assert refused(await world.get("/v1/admin/budgets", by=ADMIN, **params)) == INVALID
