"""Policies, the standing of tenants and the audit log through GraphQL."""

from __future__ import annotations

from typing import Any

import pytest

from tests.schema.test_budgets import BUDGET, amount, open_budget, reserve
from tests.schema.world import BASE, HOUR, MINUTE, World

POLICY = """... on BudgetPolicy {
  id tenantId name scopePattern description priority status commitOveragePolicy effectiveFromAt effectiveUntilAt
  caps { maxTokens toolDenylist } ttlOverride { defaultTtlMs maxTtlMs maxExtensions }
  rateLimits { maxReservationsPerMinute maxCommitsPerMinute } createdAt updatedAt
}"""
POLICIES = """query ($tenantId: ID, $all: Boolean! = false, $scopePattern: String, $status: BudgetPolicyStatus,
    $search: String, $first: Int, $after: String) {
  policies(tenantId: $tenantId, all: $all, scopePattern: $scopePattern, status: $status, search: $search,
      first: $first, after: $after) {
    nodes { name tenantId } pageInfo { hasNextPage endCursor }
  }
}"""
ONE_POLICY = "query ($id: ID!, $tenantId: ID) { policy(id: $id, tenantId: $tenantId) { name tenantId } }"
STANDING = """... on TenantStanding {
  tenantId status suspendedAt closedAt defaultOveragePolicy defaultTtlMs maxTtlMs maxExtensions expiryPolicy metadata
}"""
AUDIT = """query ($tenantId: ID, $keyId: ID, $operations: [String!], $resourceTypes: [String!], $resourceId: ID,
    $requestId: String, $traceId: String, $statusFrom: Int, $statusTo: Int, $errorCodes: [String!], $from: Millis,
    $to: Millis, $search: String, $sortBy: AuditSort! = RECORDED_AT,
    $descending: Boolean! = true, $first: Int, $after: String) {
  auditLog(tenantId: $tenantId, keyId: $keyId, operations: $operations, resourceTypes: $resourceTypes,
      resourceId: $resourceId, requestId: $requestId, traceId: $traceId, recordedFrom: $from, recordedTo: $to,
      statusFrom: $statusFrom, statusTo: $statusTo, errorCodes: $errorCodes,
      search: $search, sortBy: $sortBy, descending: $descending, first: $first, after: $after) {
    nodes {
      id tenantId recordedAt operation status errorCode resourceType resourceId actorType keyId requestId traceId
      scope unit amount reason correlationId metadata
    }
    pageInfo { hasNextPage hasPreviousPage endCursor }
  }
}"""


def policy(name: str = "careful", **changes: Any) -> dict[str, Any]:
    """An acceptable input of createPolicy."""
    return {"name": name, "scopePattern": "tenant:a/*", "caps": {"maxTokens": 200}, **changes}


async def make_policy(world: World, name: str = "careful", *, by: str = "a", **changes: Any) -> Any:
    return await world.mutate("createPolicy", policy(name, **changes), POLICY, caller=world.callers.get(by))


async def audit(world: World, **chosen: Any) -> list[dict[str, Any]]:
    return (await world.data(AUDIT, **chosen))["auditLog"]["nodes"]


def failure(result: Any) -> dict[str, Any]:
    assert result.errors is not None
    return dict(result.errors[0].extensions or {})


@pytest.fixture
async def budgets(world: World) -> World:
    """Tenant a has a budget of 1000 tokens."""
    made = await open_budget(world, 1_000)
    assert made["__typename"] == "Budget", made
    return world


# -- policies ----------------------------------------------------------------------------------------------------------


async def test_a_policy_is_shown_as_it_was_made(world: World) -> None:
    made = await make_policy(
        world,
        description="for agents",
        priority="9223372036854775807",
        caps={"maxTokens": "9007199254740993", "toolDenylist": ["shell"]},
        commitOveragePolicy="REJECT",
        ttlOverride={"defaultTtlMs": 2_000, "maxTtlMs": 9_000},
        rateLimits={"maxReservationsPerMinute": 5},
        effectiveFromAt=BASE,
        effectiveUntilAt=BASE + HOUR,
    )

    assert made == {
        "__typename": "BudgetPolicy",
        "id": made["id"],
        "tenantId": "a",
        "name": "careful",
        "scopePattern": "tenant:a/*",
        "description": "for agents",
        "priority": "9223372036854775807",
        "status": "ACTIVE",
        "commitOveragePolicy": "REJECT",
        "effectiveFromAt": BASE,
        "effectiveUntilAt": BASE + HOUR,
        "caps": {"maxTokens": "9007199254740993", "toolDenylist": ["shell"]},
        "ttlOverride": {"defaultTtlMs": "2000", "maxTtlMs": "9000", "maxExtensions": None},
        "rateLimits": {"maxReservationsPerMinute": "5", "maxCommitsPerMinute": None},
        "createdAt": BASE,
        "updatedAt": BASE,
    }


