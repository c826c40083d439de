"""Refusals that only budgets know (section 5.1). `scope` names the budget that stood in the way.

A `Denial` is a "no" of the budget's state or the tenant's: a live request gets it as its refusal, a preview (`dry_run`
or evaluate) as a DENY whose reason is the same code (section 5.2). Everything else refuses a preview too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from domain.amounts import Unit
from domain.outcomes import Refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Denial(Refusal):
    code: ClassVar[str] = "DENIED"


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetNotFound(Denial):
    """No derived scope has a budget in any unit; or, in governance, this very scope and unit has none."""

    code: ClassVar[str] = "BUDGET_NOT_FOUND"
    scope: str
    unit: Unit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetExceeded(Denial):
    """`requested` is more than `remaining`, or an actual is more than its estimate under REJECT."""

    code: ClassVar[str] = "BUDGET_EXCEEDED"
    scope: str
    unit: Unit
    requested: int
    remaining: int | None = None
    estimate: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetFrozen(Denial):
    code: ClassVar[str] = "BUDGET_FROZEN"
    scope: str
    unit: Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetClosed(Denial):
    code: ClassVar[str] = "BUDGET_CLOSED"
    scope: str
    unit: Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class OverdraftLimitExceeded(Denial):
    """The budget is over its limit already; or `deficit` on top of `debt` would bring it there."""

    code: ClassVar[str] = "OVERDRAFT_LIMIT_EXCEEDED"
    scope: str
    unit: Unit
    debt: int
    overdraft_limit: int
    deficit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DebtOutstanding(Denial):
    code: ClassVar[str] = "DEBT_OUTSTANDING"
    scope: str
    unit: Unit
    debt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantClosed(Denial):
    code: ClassVar[str] = "TENANT_CLOSED"
    message: str = "the tenant is closed"
    tenant_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantSuspended(Denial):
    """No new work; what is held may still be settled or released (section 7)."""

    code: ClassVar[str] = "TENANT_SUSPENDED"
    message: str = "the tenant is suspended: no new work is accepted"
    tenant_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimited(Denial):
    """A policy's calls a minute are used up (section 11.6)."""

    code: ClassVar[str] = "LIMIT_EXCEEDED"
    policy_id: str
    limit: int
    retry_after_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitMismatch(Refusal):
    """The scope has budgets, but in other units; or an actual is in another unit than its estimate."""

    code: ClassVar[str] = "UNIT_MISMATCH"
    requested_unit: Unit
    expected_units: tuple[Unit, ...]
    scope: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationFinalized(Refusal):
    code: ClassVar[str] = "RESERVATION_FINALIZED"
    reservation_id: str
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationExpired(Refusal):
    """Too late: past `expires_at`, and for settling and releasing past its grace as well. Instants in epoch ms."""

    code: ClassVar[str] = "RESERVATION_EXPIRED"
    reservation_id: str
    expires_at: int
    grace_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxExtensionsExceeded(Refusal):
    code: ClassVar[str] = "MAX_EXTENSIONS_EXCEEDED"
    reservation_id: str
    max_extensions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyMismatch(Refusal):
    """The key was accepted before with another content (section 4.2)."""

    code: ClassVar[str] = "IDEMPOTENCY_MISMATCH"
    message: str = "the idempotency key was used for another request"
    idempotency_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate(Refusal):
    """A budget of this scope and unit, or a policy of this name, is there already."""

    code: ClassVar[str] = "DUPLICATE_RESOURCE"
    resource: str
    resource_id: str
