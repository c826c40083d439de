"""Retries of what governs, under the key in the header: these bodies have no place for one (section 4)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.edges.cycles.world import ACME, ADMIN, OTHER, TENANT, TOKENS, World, ok, refused, tokens

PLACE = {"scope": TENANT, "unit": TOKENS}
BUDGETS, POLICIES, TENANTS = "/v1/admin/budgets", "/v1/admin/policies", "/v1/admin/tenants"


async def send(world: World, method: str, path: str, body: Any, key: str, **given: Any) -> Any:
    return await world.ask(method, path, body, headers={"x-idempotency-key": key}, **given)


async def test_a_budget_is_opened_once(world: World) -> None:
    body = {**PLACE, "allocated": tokens(5)}
    made = [ok(await send(world, "POST", BUDGETS, body, "k"), 201) for _ in range(2)]
    assert made[0] == made[1]
    other = await send(world, "POST", BUDGETS, {**body, "allocated": tokens(6)}, "k")
    assert refused(other) == (409, "IDEMPOTENCY_MISMATCH")
    assert refused(await send(world, "POST", BUDGETS, body, "another")) == (409, "DUPLICATE_RESOURCE")


@pytest.mark.parametrize("key", ["", "x" * 257])
async def test_a_key_has_1_to_256_characters(world: World, key: str) -> None:
    body = {**PLACE, "allocated": tokens(5)}
    assert refused(await send(world, "POST", BUDGETS, body, key)) == (400, "INVALID_REQUEST")


async def test_freezing_and_unfreezing_are_told_again_as_they_were(world: World) -> None:
    await world.budget(TENANT, 10)

    async def become(way: str) -> Any:
        return ok(await send(world, "POST", f"{BUDGETS}/{way}", {"reason": "r"}, "k", by=ADMIN, **PLACE))

    frozen, thawed, again = await become("freeze"), await become("unfreeze"), await become("freeze")
    assert (frozen["status"], thawed["status"], again) == ("FROZEN", "ACTIVE", frozen)
    assert (await world.ledger())["status"] == "ACTIVE"


async def test_a_policy_is_made_and_changed_once(world: World) -> None:
    body = {"name": "p", "scope_pattern": f"{TENANT}/*"}
    made = [ok(await send(world, "POST", POLICIES, body, "k"), 201) for _ in range(2)]
    path = f"{POLICIES}/{made[0]['policy_id']}"
    changed = [ok(await send(world, "PATCH", path, {"priority": 3}, "k")) for _ in range(2)]
    assert (made[0], changed[0]) == (made[1], changed[1])
    assert refused(await send(world, "PATCH", path, {"priority": 4}, "k")) == (409, "IDEMPOTENCY_MISMATCH")


async def test_a_tenant_is_made_once_and_a_retry_has_made_it_too(world: World) -> None:
    """201 both times; without the key the second finds it there already: 200."""
    body = {"tenant_id": OTHER, "name": "Other"}
    made = [ok(await send(world, "POST", TENANTS, body, "k", by=ADMIN), 201) for _ in range(2)]
    assert made[0] == made[1]
    ok(await world.post(TENANTS, body, by=ADMIN))


async def test_closing_a_tenant_is_told_again(world: World) -> None:
    path = f"{TENANTS}/{ACME}"
    for _ in range(2):
        closed = ok(await send(world, "PATCH", path, {"status": "CLOSED"}, "k", by=ADMIN))
        assert closed["status"] == "CLOSED"
    other = await send(world, "PATCH", path, {"name": "Gone"}, "k", by=ADMIN)
    assert refused(other) == (409, "IDEMPOTENCY_MISMATCH")