async def test_a_policy_governs_until_it_is_disabled(budgets: World) -> None:
    made = await make_policy(budgets, ttlOverride={"maxTtlMs": 10_000})
    governed = await reserve(budgets, 1, key="governed")
    changes = {"policyId": made["id"], "status": "DISABLED", "name": "relaxed"}
    changed = await budgets.mutate("updatePolicy", changes, POLICY, caller=budgets.callers["a"])
    free = await reserve(budgets, 1, key="free")

    assert (governed["decision"], governed["remainingTtlMs"]) == ("ALLOW_WITH_CAPS", "10000")
    assert (changed["status"], changed["name"], changed["caps"]["maxTokens"]) == ("DISABLED", "relaxed", "200")
    assert (free["decision"], free["remainingTtlMs"]) == ("ALLOW", str(MINUTE))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"scopePattern": "a b"}, "scopePattern"),
        ({"priority": -1}, "priority"),
        ({"name": ""}, "name"),
        ({"effectiveFromAt": BASE, "effectiveUntilAt": BASE}, "effectiveUntilAt"),
        ({"ttlOverride": {"maxTtlMs": 1}}, "ttlOverride.maxTtlMs"),
    ],
)
async def test_a_policy_that_says_nothing_possible_is_refused(world: World, changes: Any, field: str) -> None:
    refused = await make_policy(world, **changes)

    assert (refused["__typename"], refused["field"]) == ("InvalidInput", field)


async def test_a_policys_name_is_its_own(world: World) -> None:
    first, second = await make_policy(world), await make_policy(world, "other")
    duplicate = "... on Duplicate { resource resourceId }"
    taken = await world.mutate("createPolicy", policy(), duplicate, caller=world.callers["a"])
    changes = {"policyId": second["id"], "name": "careful"}
    renamed = await world.mutate("updatePolicy", changes, duplicate, caller=world.callers["a"])
    nobodys = await world.mutate("updatePolicy", {**changes, "policyId": "pol_nobodys"}, caller=world.callers["a"])
    strangers = await world.mutate("updatePolicy", changes, caller=world.callers["b"])

    assert (taken["code"], taken["resource"], taken["resourceId"]) == ("DUPLICATE_RESOURCE", "policy", first["id"])
    assert (renamed["code"], renamed["resourceId"]) == ("DUPLICATE_RESOURCE", first["id"])
    assert (nobodys["code"], strangers["code"]) == ("NOT_FOUND", "NOT_FOUND")


async def test_policies_are_paged_newest_first_and_found_by_what_they_say(world: World) -> None:
    for number, pattern in enumerate(("tenant:a/*", "agent:*", "tenant:a/*")):
        await make_policy(world, f"p{number}", scopePattern=pattern)
        world.clock.advance(1)
    await make_policy(world, "b's", by="b", scopePattern="tenant:b/*")
    a = world.callers["a"]

    async def names(**chosen: Any) -> list[str]:
        caller = None if "all" in chosen or "tenantId" in chosen else a
        return [node["name"] for node in (await world.data(POLICIES, caller, **chosen))["policies"]["nodes"]]

    page = (await world.data(POLICIES, a, first=2))["policies"]
    cursor = page["pageInfo"]["endCursor"]
    moved = await world.ask(POLICIES, a, search="other", after=cursor)

    assert [node["name"] for node in page["nodes"]] == ["p2", "p1"]
    assert (page["pageInfo"]["hasNextPage"], await names(after=cursor)) == (True, ["p0"])
    assert (failure(moved)["code"], failure(moved)["field"]) == ("INVALID_INPUT", "after")
    assert await names(scopePattern="agent:*") == ["p1"]
    assert await names(search="P1") == ["p1"]
    assert await names(status="DISABLED") == []
    assert await names(tenantId="b") == ["b's"]
    assert sorted(await names(all=True)) == ["b's", "p0", "p1", "p2"]


