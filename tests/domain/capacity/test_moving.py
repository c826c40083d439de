"""Stopped instances that leave the books of one reservation for those of another, and those that change their project."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from domain.capacity.commands import ChangeProject, SeekSlot, StartInstance
from domain.capacity.placement import (
    NO_SLOT,
    UNPLACED,
    decide_change_project,
    decide_seek,
    decide_start,
    decide_start_elsewhere,
)
from domain.capacity.state import Billing, CapacityState, Instance, Mode, RunState
from domain.outcomes import Accepted, InvalidInput, InvalidState, NotFound
from tests.domain.capacity.world import B, H, World


def another(total: int = 1) -> World:
    world = World(total)
    world.state = CapacityState(replace(world.state.reservation, key="account/another", reservation_id="another"))
    return world


def start_elsewhere(origin: World, target: World, instance: Instance, **more: Any) -> Any:
    command = StartInstance(instance_id=instance.instance_id, **more)
    return decide_start_elsewhere(origin.state, target.state, command, around=origin.around, now=origin.now)


def test_a_start_elsewhere_leaves_what_it_ran_and_takes_its_number_along() -> None:
    origin, target = World(1), another()
    moving = origin.place()
    origin.at(B + H)
    origin.stop(moving)
    moved = start_elsewhere(origin, target, moving).answer
    assert (moved.run_state, moved.grant_id, moved.created_at, moved.mode) == (RunState.RUNNING, None, B, Mode.RESERVED)
    assert (moved.segment.number, moved.segment.from_at) == (1, B + H)
    assert (origin.state.free, target.state.free) == (1, 0)
    left = origin.state.changes.instances[moving.instance_id]
    assert (left.run_state, left.moved_to, left.segment_count) == (RunState.DELETED, "account/another", 1)
    assert moving.instance_id not in origin.state.instances
    assert target.state.changes.new_instances == set(), "it is known already"


def test_nothing_changes_where_there_is_no_room() -> None:
    origin, target = World(1), another(0)
    stopped = origin.place()
    origin.stop(stopped)
    origin.state.take_changes()
    assert start_elsewhere(origin, target, stopped) == NO_SLOT
    assert not origin.state.changes
    assert not target.state.changes
    assert stopped.run_state is RunState.STOPPED


def test_only_what_must_be_placed_afresh_starts_elsewhere() -> None:
    """Not a member of a grant, not one that runs, not one on demand, not one that is gone."""
    origin, target = World(3), another()
    origin.create(1, B, B + H)
    member, running, on_demand = origin.place(), origin.place(), origin.place()
    for instance in (member, on_demand):
        origin.stop(instance)
    assert start_elsewhere(origin, target, member) == NO_SLOT
    assert start_elsewhere(origin, target, running) == NO_SLOT
    origin.delete(running)
    origin.state.take_changes()
    assert isinstance(start_elsewhere(origin, target, running), NotFound)
    origin.miss()
    assert start_elsewhere(origin, target, on_demand) == NO_SLOT
    assert target.state.free == 1


def test_a_start_in_place_tells_what_it_may_not_decide() -> None:
    """D27, D32."""
    world = World(2)
    world.create(1, B, B + H)
    member, ordinary = world.place(), world.place()
    for instance, expected in ((member, RunState.RUNNING), (ordinary, UNPLACED)):
        world.stop(instance)
        command = StartInstance(instance_id=instance.instance_id, in_place=True)
        outcome = decide_start(world.state, command, around=world.around, now=world.now)
        assert outcome == expected or outcome.answer.run_state is expected


def test_a_start_needs_an_offer_as_a_creation_does() -> None:
    world = World(1)
    stopped = world.place()
    world.stop(stopped)
    world.around = replace(world.around, offers=frozenset({("pool", "B")}))
    assert world.start(stopped) == NO_SLOT
    world.around = replace(world.around, offers=frozenset({("pool", "A")}))
    world.state.reservation.pool_id = None
    assert world.start(stopped) == NO_SLOT
    world.state.reservation.pool_id = "pool"
    assert world.start(stopped).is_running


def test_a_look_for_a_slot_takes_none() -> None:
    world = World(1)
    seek = SeekSlot(tenant_id="A", project_id="pA", billing=Billing.NORMAL, grants_only=False)

    def sought(command: SeekSlot) -> Any:
        return decide_seek(world.state, command, around=world.around, now=world.now)

    assert sought(seek) == Accepted(None)
    assert not world.state.changes
    assert sought(replace(seek, grants_only=True)) == NO_SLOT
    assert isinstance(sought(replace(seek, project_id="pB")), InvalidInput)
    world.create(1, B, B + H)
    assert sought(replace(seek, grants_only=True)) == Accepted(None)
    assert sought(replace(seek, billing=Billing.NONE)) == NO_SLOT, "R31: its tenant's grant is not for it"


def test_what_moves_into_a_grant_must_fit_it_as_anything_does() -> None:
    origin, target = World(1), another()
    grant = target.create(1, B, B + H, project="qA")
    stopped = origin.place()
    origin.stop(stopped)
    assert start_elsewhere(origin, target, stopped) == NO_SLOT
    moved = start_elsewhere(origin, target, stopped, project_id="qA").answer
    assert (moved.project_id, moved.grant_id) == ("qA", grant.grant_id)


def change(world: World, instance: Instance, project_id: str) -> Any:
    command = ChangeProject(instance_id=instance.instance_id, project_id=project_id)
    return decide_change_project(world.state, command, around=world.around, now=world.now)


def test_d39_a_change_of_project_splits_the_bill_and_leaves_what_does_not_fit() -> None:
    world = World(3)
    world.create(1, B, B + 2 * H, project="pA")
    wide = world.create(1, B, B + 2 * H)
    restricted, inside = world.place(), world.place()
    world.at(B + H)
    assert change(world, restricted, "qA").answer.grant_id is None
    assert change(world, inside, "qA").answer.grant_id == wide.grant_id
    segments = world.state.take_changes().segments
    assert [(s.project_id, s.mode) for (owner, _), s in segments.items() if owner == restricted.instance_id] == [
        ("pA", Mode.GRANT),
        ("qA", Mode.RESERVED),
    ]
    assert world.state.free == 0
    assert change(world, inside, "qA").answer.segment_count == 2, "the same project again is nothing"
    assert isinstance(change(world, inside, "pB"), InvalidInput)
    world.delete(inside)
    assert isinstance(change(world, inside, "pA"), NotFound | InvalidState)


def test_b23_a_running_instance_that_is_started_in_another_project_is_put_there() -> None:
    world = World(2)
    world.create(1, B, B + H, project="pA")
    running = world.place()
    command = StartInstance(instance_id=running.instance_id, project_id="qA")
    started = decide_start(world.state, command, around=world.around, now=world.now)
    assert isinstance(started, Accepted)
    assert (started.answer.project_id, started.answer.grant_id, started.answer.is_running) == ("qA", None, True)


def test_a_boundary_that_is_applied_late_finds_its_project_as_it_was_then() -> None:
    """D30, P3: deleted an hour after the start; so it was still there to be served."""
    for deleted_at, inside in ((B + 2 * H, True), (B + H, True), (B + H - 1, False)):
        world = World(1)
        running = world.place()
        grant = world.create(1, B + H, B + 9 * H, project="pA")
        world.state.deserted = {"pA": deleted_at}
        world.at(B + 3 * H)
        assert (running.grant_id == grant.grant_id) == inside
