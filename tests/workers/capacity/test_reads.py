"""The present without a write (D49): reads while a boundary is due and nobody has applied it yet."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from domain.capacity.counts import GrantActivity
from domain.capacity.state import GrantState, Mode
from storage.paging import Page
from tests.capacity_reading import MAIN, ROOT_CALLER, A, B, H, M, World, reading_world, shown
from tests.capacity_world import caller_of
from tests.simulation.world_plan import ROOT, project_id


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    async with reading_world(database_url) as made:
        yield made


async def test_a_start_that_nobody_has_applied_yet_shows_its_instances_as_adopted(world: World) -> None:
    grant = await world.grant(2, B + H, B + 3 * H)
    oldest = await world.attach()
    world.clock.now += 1
    newer = await world.attach()
    world.clock.now += 1
    newest = await world.attach()
    world.clock.now = B + 2 * H
    version = await world.version()
    view = shown(await world.reads.grant(A, tenant_id="A", grant_id=grant.grant.grant_id))
    assert view.state is GrantState.ACTIVE
    activity = (await world.reads.load_grant_activity([view]))[view.grant.grant_id]
    assert activity == GrantActivity(held=2, running=2, idle=0)
    assert await world.reads.load_used_ms([view]) == {view.grant.grant_id: 2 * H}
    pages = await world.reads.load_instances_of_grants([view], first=10)
    names = [one.instance.instance_id for one in pages[view.grant.grant_id].items]
    assert names == [newer.instance.instance_id, oldest.instance.instance_id]
    page = shown(await world.reads.instances(A, tenant_id="A", grant_id=grant.grant.grant_id, first=1))
    assert [one.instance.instance_id for one in page.items] == names[:1]
    assert page.has_more
    counted = await world.reads.count_instances(A, tenant_id="A", grant_id=grant.grant.grant_id)
    assert counted == 2
    outside = shown(await world.reads.instance(A, tenant_id="A", instance_id=newest.instance.instance_id))
    assert outside.instance.mode is Mode.RESERVED
    inside = shown(await world.reads.instance(A, tenant_id="A", instance_id=oldest.instance.instance_id))
    assert inside.instance.mode is Mode.GRANT
    assert inside.instance.segment is not None
    assert inside.instance.segment.from_at == B + H
    main = await world.main()
    assert (main.in_use, main.granted_now, main.unused_granted, main.free) == (3, 2, 0, 7)
    assert await world.version() == version, "a read wrote something"


async def test_an_end_that_nobody_has_applied_yet_shows_its_instances_as_let_go(world: World) -> None:
    grant = await world.grant(2, B, B + H)
    one, other = await world.instance(), await world.instance()
    await world.stop(other)
    world.clock.now = B + 2 * H
    view = shown(await world.reads.grant(A, tenant_id="A", grant_id=grant.grant.grant_id))
    assert (await world.reads.load_grant_activity([view]))[view.grant.grant_id] == GrantActivity(0, 0, 0)
    assert await world.reads.load_used_ms([view]) == {view.grant.grant_id: H}
    assert await world.reads.instances(A, tenant_id="A", grant_id=grant.grant.grant_id) == Page()
    shown_one = shown(await world.reads.instance(A, tenant_id="A", instance_id=one.instance.instance_id))
    assert (shown_one.instance.grant_id, shown_one.instance.mode) == (None, Mode.RESERVED)


@pytest.mark.parametrize("seed", range(4))
async def test_a_read_before_the_boundaries_are_applied_equals_the_read_after(world: World, seed: int) -> None:
    chance = random.Random(seed)
    applied = 0
    for _ in range(12):
        for _ in range(6):
            await _do_something(world, chance)
        world.clock.now += chance.choice([M, 20 * M, H, 90 * M])
        version, before = await world.version(), await _everything(world)
        await world.apply_boundaries()
        applied += await world.version() - version
        assert await _everything(world) == before
    assert applied > 2, "the history had too few boundaries to show anything"


async def _do_something(world: World, chance: random.Random) -> None:
    """One command on the main reservation; the refusals among them are part of the history."""
    tenant_id, letter = chance.choice([("A", "a"), ("A", "b"), ("B", "c")])
    kind = chance.choice(["grant", "grant", "instance", "instance", "attach", "stop", "delete", "end"])
    if kind == "grant":
        starts_at = world.clock.now + chance.choice([0, M, H, 90 * M])
        await world.node.grants.create(
            ROOT_CALLER,
            **MAIN,
            grant_tenant_id=tenant_id,
            project_id=chance.choice([None, project_id(letter)]),
            slots=chance.randint(1, 3),
            starts_at=starts_at,
            ends_at=starts_at + chance.choice([M, H, 2 * H]),
            idempotency_key=f"key-{next(world.keys)}",
        )
    elif kind == "instance":
        given = {"tenant_id": tenant_id, "project_id": project_id(letter), "flavor": "large", "name": "one"}
        await world.node.instances.create(caller_of(tenant_id), **given)
    elif kind == "attach":
        await world.attach(letter, of=tenant_id, billing=chance.choice(["normal", "none"]))
    elif kind == "end":
        grants = shown(await world.reads.grants(ROOT_CALLER, tenant_id=ROOT, all_tenants=True)).items
        if grants:
            await world.end(chance.choice(grants))
    elif instances := shown(await world.reads.instances(ROOT_CALLER, tenant_id=ROOT, all_tenants=True)).items:
        await (world.stop if kind == "stop" else world.delete)(chance.choice(instances))


async def _everything(world: World) -> dict[str, Any]:
    """All that reads tell, but for the numbers of turns."""
    grants = shown(await world.reads.grants(ROOT_CALLER, tenant_id=ROOT, all_tenants=True, first=200)).items
    instances = shown(await world.reads.instances(ROOT_CALLER, tenant_id=ROOT, all_tenants=True, first=200)).items
    of_grants = await world.reads.load_instances_of_grants(grants, first=3)
    main = await world.main()
    counts = {}
    for view in grants:
        given = {"tenant_id": ROOT, "all_tenants": True, "grant_id": view.grant.grant_id, "run_state": "running"}
        counts[view.grant.grant_id] = shown(await world.reads.count_instances(ROOT_CALLER, **given))
        page = shown(await world.reads.instances(ROOT_CALLER, **given, first=2))
        assert len(page.items) == min(2, counts[view.grant.grant_id])
    return {
        "states": [(view.grant.grant_id, view.state, view.grant.ends_at) for view in grants],
        "activity": await world.reads.load_grant_activity(grants),
        "used": await world.reads.load_used_ms(grants),
        "instances": list(instances),
        "of grants": of_grants,
        "running in grants": counts,
        "main": replace(main, version=0),
    }
