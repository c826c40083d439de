"""Decisions about grants: make, end, amend (R4..R14, R48..R53).

Guards come first, one a line, in the documented order; after the last one the decision must succeed.
"""

from __future__ import annotations

from domain.capacity.boundaries import AMENDED, CREATED, advance, cancel, finish, grant_event
from domain.capacity.commands import AmendGrant, CloseTenant, CreateGrant, EndGrant, Surroundings
from domain.capacity.refusals import CapacityUnavailable
from domain.capacity.state import CapacityState, Grant, GrantState, ReservationStatus
from domain.outcomes import Accepted, Conflict, InvalidInput, InvalidState, NotFound, Outcome, Refusal
from domain.terms import START_TOLERANCE_MS


def decide_create(
    state: CapacityState | None, command: CreateGrant, *, around: Surroundings, now: int
) -> Outcome[Grant]:
    """Commit slots to a tenant for a term.

    Refuses in this order: INVALID_INPUT (term), NOT_FOUND, INVALID_STATE, INVALID_INPUT (offer, project),
    CAPACITY_UNAVAILABLE. Shape, authority and the idempotency key were checked before (R5, R64).
    """
    if refusal := refuse_term(command.starts_at, command.ends_at, now=now):
        return refusal
    if state is None or command.account_id not in around.accounts:
        return NotFound(field="reservationId", message="no such reservation on this account")
    if refusal := refuse_reservation(state) or refuse_grantee(state, command, around=around):
        return refusal
    if refusal := refuse_capacity(state, command.starts_at, command.ends_at, command.slots):
        return refusal
    grant = _new_grant(state, command, now=now)
    state.add_grant(grant)
    state.publish(grant_event(CREATED, grant, at=now))
    advance(state, now)  # R13: a term that is on already is active at once
    return Accepted(grant)


def refuse_term(starts_at: int, ends_at: int, *, now: int) -> Refusal | None:
    """R7, D20: at most five minutes in the past, inclusive; not empty; not over already."""
    return refuse_start(starts_at, now=now) or refuse_end(starts_at, ends_at, now=now)


def refuse_start(starts_at: int, *, now: int) -> Refusal | None:
    if starts_at >= now - START_TOLERANCE_MS:
        return None
    message = "startsAt may be at most 5 minutes in the past"
    return InvalidInput(field="startsAt", reason="starts-too-early", message=message)


def refuse_end(starts_at: int, ends_at: int, *, now: int) -> Refusal | None:
    if ends_at <= starts_at:
        return InvalidInput(field="endsAt", reason="ends-not-after-start", message="endsAt must be after startsAt")
    if ends_at <= now:
        return InvalidInput(field="endsAt", reason="term-over", message="the term would be over already")
    return None


def refuse_reservation(state: CapacityState) -> Refusal | None:
    """R8: ready, not gone, bound."""
    status = state.reservation.status
    if status is not ReservationStatus.READY:
        return InvalidState(state=status.value, message=f"the reservation is {status.value.replace('_', ' ')}")
    if state.reservation.pool_id is None:
        return InvalidState(state="unbound", message="the reservation is not bound to a pool")
    return None


def refuse_grantee(state: CapacityState, command: CreateGrant, *, around: Surroundings) -> Refusal | None:
    """R8, R9: an unknown or deleted grantee looks like one that the pool is not offered to; projects likewise."""
    pool_id, tenant_id = state.reservation.pool_id or "", command.grant_tenant_id
    if tenant_id not in around.tenants or not around.is_offered(pool_id, tenant_id):
        message = "the reservation's pool is not offered to this tenant"
        return InvalidInput(field="grantTenantId", reason="pool-not-offered", message=message)
    if command.project_id is not None and around.projects.get(command.project_id) != tenant_id:
        message = "projectId is not a project of the grantee"
        return InvalidInput(field="projectId", reason="project-not-grantee", message=message)
    return None


def refuse_capacity(state: CapacityState, starts_at: int, ends_at: int, slots: int) -> CapacityUnavailable | None:
    """R10, D1: the peak of granted slots inside the term, plus these, must fit the total."""
    total, granted = state.reservation.total, state.timeline.peak(starts_at, ends_at)
    if granted + slots <= total:
        return None
    message = f"{slots} slots do not fit: {granted} of {total} are granted at the peak of this term"
    return CapacityUnavailable(total=total, granted=granted, message=message)


def decide_end(state: CapacityState | None, command: EndGrant, *, around: Surroundings, now: int) -> Outcome[Grant]:
    """End a grant now, or cancel one that has not started; one that is over comes back unchanged (R48..R50).

    Refuses NOT_FOUND.
    """
    grant = find_grant(state, command.grant_id, around=around)
    if state is None or grant is None:
        return NotFound(field="grantId", message="no such grant on this account")
    if (current := grant.state_at(now)) is GrantState.SCHEDULED:
        cancel(state, grant, at=now)
    elif current is GrantState.ACTIVE:
        finish(state, grant, at=now)
    else:
        return Accepted(grant)
    grant.version += 1
    return Accepted(grant)


