"""What a refusal is on this wire: one (status, error) pair each, total over every refusal that budgets know (5.1, 5.2).

The runtime plane has seventeen codes and no more; the admin plane has names of its own for some of the same refusals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any, Final

from domain.budget.refusals import (
    BudgetClosed,
    BudgetExceeded,
    BudgetFrozen,
    BudgetNotFound,
    DebtOutstanding,
    Duplicate,
    IdempotencyMismatch,
    MaxExtensionsExceeded,
    OverdraftLimitExceeded,
    RateLimited,
    ReservationExpired,
    ReservationFinalized,
    TenantClosed,
    TenantSuspended,
    UnitMismatch,
)
from domain.outcomes import AccessDenied, Conflict, InvalidInput, InvalidState, NotFound, Refusal
from domain.webhooks.refusals import ReplayInProgress, WebhookUrlInvalid


class ErrorCode(StrEnum):
    """The published words; those behind the blank line only on the admin plane."""

    INVALID_REQUEST = "INVALID_REQUEST"
    UNAUTHORIZED = "UNAUTHORIZED"
    FORBIDDEN = "FORBIDDEN"
    NOT_FOUND = "NOT_FOUND"
    BUDGET_EXCEEDED = "BUDGET_EXCEEDED"
    BUDGET_FROZEN = "BUDGET_FROZEN"
    BUDGET_CLOSED = "BUDGET_CLOSED"
    RESERVATION_EXPIRED = "RESERVATION_EXPIRED"
    RESERVATION_FINALIZED = "RESERVATION_FINALIZED"
    IDEMPOTENCY_MISMATCH = "IDEMPOTENCY_MISMATCH"
    UNIT_MISMATCH = "UNIT_MISMATCH"
    OVERDRAFT_LIMIT_EXCEEDED = "OVERDRAFT_LIMIT_EXCEEDED"
    DEBT_OUTSTANDING = "DEBT_OUTSTANDING"
    MAX_EXTENSIONS_EXCEEDED = "MAX_EXTENSIONS_EXCEEDED"
    LIMIT_EXCEEDED = "LIMIT_EXCEEDED"
    TENANT_CLOSED = "TENANT_CLOSED"
    INTERNAL_ERROR = "INTERNAL_ERROR"

    TENANT_NOT_FOUND = "TENANT_NOT_FOUND"
    TENANT_SUSPENDED = "TENANT_SUSPENDED"
    BUDGET_NOT_FOUND = "BUDGET_NOT_FOUND"
    INSUFFICIENT_PERMISSIONS = "INSUFFICIENT_PERMISSIONS"
    KEY_REVOKED = "KEY_REVOKED"
    KEY_EXPIRED = "KEY_EXPIRED"
    DUPLICATE_RESOURCE = "DUPLICATE_RESOURCE"
    WEBHOOK_NOT_FOUND = "WEBHOOK_NOT_FOUND"
    WEBHOOK_URL_INVALID = "WEBHOOK_URL_INVALID"
    EVENT_NOT_FOUND = "EVENT_NOT_FOUND"
    REPLAY_IN_PROGRESS = "REPLAY_IN_PROGRESS"
    COUNT_MISMATCH = "COUNT_MISMATCH"


class Plane(Enum):
    RUNTIME = "runtime"
    ADMIN = "admin"


Pair = tuple[int, ErrorCode]

RUNTIME: Final[Mapping[type[Refusal], Pair]] = {
    InvalidInput: (400, ErrorCode.INVALID_REQUEST),
    UnitMismatch: (400, ErrorCode.UNIT_MISMATCH),
    AccessDenied: (403, ErrorCode.FORBIDDEN),
    TenantSuspended: (403, ErrorCode.FORBIDDEN),
    NotFound: (404, ErrorCode.NOT_FOUND),
    BudgetNotFound: (404, ErrorCode.NOT_FOUND),
    BudgetExceeded: (409, ErrorCode.BUDGET_EXCEEDED),
    BudgetFrozen: (409, ErrorCode.BUDGET_FROZEN),
    BudgetClosed: (409, ErrorCode.BUDGET_CLOSED),
    OverdraftLimitExceeded: (409, ErrorCode.OVERDRAFT_LIMIT_EXCEEDED),
    DebtOutstanding: (409, ErrorCode.DEBT_OUTSTANDING),
    TenantClosed: (409, ErrorCode.TENANT_CLOSED),
    ReservationFinalized: (409, ErrorCode.RESERVATION_FINALIZED),
    MaxExtensionsExceeded: (409, ErrorCode.MAX_EXTENSIONS_EXCEEDED),
    IdempotencyMismatch: (409, ErrorCode.IDEMPOTENCY_MISMATCH),
    ReservationExpired: (410, ErrorCode.RESERVATION_EXPIRED),
    RateLimited: (429, ErrorCode.LIMIT_EXCEEDED),
}
"""What the nine runtime operations can be refused with."""

ADMIN: Final[Mapping[type[Refusal], Pair]] = {
    **RUNTIME,
    BudgetNotFound: (404, ErrorCode.BUDGET_NOT_FOUND),
    TenantSuspended: (403, ErrorCode.TENANT_SUSPENDED),
    Duplicate: (409, ErrorCode.DUPLICATE_RESOURCE),
    InvalidState: (409, ErrorCode.INVALID_REQUEST),
    Conflict: (409, ErrorCode.IDEMPOTENCY_MISMATCH),
    WebhookUrlInvalid: (400, ErrorCode.WEBHOOK_URL_INVALID),
    ReplayInProgress: (409, ErrorCode.REPLAY_IN_PROGRESS),
}
"""What governance can be refused with besides. The plane has no code for a wrong state: its 409 says it."""

TABLES: Final = {Plane.RUNTIME: RUNTIME, Plane.ADMIN: ADMIN}

UNTOLD: Final[tuple[type[Refusal], ...]] = (AccessDenied, NotFound)
"""Refusals without details: nothing about what exists."""

TENANT_FIELDS: Final = frozenset({"tenant_id", "tenantId"})
"""What the registry calls the field that names no tenant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An error of the wire. `retry_after_ms` makes it one of throttling, with the headers that belong to it."""

    status: int
    error: ErrorCode
    message: str
    details: Mapping[str, Any] = field(default_factory=dict)
    headers: tuple[tuple[str, str], ...] = ()
    retry_after_ms: int | None = None
    is_on_record: bool = True
    """Whether the audit log shall have it."""


def failure_of(refusal: Refusal, plane: Plane) -> Failure:
    """The error that a refusal is on this plane."""
    status, error = TABLES[plane][type(refusal)]
    if plane is Plane.ADMIN and isinstance(refusal, NotFound) and refusal.field in TENANT_FIELDS:
        error = ErrorCode.TENANT_NOT_FOUND
    return Failure(
        status=status,
        error=error,
        message=refusal.message,
        details={} if isinstance(refusal, UNTOLD) else refusal.details(),
        retry_after_ms=refusal.retry_after_ms if isinstance(refusal, RateLimited) else None,
    )


def invalid_request(status: int, message: str) -> Failure:
    """A request that HTTP itself refuses: its status says more than the one word that the wire has for it (25)."""
    return Failure(status=status, error=ErrorCode.INVALID_REQUEST, message=message)


def unauthorized(message: str) -> Failure:
    return Failure(status=401, error=ErrorCode.UNAUTHORIZED, message=message)


def unknown_path() -> Failure:
    return Failure(status=404, error=ErrorCode.NOT_FOUND, message="no such path")


def overloaded(retry_after_s: int, message: str) -> Failure:
    return Failure(status=429, error=ErrorCode.LIMIT_EXCEEDED, message=message, retry_after_ms=retry_after_s * 1_000)


def public_limit(wait_ms: int) -> Failure:
    return Failure(
        status=429, error=ErrorCode.LIMIT_EXCEEDED, message="too many requests in this minute", retry_after_ms=wait_ms
    )


def broken(message: str = "something went wrong on our side") -> Failure:
    """Never a word about what it was: that is in the log, under the request id."""
    return Failure(status=500, error=ErrorCode.INTERNAL_ERROR, message=message)
