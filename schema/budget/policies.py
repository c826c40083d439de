"""Policies: caps, lifetimes, overage and calls a minute for the scopes that a pattern names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

import strawberry

from domain.budget import records
from domain.budget.queries import PolicyQuery as PolicyChoice
from domain.budget.records import PolicyStatus
from domain.budget.values import OveragePolicy
from domain.outcomes import NotFound
from schema.budget.answers import ask, listed, read
from schema.budget.refusals import Duplicate, IdempotencyMismatch, TenantClosed
from schema.budget.values import Caps, CapsInput, DomainInput, given_values, show_caps
from schema.context import operation
from schema.governing import governs
from schema.inputs import ALL, ID, INPUT, given, own_tenant
from schema.paging import AFTER, FIRST, Connection, take
from schema.refusals import result
from schema.scalars import Int64, Millis, int64, millis
from workers.budget.desk import BudgetDesk
from workers.budget.listing import SeenPolicy

# -- types -------------------------------------------------------------------------------------------------------------

strawberry.enum(PolicyStatus, name="BudgetPolicyStatus", description="DISABLED: it governs nothing until it is active.")


@strawberry.type
class TtlOverride:
    """How long holds live, in place of the tenant's own defaults. Null: as the tenant has it."""

    default_ttl_ms: Int64 | None
    max_ttl_ms: Int64 | None
    max_extensions: Int64 | None


@strawberry.type
class RateLimits:
    """Accepted calls in each minute of UTC, over all that the policy governs. Null is no limit."""

    max_reservations_per_minute: Int64 | None
    max_commits_per_minute: Int64 | None


@strawberry.type
class BudgetPolicy:
    """What holds for every request under the scopes of a pattern. Of all that match, the one with the highest priority
    counts."""

    id: strawberry.ID
    tenant_id: strawberry.ID
    name: str
    scope_pattern: str = strawberry.field(
        description="A path (tenant:a/agent:x), what is below one (tenant:a/*), or a segment anywhere (agent:*)."
    )
    description: str | None
    priority: Int64
    status: PolicyStatus
    caps: Caps | None
    commit_overage_policy: OveragePolicy | None
    ttl_override: TtlOverride | None
    rate_limits: RateLimits | None
    effective_from_at: Millis | None
    effective_until_at: Millis | None
    created_at: Millis
    updated_at: Millis | None

    @classmethod
    def of(cls, seen: SeenPolicy) -> BudgetPolicy:
        policy = seen.policy
        return cls(
            id=strawberry.ID(policy.policy_id),
            tenant_id=strawberry.ID(seen.tenant_id),
            name=policy.name,
            scope_pattern=policy.pattern.text,
            description=policy.description,
            priority=Int64(policy.priority),
            status=policy.status,
            caps=show_caps(policy.caps),
            commit_overage_policy=policy.commit_overage_policy,
            ttl_override=_show_ttl(policy.ttl_override),
            rate_limits=_show_rates(policy.rate_limits),
            effective_from_at=millis(policy.effective_from_at),
            effective_until_at=millis(policy.effective_until_at),
            created_at=Millis(policy.created_at),
            updated_at=millis(policy.updated_at),
        )


def _show_ttl(override: records.TtlOverride | None) -> TtlOverride | None:
    if override is None:
        return None
    return TtlOverride(
        default_ttl_ms=int64(override.default_ttl_ms),
        max_ttl_ms=int64(override.max_ttl_ms),
        max_extensions=int64(override.max_extensions),
    )


def _show_rates(limits: records.RateLimits | None) -> RateLimits | None:
    if limits is None:
        return None
    return RateLimits(
        max_reservations_per_minute=int64(limits.max_reservations_per_minute),
        max_commits_per_minute=int64(limits.max_commits_per_minute),
    )


# -- inputs ------------------------------------------------------------------------------------------------------------


@strawberry.input
class TtlOverrideInput(DomainInput):
    """How long holds live, in place of the tenant's own defaults."""

    default_ttl_ms: Int64 | None = None
    max_ttl_ms: Int64 | None = None
    max_extensions: Int64 | None = None

    def value(self) -> records.TtlOverride:
        return records.TtlOverride(**given(self))


