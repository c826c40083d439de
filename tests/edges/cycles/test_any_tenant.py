"""Tenants that this wire cannot make, since it knows fewer letters, are tenants on it all the same (sections 2.1, 11.3)."""

from __future__ import annotations

from typing import Any

import pytest

from domain.outcomes import Accepted
from tests.edges.cycles.world import ADMIN, OPERATOR, TOKENS, World, ok, refused

PLACES: tuple[tuple[str, str, Any], ...] = (
    ("GET", "/lookup", None),
    ("PATCH", "", {"metadata": {"a": 1}}),
    ("POST", "/freeze", {}),
    ("POST", "/unfreeze", {}),
)


async def made_elsewhere(world: World, tenant_id: str) -> str:
    """The scope of a budget of a tenant that another edge made."""
    assert isinstance(await world.node.tenancy.create_tenant(OPERATOR, tenant_id=tenant_id, name="T"), Accepted)
    shown = await world.budget(f"tenant:{tenant_id}", 10)
    assert shown["tenant_id"] == tenant_id
    scope: str = shown["scope"]
    assert scope == f"tenant:{tenant_id}".lower()
    return scope


@pytest.mark.parametrize("tenant_id", ["Acme.EU", "_x-", "a:b:C", "X" * 128])
async def test_any_tenant_has_budgets_and_spends_from_them(world: World, tenant_id: str) -> None:
    scope = await made_elsewhere(world, tenant_id)
    for named in (scope, f"tenant:{tenant_id}"):
        for method, path, body in PLACES:
            answer = await world.ask(method, f"/v1/admin/budgets{path}", body, by=ADMIN, scope=named, unit=TOKENS)
            assert ok(answer)["tenant_id"] == answer.headers["x-cycles-tenant"] == tenant_id
    await world.add_key("theirs", tenant_id)
    await world.add_key("confined", tenant_id, scope_filter=[scope])
    policy = {"tenant_id": tenant_id, "name": "p", "scope_pattern": scope, "caps": {"max_tokens": 7}}
    ok(await world.post("/v1/admin/policies", policy, by=ADMIN), 201)
    for by in ("theirs", "confined"):
        held = ok(await world.reserve(1, by=by, subject={"tenant": tenant_id, "agent": "bot"}))
        assert held["affected_scopes"] == [scope, f"{scope}/agent:bot"]
    assert ok(await world.reserve(1, by="theirs", subject={"tenant": tenant_id}))["caps"] == {"max_tokens": 7}
    assert len(ok(await world.get("/v1/balances", by="theirs", tenant=tenant_id))["balances"]) == 1
    other_case = {"tenant": tenant_id.swapcase()}
    assert refused(await world.reserve(1, by="theirs", subject=other_case)) == (403, "FORBIDDEN")


async def test_tenants_that_differ_in_case_only_are_told_apart(world: World) -> None:
    lookup = "/v1/admin/budgets/lookup"

    async def owner(scope: str, **params: str) -> str:
        found = await world.get(lookup, by=ADMIN, scope=scope, unit=TOKENS, **params)
        return str(found.json()["tenant_id"] if found.status_code == 200 else found.json()["error"])

    for tenant_id in ("Twin", "TWIN"):
        await made_elsewhere(world, tenant_id)
    assert [await owner(f"tenant:{name}") for name in ("Twin", "TWIN")] == ["Twin", "TWIN"]
    assert await owner("tenant:twin") == "INVALID_REQUEST", "nobody knows which one is meant"
    assert await owner("tenant:twin", tenant_id="TWIN") == "TWIN"
    await made_elsewhere(world, "twin")
    assert await owner("tenant:twin") == "twin", "an id as it is written comes first"
    assert await owner("tenant:twin", tenant_id="nobody") == "BUDGET_NOT_FOUND"
