"""Bulk actions of operators on tenants and budgets (sections 11.1 and 11.3)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.edges.cycles.world import ACME, ADMIN, BOT, OTHER, TENANT, TOKENS, USD, World, ok, refused, tokens, usd
from workers.budget.bulk import REMEMBERED_MS

INVALID = (400, "INVALID_REQUEST")
TENANTS = "/v1/admin/tenants/bulk-action"
BUDGETS = "/v1/admin/budgets/bulk-action"


async def on_tenants(
    world: World, action: str, *, key: str | None = None, expected: int | None = None, **where: Any
) -> Any:
    body = {"filter": where, "action": action, "idempotency_key": key or world.key()}
    return await world.post(TENANTS, body | ({} if expected is None else {"expected_count": expected}), by=ADMIN)


async def on_budgets(world: World, action: str, amount: Any, *, where: Any = None, **given: Any) -> Any:
    body = {
        "filter": {"tenant_id": ACME, **(where or {})},
        "action": action,
        "amount": tokens(amount) if isinstance(amount, int) else amount,
        "idempotency_key": world.key(),
        **given,
    }
    return await world.post(BUDGETS, {name: value for name, value in body.items() if value is not ...}, by=ADMIN)


def rows(outcome: dict[str, Any], name: str) -> list[str]:
    return sorted(row["id"] for row in outcome[name])


# -- tenants -----------------------------------------------------------------------------------------------------------


@pytest.fixture
async def several(world: World) -> None:
    """Three of one name: `x-one` active, `x-two` suspended, `x-three` closed."""
    for name in ("x-one", "x-two", "x-three"):
        ok(
            await world.post(
                "/v1/admin/tenants", {"tenant_id": name, "name": name, "parent_tenant_id": ACME}, by=ADMIN
            ),
            201,
        )
    await world.set_tenant("x-two", status="SUSPENDED")
    await world.set_tenant("x-three", status="CLOSED")


@pytest.mark.usefixtures("several")
@pytest.mark.parametrize(
    ("action", "succeeded", "failed", "skipped"),
    [
        ("SUSPEND", ["x-one"], ["x-three"], ["x-two"]),
        ("REACTIVATE", ["x-two"], ["x-three"], ["x-one"]),
        ("CLOSE", ["x-one", "x-two"], [], ["x-three"]),
    ],
)
async def test_each_tenant_has_its_own_outcome(
    world: World, action: str, succeeded: list[str], failed: list[str], skipped: list[str]
) -> None:
    outcome = ok(await on_tenants(world, action, search="X-", expected=3))
    assert (outcome["action"], outcome["total_matched"]) == (action, 3)
    assert (rows(outcome, "succeeded"), rows(outcome, "failed"), rows(outcome, "skipped")) == (
        succeeded,
        failed,
        skipped,
    )
    assert {row["error_code"] for row in outcome["failed"]} <= {"INVALID_TRANSITION"}
    assert {row["reason"] for row in outcome["skipped"]} == {"ALREADY_IN_TARGET_STATE"}


@pytest.mark.usefixtures("several")
async def test_a_filter_means_what_it_means_in_the_list(world: World) -> None:
    listed = ok(await world.get("/v1/admin/tenants", by=ADMIN, status="ACTIVE", parent_tenant_id=ACME))["tenants"]
    outcome = ok(await on_tenants(world, "SUSPEND", status="ACTIVE", parent_tenant_id=ACME))
    assert rows(outcome, "succeeded") == [tenant["tenant_id"] for tenant in listed] == ["x-one"]


async def test_the_operators_own_tenant_stays_as_it_is(world: World) -> None:
    outcome = ok(await on_tenants(world, "CLOSE", search="root"))
    assert (rows(outcome, "failed"), outcome["failed"][0]["error_code"]) == (["root"], "INVALID_TRANSITION")
    ok(await world.get("/v1/admin/overview", by=ADMIN))


@pytest.mark.usefixtures("several")
async def test_another_number_than_expected_changes_nothing(world: World) -> None:
    answer = await on_tenants(world, "CLOSE", search="x-", expected=2)
    assert refused(answer) == (409, "COUNT_MISMATCH")
    assert answer.json()["details"] == {"total_matched": 3}
    assert ok(await world.get("/v1/admin/tenants/x-one", by=ADMIN))["status"] == "ACTIVE"


@pytest.mark.parametrize(
    "changes",
    [
        {"filter": {}},
        {"filter": {"search": ""}},
        {"filter": {"observe_mode": "OBSERVE"}},
        {"filter": {"search": "x" * 129}},
        {"filter": {"status": "GONE"}},
        {"filter": {"tenant_id": ACME}},
        {"action": "DELETE"},
        {"expected_count": -1},
        {"idempotency_key": ""},
        {"idempotency_key": "k" * 129},
        {"reason": "because"},
    ],
)
async def test_a_malformed_bulk_action_is_refused(world: World, changes: dict[str, Any]) -> None:
    body = {"filter": {"search": "x"}, "action": "CLOSE", "idempotency_key": "k", **changes}
    assert refused(await world.post(TENANTS, body, by=ADMIN)) == INVALID


@pytest.mark.usefixtures("several")
async def test_a_repetition_is_answered_as_the_first_for_a_quarter_of_an_hour(world: World) -> None:
    first = await on_tenants(world, "SUSPEND", key="once", search="x-o")
    await world.set_tenant("x-one", status="ACTIVE")
    again = await on_tenants(world, "SUSPEND", key="once", search="x-o")
    assert again.json() == first.json()
    assert ok(await world.get("/v1/admin/tenants/x-one", by=ADMIN))["status"] == "ACTIVE"
    assert refused(await on_tenants(world, "CLOSE", key="once", search="x-o")) == (409, "IDEMPOTENCY_MISMATCH")
    world.clock.advance(REMEMBERED_MS)
    assert rows(ok(await on_tenants(world, "SUSPEND", key="once", search="x-o")), "succeeded") == ["x-one"]


@pytest.mark.usefixtures("several")
async def test_the_action_is_on_record_once_and_its_events_are_tied_to_it(world: World) -> None:
    await world.budget("tenant:x-one", 10)
    answer = await on_tenants(world, "CLOSE", search="x-one")
    request_id = answer.headers["x-request-id"]
    logs = ok(await world.get("/v1/admin/audit/logs", by=ADMIN, request_id=request_id))["logs"]
    (entry,) = [entry for entry in logs if not entry["operation"].endswith("_via_tenant_cascade")]
    assert (entry["operation"], entry["tenant_id"], entry["resource_type"]) == (
        "bulkActionTenants",
        "__admin__",
        "tenant",
    )
    assert entry["metadata"]["actor_type"] == "admin_on_behalf_of"
    assert (entry["metadata"]["action"], entry["metadata"]["succeeded"]) == ("CLOSE", ["x-one"])
    told = await world.until(
        "/v1/admin/events", lambda seen: len(seen.json()["events"]) == 2, by=ADMIN, request_id=request_id
    )
    assert {event["event_type"]: event["correlation_id"] for event in told.json()["events"]} == {
        "tenant.closed": f"tenant_bulk_action:close:{request_id}",
        "budget.closed_via_tenant_cascade": f"tenant_close_cascade:x-one:{request_id}",
    }


async def test_bulk_actions_are_the_operators(world: World) -> None:
    for path in (TENANTS, BUDGETS):
        assert refused(await world.post(path, {})) == (401, "UNAUTHORIZED")
    await world.add_operator("reader", ["admin:tenants:read", "admin:budgets:read"])
    for path in (TENANTS, BUDGETS):
        answer = await world.post(path, {}, by=None, headers={"X-Admin-API-Key": world.secrets["reader"]})
        assert refused(answer) == (403, "INSUFFICIENT_PERMISSIONS")


# -- budgets -----------------------------------------------------------------------------------------------------------


@pytest.fixture
async def ledgers(world: World) -> dict[str, str]:
    """Scope to ledger: 100 of the tenant (30 spent), 50 of a bot, 10 of a frozen app; and dollars. Others have some too."""
    found = {}
    for name, scope, allocated in (("all", TENANT, 100), ("bot", BOT, 50), ("app", f"{TENANT}/app:x", 10)):
        found[name] = (await world.budget(scope, allocated, overdraft=100))["ledger_id"]
    found["usd"] = (await world.budget(TENANT, usd(7)))["ledger_id"]
    ok(await world.debit(30), 201)
    ok(await world.post("/v1/admin/budgets/freeze", {}, by=ADMIN, scope=f"{TENANT}/app:x", unit=TOKENS))
    await world.add_tenant(OTHER)
    await world.budget(f"tenant:{OTHER}", 100)
    return found


async def test_each_budget_has_its_own_outcome(world: World, ledgers: dict[str, str]) -> None:
    outcome = ok(await on_budgets(world, "DEBIT", 60, expected_count=4, reason="less"))
    assert rows(outcome, "succeeded") == [ledgers["all"]]
    assert {row["id"]: row["error_code"] for row in outcome["failed"]} == {
        ledgers["bot"]: "BUDGET_EXCEEDED",
        ledgers["app"]: "INVALID_TRANSITION",
        ledgers["usd"]: "INVALID_TRANSITION",
    }
    assert await world.numbers(TENANT, "allocated", "remaining") == (40, 10)
    assert await world.numbers(f"tenant:{OTHER}", "allocated") == (100,)


async def test_a_new_period_for_a_whole_subtree(world: World, ledgers: dict[str, str]) -> None:
    where = {"scope_prefix": TENANT, "unit": TOKENS, "status": "ACTIVE"}
    outcome = ok(await on_budgets(world, "RESET_SPENT", 200, where=where, spent=tokens(5)))
    assert rows(outcome, "succeeded") == sorted([ledgers["all"], ledgers["bot"]])
    assert await world.numbers(TENANT, "allocated", "spent", "remaining") == (200, 5, 195)
    assert await world.numbers(BOT, "allocated", "spent", "remaining") == (200, 5, 195)


async def test_what_would_change_nothing_is_passed_over_and_not_told(world: World, ledgers: dict[str, str]) -> None:
    ok(await world.debit(90, subject={"tenant": ACME, "agent": "bot"}, overage_policy="ALLOW_WITH_OVERDRAFT"), 201)
    told = await world.events_told()
    outcome = ok(await on_budgets(world, "REPAY_DEBT", 0, where={"unit": TOKENS, "status": "ACTIVE"}))
    assert rows(outcome, "skipped") == sorted([ledgers["all"], ledgers["bot"]])
    assert await world.events_told() == told
    outcome = ok(await on_budgets(world, "REPAY_DEBT", 5, where={"has_debt": True}))
    assert rows(outcome, "succeeded") == sorted([ledgers["all"], ledgers["bot"]])
    assert await world.numbers(TENANT, "debt") == (15,)


@pytest.mark.parametrize(
    ("where", "names"),
    [
        ({"scope_prefix": BOT}, ["bot"]),
        ({"unit": USD}, ["usd"]),
        ({"status": "FROZEN"}, ["app"]),
        ({"utilization_min": 0.3}, ["all"]),
        ({"utilization_max": 0.299}, ["app", "bot", "usd"]),
        ({"search": "AGENT"}, ["bot"]),
        ({"over_limit": True}, []),
    ],
)
async def test_budgets_are_found_as_in_their_list(
    world: World, ledgers: dict[str, str], where: dict[str, Any], names: list[str]
) -> None:
    shown = {name: str(value).lower() if isinstance(value, bool) else value for name, value in where.items()}
    listed = ok(await world.get("/v1/admin/budgets", by=ADMIN, tenant_id=ACME, **shown))["ledgers"]
    outcome = ok(await on_budgets(world, "CREDIT", 0, where=where))
    matched = [row["id"] for part in ("succeeded", "failed", "skipped") for row in outcome[part]]
    assert (
        sorted(matched) == sorted(ledger["ledger_id"] for ledger in listed) == sorted(ledgers[name] for name in names)
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"filter": {}},
        {"filter": {"tenant_id": ACME, "utilization_min": 0.5, "utilization_max": 0.4}},
        {"filter": {"tenant_id": ACME, "utilization_min": 1.5}},
        {"filter": {"tenant_id": ACME, "limit": 5}},
        {"amount": ...},
        {"amount": tokens(-1)},
        {"spent": tokens(-1)},
        {"spent": usd(1)},
        {"action": "FREEZE"},
        {"reason": "r" * 513},
    ],
)
async def test_a_malformed_bulk_funding_is_refused(world: World, changes: dict[str, Any]) -> None:
    given = {"filter": {"tenant_id": ACME}, "action": "CREDIT", "amount": tokens(1), "idempotency_key": "k", **changes}
    body = {name: value for name, value in given.items() if value is not ...}
    assert refused(await world.post(BUDGETS, body, by=ADMIN)) == INVALID


async def test_a_bulk_funding_needs_a_tenant_that_is_open(world: World) -> None:
    assert refused(await on_budgets(world, "CREDIT", 1, where={"tenant_id": "nobody"})) == (404, "TENANT_NOT_FOUND")
    await world.set_tenant(status="CLOSED")
    assert refused(await on_budgets(world, "CREDIT", 1)) == (409, "TENANT_CLOSED")


async def test_more_budgets_than_one_action_takes_are_refused(world: World) -> None:
    async with world.node.database.acquire() as connection:
        await connection.execute(
            """insert into budget (tenant_id, scope_path, unit, budget_id, allocated, reserved, spent, debt,
                overdraft_limit, capped, status, rollover_policy, created_at)
            select 'acme', 'tenant:acme/app:a' || n, 'TOKENS', 'bud_' || n, 1, 0, 0, 0, 0, false, 'ACTIVE', 'NONE', 0
            from generate_series(1, 501) n"""
        )
    answer = await on_budgets(world, "CREDIT", 1)
    assert refused(answer) == (400, "LIMIT_EXCEEDED")
    assert answer.json()["details"] == {"total_matched": 501}
    assert ok(await on_budgets(world, "CREDIT", 1, where={"search": "app:a5"}))["total_matched"] == 13


@pytest.mark.usefixtures("ledgers")
async def test_the_funding_is_on_record_once_and_its_events_are_tied_to_it(world: World) -> None:
    answer = await on_budgets(world, "CREDIT", 5, where={"unit": TOKENS, "status": "ACTIVE"}, reason="new\nmonth")
    request_id = answer.headers["x-request-id"]
    (entry,) = ok(await world.get("/v1/admin/audit/logs", by=ADMIN, request_id=request_id))["logs"]
    assert (entry["operation"], entry["tenant_id"]) == ("bulkActionBudgets", ACME)
    assert entry["metadata"]["reason"] == "new month"
    assert sorted(entry["metadata"]["succeeded"]) == rows(ok(answer), "succeeded")
    told = await world.until(
        "/v1/admin/events", lambda seen: len(seen.json()["events"]) == 2, by=ADMIN, request_id=request_id
    )
    correlations = {(event["event_type"], event["correlation_id"]) for event in told.json()["events"]}
    assert correlations == {("budget.funded", f"budget_bulk_action:credit:{request_id}")}


@pytest.mark.usefixtures("ledgers")
async def test_two_at_once_under_one_key_fund_once(world: World) -> None:
    where = {"unit": TOKENS, "status": "ACTIVE"}
    answers = await asyncio.gather(
        *(on_budgets(world, "CREDIT", 5, where=where, idempotency_key="once") for _ in range(6))
    )
    assert len({answer.text for answer in answers}) == 1
    assert await world.numbers(TENANT, "allocated") == (105,)
    assert len(ok(await world.get("/v1/admin/audit/logs", by=ADMIN, operation="bulkActionBudgets"))["logs"]) == 1


@pytest.mark.usefixtures("ledgers")
async def test_one_that_was_interrupted_goes_on_where_it_was(world: World) -> None:
    """A node was lost in the middle: what was found first is what counts, and no row is funded twice."""
    where = {"unit": TOKENS, "utilization_max": 0.4, "status": "ACTIVE"}
    first = ok(await on_budgets(world, "CREDIT", 50, where=where, idempotency_key="once"))
    async with world.node.database.acquire() as connection:
        await connection.execute("update bulk_run set answer = null")
    ok(await world.debit(60), 201)  # the tenant's budget would not be found any more
    again = ok(await on_budgets(world, "CREDIT", 50, where=where, idempotency_key="once"))
    assert again == first
    assert await world.numbers(TENANT, "allocated") == (150,)