async def test_one_policy_is_seen_by_its_tenant_and_by_root(world: World) -> None:
    made = await make_policy(world)

    async def seen(caller: Any, **chosen: Any) -> Any:
        return (await world.data(ONE_POLICY, caller, id=made["id"], **chosen))["policy"]

    shown = {"name": "careful", "tenantId": "a"}
    stranger = await world.ask(ONE_POLICY, world.callers["b"], id=made["id"], tenantId="a")
    assert (await seen(world.callers["a"]), await seen(world.callers["b"])) == (shown, None)
    assert (await seen(None), await seen(None, tenantId="a"), await seen(None, tenantId="b")) == (shown, shown, None)
    assert failure(stranger)["code"] == "ACCESS_DENIED"


# -- tenants -----------------------------------------------------------------------------------------------------------


async def test_a_suspended_tenant_settles_and_begins_nothing_until_it_is_reactivated(budgets: World) -> None:
    held = await reserve(budgets, 300)
    suspended = await budgets.mutate("suspendTenant", {"tenantId": "a"}, STANDING)
    again = await budgets.mutate("suspendTenant", {"tenantId": "a"}, STANDING)
    refused = await reserve(budgets, 1, key="late")
    given = {"reservationId": held["reservationId"], "idempotencyKey": "r"}
    released = await budgets.mutate(
        "releaseBudget", given, "... on BudgetRelease { released }", caller=budgets.callers["a"]
    )
    active = await budgets.mutate("reactivateTenant", {"tenantId": "a"}, STANDING)
    accepted = await reserve(budgets, 1, key="late")

    assert (suspended["status"], suspended["suspendedAt"], again["status"]) == ("SUSPENDED", BASE, "SUSPENDED")
    assert (refused["__typename"], released["released"]) == ("TenantSuspended", "300")
    assert (active["status"], active["suspendedAt"], accepted["decision"]) == ("ACTIVE", None, "ALLOW")


async def test_closing_a_tenant_takes_its_holds_budgets_and_keys_with_it(budgets: World) -> None:
    await reserve(budgets, 300)
    closed = await budgets.mutate("closeTenant", {"tenantId": "a"}, STANDING)
    again = await budgets.mutate("closeTenant", {"tenantId": "a"}, STANDING)
    back = await budgets.mutate("reactivateTenant", {"tenantId": "a"}, "... on TenantClosed { tenantId }")
    document = """{
      tenant(id: "a") { deletedAt standing { status closedAt } }
      budget(tenantId: "a", scope: "tenant:a", unit: TOKENS) { status reserved }
      budgetReservations(tenantId: "a") { nodes { status } }
      apiKeys(tenantId: "a", includeRevoked: true) { nodes { revokedAt } }
    }"""
    seen = await budgets.data(document)

    assert (closed["status"], closed["closedAt"], again["status"]) == ("CLOSED", BASE, "CLOSED")
    assert (back["__typename"], back["tenantId"]) == ("TenantClosed", "a")
    assert seen["tenant"] == {"deletedAt": None, "standing": {"status": "CLOSED", "closedAt": BASE}}
    assert seen["budget"] == {"status": "CLOSED", "reserved": "0"}
    assert seen["budgetReservations"]["nodes"] == [{"status": "RELEASED"}]
    assert seen["apiKeys"]["nodes"] == [{"revokedAt": BASE}]


async def test_only_root_changes_the_standing_of_tenants_and_not_its_own(world: World) -> None:
    for name in ("suspendTenant", "closeTenant", "reactivateTenant"):
        denied = await world.mutate(name, {"tenantId": "a"}, caller=world.callers["a"])
        unknown = await world.mutate(name, {"tenantId": "nobody"})
        assert (denied["code"], unknown["code"]) == ("ACCESS_DENIED", "NOT_FOUND"), name
    for name in ("suspendTenant", "closeTenant"):
        own = await world.mutate(name, {"tenantId": "root"})
        assert (own["code"], own["refusedState"]) == ("INVALID_STATE", "root"), name


async def test_a_page_of_tenants_shows_how_each_stands_in_one_read(world: World) -> None:
    await world.mutate("suspendTenant", {"tenantId": "b"})
    tenants = (await world.data("{ tenants { nodes { id standing { tenantId status } } } }"))["tenants"]["nodes"]

    assert {each["id"]: each["standing"]["status"] for each in tenants} == {
        "a": "ACTIVE",
        "b": "SUSPENDED",
        "root": "ACTIVE",
    }


# -- the audit log -----------------------------------------------------------------------------------------------------


