"""What a tenant may do with its budgets, and who suspends, reactivates and closes it. Root only."""

from __future__ import annotations

from typing import Annotated, Any, Final

import strawberry

from domain.budget import records
from domain.budget.records import ExpiryPolicy, TenantStatus
from domain.budget.tenants import TenantAnswer
from domain.budget.values import OveragePolicy
from schema.budget.answers import ask
from schema.budget.refusals import IdempotencyMismatch, TenantClosed
from schema.budget.values import given_values
from schema.governing import governs
from schema.inputs import INPUT
from schema.refusals import result
from schema.scalars import Int64, JSONObject, Millis, int64, json_object, millis
from workers.budget.desk import BudgetDesk

# -- types -------------------------------------------------------------------------------------------------------------

strawberry.enum(
    TenantStatus,
    name="TenantStatus",
    description="SUSPENDED: no new holds or debits; what is held may still be settled. CLOSED: nothing any more, for good.",
)
strawberry.enum(
    ExpiryPolicy,
    name="BudgetExpiryPolicy",
    description="Kept as it was set: what is overdue is given back after its grace, whichever it is.",
)


@strawberry.type
class TenantStanding:
    """A tenant as its budgets have it: its status, and what holds where neither request nor policy says otherwise."""

    tenant_id: strawberry.ID
    status: TenantStatus | None = strawberry.field(description="Null: it cannot be understood, and all is refused.")
    suspended_at: Millis | None
    closed_at: Millis | None
    default_overage_policy: OveragePolicy | None
    default_ttl_ms: Int64 | None
    max_ttl_ms: Int64 | None
    max_extensions: Int64 | None
    expiry_policy: ExpiryPolicy
    metadata: JSONObject | None

    @classmethod
    def of(cls, tenant: records.Tenant) -> TenantStanding:
        return cls(
            tenant_id=strawberry.ID(tenant.tenant_id),
            status=tenant.status,
            suspended_at=millis(tenant.suspended_at),
            closed_at=millis(tenant.closed_at),
            default_overage_policy=tenant.default_overage_policy,
            default_ttl_ms=int64(tenant.default_ttl_ms),
            max_ttl_ms=int64(tenant.max_ttl_ms),
            max_extensions=int64(tenant.max_extensions),
            expiry_policy=tenant.expiry_policy,
            metadata=json_object(tenant.metadata),
        )


# -- inputs ------------------------------------------------------------------------------------------------------------


@strawberry.input
class SuspendTenantInput:
    """Names a tenant."""

    tenant_id: strawberry.ID
    idempotency_key: str | None = None


@strawberry.input
class ReactivateTenantInput:
    """Names a tenant."""

    tenant_id: strawberry.ID
    idempotency_key: str | None = None


@strawberry.input
class CloseTenantInput:
    """Names a tenant. Its grants stay: deleteTenant ends those, and closes the tenant as well."""

    tenant_id: strawberry.ID
    idempotency_key: str | None = None


# -- results -----------------------------------------------------------------------------------------------------------

_REFUSALS: Final = (TenantClosed, IdempotencyMismatch)

SuspendTenantResult = result("SuspendTenantResult", TenantStanding, *_REFUSALS)
ReactivateTenantResult = result("ReactivateTenantResult", TenantStanding, *_REFUSALS)
CloseTenantResult = result("CloseTenantResult", TenantStanding, *_REFUSALS)


# -- mutation ----------------------------------------------------------------------------------------------------------


@strawberry.type
class TenantStatusMutation:
    @governs(SuspendTenantResult, "tenant", name="updateTenant")
    async def suspend_tenant(self, wanted: Annotated[SuspendTenantInput, INPUT]) -> Any:
        """Stops new work. Suspending twice is no error."""
        return await _become(TenantStatus.SUSPENDED, wanted)

    @governs(ReactivateTenantResult, "tenant", name="updateTenant")
    async def reactivate_tenant(self, wanted: Annotated[ReactivateTenantInput, INPUT]) -> Any:
        """Undoes a suspension."""
        return await _become(TenantStatus.ACTIVE, wanted)

    @governs(CloseTenantResult, "tenant", name="updateTenant")
    async def close_tenant(self, wanted: Annotated[CloseTenantInput, INPUT]) -> Any:
        """For good: its holds are released, its budgets closed and its keys revoked, all at once. Closing twice is no
        error."""
        return await _become(TenantStatus.CLOSED, wanted)


async def _become(status: TenantStatus, wanted: Any) -> Any:
    return await ask(BudgetDesk.update_tenant, _show, status=status, **given_values(wanted))


def _show(answer: TenantAnswer) -> TenantStanding:
    return TenantStanding.of(answer.tenant)
