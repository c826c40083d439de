"""Nodes on a database for tests that need no edge: `workers.runtime` without its timers.

`lay_out` makes the tenants, accounts, pools and reservations of a written plan; `running_node` starts a node. Several
nodes on one database are several calls. Nothing here decides anything.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from domain.authority import EVERYTHING, Principal
from domain.capacity.scan import ReportedReservation, ScanReport
from domain.identity import reservation_key
from domain.outcomes import Accepted, Outcome
from domain.registry import Pool, PoolOffer, ProviderAccount
from domain.tenancy import Project, Tenant
from storage import identity, registry
from storage.database import ANSWER_WAIT_S, Connection, Database, Unavailable
from tests.simulation.world_plan import WorldPlan
from workers.capacity.boundaries import BoundaryJob
from workers.capacity.meter import MeterJob
from workers.clock import Clock, DatabaseClock
from workers.request import Caller
from workers.runtime import LANES, Runtime, RuntimeOptions

POLL_S = 0.005
NO_ANSWER = (Unavailable, asyncpg.InternalClientError)
"""What a desk raises when nobody knows whether anything happened. The second one is a fault that has its own test:
`test_a_connection_lost_on_its_way_back_to_the_pool_is_no_error`."""


class CapacityNode(Runtime):
    """A node as in production, whose jobs run when a test says so; its callers need no API keys in the database."""

    def __init__(self, database: Database, clock: Clock, *, lanes: int = LANES, gone_after_misses: int = 1) -> None:
        options = RuntimeOptions(lanes=lanes, gone_after_misses=gone_after_misses, runs_jobs=False)
        super().__init__(database, clock=clock, options=options)
        self.boundaries = BoundaryJob(self.asker)
        self.meter = MeterJob(self.asker)

    def start(self) -> None:
        """Everything but the check of the API keys that streams were opened with."""
        for lane in self._lanes:
            self.supervisor.keep(lane.name, lane.run)
        self.supervisor.keep("relay", self.relay.run)
        self.supervisor.keep("listener", self.listener.run)


@asynccontextmanager
async def running_node(
    url: str, *, clock: Clock | None = None, answer_within_s: float = ANSWER_WAIT_S, **options: int
) -> AsyncIterator[CapacityNode]:
    """A started node on a migrated database, stopped at the end."""
    database = await Database.open(url, answer_within_s=answer_within_s)
    try:
        node = CapacityNode(database, clock or DatabaseClock(), **options)
        node.start()
        try:
            yield node
        finally:
            await node.stop()
    finally:
        await database.close()


def caller_of(tenant_id: str, *, root: str = "root") -> Caller:
    """A member of the tenant that may do everything there."""
    is_root = tenant_id == root
    permissions = frozenset({EVERYTHING})
    principal = Principal(key_id=f"key_{tenant_id}", tenant_id=tenant_id, is_root=is_root, permissions=permissions)
    return Caller(principal=principal)


async def lay_out(node: CapacityNode, plan: WorldPlan, *, at: int) -> None:
    """Make everybody of the plan, report its reservations and bind them."""
    async with node.database.transaction() as connection:
        await _make_tenancy(connection, plan, at)
        await _make_providers(connection, plan, at)
    root = caller_of(plan.root_tenant_id, root=plan.root_tenant_id)
    for account_id, provider in plan.accounts:
        reported = [
            ReportedReservation(
                reservation_id=each.reservation_id, flavor=each.flavor, region=each.region, total=each.total
            )
            for each in plan.reservations
            if each.account_id == account_id
        ]
        await node.reservations.take_report(
            account_id, provider, ScanReport(reservations=tuple(reported), complete=True)
        )
    for each in plan.reservations:
        outcome = await node.reservations.bind(
            root,
            tenant_id=plan.root_tenant_id,
            account_id=each.account_id,
            reservation_id=each.reservation_id,
            pool_id=each.pool_id,
        )
        assert outcome == Accepted(reservation_key(each.account_id, each.reservation_id)), outcome


async def _make_tenancy(connection: Any, plan: WorldPlan, at: int) -> None:
    for tenant_id in (plan.root_tenant_id, *plan.tenants):
        is_root = tenant_id == plan.root_tenant_id
        tenant = Tenant(tenant_id=tenant_id, name=tenant_id, is_root=is_root, created_at=at)
        await identity.flush_tenant(connection, tenant)
    for project_id, tenant_id in plan.projects:
        project = Project(project_id=project_id, tenant_id=tenant_id, name=project_id, created_at=at)
        await identity.flush_project(connection, project)


async def _make_providers(connection: Any, plan: WorldPlan, at: int) -> None:
    for account_id, provider in plan.accounts:
        account = ProviderAccount(
            account_id=account_id,
            tenant_id=plan.root_tenant_id,
            name=account_id,
            provider=provider,
            kind="push",
            settings={},
            created_at=at,
        )
        await registry.flush_account(connection, account)
    for pool_id, tenant_ids in plan.offers:
        await registry.flush_pool(connection, Pool(pool_id=pool_id, name=pool_id, created_at=at))
        for tenant_id in tenant_ids:
            await registry.flush_offer(connection, PoolOffer(pool_id=pool_id, tenant_id=tenant_id, created_at=at))


def answer_of(outcome: Outcome[Any]) -> Any:
    """What an accepted command gave; fails with the refusal otherwise."""
    assert isinstance(outcome, Accepted), outcome
    return outcome.answer


async def eventually(condition: Callable[[], Awaitable[object]], *, timeout_ms: int = 60_000) -> None:
    """Return once the condition holds. Raises TimeoutError when it never does."""
    deadline = time.monotonic() + timeout_ms / 1000
    while not await condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout_ms} ms: {condition}")
        await asyncio.sleep(POLL_S)


async def drained(connection: Connection) -> None:
    """Wait until every event that was written has reached its stream."""

    async def is_empty() -> bool:
        return not await connection.fetchval("select exists (select 1 from capacity_outbox)")

    await eventually(is_empty)
