"""Tenants on the admin plane (section 11.1)."""

from __future__ import annotations

from typing import Any

import pytest

from domain.instants import show_instant
from domain.outcomes import Accepted
from tests.edges.cycles.world import ACME, ADMIN, BOT, OPERATOR, OTHER, TENANT, B, World, ok, refused

INVALID = (400, "INVALID_REQUEST")


async def test_a_tenant_is_made_once_and_found_again(world: World) -> None:
    body = {
        "tenant_id": "new-one",
        "name": "New One",
        "parent_tenant_id": ACME,
        "metadata": {"plan": "gold"},
        "default_commit_overage_policy": "REJECT",
        "default_reservation_ttl_ms": 5_000,
        "max_reservation_ttl_ms": 10_000,
        "max_reservation_extensions": 0,
        "reservation_expiry_policy": "GRACE_ONLY",
    }
    made = ok(await world.post("/v1/admin/tenants", body, by=ADMIN), 201)
    assert made == {**body, "status": "ACTIVE", "created_at": show_instant(B)} | {
        name: made[name] for name in made.keys() & {"updated_at"}
    }
    again = ok(await world.post("/v1/admin/tenants", {**body, "max_reservation_extensions": 5}, by=ADMIN), 200)
    assert again == made
    assert ok(await world.get("/v1/admin/tenants/new-one", by=ADMIN)) == again
    taken = await world.post("/v1/admin/tenants", {"tenant_id": "new-one", "name": "Somebody else"}, by=ADMIN)
    assert refused(taken) == (409, "DUPLICATE_RESOURCE")


async def test_a_tenant_shows_the_defaults_that_hold_for_it(world: World) -> None:
    assert (
        ok(await world.get(f"/v1/admin/tenants/{ACME}", by=ADMIN)).items()
        >= {
            "default_commit_overage_policy": "ALLOW_IF_AVAILABLE",
            "default_reservation_ttl_ms": 60_000,
            "max_reservation_ttl_ms": 3_600_000,
            "max_reservation_extensions": 10,
            "reservation_expiry_policy": "AUTO_RELEASE",
        }.items()
    )


@pytest.mark.parametrize("tenant_id", ["Acme:EU", "x", "under_score", "a" * 65])
async def test_a_tenant_that_the_wire_cannot_name_is_none_of_its_tenants(world: World, tenant_id: str) -> None:
    """It was made elsewhere. Its keys and budgets are as good as anybody's."""
    made = await world.node.tenancy.create_tenant(OPERATOR, tenant_id=tenant_id, name="Elsewhere")
    assert isinstance(made, Accepted)
    assert await listed(world) == [ACME, "root"]
    expected = (404, "TENANT_NOT_FOUND")
    assert refused(await world.get(f"/v1/admin/tenants/{tenant_id}", by=ADMIN)) == expected
    assert refused(await world.ask("PATCH", f"/v1/admin/tenants/{tenant_id}", {"name": "x"}, by=ADMIN)) == expected
    await world.add_key("theirs", tenant_id)
    assert ok(await world.get("/v1/auth/introspect", by="theirs"))["tenant_id"] == tenant_id
    assert [
        key["tenant_id"] for key in ok(await world.get("/v1/admin/api-keys", by=ADMIN, tenant_id=tenant_id))["keys"]
    ]


async def test_a_tenant_may_be_called_like_a_word_of_the_paths(world: World) -> None:
    for tenant_id in ("bulk-action", "lookup", "tenants"):
        await world.add_tenant(tenant_id)
        assert (await world.set_tenant(tenant_id, name="New"))["name"] == "New"
        assert ok(await world.get(f"/v1/admin/tenants/{tenant_id}", by=ADMIN))["tenant_id"] == tenant_id


