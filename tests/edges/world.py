"""A small world behind both edges: the real application on a database of its own, with a clock that stands still.

Root has two accounts with reservations in every state, tenants A, B and C have projects and keys; C is offered nothing.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx2
import uvicorn
from starlette.applications import Starlette

from domain.authority import EVERYTHING, Permission, Principal
from domain.capacity.scan import ReportedReservation
from server.asgi import create_app
from server.settings import Settings
from storage.events import read_tail
from tests.capacity_world import answer_of, drained, eventually
from tests.edges.edge import Answer, Edge, GraphQLEdge, Refused, RestEdge
from workers.clock import ManualClock
from workers.request import Caller
from workers.runtime import Runtime, RuntimeOptions, running

B: Final = 1_800_000_000_000
"""2027-01-15T08:00:00Z, exactly on a UTC hour, as in the rules' examples."""
MINUTE: Final = 60_000
HOUR: Final = 3_600_000
DAY: Final = 24 * HOUR

ROOT: Final = "root"
TENANTS: Final = ("tenant-a", "tenant-b", "tenant-c")
A, OTHER, STRANGER = TENANTS
POOL: Final = "pool"
CLOSED_POOL: Final = "closed-pool"
"""It is offered to nobody."""
FLAVOR: Final = "h100"
"""What RESERVATION has, and no other."""

RESERVATION: Final = "zones/a/reservations/main"
"""10 slots, ready, bound to POOL."""
LARGE: Final = "large"
"""99,999 slots."""
NOT_READY, GONE, UNBOUND, UNOFFERED = "not-ready", "gone", "unbound", "unoffered"
ELSEWHERE: Final = "elsewhere"
"""On the other account."""

NOBODYS_ACCOUNT: Final = f"pacct_{'z' * 26}"
NOBODYS_PROJECT: Final = f"prj_{'z' * 26}"
NOBODYS_GRANT: Final = f"rgrant_{'z' * 26}"

_OPERATOR: Final = Caller(
    principal=Principal(key_id="key_tests", tenant_id=ROOT, is_root=True, permissions=frozenset({EVERYTHING}))
)


@dataclass
class World:
    """Asks over an edge, mostly as root, with defaults for what a story does not care about."""

    app: Starlette
    client: httpx2.AsyncClient
    node: Runtime
    clock: ManualClock
    account_id: str = ""
    other_account_id: str = ""
    secrets: dict[str, str] = field(default_factory=dict)
    """Tenant id to an API key of it; "root-reader" and "tenant-a-blind" lack permissions."""
    projects: dict[str, str] = field(default_factory=dict)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def edge(self, name: str) -> Edge:
        return RestEdge(self.client) if name == RestEdge.name else self.graphql

    @property
    def graphql(self) -> GraphQLEdge:
        return GraphQLEdge(self.client)

    # -- asking --------------------------------------------------------------------------------------------------

    def creation(self, **changes: Any) -> dict[str, Any]:
        """An acceptable request: one slot for A, from now on, for a day. What is changed to `...` is left out."""
        given = {
            "tenantId": ROOT,
            "accountId": self.account_id,
            "reservationId": RESERVATION,
            "grantTenantId": A,
            "slots": 1,
            "startsAt": self.clock.now,
            "endsAt": self.clock.now + DAY,
            "idempotencyKey": f"key-{next(self._numbers)}",
            **changes,
        }
        return {name: value for name, value in given.items() if value is not ...}

    async def create(self, edge: Edge, *, by: str = ROOT, **changes: Any) -> Answer:
        return await edge.create(self.creation(**changes), secret=self.secrets[by])

    async def made(self, edge: Edge, **changes: Any) -> dict[str, Any]:
        """A grant that must be accepted."""
        return accepted(await self.create(edge, **changes))

    async def get(self, edge: Edge, grant_id: Any, *, by: str, tenant_id: Any = None) -> Answer:
        given = {"tenantId": tenant_id or by, "grantId": grant_id}
        return await edge.get(given, secret=self.secrets[by])

    async def list_grants(
        self, edge: Edge, *, by: str, tenant_id: str | None = None, **given: Any
    ) -> Sequence[dict[str, Any]] | Refused:
        return await edge.list({"tenantId": tenant_id or by, **given}, secret=self.secrets[by])

    async def listed(self, edge: Edge, *, by: str, **given: Any) -> list[str]:
        """The ids of a list that must be given, in its order."""
        answer = await self.list_grants(edge, by=by, **given)
        assert not isinstance(answer, Refused), answer
        return [grant["grantId"] for grant in answer]

    async def end(self, edge: Edge, grant_id: Any, *, by: str = ROOT, **changes: Any) -> Answer:
        given = {"tenantId": ROOT, "accountId": self.account_id, "grantId": grant_id, **changes}
        return await edge.end(given, secret=self.secrets[by])

    # -- looking -------------------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Wait until every event that was written is in its stream."""
        connection = await self.node.database.connect()
        try:
            await drained(connection)
        finally:
            await connection.close()

    async def story(self, tenant_id: str) -> list[tuple[str, str, int]]:
        """(type without its beginning, grant id, when) of a tenant's events, in order."""
        await self.settle()
        async with self.node.database.acquire() as connection:
            events = await read_tail(connection, tenant_id, after=0, limit=10_000)
        return [
            (event.type.removeprefix("reservation-grant."), event.payload["grantId"], event.occurred_at)
            for event in events
        ]

    async def count(self, table: str) -> int:
        async with self.node.database.acquire() as connection:
            number: int = await connection.fetchval(f"select count(*) from {table}")
        return number

    # -- furnishing ----------------------------------------------------------------------------------------------

    async def report(
        self, totals: dict[str, int], *, account_id: str | None = None, unready: str = "", alike: str = RESERVATION
    ) -> None:
        """A complete report: reservation to total. What it leaves out is gone. `alike` has RESERVATION's flavor too."""
        reported = [
            ReportedReservation(
                reservation_id=name,
                flavor=FLAVOR if name in (RESERVATION, alike) else f"flavor-{name}",
                region="us-west4",
                total=total,
                ready=name != unready,
            )
            for name, total in totals.items()
        ]
        place = {"tenant_id": ROOT, "account_id": account_id or self.account_id}
        answer_of(await self.node.reservations.report(_OPERATOR, **place, reservations=reported, complete=True))

    async def bind(self, reservation_id: str, pool_id: str = POOL, *, account_id: str | None = None) -> None:
        place = {"tenant_id": ROOT, "account_id": account_id or self.account_id, "reservation_id": reservation_id}
        answer_of(await self.node.reservations.bind(_OPERATOR, **place, pool_id=pool_id))

    async def furnish(self) -> None:
        for tenant_id in TENANTS:
            answer_of(await self.node.tenancy.create_tenant(_OPERATOR, tenant_id=tenant_id, name=tenant_id))
            project = await self.node.tenancy.create_project(_OPERATOR, tenant_id=tenant_id, name="main")
            self.projects[tenant_id] = answer_of(project).project_id
            await self.add_key(tenant_id, tenant_id)
        await self.add_key(ROOT, ROOT, permissions=[EVERYTHING])
        await self.add_key("root-reader", ROOT, permissions=[Permission.QUOTAS_READ.value])
        await self.add_key("tenant-a-blind", A, permissions=[Permission.INSTANCES_READ.value])
        self.account_id = await self._add_account("main")
        self.other_account_id = await self._add_account("other")
        for pool_id in (POOL, CLOSED_POOL):
            answer_of(await self.node.accounts.create_pool(_OPERATOR, pool_id=pool_id, name=pool_id))
        for tenant_id in (A, OTHER):
            answer_of(await self.node.accounts.offer_pool(_OPERATOR, pool_id=POOL, offered_to=tenant_id))
        await self._add_reservations()

    async def add_key(self, name: str, tenant_id: str, *, permissions: list[str] | None = None) -> None:
        issued = await self.node.keys.create_api_key(_OPERATOR, tenant_id=tenant_id, name=name, permissions=permissions)
        self.secrets[name] = answer_of(issued).secret

    async def _add_account(self, name: str) -> str:
        account = await self.node.accounts.create_provider_account(_OPERATOR, name=name, provider="gcp", kind="push")
        account_id: str = answer_of(account).account_id
        return account_id

    async def _add_reservations(self) -> None:
        totals = {RESERVATION: 10, LARGE: 99_999, NOT_READY: 10, UNBOUND: 10, UNOFFERED: 10}
        await self.report({**totals, GONE: 10})
        for name in (RESERVATION, LARGE, NOT_READY, GONE):
            await self.bind(name)
        await self.bind(UNOFFERED, CLOSED_POOL)
        await self.report(totals, unready=NOT_READY)
        await self.report({ELSEWHERE: 10}, account_id=self.other_account_id)
        await self.bind(ELSEWHERE, account_id=self.other_account_id)


