"""Creating, ending and amending grants, with the numbers of the rules."""

from __future__ import annotations

from dataclasses import replace

import pytest

from domain.capacity.refusals import CapacityUnavailable
from domain.capacity.state import GrantState, ReservationStatus
from domain.outcomes import Conflict, InvalidInput, InvalidState, NotFound
from tests.domain.capacity.world import AROUND, B, H, M, World


def test_t1_a_grant_that_starts_now_is_active_at_once() -> None:
    world = World()
    grant = world.create(10, B, B + 24 * H)
    assert grant.state_at(B) is GrantState.ACTIVE
    assert world.types(grant) == ["created", "active"]


def test_t2_a_full_reservation_refuses_one_more_slot() -> None:
    world = World()
    world.create(10, B, B + 24 * H)
    refusal = world.create(1, B + H, B + 2 * H)
    assert (refusal.total, refusal.granted) == (10, 10)


@pytest.mark.parametrize(("starts_at", "fits"), [(B + 2 * H - 1, False), (B + 2 * H, True)])
def test_t3_t4_terms_are_half_open(starts_at: int, fits: bool) -> None:
    world = World()
    world.create(10, B, B + 2 * H)
    outcome = world.create(10, starts_at, B + 4 * H)
    assert isinstance(outcome, CapacityUnavailable) is not fits


def test_t5_the_peak_decides_not_the_sum() -> None:
    world = World()
    world.create(6, B, B + 2 * H)
    world.create(6, B + 2 * H, B + 4 * H)
    refusal = world.create(5, B + H, B + 3 * H)
    assert (refusal.total, refusal.granted) == (10, 6)
    assert world.create(4, B + H, B + 3 * H).slots == 4


@pytest.mark.parametrize(
    ("starts_at", "ends_at", "reason"),
    [
        (B - 300_000, B + H, None),
        (B - 300_001, B + H, "starts-too-early"),
        (B + H, B + H, "ends-not-after-start"),
        (B + H, B + H + 1, None),
        (B - 1000, B, "term-over"),
        (B - 1000, B + 1, None),
    ],
)
def test_t7_t8_terms(starts_at: int, ends_at: int, reason: str | None) -> None:
    outcome = World().create(1, starts_at, ends_at)
    assert getattr(outcome, "reason", None) == reason


def test_t10_a_cancelled_grant_keeps_its_term_and_frees_its_slots() -> None:
    world = World()
    first = world.create(10, B + H, B + 2 * H)
    cancelled = world.end(first)
    assert (cancelled.state_at(B), cancelled.ends_at) == (GrantState.CANCELLED, B + 2 * H)
    assert world.create(10, B + H, B + 2 * H).slots == 10
    assert world.types(first) == ["created", "cancelled"]


def test_t11_more_slots_than_the_total_is_a_matter_of_capacity() -> None:
    refusal = World(99_999).create(100_000, B, B + H)
    assert (refusal.total, refusal.granted) == (99_999, 0)


def test_t13_three_of_seven_fit() -> None:
    world = World()
    outcomes = [world.create(3, B, B + H) for _ in range(7)]
    refused = [(o.total, o.granted) for o in outcomes if isinstance(o, CapacityUnavailable)]
    assert refused == [(10, 9)] * 4


def test_t17_t18_states_and_strangers() -> None:
    unbound, unready, gone, unoffered = World(), World(), World(), World()
    unbound.state.reservation.pool_id = None
    unready.report(10, ready=False)
    gone.miss()
    unoffered.around = replace(AROUND, offers=frozenset())
    assert isinstance(unbound.create(1, B, B + H), InvalidState)
    assert unready.create(1, B, B + H).state == ReservationStatus.NOT_READY
    assert gone.create(1, B, B + H).state == ReservationStatus.GONE
    assert unoffered.create(1, B, B + H).reason == "pool-not-offered"
    assert World().create(1, B, B + H, tenant="nobody").reason == "pool-not-offered"
    for project in ("pB", "unknown"):
        assert World().create(1, B, B + H, project=project).reason == "project-not-grantee"


def test_the_order_of_refusals_is_term_state_offer_project_capacity() -> None:
    world = World(0)
    world.around = replace(AROUND, offers=frozenset())
    assert world.create(1, B, B, project="pB").reason == "ends-not-after-start"
    world.report(0, ready=False)
    assert isinstance(world.create(1, B, B + H, project="pB"), InvalidState)
    world.report(0)
    assert world.create(1, B, B + H, project="pB").reason == "pool-not-offered"
    world.around = AROUND
    assert world.create(1, B, B + H, project="pB").reason == "project-not-grantee"
    assert isinstance(world.create(1, B, B + H), CapacityUnavailable)


def test_r50_ended_at_its_very_start_it_is_an_empty_term() -> None:
    world = World()
    grant = world.create(10, B, B + H)
    ended = world.end(grant)
    assert (ended.state_at(B), ended.starts_at, ended.ends_at) == (GrantState.ENDED, B, B)
    assert world.types(grant) == ["created", "active", "ended"]


def test_t65_ending_after_the_natural_end_changes_nothing() -> None:
    world = World()
    grant = world.create(3, B, B + H)
    world.now = B + 5 * H
    ended = world.end(grant)
    assert ended.ends_at == B + H
    assert world.types(grant) == ["created", "active", "ended"]
    assert ("ended", B + H, grant.grant_id) in world.events


