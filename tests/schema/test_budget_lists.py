"""Lists of budgets and of holds through GraphQL: what they are filtered and sorted by, and pages of no items."""

from __future__ import annotations

from typing import Any

import pytest

from tests.schema.test_budgets import amount, commit, open_budget, reserve
from tests.schema.test_governance import AUDIT, POLICIES, failure
from tests.schema.world import MINUTE, World

BUDGETS = """query ($from: Int64, $to: Int64, $sortBy: BudgetSort! = SCOPE, $descending: Boolean! = false, $search: String,
    $first: Int, $after: String) {
  budgets(utilizationFromMillionths: $from, utilizationToMillionths: $to, sortBy: $sortBy, descending: $descending,
      search: $search, first: $first, after: $after) {
    nodes { scope utilizationMillionths } pageInfo { hasNextPage endCursor }
  }
}"""
HOLDS = """query ($createdFrom: Millis, $expiresFrom: Millis, $expiresTo: Millis, $finalizedFrom: Millis,
    $finalizedTo: Millis, $sortBy: BudgetReservationSort! = CREATED_AT, $descending: Boolean! = true, $first: Int,
    $after: String) {
  budgetReservations(createdFrom: $createdFrom, expiresFrom: $expiresFrom, expiresTo: $expiresTo,
      finalizedFrom: $finalizedFrom, finalizedTo: $finalizedTo, sortBy: $sortBy, descending: $descending,
      first: $first, after: $after) {
    nodes { idempotencyKey } pageInfo { hasNextPage endCursor }
  }
}"""
TOP = "tenant:a"


async def spend(world: World, agent: str, number: int) -> None:
    asked: dict[str, Any] = {
        "idempotencyKey": f"spend-{agent}",
        "subject": {"tenant": "a", "agent": agent},
        "action": {"kind": "llm.completion", "name": "model"},
        "actual": amount(number),
        "overagePolicy": "ALLOW_WITH_OVERDRAFT",
    }
    done = await world.mutate("debitBudget", asked, "... on BudgetDebit { charged }", caller=world.callers["a"])
    assert done["__typename"] == "BudgetDebit", done


@pytest.fixture
async def used(world: World) -> World:
    """Agents of tenant a that have used nothing, a third, all and more of what they have, and one that has nothing."""
    for agent, allocated, spent in (("none", 9, 0), ("third", 3, 1), ("all", 5, 5), ("over", 4, 6), ("empty", 0, 0)):
        more = {"overdraftLimit": amount(100)}
        await open_budget(world, allocated, scope=f"{TOP}/agent:{agent}", **more)
        await spend(world, agent, spent)
    return world


async def found(world: World, **chosen: Any) -> dict[str, int]:
    nodes = (await world.data(BUDGETS, world.callers["a"], **chosen))["budgets"]["nodes"]
    return {node["scope"].removeprefix(f"{TOP}/agent:"): int(node["utilizationMillionths"]) for node in nodes}


async def test_budgets_are_sorted_and_filtered_by_what_is_spent_of_them(used: World) -> None:
    """Spent / allocated, 0 where nothing is allocated; debt is not spent."""
    every = await found(used, sortBy="UTILIZATION", descending=True)

    assert list(every.items()) == [
        ("all", 1_000_000),
        ("over", 1_000_000),
        ("third", 333_333),
        ("none", 0),
        ("empty", 0),
    ]
    assert set(await found(used, **{"from": 333_333})) == {"third", "all", "over"}
    assert set(await found(used, **{"from": 333_334})) == {"all", "over"}
    assert set(await found(used, **{"from": 1, "to": 333_334})) == {"third"}
    assert set(await found(used, to=0)) == {"none", "empty"}
    assert await found(used, **{"from": "9223372036854775807"}) == {}


@pytest.mark.parametrize("sort_by", ["TENANT", "SCOPE", "UNIT", "STATUS", "OVERAGE_POLICY", "UTILIZATION", "DEBT"])
async def test_every_order_goes_on_where_its_page_ended(used: World, sort_by: str) -> None:
    a, whole = used.callers["a"], list(await found(used, sortBy=sort_by))
    walked: list[str] = []
    after = None
    while True:
        page = (await used.data(BUDGETS, a, sortBy=sort_by, first=2, after=after))["budgets"]
        walked += [node["scope"].removeprefix(f"{TOP}/agent:") for node in page["nodes"]]
        after = page["pageInfo"]["endCursor"]
        if not page["pageInfo"]["hasNextPage"]:
            break
    moved = await used.ask(BUDGETS, a, sortBy=sort_by, descending=True, after=after)

    assert (walked, len(walked)) == (whole, 5)
    assert failure(moved)["field"] == "after"


async def test_holds_are_sorted_and_filtered_by_their_instants_and_amounts(world: World) -> None:
    await open_budget(world, 1_000)
    now = world.clock.now
    for key, number, ttl in (("small", 1, 50_000), ("large", 300, 10_000), ("middle", 20, 30_000)):
        hold = await reserve(world, number, key=key, ttlMs=ttl)
        world.clock.advance(1)
        if key == "middle":
            await commit(world, hold["reservationId"], 5)

    async def keys(**chosen: Any) -> list[str]:
        nodes = (await world.data(HOLDS, world.callers["a"], **chosen))["budgetReservations"]["nodes"]
        return [node["idempotencyKey"] for node in nodes]

    assert await keys() == ["middle", "large", "small"]
    assert await keys(sortBy="RESERVED") == ["large", "middle", "small"]
    assert await keys(sortBy="EXPIRES_AT", descending=False) == ["large", "middle", "small"]
    assert await keys(createdFrom=now + 1) == ["middle", "large"]
    assert await keys(expiresFrom=now + 10_001, expiresTo=now + 30_002) == ["middle", "large"]
    assert await keys(finalizedFrom=now, finalizedTo=now + MINUTE) == ["middle"]
    wrong = await world.ask(HOLDS, world.callers["a"], expiresFrom=2, expiresTo=1)
    assert failure(wrong)["field"] == "expiresFrom"


@pytest.mark.parametrize(
    ("document", "name", "as_root"),
    [
        (BUDGETS, "budgets", False),
        (HOLDS, "budgetReservations", False),
        (POLICIES, "policies", False),
        (AUDIT, "auditLog", True),
    ],
)
async def test_a_page_of_no_items_says_whether_there_are_any(
    world: World, document: str, name: str, as_root: bool
) -> None:
    """As in the lists of capacity."""
    caller = None if as_root else world.callers["a"]
    empty = (await world.data(document, caller, first=0))[name]
    await open_budget(world, 1_000)
    await reserve(world, 1)
    given = {"name": "p", "scopePattern": "tenant:a/*"}
    await world.mutate("createPolicy", given, caller=world.callers["a"])
    some = (await world.data(document, caller, first=0))[name]
    grants = (await world.data("{ grants(first: 0) { nodes { id } pageInfo { hasNextPage endCursor } } }"))["grants"]

    assert (empty["nodes"], empty["pageInfo"]["endCursor"]) == ([], None)
    assert (some["nodes"], some["pageInfo"]["hasNextPage"], some["pageInfo"]["endCursor"]) == ([], True, None)
    assert (grants["nodes"], grants["pageInfo"]) == ([], {"hasNextPage": False, "endCursor": None})
