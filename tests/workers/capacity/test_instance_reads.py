"""Reads of instances on a real database: who sees what, and what filters choose."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from domain.authority import Permission
from domain.capacity.state import RunState
from domain.outcomes import AccessDenied, NotFound
from storage.paging import Page
from tests.capacity_reading import (
    NOBODYS_GRANT,
    OF_B,
    ROOT_CALLER,
    SMALL,
    A,
    B,
    H,
    World,
    member,
    reading_world,
    shown,
)
from tests.simulation.world_plan import ACCOUNT_SIDE, ROOT, project_id
from workers.request import Caller


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    async with reading_world(database_url) as made:
        yield made


async def test_a_tenant_sees_its_own_instances_and_root_any(world: World) -> None:
    mine, other = await world.instance(), await world.instance("c", of="B")
    assert await world.reads.instance(A, tenant_id="A", instance_id=mine.instance.instance_id) == mine
    other_id = other.instance.instance_id
    assert isinstance(await world.reads.instance(A, tenant_id="A", instance_id=other_id), NotFound)
    assert await world.reads.instance(ROOT_CALLER, tenant_id=ROOT, instance_id=other_id) == other
    assert isinstance(await world.reads.instance(ROOT_CALLER, tenant_id="B", instance_id=other_id), AccessDenied)
    reader = member("A", Permission.QUOTAS_READ)
    assert isinstance(await world.reads.instance(reader, tenant_id="A", instance_id=other_id), AccessDenied)
    assert isinstance(await world.reads.instances(reader, tenant_id="A"), AccessDenied)
    assert shown(await world.reads.instances(A, tenant_id="A")).items == (mine,)
    every = shown(await world.reads.instances(ROOT_CALLER, tenant_id=ROOT, all_tenants=True))
    assert every.items == (other, mine)
    assert isinstance(await world.reads.instances(A, tenant_id="A", all_tenants=True), AccessDenied)


async def test_filters_of_instances_choose_what_they_say(world: World) -> None:
    grant = await world.grant(1, B, B + H)
    inside, outside, small = (
        await world.instance(),
        await world.instance("b"),
        await world.instance("b", flavor="small"),
    )
    await world.stop(outside)
    await world.delete(small)

    async def chosen(caller: Caller = A, tenant_id: str = "A", **filters: Any) -> set[str]:
        page = shown(await world.reads.instances(caller, tenant_id=tenant_id, **filters))
        assert await world.reads.count_instances(caller, tenant_id=tenant_id, **filters) == len(page.items)
        return {view.instance.instance_id for view in page.items}

    assert len(await chosen()) == 3
    assert await chosen(run_state="running") == {inside.instance.instance_id}
    assert await chosen(run_state=RunState.STOPPED) == {outside.instance.instance_id}
    assert await chosen(run_state="deleted") == {small.instance.instance_id}
    assert await chosen(grant_id=grant.grant.grant_id) == {inside.instance.instance_id}
    assert await chosen(grant_id=NOBODYS_GRANT) == set()
    assert await chosen(project_id=project_id("a")) == {inside.instance.instance_id}
    place = {"account_id": ACCOUNT_SIDE, "reservation_id": SMALL, "all_tenants": True}
    assert await chosen(ROOT_CALLER, ROOT, **place) == {small.instance.instance_id}
    assert await chosen(ROOT_CALLER, ROOT, grant_id=grant.grant.grant_id, **place) == set()
    assert await chosen(ROOT_CALLER, ROOT, all_tenants=True, owner_tenant_id="B") == set()


async def test_a_strangers_grant_shows_none_of_its_instances(world: World) -> None:
    grant = await world.grant(1, B, B + H)
    await world.instance()
    assert await world.reads.instances(OF_B, tenant_id="B", grant_id=grant.grant.grant_id) == Page()


async def test_an_instance_that_was_deleted_can_still_be_read(world: World) -> None:
    gone = await world.instance()
    await world.delete(gone)
    view = shown(await world.reads.instance(A, tenant_id="A", instance_id=gone.instance.instance_id))
    assert view.instance.run_state is RunState.DELETED
    assert view.instance.segment is None