def test_d41_an_outage_over_a_whole_term_tells_both_boundaries_with_their_times() -> None:
    world = World()
    grant = world.create(3, B + H, B + 2 * H)
    world.at(B + 9 * H)
    assert [event for event in world.events if event[0] != "created"] == [
        ("active", B + H, grant.grant_id),
        ("ended", B + 2 * H, grant.grant_id),
    ]


def test_t89_at_one_instant_the_end_is_told_before_the_start() -> None:
    world = World()
    world.create(5, B, B + H)
    world.create(5, B + H, B + 2 * H)
    world.at(B + H)
    assert [kind for kind, at, _ in world.events if at == B + H] == ["ended", "active"]


def test_r53_a_deleted_tenant_s_grants_close_without_a_reason() -> None:
    world = World()
    active, ahead = world.create(2, B, B + H), world.create(2, B + H, B + 2 * H)
    other = world.create(2, B, B + H, tenant="B")
    world.now = B + M
    world.close("A")
    assert (active.ends_at, active.ended_reason) == (B + M, None)
    assert (ahead.cancelled_at, ahead.ends_at) == (B + M, B + 2 * H)
    assert other.state_at(B + M) is GrantState.ACTIVE


def test_r53_however_late_it_comes_the_deletion_is_the_moment() -> None:
    world = World()
    grant, inside = world.create(2, B, B + H), world.place()
    young = world.create(1, B + 20 * M, B + H)
    world.at(B + 30 * M)
    world.close("A", deleted_at=B + 10 * M)
    assert (grant.ends_at, young.ends_at) == (B + 10 * M, B + 20 * M)
    assert world.ran(inside, "grant", until=B + H) == 10 * M
    assert world.ran(inside, "reserved", until=B + H) == 50 * M
    assert world.types(young) == ["created", "active", "ended"]


class TestAmend:
    def test_never_counts_old_and_new_both(self) -> None:
        world = World()
        grant = world.create(8, B, B + 2 * H)
        assert world.amend(grant, slots=10).slots == 10
        assert world.create(1, B, B + H).granted == 10

    def test_extends_and_moves_in_one_decision(self) -> None:
        world = World()
        grant = world.create(8, B + H, B + 2 * H)
        world.create(10, B + 3 * H, B + 4 * H)
        refusal = world.amend(grant, starts_at=B + 2 * H, ends_at=B + 3 * H + 1)
        assert (refusal.total, refusal.granted) == (10, 10)
        amended = world.amend(grant, starts_at=B + 2 * H, ends_at=B + 3 * H, slots=10)
        assert (amended.starts_at, amended.ends_at, amended.slots) == (B + 2 * H, B + 3 * H, 10)
        assert world.create(10, B + H, B + 2 * H).slots == 10

    def test_a_refused_one_leaves_everything_as_it_was(self) -> None:
        world = World()
        grant = world.create(8, B, B + 2 * H)
        before = replace(grant)
        assert isinstance(world.amend(grant, slots=11), CapacityUnavailable)
        assert grant == before
        assert world.state.timeline.peak(B, B + 2 * H) == 8

    def test_giving_back_needs_no_capacity(self) -> None:
        """Root's remedy when a reservation has shrunk below what is granted."""
        world = World()
        grant = world.create(8, B, B + 2 * H)
        world.report(6)
        assert world.amend(grant, slots=7).slots == 7
        assert world.amend(grant, ends_at=B + H).ends_at == B + H
        assert isinstance(world.amend(grant, slots=8), CapacityUnavailable)

    def test_slots_in_mid_term_are_committed_from_then_on(self) -> None:
        world = World()
        grant = world.create(4, B, B + 2 * H)
        world.now = B + H
        assert world.amend(grant, slots=6).commitments == ((B, 4), (B + H, 6))

    def test_the_version_guards_against_a_lost_update(self) -> None:
        world = World()
        grant = world.create(4, B, B + 2 * H)
        world.amend(grant, slots=5)
        refusal = world.amend(grant, version=1, slots=6)
        assert isinstance(refusal, Conflict)
        assert refusal.version == 2

    def test_refusals(self) -> None:
        world = World()
        grant = world.create(4, B, B + 2 * H)
        held = [world.place() for _ in range(3)]
        assert all(instance.grant_id == grant.grant_id for instance in held)
        assert world.amend(grant, slots=2).state == "slots-held"
        assert world.amend(grant, starts_at=B + 1).reason == "already-started"
        world.now = B + H
        assert world.amend(grant, ends_at=B + H).reason == "term-over"
        assert world.amend(grant, ends_at=B).reason == "ends-not-after-start"
        world.end(grant)
        assert isinstance(world.amend(grant, slots=5), InvalidState)
        assert isinstance(world.amend(replace(grant, grant_id="unknown"), slots=5), NotFound)
        ahead = world.create(1, B + 2 * H, B + 3 * H)
        refusal = world.amend(ahead, starts_at=B)
        assert isinstance(refusal, InvalidInput)
        assert refusal.reason == "starts-too-early"

    def test_a_start_moved_to_now_is_active_at_once(self) -> None:
        world = World()
        grant = world.create(1, B + H, B + 2 * H)
        world.amend(grant, starts_at=B)
        assert world.types(grant) == ["created", "amended", "active"]
