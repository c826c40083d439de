"""Policies and the overview on the admin plane (sections 11.5, 11.6 and 11.8)."""

from __future__ import annotations

from typing import Any

import pytest

from domain.instants import show_instant
from tests.edges.cycles.world import ACME, ADMIN, BOT, OTHER, TENANT, TOKENS, B, World, ok, refused

INVALID = (400, "INVALID_REQUEST")


def policy(**changes: Any) -> dict[str, Any]:
    given = {"tenant_id": ACME, "name": "careful", "scope_pattern": f"{TENANT}/*", **changes}
    return {name: value for name, value in given.items() if value is not ...}


async def made(world: World, **changes: Any) -> dict[str, Any]:
    return ok(await world.post("/v1/admin/policies", policy(**changes), by=ADMIN), 201)


async def test_a_policy_says_what_it_was_told(world: World) -> None:
    rules = {
        "description": "for agents",
        "priority": 7,
        "caps": {"max_tokens": 10, "max_steps_remaining": 0, "tool_denylist": ["rm"], "cooldown_ms": 5},
        "commit_overage_policy": "REJECT",
        "reservation_ttl_override": {"default_ttl_ms": 1_000, "max_ttl_ms": 2_000, "max_extensions": 0},
        "rate_limits": {"max_reservations_per_minute": 5},
        "effective_from": show_instant(B - 1),
        "effective_until": show_instant(B + 60_000),
    }
    shown = await made(world, **rules)
    assert shown == {
        "policy_id": shown["policy_id"],
        "name": "careful",
        "scope_pattern": f"{TENANT}/*",
        "status": "ACTIVE",
        "created_at": show_instant(B),
        **rules,
    } | {name: shown[name] for name in shown.keys() & {"updated_at"}}


async def test_a_policy_rules_what_it_names_while_it_lasts(world: World) -> None:
    await world.budget(TENANT, 100)
    override = {"default_ttl_ms": 1_000, "max_ttl_ms": 2_000}
    await made(world, reservation_ttl_override=override, effective_until=show_instant(B + 5_000))
    agent = {"subject": {"tenant": ACME, "agent": "x"}}
    assert ok(await world.reserve(1, **agent))["remaining_ttl_ms"] == 1_000
    assert ok(await world.reserve(1, ttl_ms=60_000, **agent))["remaining_ttl_ms"] == 2_000
    assert ok(await world.reserve(1))["remaining_ttl_ms"] == 60_000
    world.clock.advance(5_000)
    assert ok(await world.reserve(1, **agent))["remaining_ttl_ms"] == 60_000


@pytest.mark.parametrize(
    "changes",
    [
        {"name": ...},
        {"name": ""},
        {"scope_pattern": "everything"},
        {"priority": -1},
        {"priority": 1.5},
        {"caps": {"max_tokens": -1}},
        {"caps": {"max_cost": 1}},
        {"rate_limits": {"max_reservations_per_minute": 0}},
        {"rate_limits": {"max_per_day": 1}},
        {"reservation_ttl_override": {"max_ttl_ms": 999}},
        {"effective_from": "now"},
        {"effective_from": show_instant(B + 1), "effective_until": show_instant(B)},
        {"status": "DISABLED"},
        {"tenant_id": ...},
    ],
)
async def test_what_a_new_policy_may_not_be(world: World, changes: dict[str, Any]) -> None:
    assert refused(await world.post("/v1/admin/policies", policy(**changes), by=ADMIN)) == INVALID


async def test_a_name_is_taken_once_a_tenant(world: World) -> None:
    await made(world)
    assert refused(await world.post("/v1/admin/policies", policy(), by=ADMIN)) == (409, "DUPLICATE_RESOURCE")
    await world.add_tenant(OTHER)
    await made(world, tenant_id=OTHER, scope_pattern=f"tenant:{OTHER}")
    answer = await world.post("/v1/admin/policies", policy(tenant_id="nobody"), by=ADMIN)
    assert refused(answer) == (400, "TENANT_NOT_FOUND")


async def test_a_policy_is_changed_by_its_owner_and_by_operators(world: World) -> None:
    policy_id = (await made(world, description="old"))["policy_id"]
    path = f"/v1/admin/policies/{policy_id}"
    shown = ok(await world.ask("PATCH", path, {"priority": 3, "status": "DISABLED"}, by=ADMIN))
    assert (shown["priority"], shown["status"], shown["description"]) == (3, "DISABLED", "old")
    assert ok(await world.ask("PATCH", path, {"name": "new"}))["name"] == "new"
    await world.add_tenant(OTHER)
    for by, name in ((OTHER, policy_id), (ACME, "pol_unknown"), (ADMIN, "pol_unknown")):
        assert refused(await world.ask("PATCH", f"/v1/admin/policies/{name}", {}, by=by)) == (404, "NOT_FOUND")
    assert refused(await world.ask("PATCH", path, {"scope_pattern": BOT}, by=ADMIN)) == INVALID


