"""Several nodes on one database and one reservation to race for, with short ways to ask each of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from domain.capacity.scan import ReportedReservation, ScanReport
from domain.capacity.views import GrantView, InstanceView
from domain.outcomes import Accepted, Outcome, Refusal
from storage.database import ANSWER_WAIT_S, Connection, connect
from tests.capacity_world import CapacityNode, answer_of, caller_of, drained, lay_out, running_node
from tests.cutting import Cut, CuttingWire
from tests.simulation.auditor import audit_all, audit_order
from tests.simulation.histories import HOUR_MS, MINUTE_MS, START_AT
from tests.simulation.product_rows import export_rows
from tests.simulation.world_plan import ROOT, ReservationPlan, WorldPlan, project_id
from workers.clock import ManualClock

B, H, M = START_AT, HOUR_MS, MINUTE_MS
ACCOUNT = "pacct_" + "0" * 26
FIRST, SECOND = "zone/first", "zone/second"
POOL = "pool"
ALIKE = "zone/alike"
"""In place of a reservation's name: any of those that are alike."""
PROJECTS = {"A": project_id("a"), "B": project_id("b")}
ROOT_CALLER = caller_of(ROOT)


def plan_of(totals: dict[str, int], *, is_alike: bool = False) -> WorldPlan:
    """Reservations of these totals, each of its own flavor or all of one, in one pool that is offered to everybody."""
    reservations = [
        ReservationPlan(ACCOUNT, name, POOL, flavor_of(ALIKE if is_alike else name), "region", total)
        for name, total in totals.items()
    ]
    return WorldPlan(
        root_tenant_id=ROOT,
        tenants=tuple(PROJECTS),
        projects=tuple((project, tenant_id) for tenant_id, project in PROJECTS.items()),
        accounts=((ACCOUNT, "gcp"),),
        offers=((POOL, ("*",)),),
        reservations=tuple(reservations),
    )


def flavor_of(reservation: str) -> str:
    return f"flavor-{reservation.rpartition('/')[2]}"


class RaceWorld:
    """`nodes` share a clock that stands still. The first one does what is not part of a race."""

    def __init__(self, nodes: Sequence[CapacityNode], clock: ManualClock, connection: Connection) -> None:
        self.nodes = nodes
        self.clock = clock
        self.connection = connection
        self._keys = 0

    def node(self, number: int) -> CapacityNode:
        return self.nodes[number % len(self.nodes)]

    def new_key(self) -> str:
        self._keys += 1
        return f"key-{self._keys}"

    async def grant(
        self,
        slots: int,
        starts_at: int,
        ends_at: int,
        *,
        node: int = 0,
        tenant: str = "A",
        key: str | None = None,
        reservation: str = FIRST,
    ) -> Outcome[GrantView]:
        return await self.node(node).grants.create(
            ROOT_CALLER,
            tenant_id=ROOT,
            account_id=ACCOUNT,
            reservation_id=reservation,
            grant_tenant_id=tenant,
            slots=slots,
            starts_at=starts_at,
            ends_at=ends_at,
            idempotency_key=key or self.new_key(),
        )

    async def end(self, grant_id: str, *, node: int = 0) -> Outcome[GrantView]:
        return await self.node(node).grants.end(
            ROOT_CALLER, tenant_id=ROOT, account_id=ACCOUNT, grant_id=grant_id, idempotency_key=self.new_key()
        )

    async def amend(self, grant_id: str, *, version: int, slots: int, node: int = 0) -> Outcome[GrantView]:
        return await self.node(node).grants.amend(
            ROOT_CALLER,
            tenant_id=ROOT,
            account_id=ACCOUNT,
            grant_id=grant_id,
            expected_version=version,
            slots=slots,
            idempotency_key=self.new_key(),
        )

    async def run(
        self, tenant: str, *, node: int = 0, project: str | None = None, reservation: str = FIRST
    ) -> Outcome[InstanceView]:
        return await self.node(node).instances.create(
            caller_of(tenant),
            tenant_id=tenant,
            project_id=project or PROJECTS[tenant],
            flavor=flavor_of(reservation),
            name="an instance",
        )

    async def delete(self, view: InstanceView, *, node: int = 0) -> Outcome[InstanceView]:
        return await self.act("delete", view, node=node)

    async def act(
        self, verb: str, view: InstanceView, *, node: int = 0, key: str | None = None
    ) -> Outcome[InstanceView]:
        """`start`, `stop` or `delete`, as the owner."""
        owner = view.instance.tenant_id
        method = getattr(self.node(node).instances, verb)
        outcome: Outcome[InstanceView] = await method(
            caller_of(owner), tenant_id=owner, instance_id=view.instance.instance_id, idempotency_key=key
        )
        return outcome

    async def report(self, total: int, *, node: int = 0, reservation: str = FIRST) -> None:
        """A complete report that shows this reservation with a total, and its neighbours as they are."""
        rows = await self.connection.fetch("select * from capacity_reservation where account_id = $1", ACCOUNT)
        seen = tuple(
            ReportedReservation(
                reservation_id=row["reservation_id"],
                flavor=row["flavor"],
                region=row["region"],
                total=total if row["reservation_id"] == reservation else row["total"],
            )
            for row in rows
        )
        report = ScanReport(reservations=seen, complete=True)
        await self.node(node).reservations.take_report(ACCOUNT, "gcp", report)

    async def delete_tenant(self, tenant: str, *, node: int = 0) -> None:
        answer_of(await self.node(node).tenancy.delete_tenant(ROOT_CALLER, tenant_id=tenant))

    async def audit(self) -> None:
        """Everything caught up, every event in its stream, and nothing amiss in the tables."""
        await self.nodes[0].boundaries.run_once()
        await drained(self.connection)
        rows = await export_rows(self.connection, now=self.clock.now)
        assert audit_all(rows) + audit_order(rows) == []


