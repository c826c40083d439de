"""kill -9 of `earmark serve` in the middle of a load over GraphQL: clients that ask again by key get one effect each."""

from __future__ import annotations

from pathlib import Path

import httpx2 as httpx
import pytest

from storage.database import connect
from tests.capacity_world import lay_out, running_node
from tests.faults.crowd import server_of
from tests.faults.load import TENANTS, Load, check_all, now_ms
from tests.faults.serving import GraphQLClient, Served
from tests.ports import reserved_port
from tests.simulation.histories import Step
from tests.simulation.oracle_rows import Outcome
from tests.simulation.product import PRODUCT_WORLD
from workers.authority import new_secret

CLIENTS = 10


@pytest.mark.timeout(300)
async def test_killed_servers_lose_and_double_nothing(database_url: str, tmp_path: Path) -> None:
    async with running_node(database_url) as node:
        await lay_out(node, PRODUCT_WORLD, at=now_ms())
    root_key = new_secret()
    servers = [Served(database_url, root_key=root_key, port=reserved_port(), folder=tmp_path) for _ in range(2)]
    try:
        async with httpx.AsyncClient(timeout=10) as http:
            for server in servers:
                server.start()
            for server in servers:
                await server.ready(http)
            client = GraphQLClient(http, root_key)
            await client.make_keys(servers[0].address, TENANTS)
            load = await load_and_kill(servers, http, client)
            connection = await connect(database_url)
            try:
                await check_all(connection, load)
            finally:
                await connection.close()
    finally:
        for server in servers:
            server.kill()


async def load_and_kill(servers: list[Served], http: httpx.AsyncClient, client: GraphQLClient) -> Load:
    async def send_once(step: Step, key: str, attempt: int) -> Outcome | None:
        server = servers[server_of(key, attempt, servers=len(servers))]
        return await client.send(server.address, step, key)

    load = Load(send_once, seed=11)
    first, second = servers
    async with load.running(clients=CLIENTS):
        await load.more_answers(40)
        first.kill()
        await load.more_unanswered()
        first.start()
        await first.ready(http)
        await load.more_answers(40)
        second.kill()  # for good
        await load.more_unanswered()
        await load.more_answers(40)
    await load.repeat_all()
    return load
