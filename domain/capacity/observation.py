"""Decisions about the reservation itself: what a provider reports of it, and the pool it is bound to (R51, R54..R59)."""

from __future__ import annotations

from domain.capacity.boundaries import CAPACITY_SHORT, RESERVATION_GONE
from domain.capacity.commands import BindReservation, MissReservation, ObserveReservation, Surroundings
from domain.capacity.grants import close_grants
from domain.capacity.state import CapacityEvent, CapacityState, Reservation, ReservationStatus
from domain.outcomes import Accepted, InvalidInput, InvalidState, NotFound, Outcome


def first_sight(key: str, command: ObserveReservation, *, now: int) -> CapacityState:
    """The books of a reservation that a provider reports for the first time: unbound, nothing granted."""
    reported = command.reported
    state = CapacityState(
        Reservation(
            key=key,
            account_id=command.account_id,
            reservation_id=reported.reservation_id,
            provider=command.provider,
            flavor=reported.flavor,
            region=reported.region,
            total=reported.total,
            status=ReservationStatus.READY if reported.ready else ReservationStatus.NOT_READY,
            created_at=now,
            external_in_use=reported.in_use or 0,
        )
    )
    state.changes.head = True
    return state


def decide_observe(state: CapacityState, command: ObserveReservation, *, now: int) -> Outcome[Reservation]:
    """Take in what a complete scan saw. A change of total below what live grants hold is told, once (R57, R58).

    The same report twice changes nothing (P12). A reservation that was gone is ready again, with its binding (D14).
    """
    reservation, reported = state.reservation, command.reported
    before = _observed(reservation)
    reservation.flavor, reservation.region = reported.flavor, reported.region
    reservation.status = ReservationStatus.READY if reported.ready else ReservationStatus.NOT_READY
    reservation.gone_at, reservation.missed_scans = None, 0
    if reported.in_use is not None:
        reservation.external_in_use = max(0, reported.in_use - state.running)  # D16
    if reported.total != reservation.total:
        reservation.total = reported.total
        reservation.total_seq += 1
        _tell_shortfall(state, now=now)
    if _observed(reservation) != before:
        state.changes.head = True
    return Accepted(reservation)


def decide_miss(state: CapacityState | None, command: MissReservation, *, now: int) -> Outcome[None]:
    """A complete scan did not report it: after enough misses in a row it is gone (R54..R56, D13).

    Its grants close with a reason, nothing is handed over (R37), and every instance is on demand from now on.
    """
    if state is None or state.reservation.status is ReservationStatus.GONE:
        return Accepted(None)
    reservation = state.reservation
    reservation.missed_scans += 1
    state.changes.head = True
    if reservation.missed_scans < command.gone_after_misses:
        return Accepted(None)
    reservation.status, reservation.gone_at, reservation.external_in_use = ReservationStatus.GONE, now, 0
    close_grants(state, state.open_grants(at=now), at=now, reason=RESERVATION_GONE)
    for instance in sorted(state.instances.values(), key=lambda instance: instance.age):
        if instance.attached:
            state.place(instance, at=now, grant_id=None, attached=False)
    return Accepted(None)


def decide_bind(state: CapacityState | None, command: BindReservation, *, around: Surroundings) -> Outcome[Reservation]:
    """Bind the reservation to a pool. Refuses NOT_FOUND, INVALID_STATE (gone, or bound to another pool), INVALID_INPUT
    (no such pool). Binding again to the same pool changes nothing.
    """
    if state is None or is_lost(state, around=around):
        return NotFound(field="reservationId", message="no such reservation on this account")
    if state.reservation.status is ReservationStatus.GONE:
        return InvalidState(state="gone", message="the reservation is gone")
    if command.pool_id not in around.pools:
        return InvalidInput(field="poolId", reason="no-such-pool", message="no such pool")
    if state.reservation.pool_id not in (None, command.pool_id):
        return InvalidState(state="bound", message="the reservation is bound to another pool: unbind it first")
    return _set_pool(state, command.pool_id)


def decide_unbind(state: CapacityState | None, *, around: Surroundings, now: int) -> Outcome[Reservation]:
    """Take the reservation out of its pool. Refuses NOT_FOUND, INVALID_STATE with the open grants (R51, D48)."""
    if state is None or is_lost(state, around=around):
        return NotFound(field="reservationId", message="no such reservation on this account")
    if standing := sorted(grant.grant_id for grant in state.open_grants(at=now)):
        message = "grants of this reservation are scheduled or active"
        return InvalidState(grant_ids=tuple(standing), message=message)
    return _set_pool(state, None)


def is_lost(state: CapacityState, *, around: Surroundings) -> bool:
    """Whether its account is deleted: to everybody it is as if it had never been."""
    return state.reservation.account_id not in around.accounts


def shortfall_peak(state: CapacityState, *, now: int) -> int:
    """The highest level that live grants reach from now on: what R57 compares the total with."""
    last_end = max((grant.ends_at for grant in state.open_grants(at=now)), default=now)
    return state.timeline.peak(now, last_end) if last_end > now else 0


def _set_pool(state: CapacityState, pool_id: str | None) -> Outcome[Reservation]:
    if state.reservation.pool_id != pool_id:
        state.reservation.pool_id = pool_id
        state.changes.head = True
    return Accepted(state.reservation)


def _observed(reservation: Reservation) -> tuple[object, ...]:
    return (
        reservation.flavor,
        reservation.region,
        reservation.status,
        reservation.gone_at,
        reservation.missed_scans,
        reservation.external_in_use,
        reservation.total,
    )


def _tell_shortfall(state: CapacityState, *, now: int) -> None:
    """R57: only the grants live at some instant where the sum exceeds the total: ending others would not help (D44)."""
    reservation = state.reservation
    peak = shortfall_peak(state, now=now)
    if peak <= reservation.total:
        return
    over = _stretches_over(state, reservation.total, now=now)
    short = [
        grant.grant_id
        for grant in state.open_grants(at=now)
        if any(grant.starts_at < until and since < grant.ends_at for since, until in over)
    ]
    payload = {
        "accountId": reservation.account_id,
        "reservationId": reservation.reservation_id,
        "total": reservation.total,
        "grantedSlots": peak,
        "grantIds": short,
    }
    state.publish(CapacityEvent(tenant_id=None, type=CAPACITY_SHORT, occurred_at=now, payload=payload))


def _stretches_over(state: CapacityState, total: int, *, now: int) -> list[tuple[int, int]]:
    """The half-open stretches from now on in which more than `total` slots are granted."""
    last_end = max(grant.ends_at for grant in state.open_grants(at=now))
    stretches: list[tuple[int, int]] = []
    since: int | None = None
    for instant, level in state.timeline.steps(now, last_end):
        if level > total and since is None:
            since = instant
        elif level <= total and since is not None:
            stretches.append((since, instant))
            since = None
    return [*stretches, (since, last_end)] if since is not None else stretches