async def test_policies_are_listed_a_tenant(world: World) -> None:
    names = ["one", "two", "three"]
    for name in names:
        world.clock.advance(1)
        await made(world, name=name, scope_pattern=BOT if name == "two" else TENANT)
    assert refused(await world.get("/v1/admin/policies", by=ADMIN)) == INVALID
    for given in ({"by": ADMIN, "tenant_id": ACME}, {"by": ACME, "tenant_id": OTHER}):
        body = ok(await world.get("/v1/admin/policies", **given))
        assert [row["name"] for row in body["policies"]] == names[::-1]
    first = ok(await world.get("/v1/admin/policies", limit=2))
    rest = ok(await world.get("/v1/admin/policies", limit=2, cursor=first["next_cursor"]))
    assert [row["name"] for row in rest["policies"]] == ["one"]
    assert [row["name"] for row in ok(await world.get("/v1/admin/policies", scope_pattern=BOT))["policies"]] == ["two"]
    assert ok(await world.get("/v1/admin/policies", status="DISABLED"))["policies"] == []
    assert ok(await world.get("/v1/admin/policies", by=ADMIN, tenant_id="nobody"))["policies"] == []


async def test_a_confined_key_governs_what_it_may_touch(world: World) -> None:
    await world.add_key("confined", scope_filter=["agent:bot"])
    wide = (await made(world, name="wide", scope_pattern=f"{TENANT}/*"))["policy_id"]
    for pattern in (TENANT, f"{TENANT}/*", "agent:*"):
        answer = await world.post("/v1/admin/policies", policy(tenant_id=..., scope_pattern=pattern), by="confined")
        assert refused(answer) == (403, "FORBIDDEN")
    answer = await world.ask("PATCH", f"/v1/admin/policies/{wide}", {"priority": 9}, by="confined")
    assert refused(answer) == (403, "FORBIDDEN")
    body = policy(tenant_id=..., scope_pattern=BOT)
    mine = ok(await world.post("/v1/admin/policies", body, by="confined"), 201)["policy_id"]
    ok(await world.ask("PATCH", f"/v1/admin/policies/{mine}", {"priority": 9}, by="confined"))
    assert [row["policy_id"] for row in ok(await world.get("/v1/admin/policies", by="confined"))["policies"]] == [mine]


# -- the overview ------------------------------------------------------------------------------------------------------


async def overview_with(world: World, name: str) -> dict[str, Any]:
    """Once the relay has handed over the events: it does so within milliseconds."""
    return ok(await world.until("/v1/admin/overview", lambda answer: answer.json()[name], by=ADMIN))


async def test_the_overview_is_the_operators(world: World) -> None:
    assert refused(await world.get("/v1/admin/overview")) == (401, "UNAUTHORIZED")


async def test_the_overview_counts_and_names_what_stands_out(world: World) -> None:
    await world.add_tenant(OTHER)
    await world.set_tenant(OTHER, status="SUSPENDED")
    await world.budget(TENANT, 10, overdraft=100)
    await world.budget(BOT, 10)
    ok(await world.debit(50, overage_policy="ALLOW_WITH_OVERDRAFT"), 201)
    ok(await world.debit(11, subject={"tenant": ACME, "agent": "bot"}, overage_policy="ALLOW_WITH_OVERDRAFT"), 201)
    assert refused(await world.reserve(1)) == (409, "BUDGET_EXCEEDED")
    shown = await overview_with(world, "recent_denials")
    assert (shown["as_of"], shown["event_window_seconds"]) == (show_instant(B), 3_600)
    assert shown["tenant_counts"] == {"total": 3, "active": 2, "suspended": 1, "closed": 0}
    assert shown["budget_counts"] == {
        "total": 2,
        "active": 2,
        "frozen": 0,
        "closed": 0,
        "over_limit": 1,
        "with_debt": 1,
        "by_unit": {TOKENS: 2},
    }
    assert [(row["scope"], row["debt"]) for row in shown["debt_scopes"]] == [(TENANT, 50)]
    assert [row["scope"] for row in shown["over_limit_scopes"]] == [BOT]
    (denial,) = shown["recent_denials"]
    assert (denial["event_type"], denial["tenant_id"], denial["source"]) == (
        "reservation.denied",
        ACME,
        "cycles-server",
    )
    assert denial["data"]["reason_code"] == "BUDGET_EXCEEDED"
    assert denial["actor"]["type"] == "api_key"
    assert shown["event_counts"]["by_category"]["reservation"] == 1


async def test_what_expired_lately_is_in_the_overview(world: World) -> None:
    await world.budget(TENANT, 10)
    reservation_id = await world.held(1, ttl_ms=1_000, grace_period_ms=0)
    world.clock.advance(1_001)
    ok(await world.reserve(1))
    (expiry,) = (await overview_with(world, "recent_expiries"))["recent_expiries"]
    assert (expiry["source"], expiry["data"]["reservation_id"]) == ("expiry-sweeper", reservation_id)
    assert (expiry["data"]["created_at"], expiry["data"]["expired_at"]) == (show_instant(B), show_instant(B + 1_001))
