"""The rows of the naive model and the arithmetic on single rows.

Plain data, no behaviour that needs the world around it. Nothing here may import the product: this model
exists to be compared with it. Instants are epoch milliseconds ending in `_at`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

HOUR_MS = 3_600_000
MINUTE_MS = 60_000
PAST_TOLERANCE_MS = 300_000
SAFE_INTEGER_MAX = 2**53 - 1
SLOTS_MAX = 100_000

CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"
TENANT_SHAPE = re.compile(r"[A-Za-z0-9._:-]{1,128}")
ACCOUNT_SHAPE = re.compile(r"pacct_[0-9a-hjkmnp-tv-z]{26,52}")
RESERVATION_SHAPE = re.compile(r"[A-Za-z0-9._/:-]{1,300}")
PROJECT_SHAPE = re.compile(r"prj_[0-9a-hjkmnp-tv-z]{26,52}")
KEY_SHAPE = re.compile(r"[A-Za-z0-9._:-]{1,128}")

ReservationKey = tuple[str, str]
Outcome = tuple[str, str | dict[str, object]]


@dataclass
class Tenant:
    tenant_id: str
    deleted_at: int | None = None


@dataclass
class Project:
    project_id: str
    tenant_id: str
    deleted_at: int | None = None


@dataclass
class Account:
    account_id: str
    provider: str
    deleted_at: int | None = None


@dataclass
class Pool:
    """`offered_to` holds tenant ids, or "*" for everybody."""

    pool_id: str
    offered_to: set[str] = field(default_factory=set)


@dataclass
class Reservation:
    """`status` is ready, not_ready or gone; `clock_at` is the floor of R3."""

    account_id: str
    reservation_id: str
    flavor: str
    region: str
    provider: str
    total: int
    status: str = "ready"
    pool_id: str | None = None
    external_in_use: int = 0
    clock_at: int = 0
    total_changes: int = 0

    @property
    def key(self) -> ReservationKey:
        return (self.account_id, self.reservation_id)


@dataclass
class Grant:
    """`pieces` is the history of (from, slots): an amendment in the term adds one.

    `admissions` holds, for each time capacity was checked: order, at, from_ms and the total of that moment (P9).
    """

    grant_id: str
    tenant_id: str
    project_id: str | None
    account_id: str
    reservation_id: str
    slots: int
    starts_at: int
    ends_at: int
    created_at: int
    pool_id: str
    region: str
    provider: str
    pieces: list[tuple[int, int]]
    admissions: list[dict[str, int]] = field(default_factory=list)
    version: int = 1
    cancelled_at: int | None = None
    ended_reason: str | None = None
    started_applied: bool = False
    ended_applied: bool = False
    metered_through: int = 0

    @property
    def reservation_key(self) -> ReservationKey:
        return (self.account_id, self.reservation_id)


@dataclass
class Instance:
    """`state` is running, stopped or deleted; `grant_id` set means inside that grant, running or stopped.

    `wanted_pool` is the pool that its creation named, None when it named none.
    """

    instance_id: str
    tenant_id: str
    project_id: str | None
    flavor: str
    created_at: int
    reservation_key: ReservationKey | None
    billing: str = "normal"
    state: str = "running"
    grant_id: str | None = None
    wanted_pool: str | None = None
    running_periods: list[tuple[int, int | None]] = field(default_factory=list)


@dataclass
class Segment:
    """A stretch of running time under one `mode`: grant, reserved, ondemand or none."""

    instance_id: str
    tenant_id: str
    project_id: str | None
    from_ms: int
    to_ms: int | None
    mode: str
    grant_id: str | None
    reservation_key: ReservationKey | None


@dataclass
class Event:
    tenant_id: str
    seq: int
    event_id: str
    type: str
    occurred_at: int
    payload: dict[str, object]


@dataclass
class Usage:
    """`quantity_ms` is slot-milliseconds or instance-milliseconds; negative in a correction (D6)."""

    source_key: str
    tenant_id: str
    project_id: str | None
    meter: str
    hour_start: int
    quantity_ms: int
    grant_id: str | None
    instance_id: str | None
    tags: dict[str, str]


@dataclass(frozen=True)
class Figures:
    """R18, R19: what a reservation has (`total`), what runs (`used`), what grants leave idle (`unused`), the rest."""

    total: int
    used: int
    unused: int
    free: int


def crockford(number: int) -> str:
    """26 lower-case Crockford characters; their byte order is the order of the numbers."""
    characters = []
    for _ in range(26):
        number, digit = divmod(number, 32)
        characters.append(CROCKFORD[digit])
    return "".join(reversed(characters))


def state_of(grant: Grant, now: int) -> str:
    """R15: the state is a function of the cancelled flag, the term and now."""
    if grant.cancelled_at is not None:
        return "cancelled"
    if now < grant.starts_at:
        return "scheduled"
    return "active" if now < grant.ends_at else "ended"


def slots_at(grant: Grant, instant: int) -> int:
    """Slots committed at `instant`: 0 outside the term and for a cancelled grant (R1, R10)."""
    if grant.cancelled_at is not None or not grant.starts_at <= instant < grant.ends_at:
        return 0
    return [slots for from_at, slots in grant.pieces if from_at <= instant][-1]


def slot_ms(grant: Grant, from_at: int, to_at: int) -> int:
    """Committed slot-milliseconds of `grant` inside [from_at, to_at) (R39), piece by piece."""
    if grant.cancelled_at is not None:
        return 0
    committed = 0
    ends = [later for later, _ in grant.pieces[1:]] + [grant.ends_at]
    for (piece_from, slots), piece_to in zip(grant.pieces, ends, strict=True):
        overlap = min(piece_to, grant.ends_at, to_at) - max(piece_from, grant.starts_at, from_at)
        committed += slots * max(0, overlap)
    return committed


def peak(grants: Iterable[Grant], from_at: int, to_at: int) -> int:
    """R10: the highest sum of granted slots at any instant of [from_at, to_at)."""
    grants = list(grants)
    instants = {from_at}
    for grant in grants:
        steps = [grant.starts_at, *(piece_from for piece_from, _ in grant.pieces)]
        instants.update(step for step in steps if from_at < step < to_at)
    return max(sum(slots_at(grant, instant) for grant in grants) for instant in instants)


def hours_of(from_at: int, to_at: int) -> list[int]:
    """Starts of the UTC clock hours that [from_at, to_at) touches (R39, D34)."""
    return list(range(from_at // HOUR_MS * HOUR_MS, to_at, HOUR_MS)) if to_at > from_at else []


def preference(grant: Grant) -> tuple[int, int, str]:
    """R16, R27: project-restricted first, then the later end, then the lower id."""
    return (0 if grant.project_id is not None else 1, -grant.ends_at, grant.grant_id)


def age(instance: Instance) -> tuple[int, str]:
    """R30: oldest first, ties by id."""
    return (instance.created_at, instance.instance_id)
