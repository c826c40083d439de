"""Many at once on one tree of budgets, and the quickstart of the reference (scenarios 43, 76, 131, 133)."""

from __future__ import annotations

import asyncio
import random
import re
from typing import Any

from tests.edges.cycles.world import ACME, ADMIN, TENANT, USD, World, ok, refused, usd

OVERDRAFT = "ALLOW_WITH_OVERDRAFT"
LEVELS = ("workspace", "app", "workflow", "agent", "toolset")
WORKERS, ROUNDS = 64, 3


def some_subject(chance: random.Random) -> dict[str, str]:
    depth = chance.randrange(len(LEVELS) + 1)
    return {"tenant": ACME, **{level: chance.choice("ab") for level in LEVELS[:depth]}}


async def work(world: World, chance: random.Random) -> list[int]:
    """Hold, then settle in one of the ways or not at all; debit in between. The statuses of all answers."""
    statuses = []
    for _ in range(ROUNDS):
        held = await world.reserve(chance.randrange(20), subject=some_subject(chance), overage_policy=OVERDRAFT)
        statuses.append(held.status_code)
        if held.status_code == 200:
            reservation_id = held.json()["reservation_id"]
            end = chance.choice(("commit", "release", "extend", "nothing"))
            if end == "commit":
                statuses.append((await world.commit(reservation_id, chance.randrange(25))).status_code)
            elif end == "release":
                statuses.append((await world.release(reservation_id)).status_code)
            elif end == "extend":
                statuses.append((await world.extend(reservation_id, 1_000)).status_code)
        statuses.append((await world.debit(chance.randrange(5), subject=some_subject(chance))).status_code)
    return statuses


async def test_s131_a_crowd_on_one_tree_neither_fails_nor_loses_a_token(world: World) -> None:
    paths = [TENANT]
    for level in LEVELS:
        paths.append(f"{paths[-1]}/{level}:a")
        await world.budget(paths[-1], 2_000, overdraft=50)
    await world.budget(TENANT, 6_000, overdraft=100)
    answers = await asyncio.gather(*(work(world, random.Random(number)) for number in range(WORKERS)))
    assert {status for statuses in answers for status in statuses} <= {200, 201, 409}
    rows: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    while True:
        body = ok(await world.get("/v1/reservations", status="ACTIVE", limit=200, **cursor))
        rows += body["reservations"]
        if not body["has_more"]:
            break
        cursor = {"cursor": body["next_cursor"]}
    for path in paths:
        held = sum(row["reserved"]["amount"] for row in rows if path in row["affected_scopes"])
        assert await world.numbers(path, "reserved") == (held,), path


async def test_s133_two_overdrafts_at_once_are_one_too_many(world: World) -> None:
    await world.budget(TENANT, 2, overdraft=5_000)
    held = [await world.held(1, overage_policy=OVERDRAFT) for _ in range(2)]
    answers = await asyncio.gather(*(world.commit(reservation_id, 4_001) for reservation_id in held))
    assert sorted(answer.status_code for answer in answers) == [200, 409]
    assert await world.numbers(TENANT, "debt", "is_over_limit") == (4_000, False)


async def test_s76_a_repetition_is_told_to_nobody(world: World) -> None:
    await world.budget(TENANT, 10)
    request = world.request(10)
    ok(await world.post("/v1/reservations", request))
    before = await world.events_told()
    for _ in range(3):
        ok(await world.post("/v1/reservations", request))
    assert await world.events_told() == before


async def test_the_quickstart_of_the_reference_runs(world: World) -> None:
    """With one deviation: its key lacks `budgets:write`, so that budget is an operator's to open (section 11)."""
    for path in ("/actuator/health", "/actuator/health"):
        assert (await world.client.get(path)).status_code == 200
    ok(await world.post("/v1/admin/tenants", {"tenant_id": "acme-corp", "name": "Acme Corporation"}, by=ADMIN), 201)
    permissions = ["reservations:create", "reservations:commit", "reservations:release", "balances:read"]
    body = {"tenant_id": "acme-corp", "name": "dev-key", "permissions": permissions}
    text = (await world.post("/v1/admin/api-keys", body, by=ADMIN)).text
    found = re.search(r'"key_secret":"([^"]*)"', text)
    assert found is not None
    world.secrets["dev-key"] = found[1]
    budget = {"scope": "tenant:acme-corp", "unit": USD, "allocated": usd(100_000_000)}
    assert refused(await world.post("/v1/admin/budgets", budget, by="dev-key")) == (403, "INSUFFICIENT_PERMISSIONS")
    ok(await world.post("/v1/admin/budgets", {**budget, "tenant_id": "acme-corp"}, by=ADMIN), 201)
    request = world.request(usd(500_000), subject={"tenant": "acme-corp"}, ttl_ms=60_000)
    reserved = (await world.post("/v1/reservations", request, by="dev-key")).text
    name = re.search(r'"reservation_id":"([^"]*)"', reserved)
    assert name is not None
    committed = (await world.commit(name[1], usd(350_000), by="dev-key")).text
    assert '"status":"COMMITTED"' in committed
    assert await world.numbers("tenant:acme-corp", "spent", "reserved", unit=USD) == (350_000, 0)
