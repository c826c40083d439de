"""Calendars, earliest fits and plans (F1, F4)."""

from __future__ import annotations

from typing import Any

from domain.capacity.availability import Step, availability, committed_slot_ms, earliest_fits, plan_grant
from domain.capacity.commands import CreateGrant
from domain.capacity.refusals import CapacityUnavailable
from domain.capacity.state import Billing, CapacityState
from tests.domain.capacity.world import AROUND, B, H, World


def _plan(world: World, slots: int, starts_at: int, ends_at: int) -> Any:
    command = CreateGrant(
        grant_id="plan",
        account_id="account",
        reservation_id="reservation",
        grant_tenant_id="A",
        project_id=None,
        slots=slots,
        starts_at=starts_at,
        ends_at=ends_at,
        created_by="key",
    )
    return plan_grant(world.state, command, around=AROUND, now=world.now)


def test_availability_is_a_step_function_of_half_open_terms() -> None:
    world = World()
    world.create(6, B, B + 2 * H)
    world.create(3, B + H, B + 3 * H)
    steps = availability(world.state, starts_at=B, ends_at=B + 4 * H)
    assert steps == [Step(B, 6, 4), Step(B + H, 9, 1), Step(B + 2 * H, 3, 7), Step(B + 3 * H, 0, 10)]


def test_an_offer_that_fits_is_accepted_and_one_millisecond_earlier_is_not() -> None:
    world = World()
    world.create(6, B, B + 2 * H)
    world.create(8, B + 4 * H, B + 5 * H)
    asked = {"slots": 5, "duration_ms": H, "not_before": B, "not_after": B + 9 * H}
    first, second = earliest_fits(world.state, first=2, **asked)
    assert (first.starts_at, first.ends_at, first.latest_start_at) == (B + 2 * H, B + 3 * H, B + 3 * H)
    assert (second.starts_at, second.latest_start_at) == (B + 5 * H, B + 9 * H)
    assert isinstance(world.create(5, first.starts_at - 1, first.ends_at - 1), CapacityUnavailable)
    assert world.create(5, first.latest_start_at, first.latest_start_at + H).slots == 5


def test_no_window_is_long_enough() -> None:
    world = World()
    world.create(6, B + H, B + 99 * H)
    fits = earliest_fits(world.state, slots=5, duration_ms=2 * H, not_before=B, not_after=B + 50 * H, first=5)
    assert fits == []


def test_a_plan_names_the_stretches_and_grants_in_the_way() -> None:
    world = World()
    blocking = world.create(8, B + H, B + 2 * H)
    plan = _plan(world, 5, B, B + 3 * H)
    assert (plan.refusal.total, plan.refusal.granted, plan.peak) == (10, 8, 8)
    (obstacle,) = plan.obstacles
    assert (obstacle.starts_at, obstacle.ends_at, obstacle.missing) == (B + H, B + 2 * H, 3)
    assert obstacle.grant_ids == (blocking.grant_id,)


def test_a_stretch_ends_where_one_grant_takes_over_from_another() -> None:
    """As many slots are granted all along, but not by the same: who wants room must ask others then."""
    world = World()
    first, second = world.create(8, B + H, B + 2 * H), world.create(8, B + 2 * H, B + 3 * H)
    both = world.create(1, B + 2 * H, B + 4 * H)
    plan = _plan(world, 5, B, B + 5 * H)
    assert [(each.starts_at, each.ends_at, each.granted, each.missing, each.grant_ids) for each in plan.obstacles] == [
        (B + H, B + 2 * H, 8, 3, (first.grant_id,)),
        (B + 2 * H, B + 3 * H, 9, 4, tuple(sorted((second.grant_id, both.grant_id)))),
    ]
    swapped = World()
    held = [swapped.create(8, B + n * H, B + (n + 1) * H).grant_id for n in range(3)]
    plan = _plan(swapped, 5, B, B + 3 * H)
    assert [each.grant_ids for each in plan.obstacles] == [(grant_id,) for grant_id in held]
    assert {each.granted for each in plan.obstacles} == {8}


def test_nothing_is_asked_for_by_none() -> None:
    world = World()
    assert earliest_fits(world.state, slots=1, duration_ms=H, not_before=B, not_after=B + H, first=0) == []


def test_a_plan_that_is_accepted_says_what_room_there_really_is_and_when_it_runs_out() -> None:
    world = World()
    for _ in range(8):
        world.place("B")
    for _ in range(1):
        world.place("A")
    world.attach("A", billing=Billing.NONE)
    plan = _plan(world, 10, B, B + H)
    assert plan.refusal is None
    assert (plan.adopted, plan.physical_room) == (1, 1)
    assert plan.runs_out == (Step(B, 10, 0),)


def test_committed_time_counts_every_piece_at_its_slots() -> None:
    world = World()
    grant = world.create(4, B, B + 2 * H)
    world.now = B + H
    world.amend(grant, slots=6)
    assert committed_slot_ms(grant, until=B + 9 * H) == 10 * H
    assert committed_slot_ms(grant, until=B + H + H // 2) == 7 * H
    assert committed_slot_ms(grant, until=B - H) == 0


def test_books_read_again_know_the_slots_that_a_term_had() -> None:
    world = World()
    grant = world.create(4, B, B + 2 * H)
    world.now = B + H
    world.amend(grant, slots=6)
    read_again = CapacityState(world.state.reservation, [grant])
    for at in (B, B + H - 1, B + H, B + 2 * H - 1, B + 2 * H):
        assert read_again.timeline.level(at) == world.state.timeline.level(at)