@pytest.mark.parametrize(
    "changes",
    [
        {"tenant_id": "ab"},
        {"tenant_id": "a" * 65},
        {"tenant_id": "Acme"},
        {"tenant_id": "a_b-c"},
        {"tenant_id": "abc\n"},
        {"name": ""},
        {"name": "n" * 257},
        {"name": None},
        {"metadata": {"x": 1}},
        {"metadata": {str(number): "x" for number in range(33)}},
        {"default_reservation_ttl_ms": 999},
        {"max_reservation_ttl_ms": 86_400_001},
        {"max_reservation_extensions": -1},
        {"reservation_expiry_policy": "NEVER"},
        {"parent_tenant_id": ""},
        {"parent_tenant_id": "new-one"},
        {"parent_tenant_id": "a b"},
        {"status": "ACTIVE"},
    ],
)
async def test_what_a_new_tenant_may_not_be(world: World, changes: dict[str, Any]) -> None:
    body = {"tenant_id": "new-one", "name": "New One", **changes}
    assert refused(await world.post("/v1/admin/tenants", body, by=ADMIN)) == INVALID


async def test_only_an_operator_manages_tenants(world: World) -> None:
    for answer in (
        await world.post("/v1/admin/tenants", {"tenant_id": "new-one", "name": "x"}),
        await world.get("/v1/admin/tenants"),
        await world.get(f"/v1/admin/tenants/{ACME}"),
        await world.ask("PATCH", f"/v1/admin/tenants/{ACME}", {"name": "x"}),
    ):
        assert refused(answer) == (401, "UNAUTHORIZED")
        assert "X-Admin-API-Key" in answer.json()["message"]


async def test_an_unknown_tenant_is_not_found(world: World) -> None:
    expected = (404, "TENANT_NOT_FOUND")
    assert refused(await world.get("/v1/admin/tenants/nobody", by=ADMIN)) == expected
    assert refused(await world.ask("PATCH", "/v1/admin/tenants/nobody", {"name": "x"}, by=ADMIN)) == expected


async def test_what_is_changed_is_shown_and_what_is_not_given_stays(world: World) -> None:
    await world.set_tenant(metadata={"a": "1"}, max_reservation_extensions=3)
    world.clock.advance(1_000)
    shown = await world.set_tenant(name="Acme Ltd", default_commit_overage_policy="ALLOW_WITH_OVERDRAFT")
    assert (shown["name"], shown["metadata"], shown["max_reservation_extensions"]) == ("Acme Ltd", {"a": "1"}, 3)
    assert shown["updated_at"] == show_instant(B + 1_000)


async def test_suspension_is_undone_and_closing_is_not(world: World) -> None:
    await world.budget(TENANT, 10)
    assert (await world.set_tenant(status="SUSPENDED"))["suspended_at"] == show_instant(B)
    shown = await world.set_tenant(status="ACTIVE")
    assert "suspended_at" not in shown
    assert (await world.set_tenant(status="CLOSED"))["closed_at"] == show_instant(B)
    answer = await world.ask("PATCH", f"/v1/admin/tenants/{ACME}", {"name": "x"}, by=ADMIN)
    assert refused(answer) == (409, "TENANT_CLOSED")


async def test_closing_takes_holds_budgets_and_keys_along_and_says_so(world: World) -> None:
    await world.budget(TENANT, 100)
    await world.budget(BOT, 100)
    held = await world.held(10, subject={"tenant": ACME, "agent": "bot"})
    closing = await world.ask("PATCH", f"/v1/admin/tenants/{ACME}", {"status": "CLOSED"}, by=ADMIN)
    ok(closing)
    for scope in (TENANT, BOT):
        assert await world.numbers(scope, "status", "reserved", "remaining") == ("CLOSED", 0, 100)
    keys = ok(await world.get("/v1/admin/api-keys", by=ADMIN, tenant_id=ACME))["keys"]
    assert [(key["status"], key["revoked_reason"]) for key in keys] == [("REVOKED", "tenant_closed")]
    logs = ok(await world.get("/v1/admin/audit/logs", by=ADMIN, request_id=closing.headers["x-request-id"]))["logs"]
    assert sorted(entry["operation"] for entry in logs) == [
        "api_key.revoked_via_tenant_cascade",
        "budget.closed_via_tenant_cascade",
        "budget.closed_via_tenant_cascade",
        "reservation.released_via_tenant_cascade",
        "updateTenant",
    ]
    assert {entry["resource_id"] for entry in logs} >= {held, ACME, keys[0]["key_id"]}
    correlation = f"tenant_close_cascade:{ACME}:{closing.headers['x-request-id']}"
    assert {entry["metadata"]["correlation_id"] for entry in logs} == {correlation}


