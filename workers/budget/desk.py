"""The desk for budgets, and its governing half: budgets, funding, policies and tenants (sections 2.8, 7 and 11).

`tenant_id` None is the caller's own tenant; another one is for root's members. Methods refuse ACCESS_DENIED for what is
missing there first, then text that cannot be kept as INVALID_INPUT, NOT_FOUND (`tenant_id`), then whatever the decision
of the same name refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from domain.amounts import Amount, Unit
from domain.budget.answers import FundAnswer
from domain.budget.commands import (
    CloseBudget,
    CreateBudget,
    CreatePolicy,
    CreateTenant,
    FreezeBudget,
    Fund,
    UnfreezeBudget,
    UpdateBudget,
    UpdatePolicy,
    UpdateTenant,
)
from domain.budget.records import (
    Budget,
    ExpiryPolicy,
    FundingOperation,
    Policy,
    PolicyStatus,
    RateLimits,
    RolloverPolicy,
    TenantStatus,
    TtlOverride,
)
from domain.budget.repeats import BudgetOutcome
from domain.budget.shapes import invalid
from domain.budget.tenants import TenantAnswer
from domain.budget.values import ActorType, Caps, Origin, OveragePolicy
from domain.identity import RESERVED_TENANT_IDS, TENANT_ID
from domain.outcomes import InvalidState, Refusal
from workers.budget.holding import UNASKED, HoldingDesk
from workers.budget.rights import RIGHTS, refuse
from workers.request import Caller

DELETED: Final = "tenant_deleted"
"""Marks, in place of a request's id, the cascade of a tenant that was deleted as a whole."""


