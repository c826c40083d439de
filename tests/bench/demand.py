"""What the clients of a window ask for, and what they were told: the same sequence for every variant."""

from __future__ import annotations

import itertools
import random
import time
from dataclasses import dataclass, field
from typing import Final, NamedTuple

HOUR_MS: Final = 3_600_000
ROOT: Final = "root"
TENANTS: Final = ("tenant-1", "tenant-2", "tenant-3", "tenant-4")
POOL: Final = "pool-1"
PROVIDER: Final = "gcp"
FLAVOR: Final = "flavor-1"
REGION: Final = "region-1"
SEEDED_BY: Final = "seeded"
"""Who made the grants that were there before the window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How requests lie over reservations and time."""

    reservations: int
    """One is hot: every client wants the same."""
    total: int = 1_000_000
    """Slots of each reservation."""
    horizon_ms: int = 1_000 * HOUR_MS
    """Starts are anywhere in this stretch, which begins in an hour."""
    length_ms: int = HOUR_MS
    """Of every term. When it reaches over the whole horizon, all grants of a reservation overlap."""
    seeded: int = 0
    """Grants of the hot reservation before the window begins; all of them reach over the whole horizon."""

    @property
    def overlaps(self) -> bool:
        """Whether there is an instant at which all grants of a reservation hold their slots."""
        return self.length_ms >= self.horizon_ms


class GrantRequest(NamedTuple):
    account_id: str
    reservation_id: str
    grant_tenant_id: str
    slots: int
    starts_at: int
    ends_at: int
    idempotency_key: str


@dataclass(slots=True)
class Told:
    """What the replies of a window promised, for holding the books against."""

    keys: list[str] = field(default_factory=list)
    """The capacity reservations of the window."""
    grants: dict[str, str] = field(default_factory=dict)
    """Idempotency key to the id of the grant that was made for it."""
    refused: set[str] = field(default_factory=set)
    """The reservations that somebody was told have no room."""


class Demand:
    """Requests of one variant, window after window; every window has reservations of its own."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.told = Told()
        self._windows = itertools.count(1)
        self._window = 0
        self._account_id = ""
        self._asked = itertools.count()
        self._random = random.Random(7)
        self._from_at = 0

    def begin(self, account_id: str) -> list[str]:
        """A new window on new reservations of this account; their ids."""
        self._window, self._account_id = next(self._windows), account_id
        self._asked, self._random = itertools.count(), random.Random(self._window)
        self._from_at = time.time_ns() // 1_000_000 + HOUR_MS
        names = [f"window-{self._window}/{number}" for number in range(self.shape.reservations)]
        keys = [f"{account_id}/{name}" for name in names]
        self.told = Told(keys=keys)
        return names

    def next(self) -> GrantRequest:
        number = next(self._asked)
        starts_at = self._from_at + self._random.randrange(self.shape.horizon_ms)
        return GrantRequest(
            account_id=self._account_id,
            reservation_id=f"window-{self._window}/{number % self.shape.reservations}",
            grant_tenant_id=TENANTS[number % len(TENANTS)],
            slots=1,
            starts_at=starts_at,
            ends_at=starts_at + self.shape.length_ms,
            idempotency_key=f"window-{self._window}-{number}",
        )

    def made(self, request: GrantRequest, grant_id: str) -> None:
        self.told.grants[request.idempotency_key] = grant_id

    def refused(self, request: GrantRequest) -> None:
        self.told.refused.add(f"{request.account_id}/{request.reservation_id}")

    def seeded_terms(self) -> tuple[int, int]:
        """(start, end) around which seeded grants lie: before and after everything that the window asks for."""
        return self._from_at - 1, self._from_at + self.shape.horizon_ms + self.shape.length_ms
