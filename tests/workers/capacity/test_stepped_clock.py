"""The database's clock steps back, as after a failover: what was shown or decided is not taken back (R3, D15)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from domain.capacity.counts import committed_ms
from domain.capacity.state import GrantState
from domain.outcomes import Accepted
from tests.capacity_reading import MAIN, ROOT_CALLER, A, B, H, M, World, ids, reading_world, shown
from tests.capacity_world import running_node
from tests.simulation.world_plan import ROOT
from workers.capacity.instants import AHEAD_MAX, ShownAhead
from workers.capacity.reads import CapacityReads

EARLIER = (B + H - 1, B, B - H, B - 24 * H)
"""Instants that the clock steps back to, once a boundary at B + H was shown."""


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    async with reading_world(database_url) as made:
        yield made


async def state_of(world: World, grant_id: str) -> GrantState:
    """As every read shows it: alone, in the list of its state and in no other, and counted there."""
    state: GrantState = shown(await world.reads.grant(A, tenant_id="A", grant_id=grant_id)).state
    for one in GrantState:
        found = shown(await world.reads.grants(A, tenant_id="A", state=one))
        assert (grant_id in ids(found)) is (one is state)
        assert {view.state for view in found.items} <= {one}
        assert await world.reads.count_grants(A, tenant_id="A", state=one) == len(found.items)
    everybodys = shown(await world.reads.grants(ROOT_CALLER, tenant_id=ROOT, all_tenants=True)).items
    assert {view.state for view in everybodys if view.grant.grant_id == grant_id} == {state}
    return state


@pytest.mark.parametrize("is_applied", [True, False])
async def test_a_grant_that_was_shown_active_is_not_shown_scheduled_again(world: World, is_applied: bool) -> None:
    grant_id = (await world.grant(2, B + H, B + 3 * H)).grant.grant_id
    assert await state_of(world, grant_id) is GrantState.SCHEDULED
    world.clock.now = B + H
    if is_applied:
        await world.apply_boundaries()
    assert await state_of(world, grant_id) is GrantState.ACTIVE
    for now in EARLIER:
        world.clock.now = now
        assert await state_of(world, grant_id) is GrantState.ACTIVE
    world.clock.now = B + 3 * H
    assert await state_of(world, grant_id) is GrantState.ENDED


@pytest.mark.parametrize("is_applied", [True, False])
async def test_a_grant_that_was_shown_ended_is_not_shown_active_again(world: World, is_applied: bool) -> None:
    view = await world.grant(2, B, B + H)
    world.clock.now = B + H
    if is_applied:
        await world.apply_boundaries()
    assert await state_of(world, view.grant.grant_id) is GrantState.ENDED
    for now in EARLIER:
        world.clock.now = now
        assert await state_of(world, view.grant.grant_id) is GrantState.ENDED
        assert committed_ms(shown(await world.reads.grant(A, tenant_id="A", grant_id=view.grant.grant_id))) == 2 * H


async def test_another_node_shows_what_was_applied_too(world: World, database_url: str) -> None:
    """The floor is in the database; only what was shown ahead of it is the node's own."""
    grant_id = (await world.grant(2, B + H, B + 3 * H)).grant.grant_id
    world.clock.now = B + H
    await world.apply_boundaries()
    world.clock.now = B
    async with running_node(database_url, clock=world.clock) as other:
        seen = shown(await CapacityReads(other.asker).grant(A, tenant_id="A", grant_id=grant_id))
    assert seen.state is GrantState.ACTIVE


@pytest.mark.parametrize("is_applied", [True, False])
async def test_slots_are_counted_at_the_same_instant_as_the_grants_are_shown_at(world: World, is_applied: bool) -> None:
    instance = await world.instance()
    view = await world.grant(2, B + H, B + 3 * H)
    world.clock.now = B + H + M
    if is_applied:
        await world.apply_boundaries()
    before = await _everything(world)
    assert before["counts"] == (2, 1, 1)
    assert before["member"] == instance.instance.instance_id
    assert (before["used"], before["committed"]) == (M, 2 * M)
    for now in (B + H + M - 1, *EARLIER):
        world.clock.now = now
        assert await _everything(world) == before
    world.clock.now = B + H + 2 * M
    assert (await _everything(world))["committed"] == 4 * M
    assert shown(await world.reads.grant(A, tenant_id="A", grant_id=view.grant.grant_id)).state is GrantState.ACTIVE


