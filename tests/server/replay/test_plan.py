from __future__ import annotations

from itertools import pairwise

import pytest

from domain.terms import DAY_MS, HOUR_MS
from server.replay.plan import BURSTABLE, GUARANTEED, LATENCY_SENSITIVE, Frame, PlannedGrant, plan_grants

FRAME = Frame(slots=48, term_ms=7 * DAY_MS, starts_at=1_000 * DAY_MS, ends_at=1_060 * DAY_MS)


def of(series: str) -> list[PlannedGrant]:
    return [grant for grant in plan_grants(FRAME) if grant.series == series]


def test_standing_terms_follow_each_other_without_a_gap_past_the_end() -> None:
    terms = of("standing")
    assert [grant.starts_at for grant in terms[1:]] == [grant.ends_at for grant in terms[:-1]]
    assert terms[0].starts_at == FRAME.starts_at
    assert terms[-1].ends_at >= FRAME.ends_at
    assert {(grant.qos, grant.slots) for grant in terms} == {(LATENCY_SENSITIVE, 21)}


def test_each_standing_term_is_asked_for_a_term_ahead() -> None:
    assert all(grant.starts_at - grant.ask_at == FRAME.term_ms for grant in of("standing")[1:])


def test_late_renewals_leave_a_gap_of_six_hours() -> None:
    terms = of("late")
    gaps = {later.starts_at - earlier.ends_at for earlier, later in pairwise(terms)}
    assert gaps == {6 * HOUR_MS}
    assert {grant.qos for grant in terms} == {BURSTABLE}


def test_the_plan_is_in_the_order_of_asking_and_never_asks_for_the_past() -> None:
    plan = plan_grants(FRAME)
    assert [grant.ask_at for grant in plan] == sorted(grant.ask_at for grant in plan)
    assert all(grant.ask_at <= grant.starts_at < grant.ends_at for grant in plan)
    assert all(FRAME.starts_at <= grant.ask_at < FRAME.ends_at for grant in plan)


def test_all_but_the_campaigns_fit_at_once_and_the_largest_campaign_does_not() -> None:
    shares = {(grant.series, grant.qos): grant.slots for grant in plan_grants(FRAME) if grant.series != "campaigns"}
    assert sum(shares.values()) <= FRAME.slots
    assert sum(shares.values()) + max(grant.slots for grant in of("campaigns")) > FRAME.slots


def test_every_second_campaign_is_ended_inside_its_term() -> None:
    campaigns = of("campaigns")
    assert [grant.end_at is not None for grant in campaigns[:4]] == [False, True, False, True]
    assert all(grant.starts_at < grant.end_at < grant.ends_at for grant in campaigns if grant.end_at is not None)


@pytest.mark.parametrize("slots", [1, 2, 100_000])
def test_any_number_of_slots_gives_everybody_something(slots: int) -> None:
    frame = Frame(slots=slots, term_ms=DAY_MS, starts_at=0, ends_at=10 * DAY_MS)
    plan = plan_grants(frame)
    assert {LATENCY_SENSITIVE, BURSTABLE, GUARANTEED} < {grant.qos for grant in plan}
    assert all(1 <= grant.slots <= slots for grant in plan)
