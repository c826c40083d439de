"""Policies (11.5): caps, lifetimes, overage and calls a minute for the scopes that a pattern names."""

from __future__ import annotations

from typing import Any

from domain.budget.commands import UpdatePolicy
from domain.budget.records import Policy, PolicyStatus, RateLimits, TtlOverride
from domain.budget.repeats import BudgetOutcome
from domain.budget.values import Caps, OveragePolicy
from domain.instants import show_instant
from domain.outcomes import Refusal
from server.rest.cycles.admin.reading import (
    instant_in_body,
    lenient_list_of,
    tenant_in_body,
    tenant_in_query,
    unknown_tenant,
)
from server.rest.cycles.answers import Document, show_caps
from server.rest.cycles.exchange import Answer, Exchange, Reply
from server.rest.cycles.listings import empty, is_unknown_tenant, page
from server.rest.cycles.requests import Closed
from workers.budget.reads import PolicyQuery
from workers.budget.rights import RIGHTS


class CapsBody(Closed, frozen=True):
    max_tokens: int | None = None
    max_steps_remaining: int | None = None
    tool_allowlist: tuple[str, ...] | None = None
    tool_denylist: tuple[str, ...] | None = None
    cooldown_ms: int | None = None

    def value(self) -> Caps:
        return Caps(
            max_tokens=self.max_tokens,
            max_steps_remaining=self.max_steps_remaining,
            tool_allowlist=self.tool_allowlist or (),
            tool_denylist=self.tool_denylist or (),
            cooldown_ms=self.cooldown_ms,
        )


class TtlBody(Closed, frozen=True):
    default_ttl_ms: int | None = None
    max_ttl_ms: int | None = None
    max_extensions: int | None = None

    def value(self) -> TtlOverride:
        return TtlOverride(
            default_ttl_ms=self.default_ttl_ms, max_ttl_ms=self.max_ttl_ms, max_extensions=self.max_extensions
        )


class RatesBody(Closed, frozen=True):
    max_reservations_per_minute: int | None = None
    max_commits_per_minute: int | None = None

    def value(self) -> RateLimits:
        return RateLimits(
            max_reservations_per_minute=self.max_reservations_per_minute,
            max_commits_per_minute=self.max_commits_per_minute,
        )


class RulesBody(Closed, frozen=True):
    """What a policy says, in a new one and in a change alike."""

    description: str | None = None
    priority: int | None = None
    caps: CapsBody | None = None
    commit_overage_policy: OveragePolicy | None = None
    reservation_ttl_override: TtlBody | None = None
    rate_limits: RatesBody | None = None
    effective_from: str | None = None
    effective_until: str | None = None

    def rules(self) -> dict[str, Any]:
        """By the desk's names. Raises `Shape`."""
        ttl, limits = self.reservation_ttl_override, self.rate_limits
        return {
            "description": self.description,
            "caps": self.caps.value() if self.caps is not None else None,
            "commit_overage_policy": self.commit_overage_policy,
            "ttl_override": ttl.value() if ttl is not None else None,
            "rate_limits": limits.value() if limits is not None else None,
            "effective_from_at": instant_in_body(self.effective_from, "effective_from"),
            "effective_until_at": instant_in_body(self.effective_until, "effective_until"),
        }


class CreateBody(RulesBody, frozen=True, kw_only=True):
    name: str
    scope_pattern: str
    tenant_id: str | None = None


class UpdateBody(RulesBody, frozen=True):
    name: str | None = None
    status: PolicyStatus | None = None


async def create(exchange: Exchange) -> Answer:
    body = await exchange.body(CreateBody)
    tenant_id = tenant_in_body(exchange, body.tenant_id)
    outcome = await exchange.runtime.budgets.create_policy(
        exchange.caller,
        tenant_id=tenant_id,
        name=body.name,
        scope_pattern=body.scope_pattern,
        priority=0 if body.priority is None else body.priority,
        **body.rules(),
        idempotency_key=exchange.key_in_header,
    )
    if isinstance(outcome, Refusal):
        return unknown_tenant(outcome)
    return _told(outcome, tenant_id, status=201)


async def list_(exchange: Exchange) -> Answer:
    query = exchange.query()
    tenant_id = tenant_in_query(exchange, query)
    wanted = PolicyQuery(scope_pattern=query.text("scope_pattern"), status=query.choice("status", PolicyStatus))
    found = await exchange.runtime.budget_reads.policies(
        exchange.caller, query=wanted, tenant_id=tenant_id, **lenient_list_of(query)
    )
    if isinstance(found, Refusal):
        return empty("policies") if is_unknown_tenant(found) else found
    return Reply(page("policies", [show_policy(seen.policy) for seen in found.items], found), owner=tenant_id)


async def update(exchange: Exchange) -> Answer:
    """An operator names only the policy: whose it is, follows from it (11.5)."""
    body = await exchange.body(UpdateBody)
    policy_id, tenant_id = exchange.path("policy_id"), None
    if exchange.is_admin:
        found = await exchange.runtime.budget_reads.policy(
            exchange.caller, policy_id=policy_id, right=RIGHTS[UpdatePolicy]
        )
        if isinstance(found, Refusal):
            return found
        tenant_id = found.tenant_id
    outcome = await exchange.runtime.budgets.update_policy(
        exchange.caller,
        tenant_id=tenant_id,
        policy_id=policy_id,
        name=body.name,
        status=body.status,
        priority=body.priority,
        **body.rules(),
        idempotency_key=exchange.key_in_header,
    )
    return _told(outcome, tenant_id)


def show_policy(policy: Policy) -> Document:
    shown: Document = {
        "policy_id": policy.policy_id,
        "name": policy.name,
        "scope_pattern": policy.pattern.text,
        "priority": policy.priority,
        "status": policy.status.value,
        "created_at": show_instant(policy.created_at),
    }
    if policy.description is not None:
        shown["description"] = policy.description
    if policy.caps is not None:
        shown["caps"] = show_caps(policy.caps)
    if policy.commit_overage_policy is not None:
        shown["commit_overage_policy"] = policy.commit_overage_policy.value
    if policy.ttl_override is not None:
        shown["reservation_ttl_override"] = _given(policy.ttl_override, TtlBody)
    if policy.rate_limits is not None:
        shown["rate_limits"] = _given(policy.rate_limits, RatesBody)
    for name, at in (
        ("effective_from", policy.effective_from_at),
        ("effective_until", policy.effective_until_at),
        ("updated_at", policy.updated_at),
    ):
        if at is not None:
            shown[name] = show_instant(at)
    return shown


def _given(value: TtlOverride | RateLimits, kind: type[TtlBody] | type[RatesBody]) -> Document:
    """The fields that are set: here the wire's names are ours."""
    named = {name: getattr(value, name) for name in kind.__struct_fields__}
    return {name: number for name, number in named.items() if number is not None}


def _told(outcome: BudgetOutcome[Policy], tenant_id: str | None, *, status: int = 200) -> Answer:
    return outcome if isinstance(outcome, Refusal) else Reply(show_policy(outcome.answer), status, owner=tenant_id)
