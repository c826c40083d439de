"""Instances and tenants in the middle of other things, over several nodes (T46, T47, T82, B2, B5)."""

from __future__ import annotations

import asyncio

from domain.capacity.placement import NO_SLOT
from domain.capacity.state import GrantState, RunState
from domain.capacity.views import GrantView, InstanceView
from domain.outcomes import Accepted, InvalidInput, Outcome
from domain.tenancy import Project, Tenant
from storage import identity
from tests.capacity_world import answer_of
from tests.faults.race_world import B, H, RaceWorld, at_once, racing


async def test_two_instances_want_the_last_slot_of_a_grant(database_url: str) -> None:
    """T46: one goes in, the other one finds no room."""
    async with racing(database_url, first=1) as world:
        grant = answer_of(await world.grant(1, B, B + H)).grant
        for _ in range(25):
            accepted, refused = await at_once(*(world.run("A", node=node) for node in range(2)))
            assert [view.instance.grant_id for view in accepted] == [grant.grant_id]
            assert refused == [NO_SLOT]
            answer_of(await world.delete(accepted[0]))
        await world.audit()


async def test_a_stranger_never_gets_the_granted_slot(database_url: str) -> None:
    """T47: the grantee gets in and the other tenant does not, in any interleaving."""
    async with racing(database_url, first=1) as world:
        grant = answer_of(await world.grant(1, B, B + H)).grant
        for number in range(25):
            tenants = ("A", "B") if number % 2 else ("B", "A")
            outcomes = await asyncio.gather(*(world.run(tenant, node=node) for node, tenant in enumerate(tenants)))
            by_tenant = dict(zip(tenants, outcomes, strict=True))
            view = answer_of(by_tenant["A"])
            assert view.instance.grant_id == grant.grant_id
            assert by_tenant["B"] == NO_SLOT
            answer_of(await world.delete(view))
        await world.audit()


