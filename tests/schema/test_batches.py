"""Lists of requests in one mutation: an outcome each, in their order, and one turn for as many as it takes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.schema.test_budgets import open_budget, wanted
from tests.schema.world import World
from workers.lane import BATCH_MAX

RESERVE = """mutation ($input: ReserveBudgetsInput!) { reserveBudgets(input: $input) {
  ... on ReservedBudgets { outcomes {
    __typename ... on BudgetHold { reservationId reserved } ... on Refusal { code }
    ... on InvalidInput { field }
  } }
  ... on Refusal { __typename code } ... on InvalidInput { field reason }
} }"""
GRANT = """mutation ($input: CreateGrantsInput!) { createGrants(input: $input) {
  ... on CreatedGrants { outcomes {
    __typename ... on Grant { id slots state } ... on Refusal { code } ... on CapacityUnavailable { granted }
  } }
  ... on Refusal { __typename code } ... on InvalidInput { field }
} }"""


async def reserve_all(world: World, holds: list[dict[str, Any]]) -> Any:
    data = await world.data(RESERVE, world.callers["a"], input={"reservations": holds})
    return data["reserveBudgets"]


async def turns(world: World) -> int:
    async with world.runtime.database.acquire() as connection:
        version: int = await connection.fetchval("select version from budget_tenant where tenant_id = 'a'")
    return version


@pytest.fixture
async def budgets(world: World) -> World:
    """Tenant a has a budget of 1000 tokens."""
    await open_budget(world, 1_000)
    return world


async def test_each_hold_has_its_own_outcome_after_those_before_it(budgets: World) -> None:
    """The second takes too much of what the first one left, the third is wrong, the fifth is the first one again."""
    holds = [wanted(700, key="one"), wanted(400, key="two"), wanted(-1, key="three"), wanted(300, key="four")]
    outcomes = (await reserve_all(budgets, [*holds, wanted(700, key="one"), wanted(1, key="one")]))["outcomes"]

    assert [each.get("reserved", each.get("code")) for each in outcomes] == [
        "700",
        "BUDGET_EXCEEDED",
        "INVALID_INPUT",
        "300",
        "700",
        "IDEMPOTENCY_MISMATCH",
    ]
    assert outcomes[2]["field"] == "estimate.amount"
    assert outcomes[4] == outcomes[0]


async def test_the_longest_list_is_few_turns_and_its_retry_changes_nothing(budgets: World) -> None:
    holds = [wanted(5, key=f"k{number}") for number in range(BATCH_MAX)]
    before = await turns(budgets)
    first = await reserve_all(budgets, holds)
    after = await turns(budgets)
    again = await reserve_all(budgets, holds)
    reserved = [each.get("reserved") for each in first["outcomes"]]

    assert (reserved.count("5"), reserved.count(None)) == (200, BATCH_MAX - 200)
    assert after - before <= 4
    assert [each for each in again["outcomes"] if "reserved" in each] == first["outcomes"][:200]


@pytest.mark.parametrize("number", [0, BATCH_MAX + 1])
async def test_a_list_of_none_or_of_more_than_a_turn_takes_is_refused_whole(budgets: World, number: int) -> None:
    refused = await reserve_all(budgets, [wanted(1, key=f"k{each}") for each in range(number)])

    assert (refused["code"], refused["field"], refused["reason"]) == ("INVALID_INPUT", "reservations", "out-of-range")


async def test_one_that_fails_is_null_with_an_error_and_the_others_stand(
    budgets: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full mailbox refuses what is asked last."""
    monkeypatch.setattr("workers.actor.MAILBOX_MAX", 2)
    holds = [wanted(5, key=f"k{number}") for number in range(3)]
    result = await budgets.ask(RESERVE, budgets.callers["a"], input={"reservations": holds})

    assert result.data is not None
    assert result.errors is not None
    outcomes = result.data["reserveBudgets"]["outcomes"]
    assert [each and each["reserved"] for each in outcomes] == ["5", "5", None]
    assert [error.path for error in result.errors] == [["reserveBudgets", "outcomes", 2]]
    assert (result.errors[0].extensions or {})["code"] == "OVERLOADED"


async def test_grants_are_made_in_their_order_as_far_as_there_is_room(world: World) -> None:
    """Ten slots: six, five too many, four; and the first one again."""
    asked = [world.grant_input(slots=slots, idempotencyKey=f"g{slots}") for slots in (6, 5, 4, 6)]
    outcomes = (await world.data(GRANT, input={"grants": asked}))["createGrants"]["outcomes"]
    denied = await world.data(GRANT, world.callers["a"], input={"grants": asked[:1]})
    none = await world.data(GRANT, input={"grants": []})

    assert [each.get("slots", each.get("code")) for each in outcomes] == [6, "CAPACITY_UNAVAILABLE", 4, 6]
    assert outcomes[1]["granted"] == 6
    assert outcomes[3] == outcomes[0]
    assert [each["code"] for each in denied["createGrants"]["outcomes"]] == ["ACCESS_DENIED"]
    assert none["createGrants"]["field"] == "grants"