async def test_nothing_is_made_for_a_closed_tenant(world: World) -> None:
    await world.budget(TENANT, 100)
    key_id = (await world.add_key("old"))["key_id"]
    await world.set_tenant(status="CLOSED")
    closed = (409, "TENANT_CLOSED")
    budget = {"tenant_id": ACME, "scope": BOT, "unit": "TOKENS", "allocated": {"unit": "TOKENS", "amount": 1}}
    policy = {"tenant_id": ACME, "name": "p", "scope_pattern": TENANT}
    place = {"scope": TENANT, "unit": "TOKENS"}
    for answer in (
        await world.post("/v1/admin/budgets", budget, by=ADMIN),
        await world.fund("CREDIT", 1),
        await world.post("/v1/admin/budgets/freeze", {}, by=ADMIN, **place),
        await world.ask("PATCH", "/v1/admin/budgets", {}, by=ADMIN, **place),
        await world.post("/v1/admin/policies", policy, by=ADMIN),
        await world.post("/v1/admin/api-keys", {"tenant_id": ACME, "name": "k"}, by=ADMIN),
        await world.ask("PATCH", f"/v1/admin/api-keys/{key_id}", {"name": "x"}, by=ADMIN),
        await world.ask("DELETE", f"/v1/admin/api-keys/{key_id}", by=ADMIN),
    ):
        assert refused(answer) == closed


@pytest.fixture
async def several(world: World) -> list[str]:
    """Tenants in the order in which they were made; the operator's own is there before them."""
    names = ["bravo", "alpha", "charlie"]
    for name in names:
        world.clock.advance(1_000)
        parent = {"parent_tenant_id": "alpha"} if name == "charlie" else {}
        body = {"tenant_id": name, "name": f"{name} inc", **parent}
        ok(await world.post("/v1/admin/tenants", body, by=ADMIN), 201)
    await world.set_tenant("charlie", status="SUSPENDED")
    return names


async def listed(world: World, **params: Any) -> list[str]:
    found: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        body = ok(await world.get("/v1/admin/tenants", by=ADMIN, **params, **cursor))
        found += [tenant["tenant_id"] for tenant in body["tenants"]]
        if not body["has_more"]:
            return found
        cursor = {"cursor": body["next_cursor"]}


@pytest.mark.usefixtures("several")
@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, ["charlie", "alpha", "bravo", ACME, "root"]),
        ({"limit": 2}, ["charlie", "alpha", "bravo", ACME, "root"]),
        ({"sort_by": "tenant_id", "sort_dir": "asc", "limit": 1}, [ACME, "alpha", "bravo", "charlie", "root"]),
        ({"status": "SUSPENDED"}, ["charlie"]),
        ({"search": "INC"}, ["charlie", "alpha", "bravo"]),
        ({"search": ""}, ["charlie", "alpha", "bravo", ACME, "root"]),
        ({"parent_tenant_id": "alpha"}, ["charlie"]),
        ({"parent_tenant_id": "bravo"}, []),
    ],
)
async def test_tenants_are_listed_in_any_order(world: World, params: dict[str, Any], expected: list[str]) -> None:
    found = await listed(world, **params)
    # What was made in the same millisecond is in the order of its ids.
    assert found == expected or found[:-2] + sorted(found[-2:]) == expected


@pytest.mark.parametrize("params", [{"limit": "101"}, {"status": "GONE"}, {"sort_by": "size"}, {"search": "x" * 129}])
async def test_a_malformed_list_is_refused(world: World, params: dict[str, Any]) -> None:
    assert refused(await world.get("/v1/admin/tenants", by=ADMIN, **params)) == INVALID
    assert OTHER not in await listed(world)
