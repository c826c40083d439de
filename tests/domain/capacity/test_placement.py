"""Who runs where: free slots, grants that keep theirs, adoption and hand-over, with the numbers of the rules."""

from __future__ import annotations

from dataclasses import replace

from domain.capacity.commands import DeleteInstance
from domain.capacity.placement import NO_SLOT, decide_delete
from domain.capacity.state import Billing, Mode, RunState
from tests.domain.capacity.world import B, H, M, World


def test_t35_the_worked_example() -> None:
    world = World()
    grant = world.create(6, B, B + 24 * H)
    assert world.figures == (0, 6, 4)
    mine = [world.place("A") for _ in range(2)]
    assert world.figures == (2, 4, 4)
    others = [world.place("B") for _ in range(4)]
    assert world.figures == (6, 4, 0)
    assert world.place("B") == NO_SLOT
    mine += [world.place("A") for _ in range(4)]
    assert world.figures == (10, 0, 0)
    assert world.place("A") == NO_SLOT
    world.stop(mine[0])
    assert world.figures == (9, 1, 0)
    assert world.place("B") == NO_SLOT
    assert world.place("A") == NO_SLOT
    assert world.start(mine[0]).grant_id == grant.grant_id
    world.delete(mine[0])
    assert world.figures == (9, 1, 0)
    assert world.place("B") == NO_SLOT
    assert world.place("A").grant_id == grant.grant_id
    world.delete(others[0])
    assert world.state.free == 1
    outside = world.place("A")
    assert (outside.grant_id, outside.mode) == (None, Mode.RESERVED)


def test_t37_a_shrunken_reservation_evicts_nobody_and_refuses_the_grantee_too() -> None:
    world = World()
    world.create(8, B, B + 24 * H)
    for tenant in "AAABB":
        world.place(tenant)
    assert world.state.free == 0
    world.report(6)
    assert world.state.free == -4
    assert ("capacity-short", B, "") in world.events
    assert world.place("A").grant_id is not None
    assert world.state.in_use == 6
    assert world.place("A") == NO_SLOT


def test_t38_the_most_specific_grant_first() -> None:
    world = World()
    restricted = world.create(2, B, B + 24 * H, project="pA")
    wide = world.create(3, B, B + 24 * H)
    grants = [world.place("A").grant_id for _ in range(5)]
    assert grants == [restricted.grant_id] * 2 + [wide.grant_id] * 3
    assert world.place("A", project="qA").grant_id is None
    assert world.state.free == 4


def test_t40_a_stopped_one_holds_its_slot_of_the_grant() -> None:
    world = World(5)
    world.create(2, B, B + 24 * H)
    world.place()
    world.stop(world.place())
    assert world.place().grant_id is None
    assert world.figures == (2, 1, 2)


def test_t41_restarting_in_the_grant_needs_physical_room() -> None:
    world = World(2)
    world.create(2, B, B + 24 * H)
    world.place()
    stopped = world.stop(world.place())
    world.report(1)
    assert world.start(stopped) == NO_SLOT


def test_t43_an_ordinary_one_is_placed_afresh_when_it_starts() -> None:
    world = World(2)
    ordinary = world.stop(world.place())
    assert world.state.free == 2
    grant = world.create(1, B, B + 24 * H)
    assert world.start(ordinary).grant_id == grant.grant_id


def test_t44_the_claim_of_a_stopped_one_ends_with_its_grant() -> None:
    world = World(1)
    grant = world.create(1, B, B + H)
    stopped = world.stop(world.place())
    assert world.place("B") == NO_SLOT
    world.end(grant)
    assert world.state.free == 1
    assert world.place("B").grant_id is None
    assert world.start(stopped) == NO_SLOT


def test_t49_attached_without_billing_it_holds_a_slot_and_enters_no_grant_ever() -> None:
    world = World()
    attached = world.attach(billing=Billing.NONE)
    assert world.figures == (1, 0, 9)
    world.create(5, B, B + H)
    assert attached.grant_id is None
    world.create(5, B + H, B + 2 * H)
    world.at(B + H)
    assert (attached.grant_id, attached.mode) == (None, Mode.NONE)
    world.stop(attached)
    assert world.start(attached).grant_id is None


def test_t50_a_scheduled_grant_protects_nothing_yet() -> None:
    world = World()
    world.create(10, B + 24 * H, B + 48 * H)
    assert all(world.place("B") != NO_SLOT for _ in range(10))


