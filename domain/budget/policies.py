"""Decisions about policies: create and update (sections 11.5 and 11.6). What a policy means is in `governing`."""

from __future__ import annotations

from dataclasses import replace

from domain.amounts import INT64_MAX
from domain.budget.commands import CreatePolicy, UpdatePolicy
from domain.budget.events import CREATED, DONE, AuditEntry, BudgetEvent, EventType, PolicyChange
from domain.budget.patterns import ScopePattern, parse_pattern
from domain.budget.records import Policy
from domain.budget.refusals import Duplicate
from domain.budget.repeats import BudgetOutcome, accept, repeated
from domain.budget.shapes import (
    DESCRIPTION_MAX,
    NAME_MAX,
    check_caps,
    check_key,
    check_length,
    check_name,
    check_range,
    check_rate_limits,
    check_ttl_override,
    invalid,
)
from domain.budget.state import BudgetState
from domain.budget.tenancy import refuse_closed, refuse_scope
from domain.outcomes import InvalidInput, NotFound, Refusal

_MUTABLE = (
    "name",
    "description",
    "priority",
    "caps",
    "commit_overage_policy",
    "ttl_override",
    "rate_limits",
    "status",
    "effective_from_at",
    "effective_until_at",
)


def decide_create_policy(state: BudgetState, command: CreatePolicy, now: int) -> BudgetOutcome[Policy]:
    """Refuses in this order: INVALID_INPUT, ACCESS_DENIED, IDEMPOTENCY_MISMATCH, TENANT_CLOSED, DUPLICATE_RESOURCE (the
    name is taken)."""
    if (refusal := check_name(command.name, field="name", most=NAME_MAX) or _check(command)) is not None:
        return refusal
    pattern = parse_pattern(command.scope_pattern)
    if isinstance(pattern, Refusal):
        return pattern
    if (empty := _refuse_term(command.effective_from_at, command.effective_until_at)) is not None:
        return empty
    if (denied := refuse_scope(command, pattern.text)) is not None:
        return denied
    if (repeat := repeated(state, command, Policy, now)) is not None:
        return repeat
    if (closed := refuse_closed(state)) is not None:
        return closed
    if (taken := _refuse_name(state, command.name)) is not None:
        return taken
    policy = _new_policy(command, pattern, now)
    state.add_policy(policy)
    _tell(state, command, policy, kind=EventType.POLICY_CREATED, now=now)
    return accept(state, command, replace(policy), now)


def decide_update_policy(state: BudgetState, command: UpdatePolicy, now: int) -> BudgetOutcome[Policy]:
    """Change what is given; the pattern stays. An update that changes nothing is on record and says nothing else.

    Refuses in this order: INVALID_INPUT (shape), ACCESS_DENIED, IDEMPOTENCY_MISMATCH, TENANT_CLOSED, NOT_FOUND,
    INVALID_INPUT (an empty term), DUPLICATE_RESOURCE.
    """
    if (refusal := _check_update(command)) is not None:
        return refusal
    policy = state.policies.get(command.policy_id)
    if policy is not None and (denied := refuse_scope(command, policy.pattern.text)) is not None:
        return denied
    if (repeat := repeated(state, command, Policy, now)) is not None:
        return repeat
    if (closed := refuse_closed(state)) is not None:
        return closed
    if policy is None:
        return NotFound(field="policy_id", message=f"no such policy: {command.policy_id}")
    given = {name: value for name in _MUTABLE if (value := getattr(command, name)) is not None}
    changed = tuple(name for name, value in given.items() if value != getattr(policy, name))
    updated = replace(policy, **given)
    if (refused := _refuse_term(updated.effective_from_at, updated.effective_until_at)) is not None:
        return refused
    if "name" in changed and (taken := _refuse_name(state, updated.name)) is not None:
        return taken
    if changed:
        updated.updated_at = now
        state.policies[policy.policy_id] = updated
        state.touch_policy(updated)
    _tell(state, command, updated, kind=EventType.POLICY_UPDATED, changed=changed, now=now)
    return accept(state, command, replace(updated), now)


def _check_update(command: UpdatePolicy) -> InvalidInput | None:
    if command.name is not None and (refusal := check_name(command.name, field="name", most=NAME_MAX)) is not None:
        return refusal
    return _check(command)


def _check(command: CreatePolicy | UpdatePolicy) -> InvalidInput | None:
    return (
        check_key(command)
        or check_length(command.description, field="description", most=DESCRIPTION_MAX)
        or check_range(command.priority, field="priority", least=0, most=INT64_MAX)
        or check_caps(command.caps)
        or check_ttl_override(command.ttl_override)
        or check_rate_limits(command.rate_limits)
    )


def _refuse_term(from_at: int | None, until_at: int | None) -> InvalidInput | None:
    if from_at is None or until_at is None or from_at < until_at:
        return None
    return invalid("effective_until", "a policy stops being effective after it starts to be", reason="range")


def _refuse_name(state: BudgetState, name: str) -> Duplicate | None:
    for policy in state.policies.values():
        if policy.name == name:
            message = f"a policy named {name} is there already"
            return Duplicate(resource="policy", resource_id=policy.policy_id, message=message)
    return None


def _new_policy(command: CreatePolicy, pattern: ScopePattern, now: int) -> Policy:
    return Policy(
        policy_id=command.policy_id,
        name=command.name,
        pattern=pattern,
        created_at=now,
        description=command.description,
        priority=command.priority,
        caps=command.caps,
        commit_overage_policy=command.commit_overage_policy,
        ttl_override=command.ttl_override,
        rate_limits=command.rate_limits,
        effective_from_at=command.effective_from_at,
        effective_until_at=command.effective_until_at,
        updated_at=now,
    )


def _tell(
    state: BudgetState,
    command: CreatePolicy | UpdatePolicy,
    policy: Policy,
    *,
    kind: EventType,
    changed: tuple[str, ...] = (),
    now: int,
) -> None:
    is_new = kind is EventType.POLICY_CREATED
    if is_new or changed:
        facts = PolicyChange(
            policy_id=policy.policy_id, name=policy.name, scope_pattern=policy.pattern.text, changed_fields=changed
        )
        state.publish(BudgetEvent(type=kind, occurred_at=now, scope=None, facts=facts, origin=command.origin))
    entry = AuditEntry(
        operation="createPolicy" if is_new else "updatePolicy",
        status=CREATED if is_new else DONE,
        recorded_at=now,
        resource_type="policy",
        resource_id=policy.policy_id,
        origin=command.origin,
        metadata={"changed_fields": list(changed)} if changed else None,
    )
    state.audit(entry)
