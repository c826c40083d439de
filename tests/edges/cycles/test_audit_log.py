"""The audit log on the admin plane (section 11.7): what was done, what failed, and how both are found."""

from __future__ import annotations

import re
from typing import Any

import pytest

from domain.instants import show_instant
from domain.outcomes import Accepted
from tests.edges.cycles.world import ACME, ADMIN, OPERATOR, OTHER, TENANT, TOKENS, B, Json, World, ok, refused, tokens
from workers.budget.audit_log import UNKNOWN_A_MINUTE

INVALID = (400, "INVALID_REQUEST")
ALL = ["freezeBudget", "fundBudget", "createBudget", "createTenant"]
"""What the history consists of, the newest first, but for the tenant's key: that is of the tenant's instant."""


async def logs(world: World, **params: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    while True:
        body = ok(await world.get("/v1/admin/audit/logs", by=ADMIN, **params, **cursor))
        found += body["logs"]
        if not body["has_more"]:
            return found
        cursor = {"cursor": body["next_cursor"]}


@pytest.fixture
async def history(world: World) -> dict[str, Any]:
    """The tenant (made at B), a budget opened by it, funded by an operator, and frozen; a second apart."""
    world.clock.advance(1_000)
    body = {"scope": TENANT, "unit": TOKENS, "allocated": tokens(10)}
    ledger = ok(await world.post("/v1/admin/budgets", body), 201)
    world.clock.advance(1_000)
    funded = await world.fund("CREDIT", 5, reason="month")
    world.clock.advance(1_000)
    ok(await world.post("/v1/admin/budgets/freeze", {"reason": "stop"}, by=ADMIN, scope=TENANT, unit=TOKENS))
    return {"ledger_id": ledger["ledger_id"], "funded": funded}


async def test_what_was_changed_is_on_record(world: World, history: dict[str, Any]) -> None:
    entries = [entry for entry in await logs(world, tenant_id=ACME) if entry["operation"] != "createApiKey"]
    assert [entry["operation"] for entry in entries] == ALL
    funded = entries[1]
    assert funded == {
        "log_id": funded["log_id"],
        "timestamp": show_instant(B + 2_000),
        "tenant_id": ACME,
        "operation": "fundBudget",
        "status": 200,
        "resource_type": "budget",
        "resource_id": history["ledger_id"],
        "key_id": funded["key_id"],
        "source_ip": "192.0.2.7",
        "user_agent": funded["user_agent"],
        "request_id": history["funded"].headers["x-request-id"],
        "trace_id": history["funded"].headers["x-cycles-trace-id"],
        "amount": tokens(5),
        "metadata": {
            "operation": "CREDIT",
            "actor_type": "admin_on_behalf_of",
            "scope": TENANT,
            "reason": "month",
        },
    }
    actors = [entry["metadata"]["actor_type"] for entry in entries]
    assert actors == ["admin", "admin_on_behalf_of", "api_key", "admin"]
    assert [entry["status"] for entry in entries] == [200, 200, 201, 201]


@pytest.mark.usefixtures("history")
@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"limit": 1}, ALL),
        ({"sort_by": "operation", "sort_dir": "asc"}, sorted(ALL)),
        (
            {"sort_by": "status", "sort_dir": "asc", "operation": "createBudget,fundBudget"},
            ["fundBudget", "createBudget"],
        ),
        ({"operation": "fundBudget,createBudget"}, ["fundBudget", "createBudget"]),
        ({"resource_type": "tenant"}, ["createTenant"]),
        ({"status": "201"}, ["createBudget", "createTenant"]),
        ({"status": "99999999999"}, []),
        ({"search": "FUNDB"}, ["fundBudget"]),
        ({"search": "month"}, []),
        ({"status": "200"}, ["freezeBudget", "fundBudget"]),
        ({"status_min": "200", "status_max": "299"}, ALL),
        ({"status_min": "400"}, []),
        ({"status": "201", "operation": "fundBudget"}, []),
        ({"error_code": "BUDGET_EXCEEDED"}, []),
        (
            {"error_code_exclude": "INTERNAL_ERROR", "limit": 2},
            ALL,
        ),
        ({"from_": show_instant(B + 2_000)}, ["freezeBudget", "fundBudget"]),
        ({"to": show_instant(B + 999)}, ["createTenant"]),
        ({"trace_id": "0" * 31 + "1"}, []),
    ],
)
async def test_the_record_is_searched(world: World, params: dict[str, Any], expected: list[str]) -> None:
    found = [entry["operation"] for entry in await logs(world, tenant_id=ACME, **params)]
    assert [operation for operation in found if operation != "createApiKey"] == expected