async def until(condition: Callable[[], object], *, within_ms: int = 60_000) -> None:
    """Return once the condition holds. Raises TimeoutError when it never does."""

    async def holds() -> object:
        return condition()

    await eventually(holds, timeout_ms=within_ms)


def accepted(answer: Answer) -> dict[str, Any]:
    assert not isinstance(answer, Refused), answer
    return answer


def refused(answer: Any) -> Refused:
    assert isinstance(answer, Refused), answer
    return answer


@dataclass(frozen=True)
class Furnished:
    """What a furnished database holds: copies of it hold the same."""

    account_id: str
    other_account_id: str
    secrets: dict[str, str]
    projects: dict[str, str]


async def furnish(url: str) -> Furnished:
    """Make the world on an empty migrated database, and leave it alone."""
    async with _serving(url) as world:
        async with world.node.database.acquire() as connection:
            await connection.execute(
                f"insert into tenant (tenant_id, name, is_root, created_at) values ('{ROOT}', 'Root', true, {B})"
            )
        await world.furnish()
    return Furnished(world.account_id, world.other_account_id, world.secrets, world.projects)


@asynccontextmanager
async def open_world(url: str, furnished: Furnished) -> AsyncIterator[World]:
    """The world at B, on a copy of a furnished database."""
    async with _serving(url) as world:
        world.account_id, world.other_account_id = furnished.account_id, furnished.other_account_id
        world.secrets, world.projects = dict(furnished.secrets), dict(furnished.projects)
        yield world


@asynccontextmanager
async def _serving(url: str) -> AsyncIterator[World]:
    clock = ManualClock(B)
    async with running(url, clock=clock, options=RuntimeOptions(runs_jobs=False)) as node:
        app = create_app(Settings(data_dir=Path("/nonexistent")), url, runtime=node)
        transport = httpx2.ASGITransport(app=app)
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=transport, base_url="http://earmark.test") as client,
        ):
            yield World(app, client, node, clock)


@asynccontextmanager
async def served(world: World) -> AsyncIterator[str]:
    """The world on a port of this machine."""
    async with served_app(world.app) as address:
        yield address


@asynccontextmanager
async def served_app(app: Starlette) -> AsyncIterator[str]:
    """An application whose lifespan is looked after, on a port of this machine."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, lifespan="off", log_config=None))
    serving = asyncio.create_task(server.serve())
    try:
        await until(lambda: server.started)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving
