"""Look-ups of one operation, batched: what a page of things asks for together costs one read, whatever their number."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, TypeAlias

from strawberry.dataloader import DataLoader

from domain.budget import records
from domain.capacity.counts import GrantActivity
from domain.capacity.views import GrantView, InstanceView, ReservationView
from storage.paging import Page
from workers.budget.reads import BudgetReads
from workers.capacity.reads import CapacityReads

InstancesOf: TypeAlias = tuple[GrantView, int]
"""A grant, and how many of its instances are wanted."""


class Loaders:
    """What it has loaded is remembered, so it lives no longer than one answer."""

    def __init__(self, reads: CapacityReads, budget_reads: BudgetReads) -> None:
        self._reads = reads
        self._budget_reads = budget_reads
        self.standings: DataLoader[str, records.Tenant | None] = DataLoader(self._standings)
        self.activity: DataLoader[GrantView, GrantActivity | None] = _of_grants(self._activity)
        self.used_ms: DataLoader[GrantView, int] = _of_grants(self._used_ms)
        self.orphaned: DataLoader[GrantView, bool] = _of_grants(self._orphaned)
        self.instances_of: DataLoader[InstancesOf, Page[InstanceView]] = DataLoader(
            self._instances_of, cache_key_fn=lambda key: (_identity(key[0]), key[1])
        )
        self.reservations: DataLoader[str, ReservationView | None] = DataLoader(self._reservations)

    async def _activity(self, views: list[GrantView]) -> Sequence[GrantActivity | None]:
        """None for a grant that is gone by now, with its account."""
        found = await self._reads.load_grant_activity(views)
        return [found.get(view.grant.grant_id) for view in views]

    async def _used_ms(self, views: list[GrantView]) -> Sequence[int]:
        found = await self._reads.load_used_ms(views)
        return [found.get(view.grant.grant_id, 0) for view in views]

    async def _orphaned(self, views: list[GrantView]) -> Sequence[bool]:
        found = await self._reads.load_orphaned(views)
        return [view.grant.grant_id in found for view in views]

    async def _instances_of(self, keys: list[InstancesOf]) -> Sequence[Page[InstanceView]]:
        """One read for each size of page that is asked for; a query has one or two."""
        found: dict[tuple[str, int], Page[InstanceView]] = {}
        for first in sorted({first for _, first in keys}):
            views = [view for view, wanted in keys if wanted == first]
            pages = await self._reads.load_instances_of_grants(views, first=first)
            found.update(((grant_id, first), page) for grant_id, page in pages.items())
        return [found.get((view.grant.grant_id, first), Page()) for view, first in keys]

    async def _reservations(self, keys: list[str]) -> Sequence[ReservationView | None]:
        found = await self._reads.load_reservation_views(keys)
        return [found.get(key) for key in keys]

    async def _standings(self, tenant_ids: list[str]) -> Sequence[records.Tenant | None]:
        found = await self._budget_reads.load_tenants(tenant_ids)
        return [found[each].tenant if each in found else None for each in tenant_ids]


def _of_grants(load: Any) -> Any:
    return DataLoader(load, cache_key_fn=_identity)


def _identity(view: GrantView) -> Hashable:
    return (view.grant.grant_id, view.at)
