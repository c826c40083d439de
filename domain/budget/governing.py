"""What the winning policy says about one request: caps, lifetime, overage, and calls a minute (section 11.6).

Exactly one policy counts: the first in the order of precedence that is effective now and governs the request's path.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from domain.budget.answers import Allowance
from domain.budget.commands import GRACE_DEFAULT_MS
from domain.budget.records import (
    DEFAULT_EXTENSIONS_MAX,
    DEFAULT_TTL_MAX_MS,
    DEFAULT_TTL_MS,
    Budget,
    Policy,
    RateKind,
    RateWindow,
    Tenant,
    TtlOverride,
)
from domain.budget.refusals import RateLimited
from domain.budget.state import BudgetState
from domain.budget.values import Caps, OveragePolicy
from domain.terms import MINUTE_MS

NO_TOOL: Final = ("",)
"""An allowlist that allows nothing: an empty one would allow everything, and no action may have a blank name."""

_NO_OVERRIDE: Final = TtlOverride()


def winning_policy(state: BudgetState, scope_path: str, now: int) -> Policy | None:
    for policy in state.policy_order:
        if policy.is_effective_at(now) and policy.pattern.governs(scope_path):
            return policy
    return None


def ttl_of(asked_ms: int | None, *, policy: Policy | None, tenant: Tenant) -> int:
    """The lifetime that is granted: the asked or default one, silently cut to the maximum (section 3)."""
    override = policy.ttl_override if policy is not None and policy.ttl_override is not None else _NO_OVERRIDE
    wanted = _first(asked_ms, override.default_ttl_ms, tenant.default_ttl_ms, DEFAULT_TTL_MS)
    return min(wanted, _first(None, override.max_ttl_ms, tenant.max_ttl_ms, DEFAULT_TTL_MAX_MS))


def extensions_of(*, policy: Policy | None, tenant: Tenant) -> int:
    override = policy.ttl_override if policy is not None and policy.ttl_override is not None else _NO_OVERRIDE
    return _first(None, override.max_extensions, tenant.max_extensions, DEFAULT_EXTENSIONS_MAX)


def grace_of(asked_ms: int | None) -> int:
    return GRACE_DEFAULT_MS if asked_ms is None else asked_ms


def overage_of(
    asked: OveragePolicy | None, *, policy: Policy | None, budgets: Sequence[Budget], tenant: Tenant
) -> OveragePolicy:
    """Request, then policy, then the nearest budget that sets one, then tenant, then ALLOW_IF_AVAILABLE (2.5)."""
    if asked is not None:
        return asked
    if policy is not None and policy.commit_overage_policy is not None:
        return policy.commit_overage_policy
    for budget in reversed(budgets):
        if budget.commit_overage_policy is not None:
            return budget.commit_overage_policy
    return tenant.default_overage_policy or OveragePolicy.ALLOW_IF_AVAILABLE


def caps_of(scope_path: str, *, policy: Policy | None, budgets: Sequence[Budget]) -> Caps | None:
    """The caps of the request's own budget and those of the policy, the stricter of each; None when there is none."""
    own = budgets[-1].caps if budgets[-1].scope_path == scope_path else None
    theirs = policy.caps if policy is not None else None
    both = merge_caps(own, theirs) if own is not None and theirs is not None else own or theirs
    return None if both is None or both.is_empty else both


def merge_caps(one: Caps, other: Caps) -> Caps:
    """Caps that keep both."""
    allowed = _merge_allowlists(one, other)
    return Caps(
        max_tokens=_least(one.max_tokens, other.max_tokens),
        max_steps_remaining=_least(one.max_steps_remaining, other.max_steps_remaining),
        tool_allowlist=allowed,
        tool_denylist=() if allowed else tuple(dict.fromkeys(one.tool_denylist + other.tool_denylist)),
        cooldown_ms=_most(one.cooldown_ms, other.cooldown_ms),
    )


def _merge_allowlists(one: Caps, other: Caps) -> tuple[str, ...]:
    """A denylist counts only beside an empty allowlist, so what it takes away is taken out of the other's allowlist."""
    if not one.tool_allowlist and not other.tool_allowlist:
        return ()
    if not one.tool_allowlist:
        one, other = other, one
    if other.tool_allowlist:
        kept = [tool for tool in one.tool_allowlist if tool in other.tool_allowlist]
    else:
        kept = [tool for tool in one.tool_allowlist if tool not in other.tool_denylist]
    return tuple(kept) or NO_TOOL


def refuse_rate(state: BudgetState, policy: Policy | None, kind: RateKind, now: int) -> RateLimited | None:
    """The minute's calls are used up. Only accepted ones count, so a refused retry does not push the next one away."""
    limit = _limit(policy, kind)
    if policy is None or limit is None:
        return None
    window = state.rate_windows.get((policy.policy_id, kind))
    if window is None or window.minute_at != _minute(now) or window.count < limit:
        return None
    return RateLimited(
        policy_id=policy.policy_id,
        limit=limit,
        retry_after_ms=_minute(now) + MINUTE_MS - now,
        message=f"the policy {policy.name} allows {limit} {kind.value} a minute",
    )


def count_call(state: BudgetState, policy: Policy | None, kind: RateKind, now: int) -> None:
    if policy is None or _limit(policy, kind) is None:
        return
    window = state.rate_windows.get((policy.policy_id, kind))
    if window is None:
        window = RateWindow(policy_id=policy.policy_id, kind=kind, minute_at=_minute(now), count=0)
    elif window.minute_at != _minute(now):
        window.minute_at, window.count = _minute(now), 0
    window.count += 1
    state.touch_rate_window(window)


def allowance_of(state: BudgetState, policy: Policy | None, kind: RateKind, now: int) -> Allowance | None:
    """What is left of the minute; None without a limit."""
    limit = _limit(policy, kind)
    if policy is None or limit is None:
        return None
    window = state.rate_windows.get((policy.policy_id, kind))
    used = window.count if window is not None and window.minute_at == _minute(now) else 0
    return Allowance(remaining=max(0, limit - used), resets_at=_minute(now) + MINUTE_MS)


def _limit(policy: Policy | None, kind: RateKind) -> int | None:
    if policy is None or policy.rate_limits is None:
        return None
    if kind is RateKind.RESERVATIONS:
        return policy.rate_limits.max_reservations_per_minute
    return policy.rate_limits.max_commits_per_minute


def _minute(now: int) -> int:
    return now - now % MINUTE_MS


def _first(one: int | None, two: int | None, three: int | None, last: int) -> int:
    """The first that is set."""
    if one is not None:
        return one
    if two is not None:
        return two
    return last if three is None else three


def _least(one: int | None, other: int | None) -> int | None:
    return min((value for value in (one, other) if value is not None), default=None)


def _most(one: int | None, other: int | None) -> int | None:
    return max((value for value in (one, other) if value is not None), default=None)
