"""One tenant's books in memory: what every decision about its budgets reads and changes.

A `BudgetState` holds the rows that decisions can still ask about and notes what has changed since the last flush. Rules
live beside this module. A state whose flush failed is worth nothing any more: load it again.

A state may be partial. Whoever builds it promises that every budget, reservation and remembered answer that the coming
commands name (`reads.reads_of`) is in it, when it exists; what is not there does not exist to a decision. `is_complete`
promises more: all active reservations are in it, which closing a tenant needs and which lets I2 be checked.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from domain.amounts import Unit
from domain.budget.events import MILLION, AuditEntry, BudgetEvent
from domain.budget.records import (
    Budget,
    BudgetReservation,
    DirectDebit,
    Funding,
    Policy,
    RateKind,
    RateWindow,
    ReservationStatus,
    Tenant,
    TenantKey,
)
from domain.budget.replay import RememberedAnswer
from domain.replay import RequestKey

DEFAULT_THRESHOLDS: Final = (800_000, 950_000, MILLION)
"""Millionths of the allocation whose crossing is told: 80, 95 and 100 % unless subscriptions ask for others."""

NO_THRESHOLD: Final = 2**128
"""In millionths: more than any use of any allocation."""

NO_BUDGETS: Final[Mapping[Unit, Budget]] = {}


@dataclass(slots=True)
class Changes:
    """What the next flush has to write: whole rows, each at most once, and what is only ever added, in order."""

    tenant: bool = False
    """Settings or status of the tenant row; its clock and version go with every flush anyway."""
    budgets: dict[tuple[str, Unit], Budget] = field(default_factory=dict)
    new_budgets: set[tuple[str, Unit]] = field(default_factory=set)
    whole_budgets: set[tuple[str, Unit]] = field(default_factory=set)
    """Those of which more than the balances may have changed."""
    reservations: dict[str, BudgetReservation] = field(default_factory=dict)
    new_reservations: set[str] = field(default_factory=set)
    policies: dict[str, Policy] = field(default_factory=dict)
    new_policies: set[str] = field(default_factory=set)
    rate_windows: dict[tuple[str, RateKind], RateWindow] = field(default_factory=dict)
    debits: list[DirectDebit] = field(default_factory=list)
    fundings: list[Funding] = field(default_factory=list)
    remembered: dict[RequestKey, RememberedAnswer] = field(default_factory=dict)
    events: list[BudgetEvent] = field(default_factory=list)
    audit: list[AuditEntry] = field(default_factory=list)
    revoked_keys: list[TenantKey] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(
            self.tenant
            or self.budgets
            or self.reservations
            or self.policies
            or self.rate_windows
            or self.debits
            or self.fundings
            or self.remembered
            or self.events
            or self.audit
            or self.revoked_keys
        )


class BudgetState:
    """The books. Every change of a row goes through a method here, so nothing changed can miss the flush."""

    __slots__ = (
        "_due",
        "budgets",
        "changes",
        "foreign_reservations",
        "is_complete",
        "live_keys",
        "lowest_threshold",
        "policies",
        "policy_order",
        "rate_windows",
        "remembered",
        "reservations",
        "tenant",
        "thresholds",
    )

    def __init__(
        self,
        tenant: Tenant,
        budgets: Iterable[Budget] = (),
        reservations: Iterable[BudgetReservation] = (),
        *,
        policies: Iterable[Policy] = (),
        rate_windows: Iterable[RateWindow] = (),
        remembered: Mapping[RequestKey, RememberedAnswer] | None = None,
        foreign_reservations: Iterable[str] = (),
        live_keys: Iterable[TenantKey] = (),
        thresholds: Iterable[int] = DEFAULT_THRESHOLDS,
        is_complete: bool = False,
    ) -> None:
        self.tenant = tenant
        self.budgets: dict[str, dict[Unit, Budget]] = {}
        """scope path -> unit -> budget."""
        self.reservations: dict[str, BudgetReservation] = {}
        self.policies: dict[str, Policy] = {policy.policy_id: policy for policy in policies}
        self.policy_order: list[Policy] = []
        """In the order in which they win (section 11.6)."""
        self.rate_windows = {(window.policy_id, window.kind): window for window in rate_windows}
        self.remembered: dict[RequestKey, RememberedAnswer] = dict(remembered or {})
        self.foreign_reservations = set(foreign_reservations)
        """Named by a command and known to be another tenant's: forbidden instead of unknown (check 10 of 5.3)."""
        self.live_keys = list(live_keys)
        """API keys that are not revoked: needed to close the tenant, as `is_complete` is."""
        self.watch(tuple(sorted(thresholds)))
        self.is_complete = is_complete
        self.changes = Changes()
        self._due: list[tuple[int, str]] = []
        for budget in budgets:
            self.admit_budget(budget)
        for reservation in reservations:
            self.admit_reservation(reservation)
        self._sort_policies()

    def watch(self, thresholds: tuple[int, ...]) -> None:
        """From now on these crossings are told. Rising, in millionths."""
        self.thresholds = thresholds
        self.lowest_threshold = min(thresholds, default=NO_THRESHOLD)

    # -- loading -------------------------------------------------------------------------------------------------

    def admit_budget(self, budget: Budget) -> None:
        """Take in a row as it is stored. The one that is here already is newer."""
        self.budgets.setdefault(budget.scope_path, {}).setdefault(budget.unit, budget)

    def admit_reservation(self, reservation: BudgetReservation) -> None:
        """Take in a row as it is stored. The one that is here already is newer."""
        if reservation.reservation_id not in self.reservations:
            self.reservations[reservation.reservation_id] = reservation
            self._schedule(reservation)

    def forget_settled(self, *, answered_before: int) -> None:
        """Drop what only a late retry can still ask about; it then has to be read again when a command names it."""
        active = ReservationStatus.ACTIVE
        self.reservations = {key: held for key, held in self.reservations.items() if held.status is active}
        self.remembered = {
            key: remembered for key, remembered in self.remembered.items() if remembered.answered_at >= answered_before
        }
        self.foreign_reservations.clear()
        self._due = [(held.settles_until, key) for key, held in self.reservations.items()]
        heapq.heapify(self._due)

    # -- reading -------------------------------------------------------------------------------------------------

    def budget(self, scope_path: str, unit: Unit) -> Budget | None:
        return self.budgets.get(scope_path, NO_BUDGETS).get(unit)

    def taking_part(self, scopes: Iterable[str], unit: Unit) -> list[Budget]:
        """The budgets of these scopes in the unit, in the order of the scopes; scopes without one are skipped (2.2)."""
        found = self.budgets
        return [budget for scope in scopes if (budget := found.get(scope, NO_BUDGETS).get(unit)) is not None]

    def held_budgets(self, reservation: BudgetReservation) -> list[Budget]:
        """The budgets that were frozen on the hold: they are never deleted."""
        budgets = self.taking_part(reservation.budgeted_scopes, reservation.unit)
        assert len(budgets) == len(reservation.budgeted_scopes), f"{reservation.reservation_id} lost a budget (2.2)"
        return budgets

    def all_budgets(self) -> list[Budget]:
        return [budget for units in self.budgets.values() for budget in units.values()]

    def next_due(self, now: int) -> BudgetReservation | None:
        """An active reservation whose grace is over at `now`, the longest overdue first; then by id."""
        first = self._first_due()
        if first is None or first.settles_until >= now:
            return None
        heapq.heappop(self._due)
        return first

    def next_expiry_at(self) -> int | None:
        """The first instant at which an active reservation here is due."""
        first = self._first_due()
        return None if first is None else first.settles_until + 1

    # -- changing ------------------------------------------------------------------------------------------------

    def touch_tenant(self) -> None:
        self.changes.tenant = True

    def add_budget(self, budget: Budget) -> None:
        self.admit_budget(budget)
        self.changes.new_budgets.add((budget.scope_path, budget.unit))
        self.touch_budget(budget)

    def touch_budget(self, budget: Budget) -> None:
        key = budget.scope_path, budget.unit
        self.changes.budgets[key] = budget
        self.changes.whole_budgets.add(key)

    def touch_balances(self, budget: Budget) -> None:
        """Nothing but its amounts, the mark of a cut charge, and the instant of that."""
        self.changes.budgets[budget.scope_path, budget.unit] = budget

    def add_reservation(self, reservation: BudgetReservation) -> None:
        self.admit_reservation(reservation)
        self.changes.new_reservations.add(reservation.reservation_id)
        self.touch_reservation(reservation)

    def touch_reservation(self, reservation: BudgetReservation) -> None:
        self.changes.reservations[reservation.reservation_id] = reservation

    def move_expiry(self, reservation: BudgetReservation, expires_at: int) -> None:
        reservation.expires_at = expires_at
        self._schedule(reservation)
        self.touch_reservation(reservation)

    def add_policy(self, policy: Policy) -> None:
        self.policies[policy.policy_id] = policy
        self.changes.new_policies.add(policy.policy_id)
        self.touch_policy(policy)

    def touch_policy(self, policy: Policy) -> None:
        self.changes.policies[policy.policy_id] = policy
        self._sort_policies()

    def touch_rate_window(self, window: RateWindow) -> None:
        self.rate_windows[window.policy_id, window.kind] = window
        self.changes.rate_windows[window.policy_id, window.kind] = window

    def add_debit(self, debit: DirectDebit) -> None:
        self.changes.debits.append(debit)

    def revoke_keys(self) -> list[TenantKey]:
        """All that are live; returns them."""
        revoked, self.live_keys = self.live_keys, []
        self.changes.revoked_keys.extend(revoked)
        return revoked

    def add_funding(self, funding: Funding) -> None:
        self.changes.fundings.append(funding)

    def remember(self, key: RequestKey, remembered: RememberedAnswer) -> None:
        self.remembered[key] = remembered
        self.changes.remembered[key] = remembered

    def publish(self, event: BudgetEvent) -> None:
        self.changes.events.append(event)

    def audit(self, entry: AuditEntry) -> None:
        self.changes.audit.append(entry)

    def take_changes(self) -> Changes:
        """What has changed since the last call."""
        taken, self.changes = self.changes, Changes()
        return taken

    # -- bookkeeping ---------------------------------------------------------------------------------------------

    def _first_due(self) -> BudgetReservation | None:
        """The active reservation that is due first; what ended or moved meanwhile is dropped on the way to it."""
        while self._due:
            settles_until, reservation_id = self._due[0]
            reservation = self.reservations.get(reservation_id)
            if (
                reservation is not None
                and reservation.status is ReservationStatus.ACTIVE
                and reservation.settles_until == settles_until
            ):
                return reservation
            heapq.heappop(self._due)
        return None

    def _schedule(self, reservation: BudgetReservation) -> None:
        if reservation.status is ReservationStatus.ACTIVE:
            heapq.heappush(self._due, (reservation.settles_until, reservation.reservation_id))

    def _sort_policies(self) -> None:
        self.policy_order = sorted(self.policies.values(), key=lambda policy: policy.precedence)