@pytest.mark.parametrize(
    "params",
    [
        {"status": "200", "status_min": "200"},
        {"status_min": "300", "status_max": "200"},
        {"status_min": "99"},
        {"status": "ok"},
        {"operation": ",".join(["x"] * 26)},
        {"error_code": ",".join(["x"] * 26)},
        {"error_code_exclude": ",".join(["x"] * 26)},
        {"resource_type": ",".join(["x"] * 26)},
        {"sort_by": "size"},
        {"from_": "2027-01-15T08:00:01Z", "to": "2027-01-15T08:00:00Z"},
        {"search": "x" * 129},
        {"limit": "many"},
    ],
)
async def test_a_malformed_search_is_refused(world: World, params: dict[str, Any]) -> None:
    assert refused(await world.get("/v1/admin/audit/logs", by=ADMIN, **params)) == INVALID


async def test_the_record_is_the_operators(world: World) -> None:
    assert refused(await world.get("/v1/admin/audit/logs")) == (401, "UNAUTHORIZED")


# -- what failed -------------------------------------------------------------------------------------------------------


async def failed(world: World, **params: Any) -> list[dict[str, Any]]:
    return await logs(world, status_min=400, **params)


async def test_what_a_tenant_was_refused_is_on_its_record(world: World) -> None:
    answer = await world.post("/v1/admin/budgets/fund", {"operation": "GIVE"}, scope=TENANT, unit=TOKENS)
    assert refused(answer) == INVALID
    (entry,) = await failed(world)
    assert entry == {
        "log_id": entry["log_id"],
        "timestamp": show_instant(B),
        "tenant_id": ACME,
        "operation": "fundBudget",
        "status": 400,
        "error_code": "INVALID_REQUEST",
        "resource_type": "budget",
        "key_id": entry["key_id"],
        "source_ip": "192.0.2.7",
        "user_agent": entry["user_agent"],
        "request_id": answer.headers["x-request-id"],
        "trace_id": answer.headers["x-cycles-trace-id"],
        "metadata": {
            "method": "POST",
            "path": "/v1/admin/budgets/fund",
            "actor_type": "api_key",
            "error_message": answer.json()["message"],
        },
    }


async def test_what_an_operator_was_refused_is_nobodys_in_particular(world: World) -> None:
    assert refused(await world.get("/v1/admin/tenants/nobody", by=ADMIN)) == (404, "TENANT_NOT_FOUND")
    (entry,) = await failed(world, tenant_id="__admin__")
    assert (entry["operation"], entry["status"], entry["error_code"]) == ("getTenant", 404, "TENANT_NOT_FOUND")
    assert (entry["resource_type"], entry["resource_id"]) == ("tenant", "nobody")
    assert entry["metadata"]["actor_type"] == "admin"


async def test_whoever_had_no_valid_key_is_on_record_too(world: World) -> None:
    headers = {"X-Admin-API-Key": "x" * 40, "User-Agent": "curious/1.0"}
    assert refused(await world.get("/v1/admin/overview", by=None, headers=headers)) == (401, "UNAUTHORIZED")
    (entry,) = await failed(world, tenant_id="__unauth__")
    assert (entry["operation"], entry["error_code"], entry["user_agent"]) == (
        "getAdminOverview",
        "UNAUTHORIZED",
        "curious/1.0",
    )
    assert "key_id" not in entry


