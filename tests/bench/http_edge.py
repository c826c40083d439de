"""REST create over keep-alive connections: `earmark serve` as it comes, against a naive application on the same stack.

The servers run in processes of their own; the clients share the machine with them and with PostgreSQL, as everything
else here does. CPU time is the server's and PostgreSQL's.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Final, TypeVar

import msgspec

from storage.database import Connection, connect
from tests.bench import earmark, naive
from tests.bench.bench import Bench
from tests.bench.demand import ROOT, Demand, GrantRequest, Shape
from tests.bench.naive_app import PATH
from tests.bench.serving import ROOT_KEY, KeepAlive, Served, served_earmark, served_naive

AnyRest = TypeVar("AnyRest", bound="Rest")
Serve = Callable[[str], AbstractAsyncContextManager[Served]]

SHAPE: Final = Shape(reservations=1)
GOALS: Final = {50: 10.0, 200: 10.0}


async def run(bench: Bench) -> None:
    try:
        importlib.import_module("server.asgi")
    except ImportError as error:
        bench.report.skip(f"http: server.asgi cannot be imported ({error})")
        return
    async with AsyncExitStack() as stack:
        ours = await open_variant(bench, stack, EarmarkRest, served_earmark)
        theirs = await open_variant(bench, stack, NaiveRest, served_naive)
        await ours.furnish()
        for clients in bench.clients(1, 10, 50, 200):
            await bench.compare("http: REST create", [ours, theirs], clients=clients, goal=GOALS.get(clients))


async def open_variant(bench: Bench, stack: AsyncExitStack, make: type[AnyRest], serve: Serve) -> AnyRest:
    """On a database of its own, its server running."""
    url = await stack.enter_async_context(bench.place.database())
    variant = make(bench, url, await stack.enter_async_context(serve(url)))
    stack.callback(variant.close)
    return variant


class Rest:
    """POST …/create, one connection a client."""

    name = ""

    def __init__(self, bench: Bench, url: str, *served: Served, shape: Shape = SHAPE) -> None:
        self.processors = bench.processors(*(each.process.pid for each in served))
        self._url = url
        self._served = served
        self._demand = Demand(shape)
        self._connections: dict[int, KeepAlive] = {}

    async def prepare(self) -> None:
        raise NotImplementedError

    async def call(self, client: int) -> bool:
        return await self._ask(client, self._demand.next())

    async def _ask(self, client: int, request: GrantRequest) -> bool:
        """Of the server that is the client's."""
        connection = await self.connection(client)
        status, answer = await connection.post(PATH, msgspec.json.encode(body_of(request)), key=ROOT_KEY)
        if status == 200:
            self._demand.made(request, msgspec.json.decode(answer)["grantId"])
        elif status == 409:
            self._demand.refused(request)
        else:
            raise AssertionError(f"status {status}: {answer.decode()[:200]}")
        return status == 200

    async def connection(self, client: int) -> KeepAlive:
        """The client's own, to its server."""
        connection = self._connections.get(client)
        if connection is None or connection.is_closed:  # a server hangs up when nobody asks for some seconds
            served = self._served[client % len(self._served)]
            connection = self._connections[client] = await KeepAlive.open(served.port)
        return connection

    async def settle(self) -> None:
        """Nothing was begun that the reply did not wait for."""

    async def check(self) -> list[str]:
        raise NotImplementedError

    def close(self) -> None:
        """Before each window, too: while the others have theirs, servers hang up on who says nothing."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()


class EarmarkRest(Rest):
    name = "earmark REST"

    async def furnish(self) -> None:
        async with earmark.quiet_node(self._url) as runtime:
            await earmark.furnish(runtime)

    async def prepare(self) -> None:
        """By a node of this process, for so long only: the served one is what is measured."""
        self.close()
        async with earmark.quiet_node(self._url) as runtime:
            await earmark.prepare_window(runtime, earmark.root_caller(), self._demand)

    async def settle(self) -> None:
        async with connected(self._url) as connection:
            await earmark.settle(connection)

    async def check(self) -> list[str]:
        async with connected(self._url) as connection:
            return await earmark.check(connection, self._demand)


class NaiveRest(Rest):
    name = "naive REST"
    _windows = 0

    async def prepare(self) -> None:
        self.close()
        self._windows += 1
        async with connected(self._url) as connection:
            await naive.prepare_window(connection, self._demand, account_id=f"pacct_{self._windows:026}")

    async def check(self) -> list[str]:
        async with connected(self._url) as connection:
            return await naive.check(connection, self._demand)


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Connection]:
    connection = await connect(url)
    try:
        yield connection
    finally:
        await connection.close()


def body_of(request: Any) -> dict[str, Any]:
    names = {
        "account_id": "accountId",
        "reservation_id": "reservationId",
        "grant_tenant_id": "grantTenantId",
        "slots": "slots",
        "starts_at": "startsAt",
        "ends_at": "endsAt",
        "idempotency_key": "idempotencyKey",
    }
    return {"tenantId": ROOT, **{wire: getattr(request, name) for name, wire in names.items()}}