async def test_the_audit_log_tells_what_was_changed_by_whom(budgets: World) -> None:
    named = {"scope": "tenant:a", "unit": "TOKENS", "reason": "audit"}
    budgets.clock.advance(MINUTE)
    await budgets.mutate("freezeBudget", named, BUDGET, caller=budgets.callers["a"])
    budgets.clock.advance(MINUTE)
    credit = {"scope": "tenant:a", "unit": "TOKENS", "operation": "CREDIT", "amount": amount("9007199254740993")}
    await budgets.mutate("unfreezeBudget", {**named, "tenantId": "a"}, BUDGET)
    await budgets.mutate("fundBudget", {**credit, "tenantId": "a"})
    everything = await audit(budgets)
    frozen = next(entry for entry in everything if entry["operation"] == "freezeBudget")
    funded = next(entry for entry in everything if entry["operation"] == "fundBudget")

    assert frozen == {
        "id": frozen["id"],
        "tenantId": "a",
        "recordedAt": BASE + MINUTE,
        "operation": "freezeBudget",
        "status": 200,
        "errorCode": None,
        "resourceType": "budget",
        "resourceId": frozen["resourceId"],
        "actorType": "api_key",
        "keyId": budgets.callers["a"].principal.key_id,
        "requestId": "req_a",
        "traceId": None,
        "scope": "tenant:a",
        "unit": "TOKENS",
        "amount": None,
        "reason": "audit",
        "correlationId": None,
        "metadata": None,
    }
    assert (funded["amount"], funded["actorType"], funded["traceId"]) == (
        "9007199254740993",
        "admin_on_behalf_of",
        "trace",
    )


async def test_the_audit_log_is_filtered_by_everything_it_shows(budgets: World) -> None:
    named = {"scope": "tenant:a", "unit": "TOKENS"}
    budgets.clock.advance(MINUTE)
    await budgets.mutate("freezeBudget", {**named, "reason": "odd spending"}, caller=budgets.callers["a"])
    await make_policy(budgets, by="b", scopePattern="tenant:b/*")
    budgets.clock.advance(MINUTE)
    await budgets.mutate("suspendTenant", {"tenantId": "b"})
    every = await audit(budgets)
    budget_id = next(entry["resourceId"] for entry in every if entry["operation"] == "freezeBudget")

    async def found(**chosen: Any) -> list[str]:
        entries = await audit(budgets, descending=False, **chosen)
        made = ("createTenant", "createProject", "createApiKey")
        return [entry["operation"] for entry in entries if entry["operation"] not in made]

    assert await found(tenantId="a") == ["createBudget", "freezeBudget"]
    assert await found(keyId=budgets.root.principal.key_id) == ["updateTenant"]
    assert await found(statusFrom=201, tenantId="b") == await found(
        statusTo=201, tenantId="b", operations=["createPolicy"]
    )
    assert await found(errorCodes=["NOT_FOUND"]) == []
    assert await found(operations=["freezeBudget", "createPolicy"]) == ["freezeBudget", "createPolicy"]
    assert await found(operations=[]) == []
    assert await found(resourceTypes=["policy", "tenant"]) == ["createPolicy", "updateTenant"]
    assert await found(resourceId=budget_id) == ["createBudget", "freezeBudget"]
    assert await found(requestId="req_root") == await found(traceId="trace") == ["updateTenant"]
    assert await found(**{"from": BASE + MINUTE, "to": BASE + MINUTE}) == ["freezeBudget", "createPolicy"]
    assert await found(search="FREEZE") == ["freezeBudget"]
    whose = [entry["tenantId"] for entry in await audit(budgets, sortBy="TENANT_ID")]
    assert whose == sorted(whose, reverse=True)


async def test_the_audit_log_is_paged_and_its_cursor_bound_to_the_question(budgets: World) -> None:
    for name in ("one", "two", "three"):
        await make_policy(budgets, name)
        budgets.clock.advance(1)
    changes = {"tenantId": "a", "resourceTypes": ["policy", "budget"]}
    page = (await budgets.data(AUDIT, first=2, **changes))["auditLog"]
    cursor = page["pageInfo"]["endCursor"]
    rest = (await budgets.data(AUDIT, first=2, after=cursor, **changes))["auditLog"]
    moved = await budgets.ask(AUDIT, after=cursor, operations=["createPolicy"])

    assert [entry["recordedAt"] for entry in page["nodes"]] == [BASE + 2, BASE + 1]
    assert page["pageInfo"]["hasNextPage"] is True
    assert (rest["pageInfo"]["hasNextPage"], rest["pageInfo"]["hasPreviousPage"], len(rest["nodes"])) == (
        False,
        True,
        2,
    )
    assert failure(moved)["field"] == "after"


