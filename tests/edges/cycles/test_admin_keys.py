"""API keys, introspection and validation on the admin plane (sections 7 and 11.2; scenario 130)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from domain.instants import show_instant
from server.rest.cycles.admin.introspection import CAPABILITIES, OPERATORS_ONLY, WORDS, capabilities_of
from tests.edges.cycles.contract import documents
from tests.edges.cycles.world import ACME, ADMIN, OTHER, ROOT_KEY, TENANT, B, World, ok, refused

INVALID = (400, "INVALID_REQUEST")
DAY = 86_400_000
DEFAULT = [
    "reservations:create",
    "reservations:commit",
    "reservations:release",
    "reservations:extend",
    "reservations:list",
    "balances:read",
    "budgets:read",
    "budgets:write",
    "policies:read",
    "policies:write",
]


async def test_a_key_is_told_once_with_what_it_may(world: World) -> None:
    made = await world.add_key("worker", description="the batch", metadata={"team": ["a"]}, scope_filter=["agent:Bot"])
    assert made["permissions"] == DEFAULT
    assert (made["tenant_id"], made["created_at"], made["expires_at"]) == (
        ACME,
        show_instant(B),
        show_instant(B + 90 * DAY),
    )
    assert made["key_prefix"] in made["key_secret"]
    (shown,) = [key for key in await _listed(world, tenant_id=ACME) if key["key_id"] == made["key_id"]]
    assert shown == {
        "key_id": made["key_id"],
        "tenant_id": ACME,
        "key_prefix": made["key_prefix"],
        "name": "worker",
        "description": "the batch",
        "permissions": DEFAULT,
        "scope_filter": ["agent:bot"],
        "metadata": {"team": ["a"]},
        "status": "ACTIVE",
        "created_at": made["created_at"],
        "expires_at": made["expires_at"],
    }


async def test_the_secret_stands_where_the_quickstart_looks_for_it(world: World) -> None:
    answer = await world.post("/v1/admin/api-keys", {"tenant_id": ACME, "name": "k"}, by=ADMIN)
    assert f'"key_secret":"{answer.json()["key_secret"]}"' in answer.text


@pytest.mark.parametrize(
    "changes",
    [
        {"name": ""},
        {"name": None},
        {"permissions": ["reservations:steal"]},
        {"permissions": ["compute:quotas:read"]},
        {"permissions": ["*"]},
        {"permissions": "reservations:create"},
        {"scope_filter": ["everything"]},
        {"expires_at": "tomorrow"},
        {"expires_at": show_instant(B)},
        {"description": "d" * 1_025},
        {"metadata": []},
        {"key_secret": "mine"},
    ],
)
async def test_what_a_new_key_may_not_be(world: World, changes: dict[str, Any]) -> None:
    body = {"tenant_id": ACME, "name": "k", **changes}
    assert refused(await world.post("/v1/admin/api-keys", body, by=ADMIN)) == INVALID


async def test_a_mistake_is_named_as_the_wire_names_it(world: World) -> None:
    body = {"tenant_id": ACME, "name": "k", "expires_at": show_instant(B)}
    answer = await world.post("/v1/admin/api-keys", body, by=ADMIN)
    assert answer.json()["details"] == {"field": "expires_at", "reason": "in-the-past"}


async def test_a_key_for_nobody_is_a_mistake_of_the_request(world: World) -> None:
    answer = await world.post("/v1/admin/api-keys", {"tenant_id": "nobody", "name": "k"}, by=ADMIN)
    assert refused(answer) == (400, "TENANT_NOT_FOUND")


async def test_an_update_changes_what_it_names(world: World) -> None:
    made = await world.add_key("worker", description="old")
    path = f"/v1/admin/api-keys/{made['key_id']}"
    changes = {"permissions": ["balances:read"], "scope_filter": ["agent:*"], "metadata": {"x": 1}}
    shown = ok(await world.ask("PATCH", path, changes, by=ADMIN))
    assert (shown["name"], shown["description"]) == ("worker", "old")
    assert (shown["permissions"], shown["scope_filter"], shown["metadata"]) == (
        ["balances:read"],
        ["agent:*"],
        {"x": 1},
    )
    for unchangeable in ({"tenant_id": OTHER}, {"expires_at": show_instant(B)}, {"status": "ACTIVE"}):
        assert refused(await world.ask("PATCH", path, unchangeable, by=ADMIN)) == INVALID


async def test_a_key_is_revoked_once_and_changed_no_more(world: World) -> None:
    made = await world.add_key("worker")
    path = f"/v1/admin/api-keys/{made['key_id']}"
    shown = ok(await world.ask("DELETE", path, by=ADMIN, reason="leaked"))
    assert (shown["status"], shown["revoked_at"], shown["revoked_reason"]) == ("REVOKED", show_instant(B), "leaked")
    (kept,) = await _listed(world, search=made["key_id"])
    assert kept == shown
    revoked = (409, "KEY_REVOKED")
    assert refused(await world.ask("DELETE", path, by=ADMIN)) == revoked
    assert refused(await world.ask("PATCH", path, {"name": "x"}, by=ADMIN)) == revoked


async def test_a_revoked_key_is_out_at_once_where_it_was_revoked(world: World) -> None:
    """Not only when what was remembered of it is looked up again."""
    made = await world.add_key("worker")
    ok(await world.ask("GET", "/v1/reservations", by="worker"))
    ok(await world.ask("DELETE", f"/v1/admin/api-keys/{made['key_id']}", by=ADMIN))
    assert refused(await world.ask("GET", "/v1/reservations", by="worker")) == (401, "UNAUTHORIZED")


async def test_a_key_that_is_over_is_changed_no_more(world: World) -> None:
    made = await world.add_key("worker", expires_at=show_instant(B + DAY))
    world.clock.advance(DAY)
    path = f"/v1/admin/api-keys/{made['key_id']}"
    assert refused(await world.ask("PATCH", path, {"name": "x"}, by=ADMIN)) == (409, "KEY_EXPIRED")
    assert ok(await world.ask("DELETE", path, by=ADMIN))["status"] == "REVOKED"


async def test_a_reason_has_an_end(world: World) -> None:
    made = await world.add_key("worker")
    path = f"/v1/admin/api-keys/{made['key_id']}"
    assert refused(await world.ask("DELETE", path, by=ADMIN, reason="r" * 513)) == INVALID
    assert "revoked_reason" not in ok(await world.ask("DELETE", path, by=ADMIN, reason=""))


async def test_a_key_may_have_no_permission_at_all(world: World) -> None:
    assert (await world.add_key("idle", permissions=[]))["permissions"] == []


@pytest.mark.parametrize("key_id", ["key_00000000000000000000000000", "nonsense"])
async def test_an_unknown_key_is_not_found(world: World, key_id: str) -> None:
    for method, body in (("PATCH", {"name": "x"}), ("DELETE", None)):
        assert refused(await world.ask(method, f"/v1/admin/api-keys/{key_id}", body, by=ADMIN)) == (404, "NOT_FOUND")


async def test_only_an_operator_manages_keys_here(world: World) -> None:
    for answer in (
        await world.post("/v1/admin/api-keys", {"tenant_id": ACME, "name": "k"}),
        await world.get("/v1/admin/api-keys"),
        await world.post("/v1/auth/validate", {"key_secret": ROOT_KEY}),
    ):
        assert refused(answer) == (401, "UNAUTHORIZED")


# -- lists -------------------------------------------------------------------------------------------------------------


async def _listed(world: World, **params: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    while True:
        body = ok(await world.get("/v1/admin/api-keys", by=ADMIN, **params, **cursor))
        found += body["keys"]
        if not body["has_more"]:
            return found
        cursor = {"cursor": body["next_cursor"]}


@pytest.fixture
async def several(world: World) -> None:
    """Keys `b` (revoked), `a` and `c` (of another tenant), after the tenants' own; `a` is over after a day."""
    await world.add_tenant(OTHER)
    for name, tenant_id, changes in (
        ("b", ACME, {}),
        ("a", ACME, {"expires_at": show_instant(B + DAY)}),
        ("c", OTHER, {}),
    ):
        world.clock.advance(1_000)
        made = await world.add_key(name, tenant_id, **changes)
        if name == "b":
            ok(await world.ask("DELETE", f"/v1/admin/api-keys/{made['key_id']}", by=ADMIN))


