"""A small world for tests of jobs: one node on a database, a clock that stands still, tenants A and B, and short ways
to act and to look. Everything goes through the desks and the actors, as in production; only time is by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from fractions import Fraction
from typing import Any, Final

from domain.capacity.scan import ReportedReservation, ScanReport
from domain.capacity.state import Grant
from domain.capacity.views import GrantView, InstanceView
from domain.events import MIRROR, EventRecord
from domain.identity import reservation_key
from domain.outcomes import Outcome
from storage.events import read_tail
from tests.capacity_world import CapacityNode, answer_of, caller_of, drained, running_node
from workers.clock import ManualClock
from workers.schedule import Ran

START: Final = 1_800_000_000_000
"""2027-01-15T08:00:00Z, exactly on a UTC hour: B of the rules' examples."""
HOUR: Final = 3_600_000
MINUTE: Final = 60_000

ROOT: Final = "root"
ACCOUNT: Final = f"pacct_{'0' * 26}"
POOL: Final = "pool-1"
OTHER_POOL: Final = "pool-2"
RESERVATION: Final = "res-1"
PROJECTS: Final = {"A": f"prj_{'a' * 26}", "B": f"prj_{'b' * 26}"}
"""The project that a tenant's instances run in."""
OTHER_PROJECT: Final = f"prj_{'c' * 26}"
"""A second one of A's."""

_REGISTRY: Final = f"""
insert into tenant (tenant_id, name, is_root, created_at)
    values ('{ROOT}', 'Root', true, {START}), ('A', 'A', false, {START}), ('B', 'B', false, {START});
insert into project (project_id, tenant_id, name, created_at)
    values ('{PROJECTS["A"]}', 'A', 'a', {START}), ('{OTHER_PROJECT}', 'A', 'a2', {START}),
        ('{PROJECTS["B"]}', 'B', 'b', {START});
insert into provider_account (account_id, tenant_id, name, provider, kind, created_at)
    values ('{ACCOUNT}', '{ROOT}', 'main', 'gcp', 'push', {START});
insert into pool (pool_id, name, created_at) values ('{POOL}', '', {START}), ('{OTHER_POOL}', '', {START});
insert into pool_offer (pool_id, tenant_id, created_at) values ('{POOL}', '*', {START}), ('{OTHER_POOL}', '*', {START});
"""


