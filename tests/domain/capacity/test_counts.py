"""Slots counted from rows: the same numbers as the books of a reservation give."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.capacity.boundaries import advance
from domain.capacity.commands import PlaceInstance, Surroundings
from domain.capacity.counts import (
    GrantActivity,
    SlotCounts,
    committed_ms,
    counted_view,
    grant_activity,
    shortfall_of,
)
from domain.capacity.observation import shortfall_peak
from domain.capacity.placement import decide_place
from domain.capacity.state import (
    CapacityState,
    Grant,
    Instance,
    Reservation,
    ReservationStatus,
    RunState,
)
from domain.capacity.views import GrantView
from domain.outcomes import Accepted
from domain.terms import HOUR_MS

B = 1_800_000_000_000
H = HOUR_MS

Term = tuple[int, int, int]
terms = st.lists(st.tuples(st.integers(-3, 5), st.integers(1, 6), st.integers(1, 4)), max_size=6)


def a_grant(number: int, term: Term, *, cancelled_at: int | None = None) -> Grant:
    """A term in hours from B: (start, length, slots)."""
    start, length, slots = term
    return Grant(
        grant_id=f"rgrant_{number:026}",
        tenant_id="A",
        project_id=None,
        slots=slots,
        starts_at=B + start * H,
        ends_at=B + (start + length) * H,
        created_at=B - 9 * H,
        created_by="key",
        pool_id="pool",
        region="region",
        provider="gcp",
        cancelled_at=cancelled_at,
        commitments=((B + start * H, slots),),
    )


def an_instance(number: int, run_state: RunState, tenant_id: str) -> Instance:
    return Instance(
        instance_id=f"inst_{number:026}",
        tenant_id=tenant_id,
        project_id="project",
        name="one",
        created_at=B - 9 * H + number,
        run_state=run_state,
    )


def books(total: int, granted: list[Term], running: int, others: int, external: int) -> CapacityState:
    head = Reservation(
        key="account/reservation",
        account_id="account",
        reservation_id="reservation",
        provider="gcp",
        flavor="flavor",
        region="region",
        total=total,
        status=ReservationStatus.READY,
        created_at=B - 10 * H,
        external_in_use=external,
    )
    instances = [an_instance(number, RunState.RUNNING, "A") for number in range(running)]
    instances += [an_instance(100 + number, RunState.RUNNING, "B") for number in range(others)]
    instances += [an_instance(200, RunState.STOPPED, "A")]
    return CapacityState(head, [a_grant(number, term) for number, term in enumerate(granted)], instances)


@given(st.integers(0, 12), terms, st.integers(0, 6), st.integers(0, 4), st.integers(0, 2))
def test_counts_show_what_the_books_show(
    total: int, granted: list[Term], running: int, others: int, external: int
) -> None:
    state = books(total, granted, running, others, external)
    advance(state, B)
    missing = max(0, shortfall_peak(state, now=B) - total)
    rows = [(grant.starts_at, grant.ends_at, grant.slots) for grant in state.open_grants(at=B)]
    assert shortfall_of(total, rows, now=B) == missing
    view = counted_view(state.reservation, SlotCounts.of(state), shortfall=missing, at=B)
    counted = (view.in_use, view.granted_now, view.unused_granted, view.shortfall)
    assert counted == (state.in_use, state.live_slots, state.unused_granted, missing)
    bound = replace(state.reservation, pool_id="pool")
    assert counted_view(bound, SlotCounts.of(state), shortfall=missing, at=B).free == max(0, state.free)
    idle = sum(
        grant_activity(grant, held=state.held(name), running=state.running_in(name), at=B).idle
        for name, grant in state.grants.items()
    )
    assert idle == view.unused_granted


@pytest.mark.parametrize("status", ReservationStatus)
@pytest.mark.parametrize("pool_id", ["pool", None])
def test_free_is_what_an_instance_can_really_have(status: ReservationStatus, pool_id: str | None) -> None:
    """Placement refuses a reservation that is not ready, or in no pool (R8, R25): whatever is not in use there."""
    state = books(10, [], 0, 3, 0)
    head = replace(state.reservation, status=status, pool_id=pool_id)
    shown = counted_view(head, SlotCounts.of(state), shortfall=0, at=B)
    around = Surroundings(
        platform_tenant_id="root", tenants=frozenset({"C"}), projects={"prj": "C"}, offers=frozenset({("pool", "*")})
    )
    state.reservation = head
    command = PlaceInstance(instance_id="inst", tenant_id="C", project_id="prj", name="one")
    placed = [decide_place(state, replace(command, instance_id=f"i{n}"), around=around, now=B) for n in range(10)]
    assert shown.in_use == 3
    assert shown.free == sum(isinstance(outcome, Accepted) for outcome in placed)
    assert shown.free == (7 if status is ReservationStatus.READY and pool_id else 0)


def test_idle_slots_are_counted_only_while_the_grant_is_in_term() -> None:
    grant = a_grant(1, (0, 2, 3))
    seen = [grant_activity(grant, held=2, running=1, at=B + hours * H) for hours in (-1, 0, 1, 2)]
    assert [one.idle for one in seen] == [0, 2, 2, 0]
    assert seen[1] == GrantActivity(held=2, running=1, idle=2)
    assert seen[1].stopped == 1


def test_what_is_committed_follows_the_slots_of_each_stretch_up_to_the_instant() -> None:
    grant = a_grant(1, (0, 4, 6))
    grant.commitments = ((B, 6), (B + H, 2))
    seen = [committed_ms(GrantView("key", grant, B + hours * H)) for hours in (-1, 0, 1, 3, 9)]
    assert seen == [0, 0, 6 * H, 10 * H, 12 * H]
    assert committed_ms(GrantView("key", a_grant(2, (1, 4, 6), cancelled_at=B), B + 9 * H)) == 0
