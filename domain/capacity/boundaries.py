"""Starts and ends of terms, applied in one fixed order, and what they do to the instances that run (R16, R30..R37)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from domain.capacity.notices import Notice
from domain.capacity.state import CapacityEvent, CapacityState, Grant, Instance

CREATED = "reservation-grant.created"
ACTIVE = "reservation-grant.active"
AMENDED = "reservation-grant.amended"
ENDED = "reservation-grant.ended"
CANCELLED = "reservation-grant.cancelled"
CAPACITY_SHORT = "reservation-grant.capacity-short"

TYPES = (CREATED, ACTIVE, AMENDED, ENDED, CANCELLED, CAPACITY_SHORT, *Notice)
"""Everything that capacity tells."""

RESERVATION_GONE = "reservation-gone"


def advance(state: CapacityState, now: int) -> None:
    """Apply every boundary that is due at `now` (R16): lateness changes nothing but the delay of events.

    At one instant all ends come first, with hand-over into grants that start right then, and starts after them (R34).
    """
    while (due := state.next_boundary()) is not None and due[0] <= now:
        instant, grant, is_start = due
        if is_start:
            _start(state, grant)
        else:
            finish(state, grant, at=instant)


def finish(state: CapacityState, grant: Grant, *, at: int, reason: str | None = None, hand_over: bool = True) -> None:
    """End a grant at `at`, by time or by decision: it lets its instances go, to a renewal where one is live (R32).

    `hand_over` is False when nothing can take them on, because the reservation is gone (R37).
    """
    state.timeline.add(at, grant.ends_at, -grant.slots)
    grant.ends_at = at
    grant.ended_reason = reason
    state.set_applied(grant, started=True, ended=True)
    _release_instances(state, grant, at=at, hand_over=hand_over)
    state.publish(grant_event(ENDED, grant, at=at, reason=reason))


def cancel(state: CapacityState, grant: Grant, *, at: int, reason: str | None = None) -> None:
    """Cancel a grant that has not started; its term stays as it was written (R49)."""
    state.timeline.add(grant.starts_at, grant.ends_at, -grant.slots)
    grant.ended_reason = reason
    state.set_cancelled(grant, at=at)
    state.publish(grant_event(CANCELLED, grant, at=at, reason=reason))


def grant_event(kind: str, grant: Grant, *, at: int, reason: str | None = None) -> CapacityEvent:
    """R62: the payload names neither account nor reservation, which are the platform's own (D46)."""
    payload: dict[str, Any] = {
        "grantId": grant.grant_id,
        "poolId": grant.pool_id,
        "slots": grant.slots,
        "startsAt": grant.starts_at,
        "endsAt": grant.ends_at,
    }
    optional: Mapping[str, str | None] = {"projectId": grant.project_id, "reason": reason}
    payload.update((name, value) for name, value in optional.items() if value is not None)
    return CapacityEvent(tenant_id=grant.tenant_id, type=kind, occurred_at=at, payload=payload)


def _start(state: CapacityState, grant: Grant) -> None:
    """Put a grant on: it takes in its tenant's running outsiders, oldest first, from its start (R30).

    No physical check: they run already.
    """
    state.set_applied(grant, started=True, ended=False)
    state.publish(grant_event(ACTIVE, grant, at=grant.starts_at))
    outsiders = [
        instance
        for instance in state.outsiders.get(grant.tenant_id, {}).values()
        if state.takes_in(grant, instance, at=grant.starts_at)
    ]
    room = grant.slots - state.held(grant.grant_id)
    for instance in sorted(outsiders, key=lambda instance: instance.age)[:room]:
        _move(state, instance, grant, at=grant.starts_at)


def _release_instances(state: CapacityState, grant: Grant, *, at: int, hand_over: bool) -> None:
    members = sorted(state.members[grant.grant_id].values(), key=lambda instance: instance.age)
    heirs = state.live_grants(grant.tenant_id, at=at) if hand_over and members else []
    for instance in members:
        heir = (
            _first_with_room(state, instance, heirs, at=at) if instance.is_running else None
        )  # R36: a stopped one is let go
        _move(state, instance, heir, at=at)


def _first_with_room(state: CapacityState, instance: Instance, grants: Iterable[Grant], *, at: int) -> Grant | None:
    for grant in grants:
        if state.takes_in(grant, instance, at=at) and state.held(grant.grant_id) < grant.slots:
            return grant
    return None


def _move(state: CapacityState, instance: Instance, grant: Grant | None, *, at: int) -> None:
    """Into a grant or out of any. An instant in the past cannot reach behind the stretch that is running now."""
    running_since = instance.segment.from_at if instance.segment else at
    state.place(instance, at=max(at, running_since), grant_id=grant.grant_id if grant else None)
