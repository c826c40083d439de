"""A watched budget: a snapshot at once and after each change, whichever node made it, for those who may see it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from domain.amounts import Unit
from tests.schema.test_budgets import BUDGET, amount, commit, open_budget, reserve
from tests.schema.test_events import Listener, listening
from tests.schema.world import ROOT_KEY, World, until
from workers.budget.changes import watched_keys
from workers.changes import ChangeBoard
from workers.events import SUBSCRIBERS_MAX, SubscriptionClosed
from workers.runtime import Runtime, RuntimeOptions
from workers.schedule import EXPIRY

WATCH = """subscription ($scope: String! = "tenant:a", $unit: BudgetUnit! = TOKENS, $tenantId: ID) {
  budgetChanged(scope: $scope, unit: $unit, tenantId: $tenantId) {
    tenantId scope unit status allocated remaining reserved spent isOverLimit
  }
}"""
CHILD = "tenant:a/agent:bot"


@pytest.fixture
async def budgets(world: World) -> World:
    """Tenant a has a budget of 1000 tokens."""
    made = await open_budget(world, 1_000)
    assert made["__typename"] == "Budget", made
    return world


async def key_of(world: World, tenant_id: str, **given: Any) -> Any:
    """A caller with a key that allows just this."""
    issued = await world.runtime.keys.create_api_key(world.root, tenant_id=tenant_id, name="k", **given)
    return await world.caller_of(issued.answer.secret)


async def held(listener: Listener) -> tuple[str, str]:
    seen = await listener.next()
    return seen["remaining"], seen["reserved"]


async def test_a_watched_budget_is_shown_at_once_and_after_each_change(budgets: World) -> None:
    a = budgets.callers["a"]
    async with listening(budgets, WATCH, a) as listener:
        first = await listener.next()
        hold = await reserve(budgets, 300)
        reserved = await held(listener)
        await commit(budgets, hold["reservationId"], 120)
        settled = await listener.next()
        await budgets.mutate("freezeBudget", {"scope": "tenant:a", "unit": "TOKENS"}, BUDGET, caller=a)
        frozen = await listener.next()

    assert first == {
        "tenantId": "a",
        "scope": "tenant:a",
        "unit": "TOKENS",
        "status": "ACTIVE",
        "allocated": "1000",
        "remaining": "1000",
        "reserved": "0",
        "spent": "0",
        "isOverLimit": False,
    }
    assert reserved == ("700", "300")
    assert (settled["remaining"], settled["reserved"], settled["spent"]) == ("880", "0", "120")
    assert frozen["status"] == "FROZEN"


async def test_changes_of_other_budgets_are_not_shown(budgets: World) -> None:
    """Of another scope, another unit and another tenant; what is shown next is the change that comes after them."""
    await open_budget(budgets, 50, scope=CHILD)
    async with listening(budgets, WATCH, budgets.callers["a"], scope=CHILD) as listener:
        assert await held(listener) == ("50", "0")
        await open_budget(budgets, 1, scope=f"{CHILD}/toolset:t")
        credits_ = {"scope": CHILD, "unit": "CREDITS", "allocated": amount(1, "CREDITS")}
        await budgets.mutate("createBudget", credits_, caller=budgets.callers["a"])
        credit = {"scope": "tenant:a", "unit": "TOKENS", "operation": "CREDIT", "amount": amount(5)}
        await budgets.mutate("fundBudget", credit, caller=budgets.callers["a"])
        await reserve(budgets, 10, subject={"tenant": "a", "agent": "other"}, key="other")
        await reserve(budgets, 7)
        assert await held(listener) == ("43", "7")


async def test_the_scope_may_be_written_in_any_case(budgets: World) -> None:
    async with listening(budgets, WATCH, budgets.callers["a"], scope="TENANT:A") as listener:
        assert await held(listener) == ("1000", "0")
        await reserve(budgets, 1)
        assert await held(listener) == ("999", "1")


async def test_a_change_that_another_node_makes_is_shown(budgets: World) -> None:
    """No event comes with a reserve: the other node tells of the change alone."""
    other = Runtime(budgets.runtime.database, clock=budgets.clock, options=RuntimeOptions(runs_jobs=False))
    await other.open(root_key=ROOT_KEY)
    try:
        await _until_listening(other, budgets.runtime)
        elsewhere = World(other, budgets.clock, budgets.root, callers=budgets.callers)
        async with listening(budgets, WATCH, budgets.callers["a"]) as listener:
            assert await held(listener) == ("1000", "0")
            for number in range(1, 4):
                await reserve(elsewhere, 100, key=f"k{number}")
                assert await held(listener) == (str(1_000 - 100 * number), str(100 * number))
    finally:
        await other.stop()


async def test_a_hold_that_runs_out_is_shown(budgets: World) -> None:
    await reserve(budgets, 300, ttlMs=1_000, gracePeriodMs=0)
    async with listening(budgets, WATCH, budgets.callers["a"]) as listener:
        assert await held(listener) == ("700", "300")
        budgets.clock.advance(1_001)
        await budgets.runtime.schedule.run_job(EXPIRY)
        assert await held(listener) == ("1000", "0")


async def test_root_watches_any_tenants_budget_and_a_tenant_only_its_own(budgets: World) -> None:
    async with listening(budgets, WATCH, tenantId="a") as listener:
        assert await held(listener) == ("1000", "0")
        await reserve(budgets, 1)
        assert await held(listener) == ("999", "1")
    async with listening(budgets, WATCH, budgets.callers["b"], tenantId="a") as listener:
        assert (await listener.failure())["code"] == "ACCESS_DENIED"
    assert budgets.runtime.board.count == 0


async def test_a_key_watches_what_its_permissions_and_its_scope_filter_cover(budgets: World) -> None:
    await open_budget(budgets, 50, scope=CHILD)
    confined = await key_of(budgets, "a", permissions=["budgets:read"], scope_filter=["agent:bot"])
    blind = await key_of(budgets, "a", permissions=["balances:read"])
    async with listening(budgets, WATCH, confined, scope=CHILD) as listener:
        assert await held(listener) == ("50", "0")
    for caller, scope in ((confined, "tenant:a"), (blind, CHILD)):
        async with listening(budgets, WATCH, caller, scope=scope) as listener:
            assert (await listener.failure())["code"] == "ACCESS_DENIED"
    assert budgets.runtime.board.count == 0


async def test_a_budget_that_there_is_not_cannot_be_watched(budgets: World) -> None:
    async with listening(budgets, WATCH, budgets.callers["a"], unit="CREDITS") as listener:
        failure = await listener.failure()

    assert (failure["code"], failure["scope"], failure["unit"]) == ("BUDGET_NOT_FOUND", "tenant:a", "CREDITS")


async def test_a_revoked_key_watches_no_longer(budgets: World) -> None:
    async with listening(budgets, WATCH, budgets.callers["a"]) as listener:
        assert await held(listener) == ("1000", "0")
        ending = asyncio.create_task(listener.failure())
        await budgets.mutate("revokeApiKey", {"keyId": budgets.callers["a"].principal.key_id})
        assert (await ending)["code"] == "UNAUTHENTICATED"
    assert budgets.runtime.board.count == 0


async def test_closing_the_tenant_is_the_last_that_its_keys_see(budgets: World) -> None:
    async with listening(budgets, WATCH, budgets.callers["a"]) as listener:
        await listener.next()
        await budgets.mutate("closeTenant", {"tenantId": "a"})
        assert (await listener.next())["status"] == "CLOSED"
        assert (await listener.failure())["code"] == "UNAUTHENTICATED"


async def test_whoever_leaves_leaves_nothing_behind(budgets: World) -> None:
    async with listening(budgets, WATCH, budgets.callers["a"]) as listener:
        await listener.next()
        reading = asyncio.create_task(listener.next())
        await until(lambda: budgets.runtime.board.count)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    assert budgets.runtime.board.count == 0


# -- the board ---------------------------------------------------------------------------------------------------------


async def test_a_watcher_of_several_keys_is_woken_by_any_and_counted_once() -> None:
    board = ChangeBoard()
    hints = board.watch("budget", "tenant", key_id="key")
    await anext(hints)
    assert (board.count, board.key_ids()) == (1, {"key"})
    for key in ("budget", "tenant"):
        board.wake(["another", key])
        await asyncio.wait_for(anext(hints), timeout=60)
    await hints.aclose()
    assert board.count == 0


async def test_a_board_has_room_for_so_many_watchers_and_no_more() -> None:
    board = ChangeBoard()
    watching = [board.watch("key", key_id="key") for _ in range(SUBSCRIBERS_MAX)]
    for hints in watching:
        await anext(hints)
    with pytest.raises(SubscriptionClosed) as closed:
        await anext(board.watch("key", key_id="key"))
    assert closed.value.code == "TOO_MANY_SUBSCRIPTIONS"
    await watching[0].aclose()
    await anext(board.watch("key", key_id="key"))


async def _until_listening(*nodes: Runtime) -> None:
    await until(lambda: all(node.listener.is_connected for node in nodes))


def test_a_tenants_and_a_budgets_keys_are_short_and_of_its_scope_as_stored() -> None:
    own, tenant = watched_keys("a", "TENANT:A", Unit.TOKENS)
    assert (watched_keys("a", "tenant:a", Unit.TOKENS), tenant) == ((own, "a"), "a")
    assert watched_keys("a", "tenant:a", Unit.CREDITS)[0] != own
    assert len(own) < 20