class BudgetDesk(HoldingDesk):
    """Where every command about budgets enters, whichever edge it comes over."""

    async def fund(
        self,
        caller: Caller,
        *,
        scope: str,
        unit: Unit,
        kind: FundingOperation,
        amount: Amount,
        idempotency_key: str | None = None,
        spent: Amount | None = None,
        reason: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        tenant_id: str | None = None,
    ) -> BudgetOutcome[FundAnswer]:
        """Change what a budget has to give. Without an idempotency key a retry is another funding."""
        key = UNASKED + self._asker.ids.new("req") if idempotency_key is None else idempotency_key
        return await self._ask(
            caller,
            Fund,
            funding_id=self._asker.ids.new("fnd"),
            scope=scope,
            unit=unit,
            kind=kind,
            amount=amount,
            idempotency_key=key,
            spent=spent,
            reason=reason,
            metadata=metadata,
            tenant_id=tenant_id,
        )

    async def create_budget(
        self,
        caller: Caller,
        *,
        scope: str,
        unit: Unit,
        allocated: Amount,
        overdraft_limit: Amount | None = None,
        commit_overage_policy: OveragePolicy | None = None,
        rollover_policy: RolloverPolicy = RolloverPolicy.NONE,
        period_start_at: int | None = None,
        period_end_at: int | None = None,
        caps: Caps | None = None,
        metadata: Mapping[str, Any] | None = None,
        tenant_id: str | None = None,
    ) -> BudgetOutcome[Budget]:
        """Open a budget of one scope and unit with an allocation."""
        return await self._ask(
            caller,
            CreateBudget,
            budget_id=self._asker.ids.new("bud"),
            scope=scope,
            unit=unit,
            allocated=allocated,
            overdraft_limit=overdraft_limit,
            commit_overage_policy=commit_overage_policy,
            rollover_policy=rollover_policy,
            period_start_at=period_start_at,
            period_end_at=period_end_at,
            caps=caps,
            metadata=metadata,
            tenant_id=tenant_id,
        )

    async def update_budget(
        self,
        caller: Caller,
        *,
        scope: str,
        unit: Unit,
        overdraft_limit: Amount | None = None,
        commit_overage_policy: OveragePolicy | None = None,
        metadata: Mapping[str, Any] | None = None,
        tenant_id: str | None = None,
    ) -> BudgetOutcome[Budget]:
        """Change what a budget allows; what is None stays."""
        return await self._ask(
            caller,
            UpdateBudget,
            scope=scope,
            unit=unit,
            overdraft_limit=overdraft_limit,
            commit_overage_policy=commit_overage_policy,
            metadata=metadata,
            tenant_id=tenant_id,
        )

    async def freeze_budget(
        self,
        caller: Caller,
        *,
        scope: str,
        unit: Unit,
        reason: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        tenant_id: str | None = None,
    ) -> BudgetOutcome[Budget]:
        """No new holds, debits or funding; what is held still settles."""
        return await self._ask(
            caller,
            FreezeBudget,
            scope=scope,
            unit=unit,
            reason=reason,
            metadata=metadata,
            tenant_id=tenant_id,
        )

    async def unfreeze_budget(
        self,
        caller: Caller,
        *,
        scope: str,
        unit: Unit,
        reason: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        tenant_id: str | None = None,
    ) -> BudgetOutcome[Budget]:
        """Undo a freeze."""
        return await self._ask(
            caller,
            UnfreezeBudget,
            scope=scope,
            unit=unit,
            reason=reason,
            metadata=metadata,
            tenant_id=tenant_id,
        )

    async def close_budget(
        self,
        caller: Caller,
        *,
        scope: str,
        unit: Unit,
        reason: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        tenant_id: str | None = None,
    ) -> BudgetOutcome[Budget]:
        """For good. What is held still settles."""
        return await self._ask(
            caller,
            CloseBudget,
            scope=scope,
            unit=unit,
            reason=reason,
            metadata=metadata,
            tenant_id=tenant_id,
        )

    async def create_policy(
        self,
        caller: Caller,
        *,
        name: str,
        scope_pattern: str,
        description: str | None = None,
        priority: int = 0,
        caps: Caps | None = None,
        commit_overage_policy: OveragePolicy | None = None,
        ttl_override: TtlOverride | None = None,
        rate_limits: RateLimits | None = None,
        effective_from_at: int | None = None,
        effective_until_at: int | None = None,
        tenant_id: str | None = None,
    ) -> BudgetOutcome[Policy]:
        """Make a policy for the scopes of a pattern."""
        return await self._ask(
            caller,
            CreatePolicy,
            policy_id=self._asker.ids.new("pol"),
            name=name,
            scope_pattern=scope_pattern,
            description=description,
            priority=priority,
            caps=caps,
            commit_overage_policy=commit_overage_policy,
            ttl_override=ttl_override,
            rate_limits=rate_limits,
            effective_from_at=effective_from_at,
            effective_until_at=effective_until_at,
            tenant_id=tenant_id,
        )

    async def update_policy(
        self,
        caller: Caller,
        *,
        policy_id: str,
        name: str | None = None,
        description: str | None = None,
        priority: int | None = None,
        caps: Caps | None = None,
        commit_overage_policy: OveragePolicy | None = None,
        ttl_override: TtlOverride | None = None,
        rate_limits: RateLimits | None = None,
        status: PolicyStatus | None = None,
        effective_from_at: int | None = None,
        effective_until_at: int | None = None,
        tenant_id: str | None = None,
    ) -> BudgetOutcome[Policy]:
        """Change a policy; what is None stays, and so does the pattern."""
        return await self._ask(
            caller,
            UpdatePolicy,
            policy_id=policy_id,
            name=name,
            description=description,
            priority=priority,
            caps=caps,
            commit_overage_policy=commit_overage_policy,
            ttl_override=ttl_override,
            rate_limits=rate_limits,
            status=status,
            effective_from_at=effective_from_at,
            effective_until_at=effective_until_at,
            tenant_id=tenant_id,
        )

    async def create_tenant(
        self,
        caller: Caller,
        *,
        tenant_id: str,
        name: str,
        parent_tenant_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        default_overage_policy: OveragePolicy | None = None,
        default_ttl_ms: int | None = None,
        max_ttl_ms: int | None = None,
        max_extensions: int | None = None,
        expiry_policy: ExpiryPolicy = ExpiryPolicy.AUTO_RELEASE,
    ) -> BudgetOutcome[TenantAnswer]:
        """Root makes a tenant with its defaults; one that is there already stays as it is (`created` tells).

        Refuses in this order: ACCESS_DENIED, INVALID_INPUT, DUPLICATE_RESOURCE (it is there under another name).
        """
        if (denied := refuse(caller, RIGHTS[CreateTenant], tenant_id)) is not None:
            return denied
        if not TENANT_ID.fullmatch(tenant_id) or tenant_id in RESERVED_TENANT_IDS:
            return invalid("tenant_id", f"tenant_id must match ^{TENANT_ID.pattern}$", reason="charset")
        return await self._ask(
            caller,
            CreateTenant,
            tenant_id=tenant_id,
            name=name,
            parent_tenant_id=parent_tenant_id,
            metadata=metadata,
            default_overage_policy=default_overage_policy,
            default_ttl_ms=default_ttl_ms,
            max_ttl_ms=max_ttl_ms,
            max_extensions=max_extensions,
            expiry_policy=expiry_policy,
        )

    async def update_tenant(
        self,
        caller: Caller,
        *,
        tenant_id: str,
        status: TenantStatus | None = None,
        name: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        default_overage_policy: OveragePolicy | None = None,
        default_ttl_ms: int | None = None,
        max_ttl_ms: int | None = None,
        max_extensions: int | None = None,
        expiry_policy: ExpiryPolicy | None = None,
        denies_on_any_debt: bool | None = None,
        extension_lead_max_ms: int | None = None,
    ) -> BudgetOutcome[TenantAnswer]:
        """Root changes a tenant's defaults, name or status; what is None stays.

        The status CLOSED takes its holds, budgets and keys down with it, in one transaction and for good. Its capacity
        grants stay: `TenancyDesk.delete_tenant` is what ends those, and it closes the tenant for budgets as well.
        Refuses in this order: ACCESS_DENIED, INVALID_STATE (the root tenant would lock everybody out), then as the
        decision.
        """
        if (denied := refuse(caller, RIGHTS[UpdateTenant], tenant_id)) is not None:
            return denied
        if tenant_id == caller.principal.tenant_id and status in (TenantStatus.SUSPENDED, TenantStatus.CLOSED):
            return InvalidState(state="root", message="the root tenant can be neither suspended nor closed")
        return await self._ask(
            caller,
            UpdateTenant,
            tenant_id=tenant_id,
            status=status,
            name=name,
            metadata=metadata,
            default_overage_policy=default_overage_policy,
            default_ttl_ms=default_ttl_ms,
            max_ttl_ms=max_ttl_ms,
            max_extensions=max_extensions,
            expiry_policy=expiry_policy,
            denies_on_any_debt=denies_on_any_debt,
            extension_lead_max_ms=extension_lead_max_ms,
        )

    async def close_deleted_tenant(self, tenant_id: str) -> None:
        """A tenant was marked deleted: nothing of its budgets stays open. Harmless when done twice."""
        origin = Origin(actor_type=ActorType.SYSTEM, request_id=DELETED)
        command = UpdateTenant(tenant_id=tenant_id, origin=origin, status=TenantStatus.CLOSED)
        outcome = await self._asker.ask(command)
        assert not isinstance(outcome, Refusal), outcome
