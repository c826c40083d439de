"""The naive model against the written scenarios: boundaries, adoption, renewal, metering (3.4, 3.5) and amendments."""

from __future__ import annotations

from fractions import Fraction

import pytest

from tests.simulation.scene import (
    ACCOUNT,
    POOL,
    PROJECT_P,
    PROJECT_Q,
    RESERVATION,
    B,
    H,
    M,
    Scene,
    accepted,
    reason_of,
    refused,
)

SLOT, INSIDE, RESERVED = "vm.grant.slot.hours", "vm.grant.usage.hours", "vm.reserved.hours"


def test_t52_a_start_takes_in_the_oldest_at_its_very_millisecond() -> None:
    scene = Scene()
    running = scene.runs(3)
    start = B + 30 * M
    grant = scene.grant(2, start, B + 3 * H)
    assert scene.grants_of(running, start - 1) == [None, None, None]
    assert scene.grants_of(running, start) == [grant, grant, None]
    scene.oracle.meter(B + H)
    assert scene.metered(RESERVED, instance=running[0]) == {0: Fraction(1, 2)}
    assert scene.metered(INSIDE, instance=running[0]) == {0: Fraction(1, 2)}
    assert scene.metered(RESERVED, instance=running[2]) == {0: 1}


def test_t53_a_renewal_takes_over_the_oldest_up_to_its_slots() -> None:
    scene = Scene()
    first = scene.grant(5, B, B + H)
    renewal = scene.grant(3, B + H, B + 3 * H)
    running = [scene.run(now=B + minute * M) for minute in range(5)]
    assert scene.grants_of(running, B + H - 1) == [first] * 5
    assert scene.grants_of(running, B + H) == [renewal] * 3 + [None] * 2
    scene.oracle.meter(B + 2 * H)
    assert scene.metered(INSIDE, instance=running[4]) == {0: Fraction(56, 60)}
    assert scene.metered(RESERVED, instance=running[4]) == {1: 1}
    assert scene.metered(RESERVED, instance=running[0]) == {}


def test_t55_hand_over_beats_an_older_outside_instance() -> None:
    scene = Scene()
    scene.grant(1, B, B + H, project=PROJECT_P)
    outside = scene.run(project=PROJECT_Q)
    inside = scene.run(now=B + M, project=PROJECT_P)
    renewal = scene.grant(1, B + H, B + 2 * H)
    assert scene.grants_of([outside, inside], B + H) == [None, renewal]


def test_t56_overlapping_grants_hand_over_what_fits() -> None:
    def opened(instances: int) -> tuple[Scene, str, str, list[str]]:
        scene = Scene()
        short, long = scene.grant(2, B, B + 5 * H), scene.grant(1, B, B + 9 * H)
        return scene, short, long, scene.runs(instances)

    scene, short, long, running = opened(3)
    assert scene.grants_of(running, B) == [long, short, short]
    scene.end(long, B + H)
    assert scene.grants_of(running, B + H) == [None, short, short]
    scene, short, long, running = opened(2)
    assert scene.grants_of(running, B) == [long, short]
    scene.end(long, B + H)
    assert scene.grants_of(running, B + H) == [short, short]


def test_t58_a_restricted_renewal_takes_only_its_project() -> None:
    scene = Scene()
    scene.grant(2, B, B + H)
    running = [scene.run(project=PROJECT_Q), scene.run(project=PROJECT_P)]
    renewal = scene.grant(2, B + H, B + 2 * H, project=PROJECT_P)
    assert scene.grants_of(running, B + H) == [None, renewal]


def test_r33_a_renewal_one_millisecond_later_costs_one_millisecond() -> None:
    scene = Scene()
    scene.grant(1, B, B + H)
    running = scene.run()
    renewal = scene.grant(1, B + H + 1, B + 2 * H)
    assert scene.grants_of([running], B + H) == [None]
    assert scene.grants_of([running], B + H + 1) == [renewal]
    scene.oracle.meter(B + 2 * H)
    assert scene.metered(RESERVED, instance=running) == {1: Fraction(1, H)}
    assert scene.metered(INSIDE, instance=running) == {0: 1, 1: 1 - Fraction(1, H)}


