"""Instances that start again elsewhere while others want the same slot, or something else of them (R12, D27, D32)."""

from __future__ import annotations

import asyncio
from typing import Any

from domain.capacity.placement import NO_SLOT
from domain.capacity.views import InstanceView
from domain.outcomes import Accepted, InvalidState
from tests.capacity_world import answer_of
from tests.faults.race_world import ALIKE, H, RaceWorld, at_once, racing

ROUNDS = 15


async def stopped_without_a_place(world: RaceWorld, *, count: int = 1) -> list[InstanceView]:
    """Instances of A that stopped, and whose reservation is full of B's since."""
    views = [answer_of(await world.run("A", reservation=ALIKE)) for _ in range(count)]
    for view in views:
        answer_of(await world.act("stop", view))
    for _ in views:
        answer_of(await world.run("B", reservation=ALIKE))
    return views


async def test_one_instance_started_from_everywhere_runs_once(database_url: str) -> None:
    async with racing(database_url, nodes=3, is_alike=True, first=1, second=1) as world:
        (moving,) = await stopped_without_a_place(world)
        for number in range(ROUNDS):
            world.clock.advance(H)
            accepted, refused = await at_once(*(world.act("start", moving, node=node) for node in range(3)))
            assert refused == []
            assert {view.key.rpartition("/")[2] for view in accepted} == {"second"}
            await one_row_is_alive(world, moving, running=1, segments=number + 2)
            answer_of(await world.act("stop", moving, node=number))
        await world.audit()


async def test_two_that_move_want_the_same_slot(database_url: str) -> None:
    """One gets it, the other is refused and stays what it was."""
    async with racing(database_url, nodes=2, is_alike=True, first=2, second=1) as world:
        pair = await stopped_without_a_place(world, count=2)
        for _ in range(ROUNDS):
            world.clock.advance(H)
            accepted, refused = await at_once(*(world.act("start", view, node=node) for node, view in enumerate(pair)))
            assert (len(accepted), refused) == (1, [NO_SLOT])
            answer_of(await world.act("stop", accepted[0]))
        await world.audit()


async def test_a_start_that_moves_beside_stop_and_delete_comes_to_one_of_their_orders(database_url: str) -> None:
    async with racing(database_url, nodes=3, is_alike=True, first=1, second=1) as world:
        (moving,) = await stopped_without_a_place(world)
        seen = set()
        for number in range(ROUNDS):
            world.clock.advance(H)
            deeds = [world.act("start", moving, node=number), world.act("stop", moving, node=number + 1)]
            answers = await asyncio.gather(*deeds[:: 1 if number % 2 else -1])
            assert all(isinstance(answer, Accepted) for answer in answers)
            row = await alive(world, moving)
            seen.add(row["run_state"])
            answer_of(await world.act("stop", moving))
        assert seen <= {"running", "stopped"}
        started, deleted = await asyncio.gather(world.act("start", moving, node=1), world.delete(moving, node=2))
        assert isinstance(started, Accepted | InvalidState), started
        assert answer_of(deleted).instance.run_state == "deleted"
        assert (await alive(world, moving))["run_state"] == "deleted"
        await world.audit()


async def test_moves_in_opposite_directions_lock_in_one_order(database_url: str) -> None:
    """Two reservations, each with a stopped instance that only the other one has room for, over and over."""
    async with racing(database_url, nodes=2, is_alike=True, first=1, second=1) as world:
        left = answer_of(await world.run("A", reservation=ALIKE))
        right = answer_of(await world.run("A", reservation=ALIKE))
        for number in range(ROUNDS):
            world.clock.advance(H)
            for view in (left, right):
                answer_of(await world.act("stop", view))
            accepted, refused = await at_once(
                *(world.act("start", view, node=number + place) for place, view in enumerate((left, right)))
            )
            assert refused == []
            assert {view.key.rpartition("/")[2] for view in accepted} == {"first", "second"}
        await world.audit()


async def test_a_move_beside_everything_else_on_both_reservations(database_url: str) -> None:
    """The reservation that it comes from is unbound and bound, the one that it goes to gets grants and other tenants."""
    async with racing(database_url, nodes=2, is_alike=True, first=1, second=3) as world:
        (moving,) = await stopped_without_a_place(world)
        for number in range(ROUNDS):
            now = world.clock.advance(H)
            outcomes = await asyncio.gather(
                world.act("start", moving, node=number),
                world.grant(1, now, now + H // 2, tenant="B", reservation="zone/second", node=number + 1),
                world.run("B", reservation=ALIKE, node=number),
            )
            if isinstance(outcomes[2], Accepted):
                answer_of(await world.delete(outcomes[2].answer))
            assert answer_of(outcomes[0]).key.rpartition("/")[2] == "second"
            answer_of(await world.act("stop", moving))
        await world.audit()


async def one_row_is_alive(world: RaceWorld, view: InstanceView, *, running: int, segments: int) -> None:
    rows = await world.connection.fetch(
        "select * from capacity_segment where instance_id = $1 order by number", view.instance.instance_id
    )
    assert [row["number"] for row in rows] == list(range(segments))
    assert sum(row["to_at"] is None for row in rows) == running
    row = await alive(world, view)
    assert row["key"] == await world.connection.fetchval(
        "select key from capacity_locator where id = $1", view.instance.instance_id
    )


async def alive(world: RaceWorld, view: InstanceView) -> Any:
    """Its one row that is not what it left behind."""
    (row,) = await world.connection.fetch(
        "select * from capacity_instance where instance_id = $1 and moved_to is null", view.instance.instance_id
    )
    return row