async def test_strangers_cannot_fill_the_record(world: World) -> None:
    for _ in range(UNKNOWN_A_MINUTE + 5):
        assert refused(await world.get("/v1/admin/overview", by=None)) == (401, "UNAUTHORIZED")
    assert len(await failed(world)) == UNKNOWN_A_MINUTE
    assert refused(await world.get("/v1/admin/tenants/nobody", by=ADMIN))[0] == 404
    assert len(await failed(world, tenant_id="__admin__")) == 1
    world.clock.advance(60_000)
    assert refused(await world.get("/v1/admin/overview", by=None)) == (401, "UNAUTHORIZED")
    assert len(await failed(world, tenant_id="__unauth__")) == UNKNOWN_A_MINUTE + 1


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, ["getTenant", "createBudget", "updatePolicy"]),
        ({"error_code": "TENANT_NOT_FOUND,NOT_FOUND"}, ["getTenant", "updatePolicy"]),
        ({"error_code": "tenant_not_found"}, []),
        ({"error_code": "OF_THE_FUTURE"}, []),
        ({"error_code_exclude": "NOT_FOUND"}, ["getTenant", "createBudget", "createTenant", "createApiKey"]),
        ({"error_code": "NOT_FOUND,INVALID_REQUEST", "error_code_exclude": "NOT_FOUND"}, ["createBudget"]),
        ({"status": 404}, ["getTenant", "updatePolicy"]),
        ({"status_max": 403}, ["createBudget", "createTenant", "createApiKey"]),
        ({"search": "tenant_not"}, ["getTenant"]),
        (
            {"sort_by": "status", "status_min": 300, "sort_dir": "asc", "limit": 1},
            ["createBudget", "getTenant", "updatePolicy"],
        ),
    ],
)
async def test_failures_are_found_by_what_they_were(world: World, params: dict[str, Any], expected: list[str]) -> None:
    assert refused(await world.ask("PATCH", "/v1/admin/policies/pol_none", {}, by=ADMIN))[0] == 404
    world.clock.advance(1)
    assert refused(await world.post("/v1/admin/budgets", {}))[0] == 400
    world.clock.advance(1)
    assert refused(await world.get("/v1/admin/tenants/nobody", by=ADMIN))[0] == 404
    given = params or {"status_min": 400}
    found = [entry["operation"] for entry in await logs(world, **given)]
    assert sorted(found) == sorted(expected)


async def test_an_entry_keeps_what_can_be_kept_of_what_was_sent(world: World) -> None:
    assert refused(await world.get("/v1/admin/tenants/a%00b%0Ac", by=ADMIN))[0] == 404
    (entry,) = await failed(world)
    assert entry["resource_id"] == "a?b c"


async def test_the_runtime_plane_is_not_on_record(world: World) -> None:
    assert refused(await world.reserve(1)) == (404, "NOT_FOUND")
    assert refused(await world.reserve(1, by="nobody" * 8)) == (401, "UNAUTHORIZED")
    assert refused(await world.get("/v1/nowhere", by=ADMIN))[0] == 404
    assert await failed(world) == []


# -- what was done -----------------------------------------------------------------------------------------------------


async def test_what_happens_to_keys_and_tenants_is_on_record(world: World) -> None:
    key_id = (await world.add_key("worker", permissions=["balances:read"]))["key_id"]
    path = f"/v1/admin/api-keys/{key_id}"
    ok(await world.ask("PATCH", path, {"name": "clerk", "description": "x"}, by=ADMIN))
    ok(await world.ask("DELETE", path, by=ADMIN, reason="gone\naway"))
    told = {entry["operation"]: entry for entry in await logs(world, resource_id=key_id)}
    assert {name: entry["status"] for name, entry in told.items()} == {
        "createApiKey": 201,
        "updateApiKey": 200,
        "revokeApiKey": 200,
    }
    assert told["createApiKey"]["metadata"] == {
        "name": "worker",
        "permissions": ["balances:read"],
        "actor_type": "admin",
    }
    assert told["updateApiKey"]["metadata"]["changed_fields"] == ["name", "description"]
    assert told["revokeApiKey"]["metadata"]["reason"] == "gone away"
    await world.node.tenancy.create_tenant(OPERATOR, tenant_id=OTHER, name="Other")
    await world.node.tenancy.delete_tenant(OPERATOR, tenant_id=OTHER)
    operations = [entry["operation"] for entry in await logs(world, tenant_id=OTHER, resource_type="tenant")]
    assert sorted(operations) == ["createTenant", "deleteTenant"]


async def test_what_changed_nothing_is_on_record_as_well(world: World) -> None:
    ok(await world.post("/v1/admin/tenants", {"tenant_id": ACME, "name": ACME}, by=ADMIN), 200)
    await world.set_tenant(name=ACME)
    entries = await logs(world, tenant_id=ACME, resource_type="tenant")
    assert sorted((entry["operation"], entry["status"]) for entry in entries) == [
        ("createTenant", 200),
        ("createTenant", 201),
        ("updateTenant", 200),
    ]


