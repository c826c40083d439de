"""Shape of what a client states: ranges and lengths, refused as INVALID_INPUT before anything is looked at (5.3).

Fields carry the names that clients know. Every check is exact: no trimming, no conversion.
"""

from __future__ import annotations

from typing import Final

from domain.amounts import INT64_MAX, Amount, Unit, is_amount
from domain.budget.commands import (
    Commit,
    Debit,
    Evaluate,
    Extend,
    KeyedCommand,
    Release,
    ReservationCommand,
    Reserve,
)
from domain.budget.records import TTL_LEAST_MS, TTL_MOST_MS, RateLimits, TtlOverride
from domain.budget.values import Action, Caps, Metrics
from domain.outcomes import InvalidInput
from domain.terms import DAY_MS

KEY_MAX: Final = 256
RESERVATION_ID_MAX: Final = 128
GRACE_MOST_MS: Final = 60_000
EXTENSION_MOST_MS: Final = DAY_MS
KIND_MAX: Final = 64
NAME_MAX: Final = 256
TAGS_MAX: Final = 10
TAG_MAX: Final = 64
TOOL_MAX: Final = 256
MODEL_VERSION_MAX: Final = 128
RELEASE_REASON_MAX: Final = 256
REASON_MAX: Final = 512
DESCRIPTION_MAX: Final = 1_024


def invalid(field: str, message: str, *, reason: str = "malformed") -> InvalidInput:
    return InvalidInput(field=field, reason=reason, message=message)


def overflows(field: str = "amount") -> InvalidInput:
    """The result would not fit 64 bits (section 2.8): refused, never cut."""
    return invalid(field, "the result would not fit a 64-bit integer", reason="overflow")


def check_range(value: int | None, *, field: str, least: int, most: int) -> InvalidInput | None:
    """None passes: it was not sent."""
    if value is None or (type(value) is int and least <= value <= most):
        return None
    return invalid(field, f"{field} must be an integer from {least} to {most}", reason="range")


def check_length(value: str | None, *, field: str, most: int, least: int = 0) -> InvalidInput | None:
    if value is None or least <= len(value) <= most:
        return None
    return invalid(field, f"{field} must have {least} to {most} characters", reason="length")


def check_name(value: str, *, field: str, most: int) -> InvalidInput | None:
    """Not blank, not too long."""
    if value.strip() and len(value) <= most:
        return None
    return invalid(field, f"{field} must have 1 to {most} characters and not be blank", reason="length")


def check_amount(amount: Amount | None, *, field: str, unit: Unit | None = None) -> InvalidInput | None:
    """0..2^63-1, in `unit` where one is fixed."""
    if amount is None:
        return None
    if not is_amount(amount.amount):
        return invalid(f"{field}.amount", f"an amount is an integer from 0 to {INT64_MAX}", reason="range")
    if unit is not None and amount.unit is not unit:
        return invalid(f"{field}.unit", f"the unit must be the budget's, {unit.value}", reason="unit")
    return None


def check_action(action: Action) -> InvalidInput | None:
    if len(action.tags) > TAGS_MAX or any(len(tag) > TAG_MAX for tag in action.tags):
        return invalid("action.tags", f"at most {TAGS_MAX} tags of at most {TAG_MAX} characters", reason="length")
    return check_name(action.kind, field="action.kind", most=KIND_MAX) or check_name(
        action.name, field="action.name", most=NAME_MAX
    )


def check_metrics(metrics: Metrics | None) -> InvalidInput | None:
    if metrics is None:
        return None
    return (
        check_range(metrics.tokens_input, field="metrics.tokens_input", least=0, most=INT64_MAX)
        or check_range(metrics.tokens_output, field="metrics.tokens_output", least=0, most=INT64_MAX)
        or check_range(metrics.latency_ms, field="metrics.latency_ms", least=0, most=INT64_MAX)
        or check_length(metrics.model_version, field="metrics.model_version", most=MODEL_VERSION_MAX)
    )


def check_caps(caps: Caps | None) -> InvalidInput | None:
    if caps is None:
        return None
    if any(len(tool) > TOOL_MAX for tool in caps.tool_allowlist + caps.tool_denylist):
        return invalid("caps", f"a tool's name has at most {TOOL_MAX} characters", reason="length")
    return (
        check_range(caps.max_tokens, field="caps.max_tokens", least=0, most=INT64_MAX)
        or check_range(caps.max_steps_remaining, field="caps.max_steps_remaining", least=0, most=INT64_MAX)
        or check_range(caps.cooldown_ms, field="caps.cooldown_ms", least=0, most=INT64_MAX)
    )


def check_ttl(value: int | None, *, field: str) -> InvalidInput | None:
    return check_range(value, field=field, least=TTL_LEAST_MS, most=TTL_MOST_MS)


def check_ttl_override(override: TtlOverride | None) -> InvalidInput | None:
    if override is None:
        return None
    return (
        check_ttl(override.default_ttl_ms, field="reservation_ttl_override.default_ttl_ms")
        or check_ttl(override.max_ttl_ms, field="reservation_ttl_override.max_ttl_ms")
        or check_range(
            override.max_extensions, field="reservation_ttl_override.max_extensions", least=0, most=INT64_MAX
        )
    )


def check_rate_limits(limits: RateLimits | None) -> InvalidInput | None:
    if limits is None:
        return None
    reservations, commits = limits.max_reservations_per_minute, limits.max_commits_per_minute
    return check_range(
        reservations, field="rate_limits.max_reservations_per_minute", least=1, most=INT64_MAX
    ) or check_range(commits, field="rate_limits.max_commits_per_minute", least=1, most=INT64_MAX)


def check_key(command: KeyedCommand) -> InvalidInput | None:
    return check_length(command.idempotency_key, field="idempotency_key", least=1, most=KEY_MAX)


def check_named(command: ReservationCommand) -> InvalidInput | None:
    """The id in the path, then the key."""
    reservation_id = command.reservation_id
    return check_length(reservation_id, field="reservation_id", least=1, most=RESERVATION_ID_MAX) or check_key(command)


def check_reserve(command: Reserve) -> InvalidInput | None:
    return (
        check_key(command)
        or check_action(command.action)
        or check_amount(command.estimate, field="estimate")
        or check_ttl(command.ttl_ms, field="ttl_ms")
        or check_range(command.grace_ms, field="grace_period_ms", least=0, most=GRACE_MOST_MS)
    )


def check_evaluate(command: Evaluate) -> InvalidInput | None:
    return check_key(command) or check_action(command.action) or check_amount(command.estimate, field="estimate")


def check_commit(command: Commit) -> InvalidInput | None:
    return check_named(command) or check_amount(command.actual, field="actual") or check_metrics(command.metrics)


def check_release(command: Release) -> InvalidInput | None:
    return check_named(command) or check_length(command.reason, field="reason", most=RELEASE_REASON_MAX)


def check_extend(command: Extend) -> InvalidInput | None:
    by = command.extend_by_ms
    return check_named(command) or check_range(by, field="extend_by_ms", least=1, most=EXTENSION_MOST_MS)


def check_debit(command: Debit) -> InvalidInput | None:
    return (
        check_key(command)
        or check_action(command.action)
        or check_amount(command.actual, field="actual")
        or check_metrics(command.metrics)
        or check_range(command.client_time_ms, field="client_time_ms", least=0, most=INT64_MAX)
    )