def test_r35_a_slot_that_frees_in_mid_term_pulls_nobody_in() -> None:
    scene = Scene()
    grant = scene.grant(1, B, B + 4 * H)
    running = scene.runs(2)
    scene.delete(running[0], B + M)
    assert scene.grants_of([running[1]], B + 3 * H) == [None]
    assert scene.grants_of([scene.run(now=B + 3 * H)], B + 3 * H) == [grant]


def test_r36_a_stopped_member_is_not_renewed() -> None:
    scene = Scene()
    scene.grant(2, B, B + H)
    renewal = scene.grant(2, B + H, B + 2 * H)
    running = scene.runs(2)
    scene.stop(running[0])
    assert scene.grants_of(running, B + H) == [None, renewal]


def test_t89_at_one_millisecond_ends_come_before_starts() -> None:
    scene = Scene()
    first, second = scene.grant(10, B, B + H), scene.grant(10, B + H, B + 2 * H)
    scene.oracle.advance(B + 5 * H)
    told = [(event.payload["grantId"], event.type.split(".")[1]) for event in scene.oracle.events["A"]]
    assert told == [
        (first, "created"),
        (first, "active"),
        (second, "created"),
        (first, "ended"),
        (second, "active"),
        (second, "ended"),
    ]


def test_d38_restricted_grants_start_first() -> None:
    scene = Scene()
    running = scene.runs(2, project=PROJECT_P)
    wide = scene.grant(1, B + H, B + 9 * H)
    restricted = scene.grant(1, B + H, B + 2 * H, project=PROJECT_P)
    assert scene.grants_of(running, B + H) == [restricted, wide]


def test_r3_a_clock_that_runs_backwards_decides_nothing() -> None:
    scene = Scene()
    grant = scene.grant(4, B, B + H)
    scene.oracle.advance(B + 30 * M)
    scene.end(grant, B + 10 * M)
    assert scene.row(grant).ends_at == B + 30 * M


# --- metering ---------------------------------------------------------------------------------------------------------


def test_t61_t62_an_hour_is_metered_once_it_is_over() -> None:
    scene = Scene()
    grant = scene.grant(4, B + 40 * M, B + 2 * H + 10 * M)
    row = scene.row(grant)
    scene.oracle.meter(B + H - 1)
    assert scene.metered(SLOT, grant=grant) == {}
    scene.oracle.meter(B + H)
    assert scene.metered(SLOT, grant=grant) == {0: Fraction(4, 3)}
    scene.oracle.meter(B + 3 * H - 1)
    assert not scene.oracle.is_metered_out(row)
    scene.oracle.meter(B + 3 * H)
    assert scene.oracle.is_metered_out(row)
    hours = scene.metered(SLOT, grant=grant)
    assert hours == {0: Fraction(4, 3), 1: 4, 2: Fraction(2, 3)}
    assert sum(hours.values()) == 6


def test_r40_a_grant_that_ends_on_the_hour_is_complete_there() -> None:
    scene = Scene()
    grant = scene.grant(1, B, B + 3 * H)
    scene.oracle.meter(B + 3 * H)
    assert scene.oracle.is_metered_out(scene.row(grant))


def test_t64_an_early_end_stops_the_bill() -> None:
    scene = Scene()
    grant = scene.grant(3, B, B + 9 * H)
    scene.end(grant, B + 90 * M)
    before = scene.row(grant)
    assert scene.end(grant, B + 5 * H) == ("ok", grant)
    assert (before.ends_at, scene.row(grant)) == (B + 90 * M, before)
    scene.oracle.meter(B + 9 * H)
    assert scene.metered(SLOT, grant=grant) == {0: 3, 1: Fraction(3, 2)}


def test_t65_end_after_the_natural_end_changes_nothing() -> None:
    scene = Scene()
    grant = scene.grant(3, B, B + H)
    assert scene.end(grant, B + 5 * H) == ("ok", grant)
    assert scene.row(grant).ends_at == B + H
    assert scene.events(grant, B + 6 * H) == [("created", B), ("active", B), ("ended", B + H)]


