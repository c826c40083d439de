"""Clients that cause trouble: they leave, they are in a hurry, or they do not read."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final
from urllib.parse import urlsplit

import psutil
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from tests.chaos.many import make_grants
from tests.chaos.scene import Scene
from tests.faults.cycles_load import SPENDERS, Call, tokens
from tests.faults.load import now_ms
from tests.faults.vanishing import Vanish
from tests.simulation.histories import HOUR_MS

VANISHING_SHARE: Final = 0.3


async def vanish(scene: Scene) -> None:
    """Three of ten requests are left by whoever made them; then somebody asks again under the key."""
    leaving = Vanish(scene.chance, share=VANISHING_SHARE)
    async with scene.loaded():
        scene.stage.set_vanish(leaving)
        await scene.more_answers()
        await scene.more_answers()
        scene.stage.set_vanish(None)
        await scene.more_answers()
    scene.say("clients left: " + ", ".join(f"{count} {when}" for when, count in leaving.left.items()))


# -- deadlines -----------------------------------------------------------------------------------------------------------

DEADLINE_S: Final = 0.020
GOAL_PERCENT: Final = 95
WARM_UP: Final = 50
"""Calls that do not count: connections are opened, plans are made."""


async def be_in_a_hurry(scene: Scene) -> None:
    """A client that gives up after 20 ms. It counts what is answered in time, and asks again for what was not."""
    calls, in_time = scene.size(short=200, long=3_000), 0
    for number in range(WARM_UP + calls):
        call = free_debit(f"hurry-{scene.stage.budgets.run_number}-{number}")
        try:
            async with asyncio.timeout(DEADLINE_S):
                reply = await scene.stage.budgets_client.send_once(call, 0)
        except TimeoutError:
            reply = None
        if reply is not None and number >= WARM_UP:
            in_time += 1
        await scene.stage.budgets.ask(call)  # answers what was left, and repeats what was not
    percent = in_time * 100 / calls
    verdict = "as it should be" if percent >= GOAL_PERCENT else f"MISSED, {GOAL_PERCENT} % is the goal"
    scene.say(f"{percent:.1f} % of {calls:,} calls were answered within {DEADLINE_S * 1_000:.0f} ms: {verdict}")


def free_debit(key: str, tenant_id: str = SPENDERS[0]) -> Call:
    """Always accepted."""
    body = {
        "idempotency_key": key,
        "subject": {"tenant": tenant_id},
        "action": {"kind": "llm.completion", "name": "model"},
        "actual": tokens(0),
    }
    return Call(tenant_id=tenant_id, operation="budget.debit", path="/v1/events", body=body)


# -- a subscriber that does not read ---------------------------------------------------------------------------------------

FILLING: Final = " ".join(f"payload{number}: payload" for number in range(80))
SUBSCRIPTION: Final = (
    f"subscription ($after: String) {{ grantEvents(all: true, after: $after) {{ cursor seq type {FILLING} }} }}"
)
GRANTS: Final = 1_500
"""Events of some 12 KB each: more of them than the node keeps for one subscriber and sockets hold besides."""
RECEIVE_BYTES: Final = 65_536
GROWTH_MAX_MB: Final = 60
SILENT_WITHIN_S: Final = 60

Event = dict[str, Any]


async def do_not_read(scene: Scene) -> None:
    """One subscriber reads, one does not: that costs the node little and the other one nothing, and it can resume."""
    server = scene.stage.servers[0]
    before_mb = psutil.Process(server.pid).memory_info().rss >> 20
    async with subscribed(scene, after=None) as silent:
        seen: list[Event] = []
        reader = asyncio.create_task(_follow(scene, seen, wanted=GRANTS))
        async with scene.loaded(clients=2):
            starts_at = now_ms() + 1_000 * HOUR_MS
            await make_grants(scene, GRANTS, starts_at=starts_at, ends_at=starts_at + HOUR_MS)
            await asyncio.wait_for(reader, SILENT_WITHIN_S)
        grown_mb = (psutil.Process(server.pid).memory_info().rss >> 20) - before_mb
        assert _numbers(seen) == sorted(set(_numbers(seen))), "each once and in order"
        late: list[Event] = []
        await asyncio.wait_for(read_events(silent, late, wanted=None), SILENT_WITHIN_S)  # until it is ended
    ended_after = len(late)
    await asyncio.wait_for(_follow(scene, late, wanted=len(seen)), SILENT_WITHIN_S)
    scene.say(
        f"{GRANTS:,} events: whoever read got them; whoever did not was ended after {ended_after:,} and resumed; "
        f"the node grew by {grown_mb} MB"
    )
    assert _numbers(late)[: len(seen)] == _numbers(seen)
    assert grown_mb < GROWTH_MAX_MB


def _numbers(events: list[Event]) -> list[int]:
    return [int(event["seq"]) for event in events]


@asynccontextmanager
async def subscribed(
    scene: Scene, *, after: str | None, node: int = 0, query: str = SUBSCRIPTION
) -> AsyncIterator[ClientConnection]:
    """A subscriber to every tenant's grants, with little room for what it has not read."""
    address = urlsplit(scene.stage.servers[node].address)
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
    listener.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(listener, (address.hostname, address.port))
    except OSError:
        listener.close()
        raise
    async with connect(
        f"ws://{address.netloc}/graphql",
        sock=listener,
        subprotocols=[Subprotocol("graphql-transport-ws")],
        max_queue=2,
        compression=None,
        close_timeout=1,  # whoever does not read does not say goodbye either
    ) as connection:
        await _say(connection, type="connection_init", payload={"apiKey": scene.stage.root_key})
        assert json.loads(await connection.recv())["type"] == "connection_ack"
        payload = {"query": query, "variables": {"after": after}}
        await _say(connection, type="subscribe", id="1", payload=payload)
        yield connection


async def _say(connection: ClientConnection, **message: Any) -> None:
    await connection.send(json.dumps(message))


async def _follow(scene: Scene, seen: list[Event], *, wanted: int) -> None:
    """As a client does that wants everything: whenever it is ended, it resumes after what it saw."""
    while len(seen) < wanted:
        async with subscribed(scene, after=seen[-1]["cursor"] if seen else None) as connection:
            await read_events(connection, seen, wanted=wanted)


async def read_events(connection: ClientConnection, seen: list[Event], *, wanted: int | None) -> None:
    """Until so many events were read, or the server ends it."""
    with suppress(ConnectionClosed):
        while wanted is None or len(seen) < wanted:
            message = json.loads(await connection.recv())
            if message["type"] not in ("next", "ping") or (message.get("payload") or {}).get("errors"):
                return
            if message["type"] == "next":
                seen.append(message["payload"]["data"]["grantEvents"])
