"""The naive model's grants: create, end, amend, get and list (R4-R14, R48-R50, R60, R61)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from tests.simulation.oracle_rows import (
    ACCOUNT_SHAPE,
    KEY_SHAPE,
    PAST_TOLERANCE_MS,
    PROJECT_SHAPE,
    RESERVATION_SHAPE,
    SAFE_INTEGER_MAX,
    SLOTS_MAX,
    TENANT_SHAPE,
    Grant,
    Outcome,
    Reservation,
    crockford,
    peak,
    state_of,
)
from tests.simulation.oracle_world import World

DENIED: Outcome = ("ACCESS_DENIED", {})
NOT_FOUND: Outcome = ("NOT_FOUND", {})


def integer_fault(field: str, value: object, *, low: int, high: int = SAFE_INTEGER_MAX) -> Outcome | None:
    """R2, D24: a real integer in range; true, 1.5 and "3" are none."""
    if type(value) is not int or not low <= value <= high:
        return ("INVALID_INPUT", {"field": field})
    return None


def text_fault(field: str, value: object, shape: re.Pattern[str]) -> Outcome | None:
    """D23: the whole text matches, a trailing newline included in the test."""
    if not isinstance(value, str) or shape.fullmatch(value) is None:
        return ("INVALID_INPUT", {"field": field})
    return None


def first_fault(faults: Sequence[Outcome | None]) -> Outcome | None:
    return next((fault for fault in faults if fault is not None), None)


def term_fault(*, starts_at: int, ends_at: int, now: int, may_start_from: int) -> Outcome | None:
    """R7, D20: starts-too-early, ends-not-after-start, term-over, in this order."""
    if starts_at < may_start_from:
        return ("INVALID_INPUT", {"field": "startsAt", "reason": "starts-too-early"})
    if ends_at <= starts_at:
        return ("INVALID_INPUT", {"field": "endsAt", "reason": "ends-not-after-start"})
    if ends_at <= now:
        return ("INVALID_INPUT", {"field": "endsAt", "reason": "term-over"})
    return None


class Terms(NamedTuple):
    """What a create asks for, and so its fingerprint (R6). `tenant_id` is the grantee."""

    account_id: str
    reservation_id: str
    tenant_id: str
    project_id: str | None
    slots: int
    starts_at: int
    ends_at: int


def shape_fault(tenant_id: str, terms: Terms, key: str) -> Outcome | None:
    return first_fault(
        [
            text_fault("tenantId", tenant_id, TENANT_SHAPE),
            text_fault("accountId", terms.account_id, ACCOUNT_SHAPE),
            text_fault("reservationId", terms.reservation_id, RESERVATION_SHAPE),
            text_fault("grantTenantId", terms.tenant_id, TENANT_SHAPE),
            None if terms.project_id is None else text_fault("projectId", terms.project_id, PROJECT_SHAPE),
            integer_fault("slots", terms.slots, low=1, high=SLOTS_MAX),
            integer_fault("startsAt", terms.starts_at, low=0),
            integer_fault("endsAt", terms.ends_at, low=0),
            text_fault("idempotencyKey", key, KEY_SHAPE),
        ]
    )


class Granting(World):
    """Commands of the root tenant on grants. Every answer is ("ok", grant id) or (code, details)."""

    # A cut of a grant that is already above a shrunken total is refused like any other amendment that does not fit.
    refuses_reductions_above_total = True

    def _is_root_call(self, tenant_id: str, authorized: bool) -> bool:
        """R4: the root tenant, by a member who may manage the account (`authorized`)."""
        return authorized and tenant_id == self.root_tenant_id

    # --- create -------------------------------------------------------------------------------------------------

    def create_grant(
        self,
        now: int,
        *,
        tenant_id: str,
        account_id: str,
        reservation_id: str,
        grant_tenant_id: str,
        slots: int,
        starts_at: int,
        ends_at: int,
        key: str,
        project_id: str | None = None,
        authorized: bool = True,
        grant_id: str | None = None,
    ) -> Outcome:
        """Checks in the order of R64: shape, authority, key, term, reservation, state, offer, project, capacity.

        `grant_id` lets a comparison impose the id of the other side, so that ties fall alike.
        """
        terms = Terms(account_id, reservation_id, grant_tenant_id, project_id, slots, starts_at, ends_at)
        fault = shape_fault(tenant_id, terms, key)
        if fault is not None:
            return fault
        if not self._is_root_call(tenant_id, authorized):
            return DENIED
        reservation = self.reservations.get((account_id, reservation_id))
        if reservation is not None:
            now = self._open(now, reservation)
        if key in self.keys:
            first_id, first_terms = self.keys[key]
            return ("ok", first_id) if first_terms == terms else ("CONFLICT", {"grantId": first_id})
        earliest = now - PAST_TOLERANCE_MS
        fault = term_fault(starts_at=starts_at, ends_at=ends_at, now=now, may_start_from=earliest)
        fault = fault or self._create_fault(reservation, terms)
        if fault is not None:
            return fault
        assert reservation is not None
        granted = peak(self.grants_on(reservation), starts_at, ends_at)
        if granted + slots > reservation.total:
            return ("CAPACITY_UNAVAILABLE", {"total": reservation.total, "granted": granted})
        grant = self._new_grant(grant_id or f"rgrant_{crockford(self._next_number('grant'))}", reservation, terms, now)
        self.keys[key] = (grant.grant_id, terms)
        self._publish_grant(grant, "created", occurred_at=now)
        self._apply_boundaries(reservation, now)
        return ("ok", grant.grant_id)

    def _new_grant(self, grant_id: str, reservation: Reservation, terms: Terms, now: int) -> Grant:
        """R14: pool, region and provider are copied from the reservation as it is now."""
        assert reservation.pool_id is not None
        grant = Grant(
            **terms._asdict(),
            grant_id=grant_id,
            created_at=now,
            pool_id=reservation.pool_id,
            region=reservation.region,
            provider=reservation.provider,
            pieces=[(terms.starts_at, terms.slots)],
        )
        self.grants[grant_id] = grant
        self._admit(grant, reservation, now=now, from_ms=terms.starts_at)
        return grant

    def _create_fault(self, reservation: Reservation | None, terms: Terms) -> Outcome | None:
        """R8, R9: the reservation, its state, the offer, the project."""
        if reservation is None:
            return NOT_FOUND
        if reservation.status != "ready":
            return ("INVALID_STATE", {"state": reservation.status})
        if reservation.pool_id is None:
            return ("INVALID_STATE", {"state": "unbound"})
        if not self.is_offered(reservation.pool_id, terms.tenant_id):
            return ("INVALID_INPUT", {"field": "grantTenantId", "reason": "pool-not-offered"})
        if terms.project_id is not None:
            project = self.projects.get(terms.project_id)
            if project is None or project.tenant_id != terms.tenant_id or project.deleted_at is not None:
                return ("INVALID_INPUT", {"field": "projectId", "reason": "project-not-grantee"})
        return None

    def _admit(self, grant: Grant, reservation: Reservation, *, now: int, from_ms: int) -> None:
        """Remembers the total against which the terms from `from_ms` on were checked (P9)."""
        grant.admissions.append(
            {"order": self._next_number("admission"), "at": now, "from_ms": from_ms, "total": reservation.total}
        )

    # --- end ----------------------------------------------------------------------------------------------------

    def end_grant(
        self, now: int, *, tenant_id: str, account_id: str, grant_id: str, authorized: bool = True
    ) -> Outcome:
        """R48-R50: cancelled before the start, cut to now in the term, otherwise unchanged."""
        if not self._is_root_call(tenant_id, authorized):
            return DENIED
        grant = self.grants.get(grant_id)
        if grant is None or grant.account_id != account_id:
            return NOT_FOUND
        now = self._open(now, self.reservations[grant.reservation_key])
        self._finish([grant], now)
        return ("ok", grant_id)

    def _finish(self, grants: Sequence[Grant], now: int, *, reason: str | None = None) -> None:
        """Ends or cancels `grants` together at `now`: none of them can hand over to another of them (R37)."""
        active = [grant for grant in grants if state_of(grant, now) == "active"]
        scheduled = [grant for grant in grants if state_of(grant, now) == "scheduled"]
        for grant in active:
            grant.ends_at = now
            grant.ended_reason = reason
        for grant in scheduled:
            grant.cancelled_at = now
            grant.ended_reason = reason
        for grant in active:
            self._apply_end(grant)
        for grant in scheduled:
            self._publish_grant(grant, "cancelled", occurred_at=now)

    # --- amend --------------------------------------------------------------------------------------------------

    def amend_grant(
        self,
        now: int,
        *,
        tenant_id: str,
        account_id: str,
        grant_id: str,
        version: int,
        slots: int | None = None,
        starts_at: int | None = None,
        ends_at: int | None = None,
        authorized: bool = True,
    ) -> Outcome:
        """F3: new slots or term in one step; the grant itself is left out of the peak, so old + new never count.

        Order: shape, authority, grant, version (CONFLICT), state, term, what its instances hold, capacity.
        """
        fault = first_fault(
            [
                None if slots is None else integer_fault("slots", slots, low=1, high=SLOTS_MAX),
                None if starts_at is None else integer_fault("startsAt", starts_at, low=0),
                None if ends_at is None else integer_fault("endsAt", ends_at, low=0),
            ]
        )
        if fault is not None:
            return fault
        if not self._is_root_call(tenant_id, authorized):
            return DENIED
        grant = self.grants.get(grant_id)
        if grant is None or grant.account_id != account_id:
            return NOT_FOUND
        now = self._open(now, self.reservations[grant.reservation_key])
        if version != grant.version:
            return ("CONFLICT", {"grantId": grant_id})
        new = grant.slots if slots is None else slots
        new_start = grant.starts_at if starts_at is None else starts_at
        new_end = grant.ends_at if ends_at is None else ends_at
        fault = self._amend_fault(grant, now, new_slots=new, new_start=new_start, new_end=new_end)
        fault = fault or self._readmit(grant, now, new_slots=new, new_start=new_start, new_end=new_end)
        if fault is not None:
            return fault
        self._rewrite(grant, now, new_slots=new, new_start=new_start, new_end=new_end)
        self._apply_boundaries(self.reservations[grant.reservation_key], now)
        return ("ok", grant_id)

    def _readmit(self, grant: Grant, now: int, *, new_slots: int, new_start: int, new_end: int) -> Outcome | None:
        """R10 for the new terms, without the grant itself.

        A scheduled grant may be moved up to five minutes into the past, where ended grants still count (D2).
        """
        asks_more = new_slots > grant.slots or new_start < grant.starts_at or new_end > grant.ends_at
        if not asks_more and not self.refuses_reductions_above_total:
            return None
        reservation = self.reservations[grant.reservation_key]
        checked_from = new_start if state_of(grant, now) == "scheduled" else now
        others = [other for other in self.grants_on(reservation) if other is not grant]
        granted = peak(others, checked_from, new_end)
        if granted + new_slots > reservation.total:
            return ("CAPACITY_UNAVAILABLE", {"total": reservation.total, "granted": granted})
        self._admit(grant, reservation, now=now, from_ms=checked_from)
        return None

    def _amend_fault(self, grant: Grant, now: int, *, new_slots: int, new_start: int, new_end: int) -> Outcome | None:
        state = state_of(grant, now)
        if state not in ("scheduled", "active"):
            return ("INVALID_STATE", {"state": state})
        moves_start = new_start != grant.starts_at
        if moves_start and state == "active":
            return ("INVALID_STATE", {"state": state})
        fault = term_fault(
            starts_at=new_start,
            ends_at=new_end,
            now=now,
            may_start_from=now - PAST_TOLERANCE_MS if moves_start else new_start,
        )
        if fault is None and new_slots < len(self.members_of(grant)):
            return ("INVALID_STATE", {"state": state})
        return fault

    def _rewrite(self, grant: Grant, now: int, *, new_slots: int, new_start: int, new_end: int) -> None:
        """The bill is split at the millisecond: time before keeps the old slots, time from now on the new."""
        if state_of(grant, now) == "scheduled":
            grant.pieces = [(new_start, new_slots)]
        elif new_slots != grant.slots:
            earlier = [piece for piece in grant.pieces if piece[0] < now]
            grant.pieces = [*earlier, (now, new_slots)]
        grant.slots, grant.starts_at, grant.ends_at = new_slots, new_start, new_end
        grant.version += 1

    # --- reads --------------------------------------------------------------------------------------------------

    def get_grant(self, *, tenant_id: str, grant_id: str, authorized: bool = True) -> Outcome:
        """R60: the tenant's own; acting in the root tenant any; another's is NOT_FOUND, never ACCESS_DENIED."""
        if not authorized:
            return DENIED
        grant = self.grants.get(grant_id)
        if grant is None or tenant_id not in (grant.tenant_id, self.root_tenant_id):
            return NOT_FOUND
        return ("ok", grant_id)

    def list_grants(self, *, tenant_id: str, every: bool = False, authorized: bool = True) -> tuple[str, list[str]]:
        """R61, D21: newest first, at most 1000; `every` (the wire's `all`) is for root acting in the root tenant."""
        if not authorized or (every and tenant_id != self.root_tenant_id):
            return ("ACCESS_DENIED", [])
        mine = [grant for grant in self.grants.values() if every or grant.tenant_id == tenant_id]
        mine.sort(key=lambda grant: (grant.created_at, grant.grant_id), reverse=True)
        return ("ok", [grant.grant_id for grant in mine[:1000]])
