"""A node with its reads on a written world, and everyday commands with their arguments filled in."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from domain.authority import Permission, Principal
from domain.capacity.commands import Advance
from domain.capacity.scan import ReportedReservation, ScanReport
from domain.capacity.views import GrantView, InstanceView, ReservationView
from domain.identity import reservation_key
from domain.outcomes import Refusal
from domain.terms import HOUR_MS, MINUTE_MS
from storage.paging import Page
from tests.capacity_world import CapacityNode, answer_of, caller_of, drained, lay_out, running_node
from tests.simulation.world_plan import ACCOUNT_MAIN, ROOT, WORLD, project_id
from workers.capacity.reads import CapacityReads
from workers.clock import ManualClock
from workers.request import Caller

B = 1_800_000_000_000
H = HOUR_MS
M = MINUTE_MS
LARGE, SECOND, SMALL = "zone-1/large", "zone-2/large", "zone-3/small"
MAIN_KEY = reservation_key(ACCOUNT_MAIN, LARGE)
MAIN = {"tenant_id": ROOT, "account_id": ACCOUNT_MAIN, "reservation_id": LARGE}
"""How root names the main reservation."""
ROOT_CALLER, A, OF_B = caller_of(ROOT), caller_of("A"), caller_of("B")
NOBODYS_GRANT = f"rgrant_{0:026}"


@dataclass
class World:
    """A node, its reads, and the everyday commands with their arguments filled in."""

    node: CapacityNode
    reads: CapacityReads
    clock: ManualClock
    keys: itertools.count[int] = field(default_factory=itertools.count)

    async def grant(self, slots: int, starts_at: int, ends_at: int, *, to: str = "A", **more: Any) -> GrantView:
        given = {"account_id": ACCOUNT_MAIN, "reservation_id": LARGE, "project_id": None, **more}
        view: GrantView = answer_of(
            await self.node.grants.create(
                ROOT_CALLER,
                tenant_id=ROOT,
                grant_tenant_id=to,
                slots=slots,
                starts_at=starts_at,
                ends_at=ends_at,
                idempotency_key=f"key-{next(self.keys)}",
                **given,
            )
        )
        return view

    async def end(self, view: GrantView) -> GrantView:
        ended: GrantView = answer_of(
            await self.node.grants.end(
                ROOT_CALLER, tenant_id=ROOT, account_id=view.account_id, grant_id=view.grant.grant_id
            )
        )
        return ended

    async def instance(self, letter: str = "a", *, of: str = "A", flavor: str = "large") -> InstanceView:
        view: InstanceView = answer_of(
            await self.node.instances.create(
                caller_of(of), tenant_id=of, project_id=project_id(letter), flavor=flavor, name="one", pool_id=None
            )
        )
        return view

    async def attach(self, letter: str = "a", *, of: str = "A", billing: str = "normal") -> InstanceView:
        """On the main reservation, outside any grant."""
        view: InstanceView = answer_of(
            await self.node.instances.attach(
                ROOT_CALLER,
                tenant_id=ROOT,
                account_id=ACCOUNT_MAIN,
                reservation_id=LARGE,
                owner_tenant_id=of,
                project_id=project_id(letter),
                name="one",
                billing=billing,
            )
        )
        return view

    async def stop(self, view: InstanceView) -> None:
        of = view.instance.tenant_id
        await self.node.instances.stop(caller_of(of), tenant_id=of, instance_id=view.instance.instance_id)

    async def delete(self, view: InstanceView) -> None:
        of = view.instance.tenant_id
        await self.node.instances.delete(caller_of(of), tenant_id=of, instance_id=view.instance.instance_id)

    async def apply_boundaries(self) -> None:
        await self.node.asker.ask(MAIN_KEY, Advance())

    async def version(self) -> int:
        async with self.node.database.acquire() as connection:
            version: int = await connection.fetchval(
                "select version from capacity_reservation where key = $1", MAIN_KEY
            )
        return version

    async def main(self) -> ReservationView:
        view: ReservationView = shown(await self.reads.reservation(ROOT_CALLER, **MAIN))
        return view

    async def report(self, *, total: int) -> None:
        """A complete scan that finds the main reservation with another total."""
        reported = [
            ReportedReservation(
                reservation_id=plan.reservation_id,
                flavor=plan.flavor,
                region=plan.region,
                total=total if plan.reservation_id == LARGE else plan.total,
            )
            for plan in WORLD.reservations
            if plan.account_id == ACCOUNT_MAIN
        ]
        await self.node.reservations.take_report(
            ACCOUNT_MAIN, "gcp", ScanReport(reservations=tuple(reported), complete=True)
        )

    async def relayed(self) -> None:
        """Wait until every event is in its stream."""
        connection = await self.node.database.connect()
        await drained(connection)
        await connection.close()


@asynccontextmanager
async def reading_world(url: str) -> AsyncIterator[World]:
    clock = ManualClock(B)
    async with running_node(url, clock=clock) as node:
        await lay_out(node, WORLD, at=B - 24 * H)
        yield World(node, CapacityReads(node.asker), clock)


def shown(result: Any) -> Any:
    """What a read gave; fails with the refusal otherwise."""
    assert not isinstance(result, Refusal), result
    return result


def member(tenant_id: str, *permissions: Permission) -> Caller:
    """A member with these permissions only."""
    names = frozenset(permission.value for permission in permissions)
    is_root = tenant_id == ROOT
    return Caller(principal=Principal(key_id="key_member", tenant_id=tenant_id, is_root=is_root, permissions=names))


def ids(page: Page[GrantView]) -> list[str]:
    return [view.grant.grant_id for view in page.items]
