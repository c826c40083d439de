"""What providers report: totals that shrink and grow, reservations that go and come back (R54..R59)."""

from __future__ import annotations

from domain.capacity.boundaries import CAPACITY_SHORT
from domain.capacity.commands import BindReservation
from domain.capacity.observation import decide_bind, decide_unbind
from domain.capacity.state import GrantState, Mode, ReservationStatus
from domain.outcomes import Accepted, InvalidInput, InvalidState
from tests.domain.capacity.world import AROUND, B, H, M, World


def test_t83_gone_ends_and_cancels_with_a_reason_and_bills_on_demand_from_then() -> None:
    world = World()
    active, ahead = world.create(3, B, B + 24 * H), world.create(3, B + 24 * H, B + 48 * H)
    mine, theirs = world.place("A"), world.place("B")
    world.now = B + 90 * M
    world.miss()
    assert (active.ends_at, active.ended_reason) == (B + 90 * M, "reservation-gone")
    assert 3 * (active.ends_at - active.starts_at) / H == 4.5
    assert (ahead.state_at(world.now), ahead.ended_reason) == (GrantState.CANCELLED, "reservation-gone")
    assert {mine.mode, theirs.mode} == {Mode.ONDEMAND}
    assert world.create(1, B + 90 * M, B + 9 * H).state == "gone"
    assert world.state.in_use == 0


def test_d13_gone_only_after_enough_misses_in_a_row() -> None:
    world = World()
    world.miss(after=2)
    assert world.state.reservation.status is ReservationStatus.READY
    world.report(10)
    world.miss(after=2)
    assert world.state.reservation.status is ReservationStatus.READY
    world.miss(after=2)
    assert world.state.reservation.status is ReservationStatus.GONE


def test_d14_back_again_it_is_ready_and_bound_and_its_old_grants_stay_closed() -> None:
    world = World()
    grant = world.create(3, B, B + 24 * H)
    running = world.place()
    world.miss()
    world.report(10)
    assert (world.state.reservation.status, world.state.reservation.pool_id) == (ReservationStatus.READY, "pool")
    assert grant.state_at(B) is GrantState.ENDED
    assert running.mode is Mode.ONDEMAND
    assert world.create(10, B, B + H).slots == 10


def test_t85_t86_capacity_short_once_per_change_of_total_and_only_the_grants_over_the_line() -> None:
    world = World()
    first, second = world.create(5, B, B + 2 * H), world.create(3, B + H, B + 2 * H)
    world.create(6, B + 5 * H, B + 6 * H)
    told = []
    for total in (10, 9, 8, 7, 7, 6, 7, 10, 7):
        before = len(told)
        told += _shortfalls(world, total)
        assert len(told) - before <= 1
    assert [(total, granted) for total, granted, _ in told] == [(7, 8), (6, 8), (7, 8), (7, 8)]
    assert all(ids == [first.grant_id, second.grant_id] for _, _, ids in told)


def test_r58_the_same_report_twice_changes_nothing() -> None:
    world = World()
    world.create(8, B, B + H)
    assert len(_shortfalls(world, 7)) == 1
    assert _shortfalls(world, 7) == []


def test_d16_what_others_use_at_the_provider_counts() -> None:
    world = World()
    world.place()
    world.report(10, in_use=4)
    assert world.figures == (4, 0, 6)
    world.report(10, in_use=0)
    assert world.figures == (1, 0, 9)


def test_r51_unbind_names_the_open_grants_and_ignores_ended_ones() -> None:
    world = World()
    ahead, over = world.create(1, B + H, B + 2 * H), world.create(1, B, B + M)
    world.at(B + M)
    refusal = decide_unbind(world.state, around=AROUND, now=world.now)
    assert isinstance(refusal, InvalidState)
    assert refusal.grant_ids == (ahead.grant_id,)
    assert over.grant_id not in refusal.grant_ids
    world.end(ahead)
    assert isinstance(decide_unbind(world.state, around=AROUND, now=world.now), Accepted)


def test_binding() -> None:
    world = World()
    again = decide_bind(world.state, BindReservation(pool_id="pool"), around=AROUND)
    other = decide_bind(world.state, BindReservation(pool_id="other"), around=AROUND)
    unknown = decide_bind(world.state, BindReservation(pool_id="nowhere"), around=AROUND)
    assert isinstance(again, Accepted)
    assert not world.state.changes
    assert isinstance(other, InvalidState)
    assert isinstance(unknown, InvalidInput)


def _shortfalls(world: World, total: int) -> list[tuple[int, int, list[str]]]:
    """(total, granted slots, grant ids) of what a report tells the platform."""
    from domain.capacity.commands import ObserveReservation
    from domain.capacity.observation import decide_observe
    from domain.capacity.scan import ReportedReservation

    reported = ReportedReservation(reservation_id="reservation", flavor="gpu", region="west", total=total)
    decide_observe(
        world.state, ObserveReservation(account_id="account", provider="gcp", reported=reported), now=world.now
    )
    events = [event for event in world.state.take_changes().events if event.type == CAPACITY_SHORT]
    assert all(event.tenant_id is None for event in events)
    return [(e.payload["total"], e.payload["grantedSlots"], e.payload["grantIds"]) for e in events]