async def test_a_repeated_funding_is_on_record_once(world: World) -> None:
    await world.budget(TENANT, 10)
    for _ in range(2):
        ok(await world.fund("CREDIT", 5, idempotency_key="once"))
    assert len(await logs(world, operation="fundBudget")) == 1


async def test_an_operators_release_tells_what_was_released(world: World) -> None:
    await world.budget(TENANT, 10)
    held = await world.held(3, subject={"tenant": ACME, "agent": "Bot"})
    ok(await world.release(held, by=ADMIN, reason="[STUCK]"))
    (entry,) = await logs(world, operation="releaseReservation")
    assert (entry["subject"], entry["action"], entry["amount"]) == (
        {"tenant": ACME, "agent": "Bot"},
        {"kind": "llm.completion", "name": "model"},
        tokens(3),
    )
    assert (entry["metadata"]["actor_type"], entry["metadata"]["reason"]) == ("admin_on_behalf_of", "[STUCK]")


AMOUNT = {"unit": TOKENS, "amount": "1"}
REFUSED: tuple[tuple[str, str, Json, tuple[Any, ...]], ...] = (
    (
        "createBudget",
        ACME,
        {"scope": "agent:x", "unit": TOKENS, "allocated": AMOUNT},
        (400, "INVALID_REQUEST", "budget"),
    ),
    ("freezeBudget", ACME, {"scope": TENANT, "unit": TOKENS}, (404, "BUDGET_NOT_FOUND", "budget")),
    ("suspendTenant", ACME, {"tenantId": ACME}, (403, "FORBIDDEN", "tenant")),
    ("createTenant", ACME, {"tenantId": "new", "name": "New"}, (403, "FORBIDDEN", "tenant")),
    ("deleteTenant", ADMIN, {"tenantId": "root"}, (409, "INVALID_REQUEST", "tenant")),
    ("updatePolicy", ACME, {"policyId": "pol_none", "priority": 1}, (404, "NOT_FOUND", "policy")),
    ("deleteProject", ADMIN, {"projectId": "prj_0123456789abcdefghjkmnpqrs"}, (404, "NOT_FOUND", "project")),
    ("revokeApiKey", ADMIN, {"keyId": "key_0123456789abcdefghjkmnpqrs"}, (404, "NOT_FOUND", "api_key")),
    ("deleteWebhook", ADMIN, {"webhookId": "whsub_0123456789abcdefghjkmnpqrs"}, (404, "NOT_FOUND", "webhook")),
)
LOGGED_AS = {"suspendTenant": "updateTenant", "deleteWebhook": "deleteWebhookSubscription"}


@pytest.mark.parametrize(("mutation", "by", "given", "expected"), REFUSED, ids=[each[0] for each in REFUSED])
async def test_what_graphql_refuses_is_on_record_in_the_wires_words(
    world: World, mutation: str, by: str, given: Json, expected: tuple[Any, ...]
) -> None:
    kind = f"{mutation[0].upper()}{mutation[1:]}Input"
    document = f"mutation($input: {kind}!) {{ {mutation}(input: $input) {{ ... on Refusal {{ code message }} }} }}"
    asked = {"query": document, "variables": {"input": given}}
    answer = await world.client.post("/graphql", json=asked, headers={"X-API-Key": world.secrets[by]})
    refusal = answer.json()["data"][mutation]
    (entry,) = await logs(world, operation=LOGGED_AS.get(mutation, mutation), request_id=answer.headers["x-request-id"])
    assert (entry["status"], entry["error_code"], entry["resource_type"]) == expected
    assert entry["tenant_id"] == ("__admin__" if by == ADMIN else ACME)
    assert entry["metadata"]["error_message"] == refusal["message"]
    assert re.fullmatch("[0-9a-f]{32}", entry["trace_id"])


async def test_projects_come_and_go_on_record(world: World) -> None:
    made = await world.node.tenancy.create_project(OPERATOR, tenant_id=ACME, name="Red")
    assert isinstance(made, Accepted)
    world.clock.advance(1)
    for _ in range(2):
        await world.node.tenancy.delete_project(OPERATOR, project_id=made.answer.project_id)
    entries = await logs(world, tenant_id=ACME, resource_type="project")
    assert [(entry["operation"], entry["status"], entry["resource_id"]) for entry in entries] == [
        ("deleteProject", 200, made.answer.project_id),
        ("createProject", 201, made.answer.project_id),
    ]
