"""Several `earmark serve` over one PostgreSQL, loaded with grants, instances and budgets, and audited afterwards.

What happens to them in between is a test's business. Whatever it is: each client asks again under its key until it is
answered, and in the end the tables and all replies must agree.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2 as httpx

from storage.database import connect
from tests.capacity_world import lay_out, running_node
from tests.faults.crowd import server_of
from tests.faults.cycles_load import CyclesLoad, CyclesSender
from tests.faults.load import TENANTS, Load, check_all, now_ms
from tests.faults.serving import GraphQLClient, Served
from tests.faults.vanishing import Vanish
from tests.ports import reserved_port
from tests.simulation.histories import Step
from tests.simulation.oracle_rows import Outcome
from tests.simulation.product import PRODUCT_WORLD
from workers.authority import new_secret

CONNECTIONS_MAX = 64


@dataclass(slots=True, kw_only=True)
class Stage:
    url: str
    """Of the database, for whoever looks at it directly."""
    servers: list[Served]
    http: httpx.AsyncClient
    root_key: str
    capacity: Load
    budgets: CyclesLoad
    grants_client: GraphQLClient
    budgets_client: CyclesSender

    def set_vanish(self, vanish: Vanish | None) -> None:
        """From now on some clients of both contexts leave in mid-request, and ask again."""
        self.grants_client.vanish = self.budgets_client.vanish = vanish

    @asynccontextmanager
    async def loaded(self, *, capacity: int, budgets: int) -> AsyncIterator[None]:
        """So many clients of each context ask while the block runs, and each gets its last answer after it."""
        async with self.capacity.running(clients=capacity), self.budgets.running(clients=budgets):
            yield

    async def more_answers(self, count: int) -> None:
        """Of each context that has clients."""
        loads = [load for load in (self.capacity, self.budgets) if load.clients]
        await asyncio.gather(*(load.more_answers(count) for load in loads))

    async def restart(self, server: Served) -> None:
        """After a kill."""
        server.start()
        await server.ready(self.http)

    async def check(self) -> None:
        """Tables and replies agree, before and after everything that was accepted is asked for once more."""
        for _ in range(2):
            connection = await connect(self.url)
            try:
                await self.budgets.books.check(connection)
                await check_all(connection, self.capacity)
            finally:
                await connection.close()
            await asyncio.gather(self.capacity.repeat_all(), self.budgets.repeat_all())


@asynccontextmanager
async def staged(
    url: str,
    folder: Path,
    *,
    seed: int,
    nodes: int = 2,
    node_url: str | None = None,
    **settings: str,
) -> AsyncIterator[Stage]:
    """Servers on a migrated database, furnished, with `settings`. `node_url`: how they reach it, when another way."""
    async with running_node(url) as node:
        await lay_out(node, PRODUCT_WORLD, at=now_ms())
    root_key = new_secret()
    servers = [
        Served(node_url or url, root_key=root_key, port=reserved_port(), folder=folder, **settings)
        for _ in range(nodes)
    ]
    async with AsyncExitStack() as stack:
        limits = httpx.Limits(max_connections=CONNECTIONS_MAX)
        http = await stack.enter_async_context(httpx.AsyncClient(timeout=10, limits=limits))
        for server in servers:
            stack.callback(server.kill)
            server.start()
        for server in servers:
            await server.ready(http)
        grants = GraphQLClient(http, root_key)
        await grants.make_keys(servers[0].address, TENANTS)

        async def send_step(step: Step, key: str, attempt: int) -> Outcome | None:
            return await grants.send(servers[server_of(key, attempt, servers=nodes)].address, step, key)

        sender = CyclesSender([server.address for server in servers], connections=CONNECTIONS_MAX)
        stack.callback(sender.close)
        budgets = CyclesLoad(sender.send_once, seed=seed)
        await sender.furnish(budgets.books, root_key)
        yield Stage(
            url=url,
            servers=servers,
            http=http,
            root_key=root_key,
            capacity=Load(send_step, seed=seed),
            budgets=budgets,
            grants_client=grants,
            budgets_client=sender,
        )