class World:
    """Acts on `node`, at the clock's instant: root for grants and reports, the tenant itself for its instances."""

    def __init__(self, node: CapacityNode, clock: ManualClock) -> None:
        self.node = node
        self.clock = clock
        self.database = node.database
        self._keys = 0

    def at(self, instant: int) -> World:
        """Set the clock, as in `await world.at(START + HOUR).meter()`."""
        self.clock.now = instant
        return self

    # -- acting --------------------------------------------------------------------------------------------------

    async def report(self, totals: Mapping[str, int]) -> None:
        """A complete report of the account's provider: reservation id to total. What it leaves out is gone."""
        reported = tuple(
            ReportedReservation(reservation_id=name, flavor=f"flavor-{name}", region="region-1", total=total)
            for name, total in totals.items()
        )
        await self.node.reservations.take_report(ACCOUNT, "gcp", ScanReport(reservations=reported, complete=True))

    async def bind(self, reservation: str = RESERVATION, *, pool_id: str = POOL) -> None:
        place = {"tenant_id": ROOT, "account_id": ACCOUNT, "reservation_id": reservation}
        answer_of(await self.node.reservations.bind(caller_of(ROOT), **place, pool_id=pool_id))

    async def unbind(self, reservation: str = RESERVATION) -> None:
        place = {"tenant_id": ROOT, "account_id": ACCOUNT, "reservation_id": reservation}
        answer_of(await self.node.reservations.unbind(caller_of(ROOT), **place))

    async def try_grant(
        self,
        slots: int,
        starts_at: int,
        ends_at: int,
        *,
        tenant: str = "A",
        project: str | None = None,
        reservation: str = RESERVATION,
    ) -> Outcome[GrantView]:
        self._keys += 1
        return await self.node.grants.create(
            caller_of(ROOT),
            tenant_id=ROOT,
            account_id=ACCOUNT,
            reservation_id=reservation,
            grant_tenant_id=tenant,
            project_id=project,
            slots=slots,
            starts_at=starts_at,
            ends_at=ends_at,
            idempotency_key=f"key-{self._keys}",
        )

    async def grant(self, slots: int, starts_at: int, ends_at: int, **more: Any) -> str:
        grant: Grant = answer_of(await self.try_grant(slots, starts_at, ends_at, **more)).grant
        return grant.grant_id

    async def end(self, grant_id: str) -> Grant:
        place = {"tenant_id": ROOT, "account_id": ACCOUNT}
        grant: Grant = answer_of(await self.node.grants.end(caller_of(ROOT), **place, grant_id=grant_id)).grant
        return grant

    async def try_amend(self, grant_id: str, **changes: Any) -> Outcome[GrantView]:
        place = {"tenant_id": ROOT, "account_id": ACCOUNT, "grant_id": grant_id}
        return await self.node.grants.amend(caller_of(ROOT), **place, **changes)

    async def amend(self, grant_id: str, **changes: Any) -> Grant:
        grant: Grant = answer_of(await self.try_amend(grant_id, **changes)).grant
        return grant

    async def try_run(
        self, tenant: str = "A", *, project: str | None = None, reservation: str = RESERVATION
    ) -> Outcome[InstanceView]:
        """A new running instance."""
        return await self.node.instances.create(
            caller_of(tenant),
            tenant_id=tenant,
            project_id=project or PROJECTS[tenant],
            flavor=f"flavor-{reservation}",
            name="machine",
        )

    async def run(self, tenant: str = "A", **more: Any) -> str:
        instance_id: str = answer_of(await self.try_run(tenant, **more)).instance.instance_id
        return instance_id

    async def attach(self, tenant: str = "A", *, billing: str) -> str:
        outcome = await self.node.instances.attach(
            caller_of(ROOT),
            tenant_id=ROOT,
            account_id=ACCOUNT,
            reservation_id=RESERVATION,
            owner_tenant_id=tenant,
            project_id=PROJECTS[tenant],
            name="machine",
            billing=billing,
        )
        instance_id: str = answer_of(outcome).instance.instance_id
        return instance_id

    async def start(self, instance_id: str, tenant: str = "A") -> None:
        answer_of(await self.node.instances.start(caller_of(tenant), tenant_id=tenant, instance_id=instance_id))

    async def stop(self, instance_id: str, tenant: str = "A") -> None:
        answer_of(await self.node.instances.stop(caller_of(tenant), tenant_id=tenant, instance_id=instance_id))

    async def delete(self, instance_id: str, tenant: str = "A") -> None:
        answer_of(await self.node.instances.delete(caller_of(tenant), tenant_id=tenant, instance_id=instance_id))

    async def delete_account(self) -> Outcome[str]:
        return await self.node.guards.delete_account(caller_of(ROOT), tenant_id=ROOT, account_id=ACCOUNT)

    async def meter(self) -> Ran:
        return await self.node.meter.run_once()

    async def apply_boundaries(self) -> Ran:
        return await self.node.boundaries.run_once()

    # -- looking -------------------------------------------------------------------------------------------------

    async def rows(self, sql: str, *arguments: Any) -> list[dict[str, Any]]:
        async with self.database.acquire() as connection:
            return [dict(row) for row in await connection.fetch(sql, *arguments)]

    async def value(self, sql: str, *arguments: Any) -> Any:
        async with self.database.acquire() as connection:
            return await connection.fetchval(sql, *arguments)

    async def usage(self) -> list[dict[str, Any]]:
        """Every record, in a fixed order."""
        return await self.rows('select * from usage_record order by source_key collate "C"')

    async def hours(self, meter: str, *, grant: str | None = None, instance: str | None = None) -> dict[int, Fraction]:
        """Recorded hours of a meter by hour after START, exact: {0: 3, 1: 3/2}. What cancels out is left out."""
        found = await self.rows(
            """
            select hour_start, sum(quantity_ms)::bigint as quantity_ms from usage_record
            where meter = $1 and ($2::text is null or grant_id = $2) and ($3::text is null or instance_id = $3)
            group by hour_start having sum(quantity_ms) <> 0 order by hour_start
            """,
            meter,
            grant,
            instance,
        )
        return {(row["hour_start"] - START) // HOUR: Fraction(row["quantity_ms"], HOUR) for row in found}

    async def grants_of(self, *instance_ids: str) -> list[str | None]:
        """The grants that instances are in, by what their rows say."""
        found = await self.rows("select instance_id, grant_id from capacity_instance")
        grants = {row["instance_id"]: row["grant_id"] for row in found}
        return [grants[instance_id] for instance_id in instance_ids]

    async def events(self) -> list[EventRecord]:
        """Everything that was published, in the order of the mirror."""
        connection = await self.database.connect()
        try:
            await drained(connection)
            return await read_tail(connection, MIRROR, after=0, limit=1_000_000)
        finally:
            await connection.close()

    async def story(self, grant_id: str) -> list[tuple[str, int]]:
        """(short type, minutes after START) of a grant's events, in order."""
        return [
            (event.type.removeprefix("reservation-grant."), (event.occurred_at - START) // MINUTE)
            for event in await self.events()
            if event.payload.get("grantId") == grant_id
        ]


def key_of(reservation: str = RESERVATION) -> str:
    return reservation_key(ACCOUNT, reservation)


async def furnish(world: World, *, total: int = 10) -> None:
    """Everybody, and one reservation of `total` slots, bound to a pool that all are offered."""
    async with world.database.acquire() as connection:
        await connection.execute(_REGISTRY)
    await world.report({RESERVATION: total})
    await world.bind()


@asynccontextmanager
async def open_world(url: str, *, now: int = START, total: int = 10) -> AsyncIterator[World]:
    """A world on an empty migrated database, furnished."""
    clock = ManualClock(now)
    async with running_node(url, clock=clock) as node:
        world = World(node, clock)
        await furnish(world, total=total)
        yield world