async def test_a_grant_that_starts_now_is_active_and_takes_in_what_runs(database_url: str) -> None:
    """B2: created with its start at hand while a boundary pass runs and its predecessor ends, 500 times in all."""
    names = [f"zone/r{number}" for number in range(5)]
    async with racing(database_url, nodes=2, **{name.removeprefix("zone/"): 10 for name in names}) as world:
        running = [answer_of(await world.run("A", reservation=name)).instance for name in names]
        grant_ids: dict[str, list[str]] = {name: [] for name in names}
        for number in range(100):
            now = world.clock.advance(10_000)
            async with asyncio.TaskGroup() as race:
                created = [
                    race.create_task(world.grant(1, now - number % 2, now + H, node=number + index, reservation=name))
                    for index, name in enumerate(names)
                ]
                race.create_task(world.node(number // 2).boundaries.run_once())
                for name in names:
                    for grant_id in grant_ids[name][-1:]:
                        race.create_task(world.end(grant_id, node=number // 2))
            for name, task in zip(names, created, strict=True):
                view = answer_of(task.result())
                assert view.state is GrantState.ACTIVE
                grant_ids[name].append(view.grant.grant_id)
        for name, instance in zip(names, running, strict=True):
            assert await stays_of(world, instance.instance_id) == grant_ids[name]
        await world.audit()


async def stays_of(world: RaceWorld, instance_id: str) -> list[str]:
    """The grants that it ran in, for however short, in order."""
    rows = await world.connection.fetch(
        "select grant_id from capacity_segment where instance_id = $1 and to_at is distinct from from_at order by number",
        instance_id,
    )
    return [row["grant_id"] for row in rows if row["grant_id"] is not None]


async def test_no_grant_is_born_to_a_dead_tenant(database_url: str) -> None:
    """T82: create beside the deletion of its tenant, 200 times: whatever was accepted is over."""
    async with racing(database_url, nodes=2, first=1_000) as world:
        outcomes: list[Outcome[GrantView]] = []
        tenants = list(enumerate(await make_tenants(world, 200)))
        while len(outcomes) < len(tenants):
            page = tenants[len(outcomes) : len(outcomes) + 8]
            outcomes += await asyncio.gather(*(create_beside_deletion(world, name, number) for number, name in page))
        born = [outcome.answer.grant.grant_id for outcome in outcomes if isinstance(outcome, Accepted)]
        refused = [outcome for outcome in outcomes if not isinstance(outcome, Accepted)]
        assert all(isinstance(each, InvalidInput) and each.reason == "pool-not-offered" for each in refused)
        assert min(len(born), len(refused)) > 10, "it always went one way"
        alive = await world.connection.fetch(
            "select grant_id from capacity_grant where cancelled_at is null and (ends_at > $1 or not ended_applied)",
            world.clock.now,
        )
        assert alive == []
        assert await world.connection.fetchval("select count(*) from capacity_grant") == len(born)
        assert await world.connection.fetchval("select count(*) from tenant where closed_at is null") == 3
        await world.audit()


async def create_beside_deletion(world: RaceWorld, tenant: str, number: int) -> Outcome[GrantView]:
    """Some ask a moment before, some a moment after, some when all is over; half of the terms are on, half ahead."""
    starts_at = B if number % 4 < 2 else B + H
    deletion = world.delete_tenant(tenant, node=number + 1)
    creation = world.grant(1, starts_at, B + 2 * H, node=number, tenant=tenant)
    if number % 8 > 5:
        await deletion
        outcome = await creation
    elif number % 2:
        _, outcome = await asyncio.gather(deletion, creation)
    else:
        outcome, _ = await asyncio.gather(creation, deletion)
    return outcome


async def test_end_and_deletions_at_once_leave_one_final_state(database_url: str) -> None:
    """B5: a grant ended, its instance deleted and its tenant deleted in one moment, on three nodes."""
    async with racing(database_url, nodes=3) as world:
        for number, tenant in enumerate(await make_tenants(world, 40)):
            world.clock.advance(1_000)
            grant = answer_of(await world.grant(2, world.clock.now, world.clock.now + H, tenant=tenant)).grant
            project = await world.connection.fetchval("select project_id from project where tenant_id = $1", tenant)
            inside = answer_of(await world.run(tenant, project=project))
            assert inside.instance.grant_id == grant.grant_id
            world.clock.advance(1_000)
            deeds = [
                world.end(grant.grant_id, node=number),
                world.delete(inside, node=number + 1),
                world.delete_tenant(tenant, node=number + 2),
            ]
            await asyncio.gather(*deeds[number % 3 :], *deeds[: number % 3])
            await assert_all_over(world, grant.grant_id, inside)
        await world.audit()
        ended = await world.connection.fetchval(
            "select count(*) from event where type = 'reservation-grant.ended' and tenant_id <> '*'"
        )
        assert ended == 40


async def assert_all_over(world: RaceWorld, grant_id: str, view: InstanceView) -> None:
    grant = await world.connection.fetchrow("select * from capacity_grant where grant_id = $1", grant_id)
    assert grant is not None
    assert (grant["ends_at"], grant["ended_applied"], grant["cancelled_at"]) == (world.clock.now, True, None)
    instance_id = view.instance.instance_id
    instance = await world.connection.fetchrow("select * from capacity_instance where instance_id = $1", instance_id)
    assert instance is not None
    assert (instance["run_state"], instance["grant_id"]) == (RunState.DELETED, None)
    segments = await world.connection.fetch("select * from capacity_segment where instance_id = $1", instance_id)
    assert {segment["to_at"] for segment in segments} == {world.clock.now}


async def make_tenants(world: RaceWorld, count: int) -> list[str]:
    """Tenants with a project each; the pool is offered to everybody."""
    tenants = [f"tenant-{number}" for number in range(count)]
    node = world.nodes[0]
    async with node.database.transaction() as connection:
        for tenant_id in tenants:
            tenant = Tenant(tenant_id=tenant_id, name=tenant_id, is_root=False, created_at=B)
            await identity.flush_tenant(connection, tenant)
            project = Project(project_id=node.ids.new("prj"), tenant_id=tenant_id, name="a project", created_at=B)
            await identity.flush_project(connection, project)
    return tenants
