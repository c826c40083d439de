"""Slow traffic: tenants start, stop and delete instances; now and then root makes a short grant, or the provider shows a
smaller reservation for a while. It keeps to instances of its own, those of earlier starts included."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Final

from domain.capacity.state import RunState
from domain.outcomes import Accepted
from domain.paging import PAGE_MAX
from domain.terms import MINUTE_MS
from server.demo.budgets import spend_once
from server.demo.world import RESERVATIONS, TENANTS, World, instant, report, root_caller, tenant_caller
from storage.database import Unavailable
from storage.paging import Page
from workers.actor import Overloaded, Stopped
from workers.runtime import Runtime

log = logging.getLogger("earmark.demo")

PAUSE_S: Final = (1.5, 4.0)
"""Seconds between two actions: slow enough to read along."""
OWN_MAX: Final = 12
"""Instances that traffic keeps at most: the world must not fill up."""
SMALL: Final = 42
"""Slots of the first reservation while it is small: fewer than its grants have."""
BURST: Final = "burst"
"""In the names of its instances, which it knows again by it after a restart."""


class Traffic:
    def __init__(self, node: Runtime, world: World, *, root_tenant: str, seed: int | None = None) -> None:
        self._node = node
        self._world = world
        self._root = root_caller(root_tenant)
        self._chance = random.Random(seed)  # noqa: S311 - a demo needs no secrets
        self._own: list[tuple[str, str]] = []
        self._is_small = False

    async def run(self) -> None:
        """Until cancelled. A refusal is part of the picture; an unreachable database is waited for."""
        is_first = True
        while True:
            await asyncio.sleep(self._chance.uniform(*PAUSE_S))
            try:
                if is_first:
                    await self.recognise()
                    is_first = False
                await self.act()
            except (Unavailable, Overloaded, Stopped, OSError) as error:
                log.warning("the demo's traffic waits: %s", error)

    async def recognise(self) -> None:
        """Find the instances that earlier traffic left."""
        for tenant_id in TENANTS:
            caller = tenant_caller(tenant_id)
            for state in (RunState.RUNNING, RunState.STOPPED):
                page = await self._node.reads.instances(
                    caller, tenant_id=tenant_id, run_state=state.value, first=PAGE_MAX
                )
                views = page.items if isinstance(page, Page) else ()
                names = [(view.instance.name, view.instance.instance_id) for view in views]
                self._own += [(tenant_id, instance_id) for name, instance_id in names if f"-{BURST}-" in name]

    async def act(self) -> None:
        """One action."""
        capacity = (self._start_one, self._toggle_one, self._delete_one, self._short_grant, self._shrink_and_grow)
        (action,) = self._chance.choices((*capacity, self._spend), weights=(8, 6, 5, 2, 1, 10))
        await action()

    async def _spend(self) -> None:
        """An agent of some tenant holds money before a call and settles it after."""
        caller = tenant_caller(self._chance.choice(list(TENANTS)))
        await spend_once(self._node, caller, self._chance, name=self._node.ids.new("demo"))

    async def _start_one(self) -> None:
        if len(self._own) >= OWN_MAX:
            await self._delete_one()
            return
        place = self._chance.choice(list(self._world.projects))
        tenant_id, _, project = place.partition("/")
        outcome = await self._node.instances.create(
            tenant_caller(tenant_id),
            tenant_id=tenant_id,
            project_id=self._world.projects[place],
            flavor=self._chance.choice(("h100", "l4")),
            name=f"{project}-{BURST}-{self._chance.randrange(1000):03}",
        )
        if isinstance(outcome, Accepted):
            self._own.append((tenant_id, outcome.answer.instance.instance_id))

    async def _toggle_one(self) -> None:
        if self._own:
            tenant_id, instance_id = self._chance.choice(self._own)
            act = self._chance.choice((self._node.instances.stop, self._node.instances.start))
            await act(tenant_caller(tenant_id), tenant_id=tenant_id, instance_id=instance_id)

    async def _delete_one(self) -> None:
        if self._own:
            tenant_id, instance_id = self._own.pop(self._chance.randrange(len(self._own)))
            await self._node.instances.delete(tenant_caller(tenant_id), tenant_id=tenant_id, instance_id=instance_id)

    async def _short_grant(self) -> None:
        """A few slots for some minutes: its events come by while somebody watches."""
        now = await instant(self._node)
        starts_at = now + self._chance.randrange(0, MINUTE_MS)
        await self._node.grants.create(
            self._root,
            tenant_id=self._root.principal.tenant_id,
            account_id=self._world.account_id,
            reservation_id=self._chance.choice(RESERVATIONS)["reservation_id"],
            grant_tenant_id=self._chance.choice(list(TENANTS)),
            slots=self._chance.randrange(1, 4),
            starts_at=starts_at,
            ends_at=starts_at + self._chance.randrange(MINUTE_MS, 4 * MINUTE_MS),
            idempotency_key=f"burst-{now}",
        )

    async def _shrink_and_grow(self) -> None:
        """Below what is granted, so that root is told that capacity is short; the next time, back again."""
        shown = [dict(reservation) for reservation in RESERVATIONS]
        self._is_small = not self._is_small
        if self._is_small:
            shown[0]["total"] = SMALL
        await report(self._node, self._root, self._world.account_id, shown)
