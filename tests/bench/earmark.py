"""Ours, in this process: desk, actor, lane, flush, and the relay that moves events on meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from domain.authority import EVERYTHING, Principal
from domain.capacity.scan import ReportedReservation, ScanReport
from domain.outcomes import Accepted
from storage.database import AnyConnection, Database
from tests.bench.books import check_grants, check_streams
from tests.bench.demand import FLAVOR, POOL, PROVIDER, REGION, ROOT, TENANTS, Demand, Shape
from tests.bench.processors import Processors
from tests.bench.seeding import seed_grants
from workers.request import Caller
from workers.runtime import LANES, Runtime, RuntimeOptions

POLL_S: Final = 0.002
SETTLE_S: Final = 60.0
_WAITS: Final = "select exists (select 1 from capacity_outbox)"


def root_caller() -> Caller:
    return Caller(
        principal=Principal(key_id="key_bench", tenant_id=ROOT, is_root=True, permissions=frozenset({EVERYTHING}))
    )


class Earmark:
    """createGrant through the desk of a started node."""

    def __init__(self, runtime: Runtime, processors: Processors, shape: Shape, *, name: str = "earmark") -> None:
        self.name = name
        self.processors = processors
        self._runtime = runtime
        self._demand = Demand(shape)
        self._caller = root_caller()

    async def prepare(self) -> None:
        await prepare_window(self._runtime, self._caller, self._demand)

    async def call(self, client: int) -> bool:
        request = self._demand.next()
        outcome = await self._runtime.grants.create(self._caller, tenant_id=ROOT, project_id=None, **request._asdict())
        if not isinstance(outcome, Accepted):
            self._demand.refused(request)
            return False
        self._demand.made(request, outcome.answer.grant.grant_id)
        return True

    async def settle(self) -> None:
        async with self._runtime.database.acquire() as connection:
            await settle(connection)

    async def check(self) -> list[str]:
        async with self._runtime.database.acquire() as connection:
            return await check(connection, self._demand)


@asynccontextmanager
async def earmark(
    url: str,
    processors: Processors,
    shape: Shape,
    *,
    name: str = "earmark",
    lanes: int = LANES,
    is_cached: bool = True,
) -> AsyncIterator[Earmark]:
    """On a migrated database of its own. With as many lanes as reservations, each of them commits for itself."""
    async with quiet_node(url, lanes=lanes, is_cached=is_cached) as runtime:
        await furnish(runtime)
        yield Earmark(runtime, processors, shape, name=name)


@asynccontextmanager
async def quiet_node(url: str, *, lanes: int = LANES, is_cached: bool = True) -> AsyncIterator[Runtime]:
    """A started node without timed jobs."""
    database = await Database.open(url)
    try:
        runtime = Runtime(database, options=RuntimeOptions(runs_jobs=False, lanes=lanes, is_cached=is_cached))
        await runtime.open(root_tenant=ROOT)
        try:
            yield runtime
        finally:
            await runtime.stop()
    finally:
        await database.close()


async def furnish(runtime: Runtime) -> None:
    """Tenants, and a pool that all are offered."""
    caller = root_caller()
    for tenant_id in TENANTS:
        _accepted(await runtime.tenancy.create_tenant(caller, tenant_id=tenant_id, name=tenant_id))
    _accepted(await runtime.accounts.create_pool(caller, pool_id=POOL, name=POOL))
    _accepted(await runtime.accounts.offer_pool(caller, pool_id=POOL, offered_to="*"))


async def prepare_window(runtime: Runtime, caller: Caller, demand: Demand) -> None:
    """An account whose provider reports the window's reservations, each bound to the pool, and the grants before."""
    made = await runtime.accounts.create_provider_account(caller, name="bench", provider=PROVIDER, kind="push")
    account_id = _accepted(made).account_id
    names = demand.begin(account_id)
    reported = tuple(
        ReportedReservation(reservation_id=name, flavor=FLAVOR, region=REGION, total=demand.shape.total)
        for name in names
    )
    report = ScanReport(reservations=reported, complete=True)
    await runtime.reservations.take_report(account_id, PROVIDER, report)
    for name in names:
        place = {"tenant_id": ROOT, "account_id": account_id, "reservation_id": name}
        _accepted(await runtime.reservations.bind(caller, **place, pool_id=POOL))
    async with runtime.database.acquire() as connection:
        await settle(connection)
        if demand.shape.seeded:
            await seed_grants(connection, demand)


async def settle(connection: AnyConnection) -> None:
    """Until every event is in its stream. Raises TimeoutError."""
    async with asyncio.timeout(SETTLE_S):
        while await connection.fetchval(_WAITS):  # noqa: ASYNC110 - it happens in PostgreSQL
            await asyncio.sleep(POLL_S)


async def check(connection: AnyConnection, demand: Demand) -> list[str]:
    return [*await check_grants(connection, demand), *await check_streams(connection, demand.told)]


def _accepted(outcome: Any) -> Any:
    assert isinstance(outcome, Accepted), outcome
    return outcome.answer