@pytest.mark.usefixtures("several")
@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"tenant_id": ACME}, ["a", "b", ACME]),
        ({"tenant_id": ACME, "limit": 1}, ["a", "b", ACME]),
        ({"tenant_id": ACME, "sort_by": "name", "sort_dir": "asc", "limit": 2}, ["a", ACME, "b"]),
        ({"tenant_id": ACME, "status": "REVOKED"}, ["b"]),
        ({"tenant_id": ACME, "status": "ACTIVE", "search": "A"}, ["a", ACME]),
        ({"search": "CORP", "limit": 1}, [OTHER]),
        ({"sort_by": "tenant_id", "sort_dir": "desc", "search": "other", "limit": 1}, [OTHER]),
        ({"tenant_id": "nobody"}, []),
    ],
)
async def test_keys_are_listed_in_any_order(world: World, params: dict[str, Any], expected: list[str]) -> None:
    found = [key["name"] for key in await _listed(world, **params)]
    assert [name for name in found if name != "EARMARK_ROOT_KEY" and "root" not in name] == expected


@pytest.mark.usefixtures("several")
async def test_a_key_that_is_over_says_so(world: World) -> None:
    world.clock.advance(DAY)
    assert [key["name"] for key in await _listed(world, status="EXPIRED")] == ["a"]


@pytest.mark.usefixtures("several")
async def test_a_cursor_of_keys_is_bound_to_its_list(world: World) -> None:
    cursor = ok(await world.get("/v1/admin/api-keys", by=ADMIN, limit=1, tenant_id=ACME))["next_cursor"]
    for params in ({}, {"tenant_id": OTHER}, {"tenant_id": ACME, "sort_dir": "asc"}):
        answer = await world.get("/v1/admin/api-keys", by=ADMIN, limit=1, cursor=cursor, **params)
        assert refused(answer) == INVALID


# -- what a key may ----------------------------------------------------------------------------------------------------


async def test_an_operator_may_everything(world: World) -> None:
    assert ok(await world.get("/v1/auth/introspect", by=ADMIN)) == {
        "authenticated": True,
        "auth_type": "admin",
        "permissions": ["*"],
        "capabilities": dict.fromkeys((*CAPABILITIES, *OPERATORS_ONLY), True),
    }


async def test_an_operator_of_few_permissions_may_few_things(world: World) -> None:
    words = ["admin:tenants:read", "admin:budgets:write"]
    await world.add_operator("assistant", words)
    headers = {"X-Admin-API-Key": world.secrets["assistant"]}
    shown = ok(await world.get("/v1/auth/introspect", by=None, headers=headers))
    assert shown["permissions"] == words
    assert {name for name, given in shown["capabilities"].items() if given} == {"view_tenants", "manage_budgets"}
    ok(await world.get("/v1/admin/tenants", by=None, headers=headers))
    answer = await world.post("/v1/admin/tenants", {"nonsense": 1}, by=None, headers=headers)
    assert refused(answer) == (403, "INSUFFICIENT_PERMISSIONS")


async def test_the_protocols_own_words_for_keys_will_do(world: World) -> None:
    await world.add_operator("reader", ["admin:apikeys:read"])
    await world.add_operator("maker", ["admin:apikeys:write", "balances:read"])
    path, body = "/v1/admin/api-keys", {"tenant_id": ACME, "name": "k", "permissions": ["balances:read"]}
    reader, maker = ({"by": None, "headers": {"X-Admin-API-Key": world.secrets[name]}} for name in ("reader", "maker"))
    assert ok(await world.get(path, **reader))["keys"]
    assert refused(await world.post(path, body, **reader)) == (403, "INSUFFICIENT_PERMISSIONS")
    assert refused(await world.get(path, **maker)) == (403, "INSUFFICIENT_PERMISSIONS")
    made = ok(await world.post(path, body, **maker), 201)
    assert refused(await world.post(path, {**body, "permissions": ["budgets:write"]}, **maker))[0] == 403
    ok(await world.ask("DELETE", f"{path}/{made['key_id']}", **maker))


async def test_a_tenants_key_tells_what_it_may(world: World) -> None:
    await world.add_key("narrow", permissions=["events:read", "budgets:write"], scope_filter=["agent:bot"])
    shown = ok(await world.get("/v1/auth/introspect", by="narrow"))
    assert (shown["auth_type"], shown["tenant_id"], shown["scope_filter"]) == ("tenant", ACME, ["agent:bot"])
    assert shown["permissions"] == ["budgets:write", "events:read"]
    assert {name for name, given in shown["capabilities"].items() if given} == {"view_events", "manage_budgets"}
    assert "scope_filter" not in ok(await world.get("/v1/auth/introspect"))


TABLE: Mapping[str, set[str]] = {
    "reservations:list": {"view_reservations"},
    "reservations:commit": {"view_reservations", "manage_reservations"},
    "budgets:read": {"view_budgets"},
    "policies:write": {"manage_policies"},
    "webhooks:read": {"view_webhooks"},
    "balances:read": set(),
    "admin:read": {"view_budgets", "view_policies", "view_webhooks", "view_events", "view_reservations"},
    "admin:write": {"manage_budgets", "manage_policies", "manage_webhooks", "manage_reservations"},
    "admin:tenants:write": set(),
    "admin:apikeys:read": set(),
    "admin:audit:read": set(),
    "admin:events:read": {"view_events"},
}


@pytest.mark.parametrize("word", TABLE)
def test_s130_capabilities_follow_the_published_table(word: str) -> None:
    derived = capabilities_of([word])
    assert {name for name, given in derived.items() if given} == TABLE[word]
    assert set(derived) == {*CAPABILITIES, *OPERATORS_ONLY}


def test_the_permissions_are_the_published_ones() -> None:
    if documents() is None:
        pytest.skip("the protocol's OpenAPI documents are not here")
    _, admin = documents() or ()
    assert set(WORDS) == set(admin.content["components"]["schemas"]["Permission"]["enum"])


async def _worth(world: World, secret: str) -> dict[str, Any]:
    return ok(await world.post("/v1/auth/validate", {"key_secret": secret}, by=ADMIN))


async def test_a_secret_is_worth_what_its_key_is(world: World) -> None:
    made = await world.add_key("worker", permissions=["balances:read"], scope_filter=["agent:*"])
    assert await _worth(world, made["key_secret"]) == {
        "valid": True,
        "tenant_id": ACME,
        "key_id": made["key_id"],
        "permissions": ["balances:read"],
        "scope_filter": ["agent:*"],
        "expires_at": made["expires_at"],
    }
    ok(await world.ask("DELETE", f"/v1/admin/api-keys/{made['key_id']}", by=ADMIN))
    assert await _worth(world, made["key_secret"]) == {
        "valid": False,
        "tenant_id": ACME,
        "key_id": made["key_id"],
        "reason": "KEY_REVOKED",
    }


async def test_a_worthless_secret_says_why(world: World) -> None:
    await world.budget(TENANT, 1)
    made = await world.add_key("short", expires_at=show_instant(B + 1))
    assert (await _worth(world, "x"))["reason"] == "INVALID_KEY"
    assert (await _worth(world, "y" * 40))["reason"] == "KEY_NOT_FOUND"
    assert (await _worth(world, made["key_secret"][:-1] + "\u00e4"))["reason"] == "KEY_NOT_FOUND"
    world.clock.advance(1)
    assert (await _worth(world, made["key_secret"]))["reason"] == "KEY_EXPIRED"
    for status, reason in (("SUSPENDED", "TENANT_SUSPENDED"), ("CLOSED", "KEY_REVOKED")):
        await world.set_tenant(status=status)
        assert (await _worth(world, world.secrets[ACME]))["reason"] == reason