def test_r50_an_end_in_the_millisecond_of_the_start_owes_nothing() -> None:
    scene = Scene()
    grant = scene.grant(3, B, B + H)
    scene.end(grant, B)
    assert (scene.row(grant).ends_at, scene.row(grant).cancelled_at) == (B, None)
    assert scene.oracle.is_metered_out(scene.row(grant))
    scene.oracle.meter(B + 2 * H)
    assert scene.metered(SLOT, grant=grant) == {}
    assert scene.events(grant, B + H) == [("created", B), ("active", B), ("ended", B)]


def test_t67_a_start_in_the_past_owes_the_hour_that_was_over() -> None:
    scene = Scene()
    scene.oracle.meter(B)
    grant = scene.grant(6, B - 3 * M, B + H, now=B + 2 * M)
    scene.oracle.meter(B + H)
    assert scene.metered(SLOT, grant=grant) == {-1: Fraction(3, 10), 0: 6}


def test_d6_an_adoption_into_a_metered_hour_is_corrected() -> None:
    scene = Scene()
    running = scene.run(now=B - 30 * M)
    scene.oracle.meter(B)
    assert scene.metered(RESERVED, instance=running) == {-1: Fraction(1, 2)}
    grant = scene.grant(1, B - 3 * M, B + H, now=B + 2 * M)
    scene.oracle.meter(B + 2 * M)
    assert scene.metered(RESERVED, instance=running) == {-1: Fraction(27, 60)}
    assert scene.metered(INSIDE, grant=grant) == {-1: Fraction(3, 60)}
    assert [usage.quantity_ms for usage in scene.oracle.usage if usage.quantity_ms < 0] == [-3 * M]


def test_t68_a_renewal_inside_an_hour_bills_that_hour_once() -> None:
    scene = Scene()
    first, second = scene.grant(2, B, B + 20 * M), scene.grant(2, B + 20 * M, B + H)
    scene.oracle.meter(B + H)
    assert scene.metered(SLOT, grant=first) == {0: Fraction(2, 3)}
    assert scene.metered(SLOT, grant=second) == {0: Fraction(4, 3)}


def test_t70_use_against_commitment() -> None:
    scene = Scene()
    grant = scene.grant(2, B, B + 3 * H)
    running = scene.run(now=B + 15 * M)
    scene.stop(running, B + 45 * M)
    scene.start(running, B + 90 * M)
    scene.oracle.meter(B + 3 * H)
    used = scene.metered(INSIDE, grant=grant)
    committed = scene.metered(SLOT, grant=grant)
    assert used == {0: Fraction(1, 2), 1: Fraction(1, 2), 2: 1}
    assert committed == {0: 2, 1: 2, 2: 2}
    assert sum(used.values()) / sum(committed.values()) == Fraction(2, 6)


def test_t71_t73_passes_late_or_often_write_each_hour_once() -> None:
    often, late = Scene(), Scene()
    for scene in (often, late):
        scene.grant(2, B, B + 100 * H)
        scene.run()
    for hour in range(73):
        for _ in range(5):
            often.oracle.meter(B + hour * H)
    late.oracle.meter(B + 72 * H)
    written = [sorted((usage.source_key, usage.quantity_ms) for usage in scene.oracle.usage) for scene in (often, late)]
    assert written[0] == written[1]
    assert len([usage for usage in late.oracle.usage if usage.meter == SLOT]) == 72


def test_t74_tags_are_those_of_the_creation() -> None:
    scene = Scene()
    grant = scene.grant(1, B, B + H)
    scene.end(grant, B + 30 * M)
    scene.oracle.unbind(B + 40 * M, account_id=ACCOUNT, reservation_id=RESERVATION)
    scene.oracle.add_pool("other")
    scene.oracle.bind(B + 41 * M, account_id=ACCOUNT, reservation_id=RESERVATION, pool_id="other")
    scene.oracle.meter(B + H)
    assert [usage.tags for usage in scene.oracle.usage] == [
        {"region": "region-1", "pool": POOL, "provider": "gcp"},
    ]


# --- amendments -------------------------------------------------------------------------------------------------------


