"""Reads of capacity reservations, for root only: what they hold now, and what is free when (F1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from domain.authority import Permission
from domain.capacity.availability import Fit, Step, availability, earliest_fits
from domain.capacity.state import CapacityState, Reservation, ReservationStatus
from domain.capacity.timeline import Timeline
from domain.capacity.views import ReservationView
from domain.identity import ACCOUNT_ID, FLAVOR, POOL_ID, RESERVATION_KEY, TENANT_ID
from domain.outcomes import InvalidInput, NotFound, Refusal
from domain.shapes import Shape, check_integer, check_optional_integer, check_optional_text, check_text
from domain.terms import INSTANT_MAX
from storage.capacity.activity import read_terms
from storage.capacity.pages import ReservationFilter, count_reservations, find_reservation, page_reservations
from storage.database import AnyConnection
from storage.paging import Page, Position
from workers.capacity.current import current_reservations
from workers.capacity.grants import SLOTS_MAX
from workers.capacity.reading import (
    Reading,
    check_page,
    check_reservation,
    check_term,
    check_word,
    refuse_reader,
)
from workers.request import Caller

STEPS_MAX: Final = 5_000
"""Steps of one answer about availability: some hundred kilobytes. A busier stretch is asked for in parts."""
FITS_DEFAULT: Final = 5
FITS_MAX: Final = 50
"""Windows that one answer offers: whoever finds none in these asks on from the last."""

_NO_RESERVATION: Final = NotFound(field="reservationId", message="no such reservation on this account")


class ReservationReads(Reading):
    """Every method is for members of the root tenant that act in it and hold `compute:providers:manage`; everybody else
    is told ACCESS_DENIED before anything is looked up (R4)."""

    async def reservation(
        self, caller: Caller, *, tenant_id: Any, account_id: Any, reservation_id: Any
    ) -> ReservationView | Refusal:
        """Refuses in this order: INVALID_INPUT, ACCESS_DENIED, NOT_FOUND (also when its account was deleted)."""
        key = _named(caller, tenant_id, account_id, reservation_id)
        if isinstance(key, Refusal):
            return key
        async with self._snapshot() as snapshot:
            if await find_reservation(snapshot.connection, key) is None:
                return _NO_RESERVATION
            return (await current_reservations(snapshot.connection, [key], snapshot.instants))[key]

    async def reservations(
        self, caller: Caller, *, first: Any = None, after: Any = None, **given: Any
    ) -> Page[ReservationView] | Refusal:
        """A page of reservations, newest first, without those of deleted accounts.

        Takes `tenant_id`; the filters `account_id`, `pool_id`, `status`, `flavor`; `first` (200 at most), `after`.
        Refuses in this order: INVALID_INPUT, ACCESS_DENIED.
        """
        question = _question(caller, first=first, after=after, **given)
        if isinstance(question, Refusal):
            return question
        chosen, count, position = question
        async with self._snapshot() as snapshot:
            page = await page_reservations(snapshot.connection, chosen, first=count, after=position)
            keys = [head.key for head in page.items]
            views = await current_reservations(snapshot.connection, keys, snapshot.instants)
        return Page(tuple(views[key] for key in keys), page.positions, page.has_more)

    async def count_reservations(self, caller: Caller, **given: Any) -> int | Refusal:
        """How many reservations `reservations` would page through; takes the same."""
        question = _question(caller, **given)
        if isinstance(question, Refusal):
            return question
        async with self._moment() as connection:
            return await count_reservations(connection, question[0])

    async def load_reservation_views(self, keys: Iterable[str]) -> dict[str, ReservationView]:
        """Many at once, by key, those of deleted accounts too. The caller was allowed to see what named them."""
        wanted = list(keys)
        if not wanted:
            return {}
        async with self._snapshot() as snapshot:
            return await current_reservations(snapshot.connection, wanted, snapshot.instants)

    async def availability(
        self,
        caller: Caller,
        *,
        tenant_id: Any,
        account_id: Any,
        reservation_id: Any,
        starts_at: Any,
        ends_at: Any,
    ) -> tuple[Step, ...] | Refusal:
        """Granted and free slots over [starts_at, ends_at) as a step function, in the past too (F1).

        What has passed is held against the total of now. Refuses in this order: INVALID_INPUT, ACCESS_DENIED,
        NOT_FOUND, INVALID_INPUT (`too-many-steps`).
        """
        try:
            since, until = check_term(starts_at, ends_at, fields=("from", "to"))
        except Shape as shape:
            return shape.refusal
        key = _named(caller, tenant_id, account_id, reservation_id)
        if isinstance(key, Refusal):
            return key
        async with self._moment() as connection:
            books = await _terms_only(connection, key, starts_at=since, ends_at=until)
        if books is None:
            return _NO_RESERVATION
        steps = availability(books, starts_at=since, ends_at=until)
        if len(steps) > STEPS_MAX:
            message = f"there are {len(steps)} steps, at most {STEPS_MAX} are shown: ask for a shorter stretch"
            return InvalidInput(field="to", reason="too-many-steps", message=message)
        return tuple(steps)

    async def earliest_fit(
        self,
        caller: Caller,
        *,
        tenant_id: Any,
        account_id: Any,
        reservation_id: Any,
        slots: Any,
        duration_ms: Any,
        not_before: Any = None,
        not_after: Any = None,
        first: Any = None,
    ) -> tuple[Fit, ...] | Refusal:
        """The earliest terms in which `slots` fit for `duration_ms`, from now on (F1).

        A term starts from `not_before` (else now) to `not_after` (else ever), both included. `createGrant` accepts an
        offer unless a competitor was faster; so a reservation that is not ready or not bound offers nothing.
        Refuses in this order: INVALID_INPUT, ACCESS_DENIED, NOT_FOUND.
        """
        try:
            wanted = check_integer(slots, "slots", least=1, most=SLOTS_MAX)
            duration = check_integer(duration_ms, "durationMs", least=1)
            earliest = check_optional_integer(not_before, "notBefore")
            latest = check_optional_integer(not_after, "notAfter", least=earliest or 0)
            count = FITS_DEFAULT if first is None else check_integer(first, "first", most=FITS_MAX)
        except Shape as shape:
            return shape.refusal
        key = _named(caller, tenant_id, account_id, reservation_id)
        if isinstance(key, Refusal):
            return key
        last_start = INSTANT_MAX - duration if latest is None else min(latest, INSTANT_MAX - duration)
        async with self._snapshot() as snapshot:
            since = max(earliest or 0, snapshot.instants.now)
            books = await _terms_only(snapshot.connection, key, starts_at=since, ends_at=last_start + duration)
        if books is None:
            return _NO_RESERVATION
        since = max(since, books.reservation.clock_at)  # createGrant decides no earlier (R3)
        if last_start < since or not _is_open_for_grants(books.reservation):
            return ()
        return tuple(
            earliest_fits(
                books, slots=wanted, duration_ms=duration, not_before=since, not_after=last_start, first=count
            )
        )


def _named(caller: Caller, tenant_id: Any, account_id: Any, reservation_id: Any) -> str | Refusal:
    try:
        check_text(tenant_id, "tenantId", TENANT_ID)
        key = check_reservation(account_id, reservation_id)
    except Shape as shape:
        return shape.refusal
    return refuse_reader(caller, Permission.PROVIDERS_MANAGE, tenant_id=tenant_id, as_root=True) or key


def _question(
    caller: Caller,
    *,
    tenant_id: Any,
    account_id: Any = None,
    pool_id: Any = None,
    status: Any = None,
    flavor: Any = None,
    first: Any = None,
    after: Any = None,
) -> tuple[ReservationFilter, int, Position | None] | Refusal:
    try:
        check_text(tenant_id, "tenantId", TENANT_ID)
        chosen = ReservationFilter(
            account_id=check_optional_text(account_id, "accountId", ACCOUNT_ID),
            pool_id=check_optional_text(pool_id, "poolId", POOL_ID),
            status=check_word(status, "status", ReservationStatus),
            flavor=check_optional_text(flavor, "flavor", FLAVOR),
        )
        count, position = check_page(first, after, pattern=RESERVATION_KEY)
    except Shape as shape:
        return shape.refusal
    denied = refuse_reader(caller, Permission.PROVIDERS_MANAGE, tenant_id=tenant_id, as_root=True)
    return denied or (chosen, count, position)


async def _terms_only(connection: AnyConnection, key: str, *, starts_at: int, ends_at: int) -> CapacityState | None:
    """Books with nothing in them but what is granted over a stretch of time: all that questions about it need. One that
    is gone has nothing to give."""
    head = await find_reservation(connection, key)
    if head is None:
        return None
    books = CapacityState(replace(head, total=0) if head.status is ReservationStatus.GONE else head)
    books.timeline = Timeline(await read_terms(connection, key, starts_at=starts_at, ends_at=ends_at))
    return books


def _is_open_for_grants(head: Reservation) -> bool:
    """R8."""
    return head.status is ReservationStatus.READY and head.pool_id is not None
