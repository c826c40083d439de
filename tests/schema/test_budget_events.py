"""Events about budgets, as a stream: what is shown to whom, from where it resumes, and what it takes to listen."""

from __future__ import annotations

from typing import Any

import pytest

from tests.schema.test_budget_changes import key_of
from tests.schema.test_budgets import BUDGET, MOST, open_budget
from tests.schema.test_events import EVENTS, listening
from tests.schema.test_events import LISTEN as LISTEN_TO_GRANTS
from tests.schema.world import BASE, World

LISTEN = """subscription ($tenantId: ID, $all: Boolean! = false, $scope: String, $types: [String!], $after: String) {
  budgetEvents(tenantId: $tenantId, all: $all, scope: $scope, types: $types, after: $after) {
    cursor type tenantId scope occurredAt actorType data
  }
}"""
BOT = "tenant:a/agent:bot"


@pytest.fixture
async def watcher(world: World) -> Any:
    """A caller of tenant a whose key has just the permission to read events."""
    return await key_of(world, "a", permissions=["events:read"])


async def end_of(world: World, caller: Any = None, *, everybodys: bool = False) -> str:
    document = "query ($all: Boolean! = false) { eventsCursor(all: $all) }"
    cursor: str = (await world.data(document, caller, all=everybodys))["eventsCursor"]
    return cursor


async def freeze(world: World, name: str = "freezeBudget", *, scope: str = BOT) -> None:
    done = await world.mutate(name, {"scope": scope, "unit": "TOKENS"}, BUDGET, caller=world.callers["a"])
    assert done["__typename"] == "Budget", done


async def test_a_key_that_may_read_events_and_nothing_else_resumes_without_a_gap(world: World, watcher: Any) -> None:
    start = await end_of(world, watcher)
    await open_budget(world, str(MOST), scope=BOT)
    await open_budget(world, 5, scope="tenant:a/agent:bottle")
    await freeze(world)
    await freeze(world, "unfreezeBudget")
    given: dict[str, Any] = {"scope": "tenant:a/agent:BOT"}
    async with listening(world, LISTEN, watcher, after=start, **given) as listener:
        created = await listener.next()
    async with listening(world, LISTEN, watcher, after=created["cursor"], **given) as listener:
        later = [(await listener.next())["type"] for _ in range(2)]
    types = ["budget.unfrozen"]
    async with listening(world, LISTEN, watcher, after=start, types=types) as listener:
        chosen = (await listener.next())["type"]

    assert (created["type"], created["tenantId"], created["scope"]) == ("budget.created", "a", BOT)
    assert (created["occurredAt"], created["actorType"]) == (BASE, "api_key")
    assert created["data"]["new_state"]["allocated"] == "9223372036854775807"
    assert (later, chosen) == (["budget.frozen", "budget.unfrozen"], "budget.unfrozen")


async def test_a_confined_key_hears_of_its_scopes_alone(world: World) -> None:
    """Neither of other budgets, nor of the tenant itself, nor by the way of all events."""
    permissions = ["events:read", "compute:quotas:read"]
    confined = await key_of(world, "a", permissions=permissions, scope_filter=["agent:bot"])
    start = await end_of(world, confined)
    await open_budget(world, 5)
    await world.mutate("suspendTenant", {"tenantId": "a"})
    await world.mutate("reactivateTenant", {"tenantId": "a"})
    await open_budget(world, 5, scope=BOT)
    await world.create_grant()
    async with listening(world, LISTEN, confined, after=start) as listener:
        heard = await listener.next()
    async with listening(world, LISTEN_TO_GRANTS, confined, after=start) as listener:
        await listener.next()
    pages = (await world.data(EVENTS, confined))["events"]["edges"]

    assert (heard["type"], heard["scope"]) == ("budget.created", BOT)
    assert {edge["node"]["type"].partition(".")[0] for edge in pages} == {"reservation-grant"}


async def test_events_that_are_operators_are_not_shown_to_the_tenant(world: World, watcher: Any) -> None:
    start, roots = await end_of(world, watcher), await end_of(world, everybodys=True)
    policy = {"name": "p", "scopePattern": "tenant:a/*"}
    await world.mutate("createPolicy", policy, caller=world.callers["a"])
    await open_budget(world, 5)
    async with listening(world, LISTEN, watcher, after=start) as listener:
        own = await listener.next()
    async with listening(world, LISTEN, all=True, after=roots) as listener:
        everybodys = [(await listener.next())["type"] for _ in range(2)]
    async with listening(world, LISTEN, tenantId="a", after=start) as listener:
        by_root = [(await listener.next())["type"] for _ in range(2)]

    assert own["type"] == "budget.created"
    assert everybodys == by_root == ["policy.created", "budget.created"]


async def test_grants_are_no_events_of_budgets(world: World, watcher: Any) -> None:
    start = await end_of(world, watcher)
    await world.create_grant()
    await open_budget(world, 5)
    async with listening(world, LISTEN, watcher, after=start) as listener:
        assert (await listener.next())["type"] == "budget.created"


@pytest.mark.parametrize(
    ("by", "chosen", "code"),
    [
        ("b", {"tenantId": "a"}, "ACCESS_DENIED"),
        ("a", {"all": True}, "ACCESS_DENIED"),
        ("a", {}, "ACCESS_DENIED"),
        ("root", {"after": "nonsense"}, "INVALID_INPUT"),
        ("root", {"tenantId": "a\0"}, "INVALID_INPUT"),
        ("root", {"types": ["budget.created"] * 52}, "INVALID_INPUT"),
    ],
)
async def test_who_may_not_listen_or_asks_nonsense_is_told_at_once(
    world: World, by: str, chosen: dict[str, Any], code: str
) -> None:
    """A tenant's usual key has no permission for events: it must be asked for (section 7)."""
    async with listening(world, LISTEN, world.callers.get(by), **chosen) as listener:
        failure = await listener.failure()

    assert failure["code"] == code
    assert world.runtime.hub.count == 0


async def test_a_cursor_of_another_stream_resumes_nothing(world: World, watcher: Any) -> None:
    async with listening(world, LISTEN, watcher, after=await end_of(world, everybodys=True)) as listener:
        assert (await listener.failure())["reason"] == "bad-cursor"
