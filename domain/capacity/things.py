"""The things of one capacity reservation: the reservation itself, grants, instances, what they ran, what is told.

Each knows what can be said of it alone. What keeps them in step with each other is `state`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class ReservationStatus(StrEnum):
    READY = "ready"
    NOT_READY = "not_ready"
    GONE = "gone"


class GrantState(StrEnum):
    """R15: a function of time, never a column that a decision reads."""

    SCHEDULED = "scheduled"
    ACTIVE = "active"
    ENDED = "ended"
    CANCELLED = "cancelled"


class RunState(StrEnum):
    RUNNING = "running"
    STOPPED = "stopped"
    DELETED = "deleted"


class Billing(StrEnum):
    NORMAL = "normal"
    NONE = "none"


class Mode(StrEnum):
    """Who pays for a running instance, and at which rate; each running millisecond has exactly one (R44)."""

    GRANT = "grant"
    RESERVED = "reserved"
    ONDEMAND = "ondemand"
    NONE = "none"


@dataclass(slots=True, kw_only=True)
class Reservation:
    """The head: the row that every decision about this reservation locks (R12)."""

    key: str
    account_id: str
    reservation_id: str
    provider: str
    flavor: str
    region: str
    total: int
    status: ReservationStatus
    created_at: int
    pool_id: str | None = None
    external_in_use: int = 0
    """Slots that the provider counts as consumed beyond our own running instances (D16)."""
    clock_at: int = 0
    """The last instant decided at: no later turn goes behind it, whatever a clock does (R3, D15)."""
    total_seq: int = 0
    gone_at: int | None = None
    missed_scans: int = 0
    """Complete scans in a row that did not report it (D13)."""
    version: int = 0
    outbox_seq: int = 0


@dataclass(slots=True, kw_only=True)
class Grant:
    """A tenant's right to `slots` of the reservation over [starts_at, ends_at)."""

    grant_id: str
    tenant_id: str
    project_id: str | None
    slots: int
    starts_at: int
    ends_at: int
    created_at: int
    created_by: str
    pool_id: str
    region: str
    provider: str
    """Pool, region and provider as they were at create: the last hours still need them (R14)."""
    cancelled_at: int | None = None
    ended_reason: str | None = None
    started_applied: bool = False
    ended_applied: bool = False
    commitments: tuple[tuple[int, int], ...]
    """(from, slots) in time order; more than one when an amendment changed the slots in mid-term."""
    version: int = 1

    def state_at(self, instant: int) -> GrantState:
        """R15, with both ends of the term half-open as in R1."""
        if self.cancelled_at is not None:
            return GrantState.CANCELLED
        if instant >= self.ends_at:
            return GrantState.ENDED
        return GrantState.ACTIVE if instant >= self.starts_at else GrantState.SCHEDULED

    def is_live_at(self, instant: int) -> bool:
        return self.state_at(instant) is GrantState.ACTIVE

    def is_open_at(self, instant: int) -> bool:
        """Scheduled or active: what guards mean by a grant that stands in the way (R51)."""
        return self.cancelled_at is None and instant < self.ends_at

    def serves(self, project_id: str) -> bool:
        """R26: a grant that names a project serves only that one."""
        return self.project_id is None or self.project_id == project_id

    def pieces(self) -> list[tuple[int, int, int]]:
        """(from, to, slots) of the term: one, or one for each count of slots that it had."""
        edges = [*(from_at for from_at, _ in self.commitments[1:]), self.ends_at]
        return [(from_at, to_at, slots) for (from_at, slots), to_at in zip(self.commitments, edges, strict=True)]

    @property
    def preference(self) -> tuple[int, int, str]:
        """R27: project-restricted first, then the later end, then the lower id."""
        return (0 if self.project_id is not None else 1, -self.ends_at, self.grant_id)


@dataclass(slots=True, kw_only=True)
class Segment:
    """A stretch of running time under one mode: the source of every instance meter. Rows are only added and closed."""

    number: int
    from_at: int
    to_at: int | None
    mode: Mode
    grant_id: str | None
    project_id: str
    """Whose usage it is: what ran before a change of project stays with the former one (D39)."""


@dataclass(slots=True, kw_only=True)
class Instance:
    instance_id: str
    tenant_id: str
    project_id: str
    name: str
    created_at: int
    run_state: RunState
    billing: Billing = Billing.NORMAL
    grant_id: str | None = None
    attached: bool = True
    """False once its reservation is gone: it is on demand until root attaches it again (R56, D14)."""
    wanted_pool_id: str | None = None
    """The pool that was asked for when it was created: it is placed in no other."""
    moved_to: str | None = None
    """The reservation that it has moved to. What is left here is what it ran here: to every decision it is not here."""
    segment: Segment | None = None
    """The open one, while it runs."""
    segment_count: int = 0

    @property
    def is_running(self) -> bool:
        return self.run_state is RunState.RUNNING

    @property
    def holds_nothing(self) -> bool:
        """Stopped outside of any grant: no count of any reservation has it in (D27)."""
        return self.run_state is RunState.STOPPED and self.attached and self.grant_id is None

    @property
    def mode(self) -> Mode:
        """How its running time is billed now (R43, R44)."""
        if self.billing is Billing.NONE:
            return Mode.NONE
        if not self.attached:
            return Mode.ONDEMAND
        return Mode.GRANT if self.grant_id is not None else Mode.RESERVED

    @property
    def age(self) -> tuple[int, str]:
        """Oldest first (R30)."""
        return (self.created_at, self.instance_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityEvent:
    """What subscribers are told. `tenant_id` None is the platform's own stream."""

    tenant_id: str | None
    type: str
    occurred_at: int
    payload: Mapping[str, Any]