@asynccontextmanager
async def racing(
    url: str, *, nodes: int = 2, lanes: int = 2, is_alike: bool = False, **totals: int
) -> AsyncIterator[RaceWorld]:
    """`totals`: by default one reservation of 10. `is_alike`: all of one flavor, that of `ALIKE`.

    Fails at the end if PostgreSQL had to break a deadlock (R12)."""
    clock = ManualClock(B)
    slots = {f"zone/{name}": total for name, total in (totals or {"first": 10}).items()}
    connection = await connect(url)
    try:
        async with AsyncExitStack() as stack:
            started = [
                await stack.enter_async_context(running_node(url, clock=clock, lanes=lanes)) for _ in range(nodes)
            ]
            await lay_out(started[0], plan_of(slots, is_alike=is_alike), at=B)
            yield RaceWorld(started, clock, connection)
        assert await deadlocks(connection) == 0
    finally:
        await connection.close()


class Plan:
    """What happens to the next commits, in order; afterwards all goes well."""

    def __init__(self) -> None:
        self.next: list[Cut] = []

    def __call__(self) -> Cut:
        return self.next.pop(0) if self.next else Cut.NONE


@asynccontextmanager
async def behind_a_wire(
    url: str,
    *,
    totals: dict[str, int] | None = None,
    is_alike: bool = False,
    answer_within_s: float = ANSWER_WAIT_S,
    **options: int,
) -> AsyncIterator[tuple[RaceWorld, Plan]]:
    """One node behind a wire, and the plan that cuts it."""
    plan, clock = Plan(), ManualClock(B)
    connection: Connection = await connect(url)
    wire = CuttingWire(url, plan)
    try:
        async with wire.open(), running_node(wire.url, clock=clock, answer_within_s=answer_within_s, **options) as node:
            await lay_out(node, plan_of(totals or {FIRST: 10}, is_alike=is_alike), at=B)
            await drained(connection)
            wire.is_armed = True
            yield RaceWorld([node], clock, connection), plan
    finally:
        await connection.close()


async def deadlocks(connection: Connection) -> int:
    """Deadlocks in this database so far. Complete once the backends that saw them are gone."""
    found: int = await connection.fetchval("select deadlocks from pg_stat_database where datname = current_database()")
    return found


async def at_once(*asked: Awaitable[Outcome[Any]]) -> tuple[list[Any], list[Refusal]]:
    """All in the same moment: what was accepted, and the refusals."""
    outcomes = await asyncio.gather(*asked)
    accepted = [outcome.answer for outcome in outcomes if isinstance(outcome, Accepted)]
    return accepted, [outcome for outcome in outcomes if isinstance(outcome, Refusal)]
