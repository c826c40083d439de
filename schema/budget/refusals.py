"""Refusals that only budgets know. `scope` names the budget that stood in the way; amounts are in the unit beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Final

import strawberry

from domain import outcomes
from domain.amounts import Unit
from domain.budget import refusals
from schema.refusals import Refusal, RefusalCode, shown_name, shows
from schema.scalars import Int64, Millis

strawberry.enum(
    Unit,
    name="BudgetUnit",
    description="What is counted. USD_MICROCENTS are 10^-8 US dollars.",
)


@strawberry.type
class BudgetNotFound(Refusal):
    """No budget covers this, in any unit; or there is none of this very scope and unit."""

    scope: str
    missing_unit: Unit | None = strawberry.field(description="Null when there is none in any unit.")


@strawberry.type
class BudgetExceeded(Refusal):
    """More is wanted than remains, or than was held where nothing more may be charged."""

    scope: str
    unit: Unit
    requested: Int64
    available: Int64 | None = strawberry.field(description="What remained.")
    estimate: Int64 | None


@strawberry.type
class BudgetFrozen(Refusal):
    """The budget takes no new holds, debits or funding until it is unfrozen."""

    scope: str
    unit: Unit


@strawberry.type
class BudgetClosed(Refusal):
    """The budget is closed for good."""

    scope: str
    unit: Unit


@strawberry.type
class OverdraftLimitExceeded(Refusal):
    """The budget is over its limit, or would come to be."""

    scope: str
    unit: Unit
    debt: Int64
    overdraft_limit: Int64
    deficit: Int64 | None


@strawberry.type
class DebtOutstanding(Refusal):
    """The budget has a debt that must be repaid first."""

    scope: str
    unit: Unit
    debt: Int64


@strawberry.type
class TenantClosed(Refusal):
    """The tenant is closed for good."""

    tenant_id: strawberry.ID


@strawberry.type
class TenantSuspended(Refusal):
    """No new work; what is held may still be committed or released."""

    tenant_id: strawberry.ID


@strawberry.type
class RateLimited(Refusal):
    """A policy's calls a minute are used up."""

    policy_id: strawberry.ID
    limit: Int64
    retry_after_ms: Int64 | None


@strawberry.type
class UnitMismatch(Refusal):
    """The scope has budgets in other units; or the actual is in another unit than what was held."""

    requested_unit: Unit
    expected_units: list[Unit]
    budget_scope: str | None


@strawberry.type
class ReservationFinalized(Refusal):
    """The budget reservation was committed or released before."""

    budget_reservation_id: strawberry.ID
    final_status: str


@strawberry.type
class ReservationExpired(Refusal):
    """Too late: past `expiredAt`, and for committing and releasing past its grace as well."""

    budget_reservation_id: strawberry.ID
    expired_at: Millis
    grace_ms: Int64 | None


@strawberry.type
class MaxExtensionsExceeded(Refusal):
    """The budget reservation was extended as often as it may be."""

    budget_reservation_id: strawberry.ID
    max_extensions: Int64


@strawberry.type
class IdempotencyMismatch(Refusal):
    """The idempotency key was used for another request, over whichever edge."""

    idempotency_key: str


@strawberry.type
class Duplicate(Refusal):
    """A budget of this scope and unit, or a policy of this name, is there already."""

    resource: str
    resource_id: strawberry.ID


_SHOWN: Final[dict[type[outcomes.Refusal], type[Refusal]]] = {
    refusals.BudgetNotFound: BudgetNotFound,
    refusals.BudgetExceeded: BudgetExceeded,
    refusals.BudgetFrozen: BudgetFrozen,
    refusals.BudgetClosed: BudgetClosed,
    refusals.OverdraftLimitExceeded: OverdraftLimitExceeded,
    refusals.DebtOutstanding: DebtOutstanding,
    refusals.TenantClosed: TenantClosed,
    refusals.TenantSuspended: TenantSuspended,
    refusals.RateLimited: RateLimited,
    refusals.UnitMismatch: UnitMismatch,
    refusals.ReservationFinalized: ReservationFinalized,
    refusals.ReservationExpired: ReservationExpired,
    refusals.MaxExtensionsExceeded: MaxExtensionsExceeded,
    refusals.IdempotencyMismatch: IdempotencyMismatch,
    refusals.Duplicate: Duplicate,
}
_OTHERWISE: Final[Mapping[type[outcomes.Refusal], Mapping[str, str]]] = {
    refusals.BudgetNotFound: {"unit": "missing_unit"},
    refusals.BudgetExceeded: {"remaining": "available"},
    refusals.UnitMismatch: {"scope": "budget_scope"},
    refusals.ReservationFinalized: {"reservation_id": "budget_reservation_id", "status": "final_status"},
    refusals.ReservationExpired: {"reservation_id": "budget_reservation_id", "expires_at": "expired_at"},
    refusals.MaxExtensionsExceeded: {"reservation_id": "budget_reservation_id"},
}
"""Both sides have the same fields by the same names, but for these."""

BUDGET_REFUSALS: Final = tuple(_SHOWN.values())
"""What every mutation of budgets may be refused with, besides what all mutations share."""


def _show(refusal: outcomes.Refusal) -> Refusal:
    kind = type(refusal)
    details = {shown_name(kind, field.name): getattr(refusal, field.name) for field in fields(refusal)}
    return _SHOWN[kind](code=RefusalCode(refusal.code), **details)


for _kind in _SHOWN:
    shows(_kind, **_OTHERWISE.get(_kind, {}))(_show)
