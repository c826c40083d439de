"""Many at once over one edge: one effect each, one end each, and never more than there is (scenarios 70, 104, 106, 133)."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from tests.edges.budget.edge import BudgetEdge, Refused
from tests.edges.budget.story import (
    AWO,
    P,
    Player,
    Step,
    become,
    commit,
    release,
    reserve,
    story,
)
from tests.edges.cycles.world import ADMIN, World


def word(answer: Any) -> str:
    return answer.code if isinstance(answer, Refused) else "ok"


async def at_once(player: Player, *steps: Step) -> list[Any]:
    return list(await asyncio.gather(*(player.ask(step) for step in steps)))


async def test_a_herd_under_one_key_is_one_hold(world: World, edge: BudgetEdge) -> None:
    """70."""
    player = Player(world, edge)
    await player.play(story("a budget", {P: 1_000}))
    answers = await at_once(player, *(reserve(100, key="k") for _ in range(32)))

    assert len({answer["reservation_id"] for answer in answers}) == 1
    assert await world.numbers(P, "reserved", "remaining") == (100, 900)


async def test_two_hundred_at_once_hold_no_more_than_there_is(world: World, edge: BudgetEdge) -> None:
    player = Player(world, edge)
    await player.play(story("a budget", {P: 1_000}))
    answers = await at_once(player, *(reserve(10) for _ in range(200)))

    assert Counter(map(word, answers)) == {"ok": 100, "BUDGET_EXCEEDED": 100}
    assert await world.numbers(P, "reserved", "remaining") == (1_000, 0)


async def test_a_commit_and_an_operators_release_at_once_are_one_end(world: World, edge: BudgetEdge) -> None:
    """104."""
    player = Player(world, edge)
    await player.play(story("a hold", {P: 1_000}, reserve(100)))
    answers = await at_once(player, commit(100), release(by=ADMIN))

    assert sorted(map(word, answers)) == ["RESERVATION_FINALIZED", "ok"]
    assert await world.numbers(P, "reserved", "spent") in ((0, 100), (0, 0))


async def test_closing_leaves_nothing_held_whatever_comes_meanwhile(world: World, edge: BudgetEdge) -> None:
    """106."""
    player = Player(world, edge)
    await player.play(story("a budget", {P: 1_000}))
    asked = [reserve(1) for _ in range(100)]
    answers = await at_once(player, *asked[:50], become("CLOSED"), *asked[50:])

    assert set(map(word, answers)) <= {"ok", "TENANT_CLOSED", "UNAUTHORIZED"}
    assert await world.numbers(P, "reserved", "remaining", "status") == (0, 1_000, "CLOSED")
    rows = await edge.holds({"limit": 200, "tenant": "acme"}, by=ADMIN)
    assert not isinstance(rows, Refused)
    assert {row["status"] for row in rows[0]} <= {"RELEASED"}


async def test_two_overdrafts_at_once_stay_within_the_limit(world: World, edge: BudgetEdge) -> None:
    """133."""
    player = Player(world, edge)
    holds = [reserve(0, hold=hold, overage_policy=AWO) for hold in ("one", "two")]
    await player.play(story("two holds", {P: (0, 5_000)}, *holds))
    answers = await at_once(player, commit(4_000, hold="one"), commit(4_000, hold="two"))

    assert sorted(map(word, answers)) == ["OVERDRAFT_LIMIT_EXCEEDED", "ok"]
    assert await world.numbers(P, "debt", "is_over_limit") == (4_000, False)