@strawberry.input
class RateLimitsInput(DomainInput):
    """Accepted calls in each minute of UTC."""

    max_reservations_per_minute: Int64 | None = None
    max_commits_per_minute: Int64 | None = None

    def value(self) -> records.RateLimits:
        return records.RateLimits(**given(self))


@strawberry.input
class _Rules:
    """What a policy says, in a new one and in a change alike."""

    description: str | None = None
    caps: CapsInput | None = None
    commit_overage_policy: OveragePolicy | None = None
    ttl_override: TtlOverrideInput | None = None
    rate_limits: RateLimitsInput | None = None
    effective_from_at: Millis | None = None
    effective_until_at: Millis | None = None
    idempotency_key: str | None = None


@strawberry.input
class CreatePolicyInput(_Rules):
    """Names are unique in a tenant. Root names another tenant with `tenantId`."""

    tenant_id: strawberry.ID | None = None
    name: str
    scope_pattern: str
    priority: Int64 = Int64(0)


@strawberry.input
class UpdatePolicyInput(_Rules):
    """What is not given stays as it is, and so does the pattern."""

    tenant_id: strawberry.ID | None = None
    policy_id: strawberry.ID
    name: str | None = None
    priority: Int64 | None = None
    status: PolicyStatus | None = None


# -- results -----------------------------------------------------------------------------------------------------------

_REFUSALS: Final = (TenantClosed, Duplicate, IdempotencyMismatch)

CreatePolicyResult = result("CreatePolicyResult", BudgetPolicy, *_REFUSALS)
UpdatePolicyResult = result("UpdatePolicyResult", BudgetPolicy, *_REFUSALS)


def _of(tenant_id: str | None) -> Callable[[records.Policy], BudgetPolicy]:
    return lambda policy: BudgetPolicy.of(SeenPolicy(tenant_id=own_tenant(tenant_id), policy=policy))


# -- query -------------------------------------------------------------------------------------------------------------


@strawberry.type
class PolicyQuery:
    @strawberry.field
    async def policy(
        self, policy_id: Annotated[strawberry.ID, ID], tenant_id: strawberry.ID | None = None
    ) -> BudgetPolicy | None:
        """A policy of the caller's own tenant; for root, any."""
        current = operation()
        found = await current.runtime.budget_reads.policy(current.caller, policy_id=policy_id, tenant_id=tenant_id)
        return None if isinstance(found, NotFound) else BudgetPolicy.of(read(found))

    @strawberry.field
    async def policies(
        self,
        *,
        tenant_id: strawberry.ID | None = None,
        all_tenants: Annotated[bool, ALL] = False,
        scope_pattern: str | None = None,
        status: PolicyStatus | None = None,
        search: Annotated[str | None, strawberry.argument(description="Part of the name or of the pattern.")] = None,
        first: Annotated[int | None, FIRST] = None,
        after: Annotated[str | None, AFTER] = None,
    ) -> Connection[BudgetPolicy] | None:
        """The tenant's policies, newest first, disabled ones too."""
        current = operation()
        found = await current.runtime.budget_reads.policies(
            current.caller,
            query=PolicyChoice(scope_pattern=scope_pattern, status=status, search=search),
            limit=take(first),
            cursor=after,
            tenant_id=tenant_id,
            all_tenants=all_tenants,
        )
        return listed(found, BudgetPolicy.of, after=after)


# -- mutation ----------------------------------------------------------------------------------------------------------


@strawberry.type
class PolicyMutation:
    @governs(CreatePolicyResult, "policy")
    async def create_policy(self, wanted: Annotated[CreatePolicyInput, INPUT]) -> Any:
        """Lays down what holds under a pattern, from now on or from `effectiveFromAt`."""
        return await ask(BudgetDesk.create_policy, _of(wanted.tenant_id), **given_values(wanted))

    @governs(UpdatePolicyResult, "policy")
    async def update_policy(self, wanted: Annotated[UpdatePolicyInput, INPUT]) -> Any:
        """Changes a policy, or disables it. Holds that were made under it keep what they were made with."""
        return await ask(BudgetDesk.update_policy, _of(wanted.tenant_id), **given_values(wanted))
