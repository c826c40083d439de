"""Slots counted from rows instead of from books: the same numbers as `CapacityState` gives, for many things at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from domain.capacity.availability import committed_slot_ms
from domain.capacity.state import CapacityState, Grant, Reservation, ReservationStatus
from domain.capacity.timeline import Timeline
from domain.capacity.views import GrantView, ReservationView


@dataclass(frozen=True, slots=True)
class SlotCounts:
    """What the running instances and live grants of one reservation come to (R18)."""

    running: int
    """Attached running instances, whoever owns them."""
    outside_running: int
    """Those of them outside any grant."""
    live_slots: int
    """Slots of the grants in term."""

    @classmethod
    def of(cls, state: CapacityState) -> SlotCounts:
        return cls(running=state.running, outside_running=state.outside_running, live_slots=state.live_slots)


@dataclass(frozen=True, slots=True)
class GrantActivity:
    """How a grant's slots are used at one instant (F5)."""

    held: int
    """Slots that the grant's instances hold, running or stopped (R18)."""
    running: int
    idle: int
    """Slots of a live grant in which nothing runs, those of stopped instances included: the grant's part of what its
    reservation shows as unused. Zero while the grant is not in term."""

    @property
    def stopped(self) -> int:
        return self.held - self.running


def grant_activity(grant: Grant, *, held: int, running: int, at: int) -> GrantActivity:
    idle = max(0, grant.slots - running) if grant.is_live_at(at) else 0
    return GrantActivity(held=held, running=running, idle=idle)


def committed_ms(view: GrantView) -> int:
    """Slot-milliseconds that the grant has committed up to the instant it is shown at; a cancelled one owes nothing
    (R38, R42)."""
    if view.grant.cancelled_at is not None:
        return 0
    return committed_slot_ms(view.grant, until=view.at)


def shortfall_of(total: int, terms: Sequence[tuple[int, int, int]], *, now: int) -> int:
    """How far the peak of these grants from now on exceeds the total; (starts_at, ends_at, slots) each (R57, D45)."""
    ahead = [term for term in terms if term[1] > now]
    if not ahead:
        return 0
    peak = Timeline(ahead).peak(now, max(ends_at for _, ends_at, _ in ahead))
    return max(0, peak - total)


def counted_view(head: Reservation, counts: SlotCounts, *, shortfall: int, at: int) -> ReservationView:
    """The reservation with its slots in use and free (R18..R21). One that is not ready, or in no pool, offers nothing:
    no instance is placed there (R25)."""
    outside = counts.outside_running + head.external_in_use
    free = max(0, head.total - outside - counts.live_slots)
    return ReservationView(
        key=head.key,
        account_id=head.account_id,
        reservation_id=head.reservation_id,
        provider=head.provider,
        flavor=head.flavor,
        region=head.region,
        status=head.status,
        pool_id=head.pool_id,
        created_at=head.created_at,
        gone_at=head.gone_at,
        total=head.total,
        in_use=counts.running + head.external_in_use,
        granted_now=counts.live_slots,
        unused_granted=counts.live_slots - (counts.running - counts.outside_running),
        free=free if head.status is ReservationStatus.READY and head.pool_id is not None else 0,
        shortfall=shortfall,
        version=head.version,
        at=at,
    )