def test_an_amendment_never_counts_old_and_new_together() -> None:
    scene = Scene()
    grant = scene.grant(6, B, B + 2 * H)
    scene.grant(2, B + H, B + 3 * H, tenant="B")
    assert scene.amend(grant, B + M, slots=9) == refused(10, 2)
    assert scene.amend(grant, B + M, slots=8) == ("ok", grant)
    assert scene.amend(grant, B + M, version=2, slots=9, ends_at=B + H) == ("ok", grant)
    assert scene.amend(grant, B + M, version=2, slots=8) == ("CONFLICT", {"grantId": grant})
    assert scene.amend(grant, B + M, version=3, ends_at=B + H + 1) == refused(10, 2)


def test_an_amendment_splits_the_bill_at_its_millisecond() -> None:
    scene = Scene()
    grant = scene.grant(2, B, B + 2 * H)
    scene.amend(grant, B + 15 * M, slots=6)
    scene.amend(grant, B + 90 * M, version=2, slots=1, ends_at=B + 3 * H)
    scene.oracle.meter(B + 3 * H)
    assert scene.metered(SLOT, grant=grant) == {
        0: Fraction(1, 4) * 2 + Fraction(3, 4) * 6,
        1: Fraction(1, 2) * 6 + Fraction(1, 2),
        2: 1,
    }


def test_an_amendment_cannot_cut_below_what_the_instances_hold() -> None:
    scene = Scene()
    grant = scene.grant(3, B, B + H)
    running = scene.runs(2)
    scene.stop(running[0])
    assert scene.amend(grant, B, slots=1) == ("INVALID_STATE", {"state": "active"})
    assert scene.amend(grant, B, slots=2) == ("ok", grant)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"ends_at": B + M}, ("INVALID_INPUT", "term-over")),
        ({"ends_at": B}, ("INVALID_INPUT", "ends-not-after-start")),
        ({"slots": 0}, ("INVALID_INPUT", "slots")),
    ],
)
def test_an_active_grants_new_term_must_lie_ahead(changes: dict[str, int], expected: tuple[str, str]) -> None:
    scene = Scene()
    grant = scene.grant(3, B, B + H)
    assert reason_of(scene.amend(grant, B + M, **changes)) == expected


def test_the_start_moves_only_while_scheduled() -> None:
    scene = Scene()
    grant = scene.grant(1, B + H, B + 2 * H)
    running = scene.run()
    assert reason_of(scene.amend(grant, B, starts_at=B - 300_001)) == ("INVALID_INPUT", "starts-too-early")
    assert scene.amend(grant, B + M, starts_at=B - M) == ("ok", grant)
    assert scene.events(grant, B + M) == [("created", B), ("active", B - M)]
    assert scene.grants_of([running], B + M) == [grant]
    assert scene.amend(grant, B + M, version=2, starts_at=B) == ("INVALID_STATE", {"state": "active"})
    scene.end(grant, B + 2 * M)
    assert scene.amend(grant, B + 2 * M, version=2, slots=2) == ("INVALID_STATE", {"state": "ended"})


def test_a_start_moved_into_a_metered_hour_is_still_billed() -> None:
    """No watermark may skip it: a pass at 08:00 has seen the grant as scheduled, later it starts at 07:58."""
    scene = Scene()
    grant = scene.grant(3, B + H, B + 2 * H, now=B - H)
    scene.oracle.meter(B)
    scene.amend(grant, B + M, starts_at=B - 2 * M)
    scene.oracle.meter(B + 2 * H)
    assert scene.metered(SLOT, grant=grant) == {-1: Fraction(1, 10), 0: 3, 1: 3}


def test_a_cut_that_still_does_not_fit_the_shrunken_total_is_refused() -> None:
    scene = Scene()
    grant = scene.grant(8, B, B + H)
    scene.scan(6)
    assert scene.amend(grant, B, slots=7) == refused(6, 0)
    scene.oracle.refuses_reductions_above_total = False
    assert scene.amend(grant, B, slots=7) == ("ok", grant)


def test_more_slots_in_mid_term_pull_nobody_in() -> None:
    scene = Scene()
    grant = scene.grant(1, B, B + H)
    running = scene.runs(2)
    scene.amend(grant, B + M, slots=2)
    assert scene.grants_of(running, B + M) == [grant, None]
    assert accepted(scene.try_run(now=B + M)) in [
        each.instance_id for each in scene.oracle.members_of(scene.row(grant))
    ]