async def _everything(world: World) -> dict[str, object]:
    """What reads show of the one grant, its instance and its reservation."""
    main = await world.main()
    view = shown(await world.reads.grants(A, tenant_id="A")).items[0]
    grant_id = view.grant.grant_id
    instances = shown(await world.reads.instances(A, tenant_id="A", grant_id=grant_id))
    loaded = (await world.reads.load_instances_of_grants([view], first=5))[grant_id]
    assert [one.instance for one in loaded.items] == [one.instance for one in instances.items]
    everybodys = shown(await world.reads.instances(ROOT_CALLER, tenant_id=ROOT, all_tenants=True)).items
    assert [one.instance.grant_id for one in everybodys] == [grant_id]
    assert await world.reads.count_instances(A, tenant_id="A", grant_id=grant_id) == 1
    activity = (await world.reads.load_grant_activity([view]))[grant_id]
    assert (activity.held, activity.running, activity.idle) == (1, 1, 1)
    return {
        "counts": (main.granted_now, main.in_use, main.unused_granted),
        "at": (main.at, view.at, instances.items[0].at),
        "member": instances.items[0].instance.instance_id,
        "used": (await world.reads.load_used_ms([view]))[grant_id],
        "committed": committed_ms(view),
    }


async def test_a_plan_and_an_offer_are_of_the_instant_of_a_creation(world: World) -> None:
    await world.grant(10, B, B + H)
    world.clock.now = B + H
    await world.apply_boundaries()
    world.clock.now = B + M
    fits = shown(await world.reads.earliest_fit(ROOT_CALLER, **MAIN, slots=10, duration_ms=M))
    assert fits[0].starts_at == B + H
    wish = {**MAIN, "grant_tenant_id": "A", "slots": 1, "starts_at": B + H - 6 * M, "ends_at": B + 2 * H}
    plan = shown(await world.node.grants.plan(ROOT_CALLER, **wish))
    created = await world.node.grants.create(ROOT_CALLER, **wish, project_id=None, idempotency_key="too-early")
    assert plan.refusal == created
    accepted = {**wish, "starts_at": B + H}
    assert shown(await world.node.grants.plan(ROOT_CALLER, **accepted)).refusal is None
    assert isinstance(
        await world.node.grants.create(ROOT_CALLER, **accepted, project_id=None, idempotency_key="k"), Accepted
    )


async def test_a_repeated_creation_shows_the_grant_no_earlier_than_it_was_shown(world: World) -> None:
    wish = {**MAIN, "grant_tenant_id": "A", "slots": 1, "starts_at": B + H, "ends_at": B + 2 * H, "project_id": None}
    made = await world.node.grants.create(ROOT_CALLER, **wish, idempotency_key="k")
    assert isinstance(made, Accepted)
    world.clock.now = B + H
    await world.apply_boundaries()
    world.clock.now = B
    again = await world.node.grants.create(ROOT_CALLER, **wish, idempotency_key="k")
    assert isinstance(again, Accepted)
    assert again.answer.state is GrantState.ACTIVE


# -- what a node remembers ---------------------------------------------------------------------------------------------


def test_what_was_shown_is_remembered_until_the_floor_gets_there() -> None:
    shown_ahead = ShownAhead()
    shown_ahead.instants(B).note("key")
    assert shown_ahead.instants(B).ahead == {}
    assert shown_ahead.instants(B - 1).ahead == {"key": B}
    assert shown_ahead.instants(B - H).of("key", B - M) == B
    assert shown_ahead.instants(B - H).of("other", B - M) == B - M
    assert shown_ahead.instants(B - H).of("key", B) == B
    assert shown_ahead.instants(B - H).ahead == {}


def test_an_earlier_instant_is_no_news_and_the_longest_remembered_go_first() -> None:
    shown_ahead = ShownAhead()
    shown_ahead.note("first", B + H)
    for number in range(AHEAD_MAX - 1):
        shown_ahead.note(str(number), B)
    shown_ahead.note("first", B)
    assert shown_ahead.instants(B).ahead == {"first": B + H}
    shown_ahead.note("first", B + 2 * H)
    shown_ahead.note("one too many", B)
    assert len(shown_ahead.instants(0).ahead) == AHEAD_MAX
    assert "0" not in shown_ahead.instants(0).ahead
    assert shown_ahead.instants(0).of("first") == B + 2 * H