def test_deleting_twice_in_one_turn_is_no_error() -> None:
    world = World(1)
    instance = world.place()
    command = DeleteInstance(instance_id=instance.instance_id)
    outcomes = [decide_delete(world.state, command, around=world.around, now=B) for _ in range(2)]
    assert [outcome.answer.run_state for outcome in outcomes] == [RunState.DELETED] * 2
    assert world.state.free == 1


def test_b10_deleting_twice_gives_one_slot_back() -> None:
    world = World(1)
    instance = world.place()
    world.stop(instance)
    world.delete(instance)
    world.around = replace(
        world.around, past_instances={(world.state.reservation.key, instance.instance_id): instance}
    )  # no longer in the books
    world.delete(instance)
    assert world.state.free == 1


def test_t52_a_start_takes_in_the_oldest_at_its_millisecond() -> None:
    world = World()
    running = [world.place() for _ in range(3)]
    grant = world.create(2, B + 30 * M, B + 24 * H)
    assert [i.grant_id for i in running] == [None] * 3
    world.at(B + 30 * M - 1)
    assert [i.grant_id for i in running] == [None] * 3
    world.at(B + 30 * M)
    assert [i.grant_id for i in running] == [grant.grant_id, grant.grant_id, None]
    world.at(B + H)
    assert world.ran(running[0], "reserved", until=B + H) == 30 * M
    assert world.ran(running[0], "grant", until=B + H) == 30 * M


def test_t53_a_renewal_takes_over_without_a_gap() -> None:
    world = World()
    world.create(5, B, B + H)
    running = [world.at(B + number * M).place() for number in range(5)]
    renewal = world.create(3, B + H, B + 24 * H)
    world.at(B + 2 * H)
    assert [i.grant_id for i in running] == [renewal.grant_id] * 3 + [None] * 2
    assert world.ran(running[4], "grant", until=B + 2 * H) == 56 * M
    assert world.ran(running[4], "reserved", until=B + 2 * H) == H


def test_r33_a_renewal_one_millisecond_late_leaves_one_millisecond_at_the_reserved_rate() -> None:
    world = World()
    world.create(1, B, B + H)
    running = world.place()
    renewal = world.create(1, B + H + 1, B + 24 * H)
    world.at(B + 2 * H)
    assert running.grant_id == renewal.grant_id
    assert world.ran(running, "reserved", until=B + 2 * H) == 1


def test_t55_hand_over_beats_an_older_outsider() -> None:
    world = World()
    outsider = world.place()
    world.now = B + M
    first = world.create(1, B + 2 * M, B + H)
    world.at(B + 2 * M)
    assert outsider.grant_id == first.grant_id
    world.delete(outsider)
    older = world.at(B + 3 * M).attach()
    inside = world.at(B + 4 * M).place()
    assert inside.grant_id == first.grant_id
    renewal = world.create(1, B + H, B + 2 * H)
    world.at(B + H)
    assert (inside.grant_id, older.grant_id) == (renewal.grant_id, None)


def test_t56_an_early_end_hands_over_to_a_live_grant_with_room() -> None:
    world = World()
    two, one = world.create(2, B, B + 5 * H), world.create(1, B, B + 9 * H)
    running = [world.place() for _ in range(3)]
    assert [i.grant_id for i in running] == [one.grant_id, two.grant_id, two.grant_id]
    world.end(two)
    assert [i.grant_id for i in running] == [one.grant_id, None, None]


def test_t58_a_restricted_renewal_takes_only_its_project_s() -> None:
    world = World()
    world.create(4, B, B + H)
    theirs, others = world.place(project="pA"), world.place(project="qA")
    renewal = world.create(4, B + H, B + 2 * H, project="pA")
    world.at(B + H)
    assert (theirs.grant_id, others.grant_id) == (renewal.grant_id, None)


def test_a_backdated_grant_takes_in_from_its_start_but_not_from_before_the_run() -> None:
    world = World()
    old = world.at(B - 10 * M).place()
    young = world.at(B - 2 * M).place()
    world.at(B).create(2, B - 5 * M, B + H)
    world.at(B + H)
    assert world.ran(old, "reserved", until=B + H) == 5 * M
    assert world.ran(old, "grant", until=B + H) == 65 * M
    assert world.ran(young, "reserved", until=B + H) == 0
    assert world.ran(young, "grant", until=B + H) == 62 * M
