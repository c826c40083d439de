"""Things as they are shown: with their place and the instant they are shown at. Built by desks and reads, used by edges."""

from __future__ import annotations

from dataclasses import dataclass

from domain.capacity.state import Grant, GrantState, Instance, ReservationStatus
from domain.identity import split_reservation_key


@dataclass(frozen=True, slots=True)
class GrantView:
    """A grant as of the instant `at` (D49: state is computed when it is shown)."""

    key: str
    grant: Grant
    at: int

    @property
    def state(self) -> GrantState:
        return self.grant.state_at(self.at)

    @property
    def account_id(self) -> str:
        """The platform's own (D46): an edge shows it to root only, or where the seed says so."""
        return split_reservation_key(self.key)[0]

    @property
    def reservation_id(self) -> str:
        return split_reservation_key(self.key)[1]


@dataclass(frozen=True, slots=True)
class InstanceView:
    key: str
    instance: Instance
    flavor: str
    at: int


@dataclass(frozen=True, slots=True)
class ReservationView:
    """A capacity reservation with its slots counted as of `at` (R18..R21): every boundary up to then is applied."""

    key: str
    account_id: str
    reservation_id: str
    provider: str
    flavor: str
    region: str
    status: ReservationStatus
    pool_id: str | None
    created_at: int
    gone_at: int | None
    total: int
    in_use: int
    granted_now: int
    unused_granted: int
    free: int
    """Never below zero (R21)."""
    shortfall: int
    """How far the live grants' peak from now on exceeds the total; zero when all fit (D45)."""
    version: int
    at: int
