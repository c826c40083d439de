"""What a scan of a provider saw, and what may be concluded from it (R54..R59, D12, D13, D16)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedReservation:
    """One capacity reservation as its provider shows it. `total` and `in_use` count slots (machines or accelerators)."""

    reservation_id: str
    flavor: str
    region: str
    total: int
    in_use: int | None = None
    """The provider's own count of consumed slots, whoever consumes them; None when it does not say (D16)."""
    ready: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanReport:
    """One look at one provider account.

    Only a `complete` report (all pages, right project and zones, no error) may conclude that a reservation is gone, or
    that its total changed (R54, D12). `problems` says in words what went wrong, for the log and the operator.
    """

    reservations: tuple[ReportedReservation, ...]
    complete: bool
    problems: tuple[str, ...] = ()
