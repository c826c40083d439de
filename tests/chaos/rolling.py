"""A new version is rolled out: nodes are stopped and started one after another, as operators do it, while all is in use."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any, Final

from websockets.exceptions import WebSocketException

from storage.database import connect
from tests.capacity_world import drained, eventually
from tests.chaos.clients import read_events, subscribed
from tests.chaos.scene import Scene
from tests.faults.crowd import beside

SEEN: Final = "subscription ($after: String) { grantEvents(all: true, after: $after) { cursor seq } }"
PAUSE_S: Final = 0.05
"""Before a subscriber tries a node again that is away."""
_END: Final = "select last_seq from event_stream where tenant_id = '*'"
_TOLD: Final = """
select seq from event where tenant_id = '*' and seq between $1 and $2 and type like 'reservation-grant.%' order by seq
"""


async def restart_one_after_another(scene: Scene) -> None:
    """Each node in turn is stopped and started; all is answered by key, subscribers of each resume and miss nothing."""
    seen: list[list[dict[str, Any]]] = [[] for _ in scene.stage.servers]
    before = scene.stage.budgets.unanswered + scene.stage.capacity.unanswered
    async with AsyncExitStack() as stack:
        for node, events in enumerate(seen):
            await stack.enter_async_context(beside(_follow(scene, node, events)))
        async with scene.loaded():
            await _until_all_see(seen)
            for _ in range(scene.size(short=1, long=3)):
                for server in scene.stage.servers:
                    await scene.more_answers()
                    code = await asyncio.to_thread(server.stop)
                    assert code == 0, f"the node at {server.address} ended with {code}"
                    await scene.more_answers()
                    await scene.stage.restart(server)
            await scene.more_answers()
        told = await _all_told(scene, since=max(int(events[0]["seq"]) for events in seen))
        await _until_all_see(seen, up_to=told[-1])
    for events in seen:
        numbers = [int(event["seq"]) for event in events]
        assert numbers[-len(told) :] == told, "each once, in order, and none left out"
    lost = scene.stage.budgets.unanswered + scene.stage.capacity.unanswered - before
    scene.say(f"{lost} requests were sent again; a subscriber of each node got all of {len(told)} events")


async def _follow(scene: Scene, node: int, events: list[dict[str, Any]]) -> None:
    """As a client does: whenever its node goes, it comes again and resumes after what it saw. For ever."""
    while True:
        try:
            after = events[-1]["cursor"] if events else None
            async with subscribed(scene, after=after, node=node, query=SEEN) as connection:
                await read_events(connection, events, wanted=None)
        except (OSError, WebSocketException):
            pass  # the node is away; if it never comes back, that is found out
        await asyncio.sleep(PAUSE_S)


async def _until_all_see(seen: list[list[dict[str, Any]]], *, up_to: int = 0) -> None:
    async def do_they() -> bool:
        return all(events and int(events[-1]["seq"]) >= up_to for events in seen)

    await eventually(do_they)


async def _all_told(scene: Scene, *, since: int) -> list[int]:
    """The numbers of all events about grants from `since` on, once none waits for its number any more."""
    connection = await connect(scene.stage.url)
    try:
        await drained(connection)
        rows = await connection.fetch(_TOLD, since, await connection.fetchval(_END))
        return [row["seq"] for row in rows]
    finally:
        await connection.close()
