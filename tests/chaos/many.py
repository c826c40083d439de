"""A capacity reservation with room for a hundred thousand, and grants on it by the thousand, made by a node of our own."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any, Final

from domain.capacity.scan import ReportedReservation, ScanReport
from domain.registry import EVERYBODY
from tests.capacity_world import CapacityNode, answer_of, caller_of, running_node
from tests.chaos.scene import Scene
from tests.simulation.world_plan import ROOT

SLOTS: Final = 100_000
POOL: Final = "pool-of-many"
RESERVATION: Final = "zone/many"
MAKERS: Final = 64


async def make_grants(scene: Scene, count: int, *, starts_at: int, ends_at: int) -> set[str]:
    """Their ids. Of one slot and one term all of them, so that auditing them costs little."""
    async with running_node(scene.stage.url) as node:
        if "many" not in scene.tools:
            scene.tools["many"] = await _make_reservation(node)
        account_id = scene.tools["many"]
        first, made = len(scene.stage.capacity.besides), set[str]()
        numbers = itertools.count()

        async def maker() -> None:
            while (number := next(numbers)) < count:
                made.add(await _make_one(node, account_id, first + number, starts_at, ends_at))

        await asyncio.gather(*(maker() for _ in range(MAKERS)))
    scene.stage.capacity.besides |= made
    return made


async def _make_one(node: CapacityNode, account_id: str, number: int, starts_at: int, ends_at: int) -> str:
    view: Any = answer_of(
        await node.grants.create(
            caller_of(ROOT),
            tenant_id=ROOT,
            account_id=account_id,
            reservation_id=RESERVATION,
            grant_tenant_id="AB"[number % 2],
            slots=1,
            starts_at=starts_at,
            ends_at=ends_at,
            idempotency_key=f"many-{number}",
        )
    )
    grant_id: str = view.grant.grant_id
    return grant_id


async def _make_reservation(node: CapacityNode) -> str:
    """The account that it is of."""
    root = caller_of(ROOT)
    account = answer_of(await node.accounts.create_provider_account(root, name="many", provider="openb", kind="push"))
    answer_of(await node.accounts.create_pool(root, pool_id=POOL, name="many"))
    answer_of(await node.accounts.offer_pool(root, pool_id=POOL, offered_to=EVERYBODY))
    seen = ReportedReservation(reservation_id=RESERVATION, flavor="many", region="region", total=SLOTS)
    account_id: str = account.account_id
    await node.reservations.take_report(account_id, "openb", ScanReport(reservations=(seen,), complete=True))
    bound = {"tenant_id": ROOT, "account_id": account_id, "reservation_id": RESERVATION, "pool_id": POOL}
    answer_of(await node.reservations.bind(root, **bound))
    return account_id
