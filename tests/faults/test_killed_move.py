"""kill -9 of a node in the middle of a move: the instance is in one place, and whoever asks again has it running."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx2 as httpx
import pytest

from tests.capacity_world import answer_of
from tests.faults.race_world import ALIKE, RaceWorld, racing
from tests.faults.serving import GraphQLClient, Served
from tests.ports import reserved_port
from tests.registry_desks import lock_waiter
from tests.simulation.histories import Step
from workers.authority import new_secret


@pytest.mark.timeout(300)
async def test_a_move_whose_node_is_killed_is_made_whole_or_not_at_all(database_url: str, tmp_path: Path) -> None:
    """The kill comes when both reservations are written and the locator, which is held, is not."""
    root_key = new_secret()
    server = Served(database_url, root_key=root_key, port=reserved_port(), folder=tmp_path)
    try:
        async with racing(database_url, nodes=1, is_alike=True, first=1, second=9) as world:
            moving = await stopped_without_a_place(world)
            async with httpx.AsyncClient(timeout=60) as http:
                server.start()
                await server.ready(http)
                client = GraphQLClient(http, root_key)
                await client.make_keys(server.address, ("A",))
                client.note_owner(moving, "A")
                start = Step(0, "start_instance", {"instance_id": moving})
                await kill_in_the_middle(world, server, client, start)
                server.start()
                await server.ready(http)
                for _ in range(2):
                    assert await client.send(server.address, start, "start") == ("ok", moving)
            await runs_once_at_the_second(world, moving)
            await world.audit()
    finally:
        server.kill()


async def stopped_without_a_place(world: RaceWorld) -> str:
    """An instance of A that stopped, and whose reservation is full of B's since."""
    view = answer_of(await world.run("A", reservation=ALIKE))
    answer_of(await world.act("stop", view))
    answer_of(await world.run("B", reservation=ALIKE))
    return str(view.instance.instance_id)


async def kill_in_the_middle(world: RaceWorld, server: Served, client: GraphQLClient, start: Step) -> None:
    holder = world.connection.transaction()
    await holder.start()
    locator = "select 1 from capacity_locator where id = $1 for update"
    await world.connection.execute(locator, start.arguments["instance_id"])
    asking = asyncio.create_task(client.send(server.address, start, "start"))
    await lock_waiter(world.node(0).database)
    server.kill()
    assert await asking is None
    await holder.rollback()


async def runs_once_at_the_second(world: RaceWorld, instance_id: str) -> None:
    segments = await world.connection.fetch(
        "select key, to_at from capacity_segment where instance_id = $1 order by number", instance_id
    )
    places = [row["key"].rpartition("/")[2] for row in segments]
    assert (places, [row["to_at"] is None for row in segments]) == (["first", "second"], [False, True])
    key = await world.connection.fetchval("select key from capacity_locator where id = $1", instance_id)
    assert key.endswith("/second")