def decide_amend(state: CapacityState | None, command: AmendGrant, *, around: Surroundings, now: int) -> Outcome[Grant]:
    """Change slots, end, and the start while it is ahead, in one decision: old and new are never counted both (F3).

    Refuses in this order: NOT_FOUND, CONFLICT (version), INVALID_STATE (over), INVALID_INPUT (a start that has passed,
    or the term), INVALID_STATE (fewer slots than its instances hold), CAPACITY_UNAVAILABLE.
    """
    grant = find_grant(state, command.grant_id, around=around)
    if state is None or grant is None:
        return NotFound(field="grantId", message="no such grant on this account")
    if command.expected_version != grant.version:
        message = f"the grant is at version {grant.version}"
        return Conflict(reason="stale-version", version=grant.version, message=message)
    if refusal := _refuse_amendment(state, grant, command, now=now):
        return refusal
    amended = _amended(grant, command)
    if amended == (grant.slots, grant.starts_at, grant.ends_at):
        return Accepted(grant)
    if refusal := _swap_terms(state, grant, amended, now=now):
        return refusal
    _rewrite(state, grant, amended, now=now)
    advance(state, now)
    return Accepted(grant)


def decide_close_tenant(state: CapacityState | None, command: CloseTenant, *, now: int) -> Outcome[None]:
    """R53: the tenant's active grants end and its scheduled ones are cancelled; events carry no reason (D40).

    They end at the moment of the deletion, however late this comes; not before anything that was decided here since.
    """
    if state is not None:
        mine = [grant for grant in state.open_grants(at=now) if grant.tenant_id == command.tenant_id]
        moment = min(now, max(command.deleted_at, state.reservation.clock_at))
        close_grants(state, mine, at=now, moment=moment)
    return Accepted(None)


def close_grants(
    state: CapacityState, grants: list[Grant], *, at: int, reason: str | None = None, moment: int | None = None
) -> None:
    """End what is active at `at` and cancel what is scheduled then. They close together, so none hands its instances to
    another. `moment`: the end of those that are active, if it lies before `at`.
    """
    for grant in grants:
        grant.version += 1
        if grant.is_live_at(at):
            end = at if moment is None else max(moment, grant.starts_at)
            finish(state, grant, at=end, reason=reason, hand_over=False)
        else:
            cancel(state, grant, at=at, reason=reason)


def find_grant(state: CapacityState | None, grant_id: str, *, around: Surroundings) -> Grant | None:
    if state is not None and grant_id in state.grants:
        return state.grants[grant_id]
    return around.past_grants.get(grant_id)


def _new_grant(state: CapacityState, command: CreateGrant, *, now: int) -> Grant:
    reservation = state.reservation
    assert reservation.pool_id is not None, "R8 was checked"
    return Grant(
        grant_id=command.grant_id,
        tenant_id=command.grant_tenant_id,
        project_id=command.project_id,
        slots=command.slots,
        starts_at=command.starts_at,
        ends_at=command.ends_at,
        created_at=now,
        created_by=command.created_by,
        pool_id=reservation.pool_id,
        region=reservation.region,
        provider=reservation.provider,
        commitments=((command.starts_at, command.slots),),
    )


def _amended(grant: Grant, command: AmendGrant) -> tuple[int, int, int]:
    """(slots, starts_at, ends_at) as they would be."""
    return (
        grant.slots if command.slots is None else command.slots,
        grant.starts_at if command.starts_at is None else command.starts_at,
        grant.ends_at if command.ends_at is None else command.ends_at,
    )


def _refuse_amendment(state: CapacityState, grant: Grant, command: AmendGrant, *, now: int) -> Refusal | None:
    current = grant.state_at(now)
    if current in (GrantState.ENDED, GrantState.CANCELLED):
        return InvalidState(state=current.value, message=f"the grant is {current.value}")
    slots, starts_at, ends_at = _amended(grant, command)
    if starts_at != grant.starts_at and current is GrantState.ACTIVE:
        message = "the grant has started: its startsAt cannot change"
        return InvalidInput(field="startsAt", reason="already-started", message=message)
    if starts_at != grant.starts_at and (refusal := refuse_start(starts_at, now=now)):
        return refusal
    if refusal := refuse_end(starts_at, ends_at, now=now):
        return refusal
    if slots < (held := state.held(grant.grant_id)):
        return InvalidState(state="slots-held", message=f"its instances hold {held} slots: delete some first")
    return None


def _swap_terms(state: CapacityState, grant: Grant, amended: tuple[int, int, int], *, now: int) -> Refusal | None:
    """Take the old term off the timeline and put the new one on if it fits; else put the old one back.

    What has passed of a live term is history and stays. Whoever only gives back needs no capacity for it: it is the
    remedy after a reservation has shrunk below what is granted (R57).
    """
    slots, starts_at, ends_at = amended
    has_started = grant.starts_at <= now
    old_from, new_from = (now, now) if has_started else (grant.starts_at, starts_at)
    state.timeline.add(old_from, grant.ends_at, -grant.slots)
    gives_back = slots <= grant.slots and old_from <= new_from and ends_at <= grant.ends_at
    refusal = None if gives_back else refuse_capacity(state, new_from, ends_at, slots)
    if refusal is not None:
        state.timeline.add(old_from, grant.ends_at, grant.slots)
        return refusal
    state.timeline.add(new_from, ends_at, slots)
    return None


def _rewrite(state: CapacityState, grant: Grant, amended: tuple[int, int, int], *, now: int) -> None:
    slots, starts_at, ends_at = amended
    if grant.starts_at > now:
        grant.commitments = ((starts_at, slots),)
    elif slots != grant.slots:
        kept = tuple(piece for piece in grant.commitments if piece[0] < now)
        grant.commitments = (*kept, (now, slots))
    state.set_slots(grant, slots)
    grant.starts_at, grant.ends_at = starts_at, ends_at
    grant.version += 1
    state.touch(grant)
    state.schedule_boundaries(grant)
    state.publish(grant_event(AMENDED, grant, at=now))