@pytest.mark.parametrize(
    ("chosen", "field"),
    [
        ({"from": 2, "to": 1}, "recordedFrom"),
        ({"operations": ["x"] * 26}, "operations"),
        ({"resourceTypes": ["x"] * 26}, "resourceTypes"),
        ({"errorCodes": ["x"] * 26}, "errorCodes"),
        ({"search": "x" * 129}, "search"),
        ({"first": 201}, "first"),
    ],
)
async def test_what_the_audit_log_cannot_be_asked_is_refused(world: World, chosen: Any, field: str) -> None:
    refused = await world.ask(AUDIT, **chosen)

    assert (failure(refused)["code"], failure(refused)["field"]) == ("INVALID_INPUT", field)


async def test_the_audit_log_is_roots(world: World) -> None:
    refused = await world.ask(AUDIT, world.callers["a"], tenantId="a")

    assert failure(refused)["code"] == "ACCESS_DENIED"


# -- retries -----------------------------------------------------------------------------------------------------------

PLACE = {"scope": "tenant:a", "unit": "TOKENS"}
ONCE: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "createBudget": (
        BUDGET,
        {**PLACE, "scope": "tenant:a/app:x", "allocated": amount(5)},
        {**PLACE, "scope": "tenant:a/app:x", "allocated": amount(6)},
    ),
    "updateBudget": (BUDGET, {**PLACE, "overdraftLimit": amount(5)}, {**PLACE, "overdraftLimit": amount(6)}),
    "freezeBudget": (BUDGET, {**PLACE, "reason": "audit"}, PLACE),
    "createPolicy": (POLICY, policy("new"), policy("another")),
    "suspendTenant": (STANDING, {"tenantId": "a"}, {}),
    "closeTenant": (STANDING, {"tenantId": "a"}, {}),
}
"""What is asked; and under the same key another request, where there can be one."""


@pytest.mark.parametrize("name", ONCE)
async def test_a_retry_changes_nothing_and_is_told_the_same(budgets: World, name: str) -> None:
    selection, given, other = ONCE[name]
    caller = None if name.endswith("Tenant") else budgets.callers["a"]
    first = await budgets.mutate(name, {**given, "idempotencyKey": "once"}, selection, caller=caller)
    entries = len(await audit(budgets))
    budgets.clock.advance(MINUTE)
    again = await budgets.mutate(name, {**given, "idempotencyKey": "once"}, selection, caller=caller)

    assert "code" not in first, first
    assert again == first
    assert len(await audit(budgets)) == entries
    if other:
        mismatch = "... on IdempotencyMismatch { idempotencyKey }"
        refused = await budgets.mutate(name, {**other, "idempotencyKey": "once"}, mismatch, caller=caller)
        assert (refused["code"], refused["idempotencyKey"]) == ("IDEMPOTENCY_MISMATCH", "once")


async def test_a_status_changes_back_and_forth_under_keys_of_its_own(budgets: World) -> None:
    """A late retry of the freeze neither freezes again nor is it refused."""
    a = budgets.callers["a"]
    await budgets.mutate("freezeBudget", {**PLACE, "idempotencyKey": "k"}, BUDGET, caller=a)
    await budgets.mutate("unfreezeBudget", {**PLACE, "idempotencyKey": "k"}, BUDGET, caller=a)
    late = await budgets.mutate("freezeBudget", {**PLACE, "idempotencyKey": "k"}, BUDGET, caller=a)
    seen = (await budgets.data('{ budget(scope: "tenant:a", unit: TOKENS) { status } }', a))["budget"]
    made = await make_policy(budgets)
    disabling = {"policyId": made["id"], "status": "DISABLED", "idempotencyKey": "k"}
    changed = [await budgets.mutate("updatePolicy", disabling, POLICY, caller=a) for _ in range(2)]
    for _ in range(2):
        back = await budgets.mutate("reactivateTenant", {"tenantId": "a", "idempotencyKey": "k"}, STANDING)

    assert (late["status"], seen["status"]) == ("FROZEN", "ACTIVE")
    assert changed[0] == changed[1]
    assert back["status"] == "ACTIVE"
