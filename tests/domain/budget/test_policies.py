"""Policies: which one governs, and what it says about caps, lifetime, overage and calls a minute (sections 11.5, 11.6)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from domain.budget.events import EventType, PolicyChange
from domain.budget.governing import NO_TOOL, merge_caps
from domain.budget.patterns import ScopePattern, parse_pattern
from domain.budget.records import Policy, PolicyStatus, RateLimits, Tenant, TenantStatus, TtlOverride
from domain.budget.refusals import RateLimited
from domain.budget.values import Caps, Decision, Subject
from domain.outcomes import InvalidInput
from tests.domain.budget.books import (
    AIA,
    AWO,
    BOT,
    CHILD,
    PARENT,
    REJECT,
    START,
    TENANT_ID,
    WHOLE,
    Books,
    budget,
)


def policy(pattern: str, name: str = "p", *, created_at: int = START, **fields: Any) -> Policy:
    parsed = parse_pattern(pattern)
    assert isinstance(parsed, ScopePattern)
    return Policy(policy_id=f"pol_{name}", name=name, pattern=parsed, created_at=created_at, **fields)


@pytest.mark.parametrize(
    ("pattern", "path", "governs"),
    [
        ("tenant:acme", "tenant:acme", True),
        ("tenant:acme", "tenant:acme/agent:bot", False),
        ("Tenant:ACME/Agent:Bot", "tenant:acme/agent:bot", True),
        ("tenant:acme/*", "tenant:acme", False),
        ("tenant:acme/*", "tenant:acme/agent:bot", True),
        ("tenant:acme/*", "tenant:acme/workspace:w/agent:bot", True),
        ("tenant:acme/*", "tenant:acme2/agent:bot", False),
        ("tenant:acme/agent:*", "tenant:acme/agent:bot", True),
        ("tenant:acme/agent:*", "tenant:acme/workspace:w/agent:bot", False),
        ("tenant:acme/agent:*", "tenant:acme/agent:bot/toolset:t", False),
        ("tenant:acme/agent:*/*", "tenant:acme/agent:bot/toolset:t", True),
        ("agent:*", "tenant:acme/agent:bot", True),
        ("agent:*", "tenant:acme/workspace:w/agent:bot/toolset:t", True),
        ("agent:*", "agent:bot", True),
        ("agent:*", "tenant:acme", False),
        ("agent:*/*", "tenant:acme/agent:bot", False),
        ("agent:*/*", "tenant:acme/agent:bot/toolset:t", True),
        ("*/agent:bot", "tenant:acme/workspace:w/agent:bot", True),
        ("*/agent:bot", "agent:bot", True),
        ("*/agent:bot", "tenant:acme/agent:bot/toolset:t", True),
        ("*/agent:bot", "tenant:acme/agent:bot2", False),
        ("*/workspace:w/agent:bot", "tenant:acme/workspace:w/agent:bot", True),
        ("*/workspace:w/agent:bot", "tenant:acme/workspace:w/app:a/agent:bot", False),
        ("*/agent:bot/*", "tenant:acme/agent:bot", False),
        ("*/agent:bot/*", "tenant:acme/agent:bot/toolset:t", True),
        ("agent:bot", "agent:bot", True),
        ("agent:bot", "tenant:acme/agent:bot", False),
        ("tenant:*", "tenant:acme/agent:bot", True),
    ],
)
def test_a_pattern_governs_these_paths(pattern: str, path: str, governs: bool) -> None:
    parsed = parse_pattern(pattern)
    assert isinstance(parsed, ScopePattern)
    assert parsed.governs(path) is governs


@pytest.mark.parametrize(
    "pattern",
    ["", "*", "*/*", "acme", "team:*", "tenant:acme/", "tenant:a*", "tenant:acme/*/agent:x", "tenant:", "a" * 1_025],
)
def test_a_pattern_outside_the_grammar_is_refused(pattern: str) -> None:
    assert isinstance(parse_pattern(pattern), InvalidInput)
    books = Books()
    assert books.refused(books.create_policy(pattern), "INVALID_INPUT").details()["field"] == "scope_pattern"


@pytest.mark.parametrize(
    ("policies", "winner"),
    [
        ([policy("tenant:acme/*", "wide", priority=1), policy(CHILD, "near")], "wide"),
        ([policy("tenant:acme/*", "wide"), policy(CHILD, "near")], "near"),
        ([policy("agent:*", "old"), policy("*/agent:bot", "new", created_at=START + 1)], "new"),
        ([policy("agent:*", "b"), policy("*/agent:bot", "a")], "a"),
        ([policy(PARENT, "elsewhere", priority=9), policy("agent:*", "here")], "here"),
        ([policy(CHILD, "off", priority=9, status=PolicyStatus.DISABLED), policy("agent:*", "on")], "on"),
        ([policy(CHILD, "early", effective_from_at=START + 1), policy("agent:*", "now")], "now"),
        ([policy(CHILD, "late", effective_until_at=START), policy("agent:*", "now")], "now"),
        ([policy(CHILD, "from", effective_from_at=START), policy("agent:*", "now")], "from"),
        ([policy(CHILD, "until", effective_until_at=START + 1), policy("agent:*", "now")], "until"),
    ],
)
def test_exactly_one_policy_wins(policies: list[Policy], winner: str) -> None:
    caps = {name.name: Caps(max_tokens=number) for number, name in enumerate(policies)}
    for each in policies:
        each.caps = caps[each.name]
    books = Books(budget(PARENT), policies=tuple(policies))
    answer = books.accepted(books.reserve(1, BOT))
    assert (answer.decision, answer.caps) == (Decision.ALLOW_WITH_CAPS, caps[winner])


def test_a_winner_without_caps_hides_the_caps_of_the_others() -> None:
    books = Books(
        budget(PARENT),
        policies=(policy(CHILD, "winner", priority=1), policy("agent:*", "loser", caps=Caps(max_tokens=1))),
    )
    assert books.accepted(books.evaluate(1, BOT)).decision is Decision.ALLOW


def test_empty_caps_are_none() -> None:
    books = Books(budget(PARENT, caps=Caps()), policies=(policy(PARENT, caps=Caps()),))
    answer = books.accepted(books.reserve(1))
    assert (answer.decision, answer.caps) == (Decision.ALLOW, None)


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (Caps(max_tokens=5), Caps(max_tokens=3, cooldown_ms=1), Caps(max_tokens=3, cooldown_ms=1)),
        (Caps(cooldown_ms=5), Caps(cooldown_ms=9), Caps(cooldown_ms=9)),
        (Caps(max_steps_remaining=0), Caps(max_steps_remaining=4), Caps(max_steps_remaining=0)),
        (Caps(tool_allowlist=("a", "b")), Caps(tool_allowlist=("b", "c")), Caps(tool_allowlist=("b",))),
        (Caps(tool_allowlist=("a",)), Caps(tool_allowlist=("c",)), Caps(tool_allowlist=NO_TOOL)),
        (Caps(tool_allowlist=("a", "b")), Caps(tool_denylist=("b",)), Caps(tool_allowlist=("a",))),
        (Caps(tool_denylist=("a",)), Caps(tool_allowlist=("a",)), Caps(tool_allowlist=NO_TOOL)),
        (Caps(tool_denylist=("a", "b")), Caps(tool_denylist=("b", "c")), Caps(tool_denylist=("a", "b", "c"))),
        (Caps(tool_allowlist=("a",), tool_denylist=("a",)), Caps(), Caps(tool_allowlist=("a",))),
    ],
)
def test_two_caps_merge_to_one_that_keeps_both(one: Caps, other: Caps, both: Caps) -> None:
    assert merge_caps(one, other) == both
    books = Books(budget(PARENT, caps=one), policies=(policy(PARENT, caps=other),))
    assert books.accepted(books.evaluate(1)).caps == both


@pytest.mark.parametrize(
    ("override", "asked", "granted"),
    [
        (TtlOverride(default_ttl_ms=2_000), None, 2_000),
        (TtlOverride(default_ttl_ms=2_000), 3_000, 3_000),
        (TtlOverride(max_ttl_ms=4_000), 30_000, 4_000),
        (TtlOverride(max_ttl_ms=80_000_000), 70_000_000, 70_000_000),
        (TtlOverride(), None, 9_000),
        (TtlOverride(), 30_000, 10_000),
    ],
)
def test_a_policys_lifetimes_stand_above_the_tenants(override: TtlOverride, asked: int | None, granted: int) -> None:
    tenant = Tenant(tenant_id=TENANT_ID, default_ttl_ms=9_000, max_ttl_ms=10_000)
    books = Books(budget(PARENT), tenant=tenant, policies=(policy(PARENT, ttl_override=override),))
    assert books.accepted(books.reserve(1, ttl_ms=asked)).remaining_ttl_ms == granted


def test_a_policy_bounds_extensions() -> None:
    books = Books(budget(PARENT), policies=(policy(PARENT, ttl_override=TtlOverride(max_extensions=1)),))
    held = books.hold(1)
    books.accepted(books.extend(held, 1))
    books.refused(books.extend(held, 1), "MAX_EXTENSIONS_EXCEEDED")


def test_a_policys_overage_stands_between_the_request_and_the_budget() -> None:
    books = Books(
        budget(PARENT, 10, commit_overage_policy=AWO), policies=(policy(PARENT, commit_overage_policy=REJECT),)
    )
    assert books.state.reservations[books.hold(1)].overage_policy is REJECT
    assert books.state.reservations[books.hold(1, overage_policy=AIA)].overage_policy is AIA
    books.refused(books.debit(9), "BUDGET_EXCEEDED")


# -- calls a minute ---------------------------------------------------------------------------------------------------


def limited(**limits: int) -> Books:
    """At the start of a minute of UTC: START is one."""
    assert START % 60_000 == 0
    return Books(budget(PARENT, 1_000), policies=(policy("tenant:*", rate_limits=RateLimits(**limits)),))


def test_a_minutes_reservations_are_bounded_and_the_next_minute_starts_anew() -> None:
    books = limited(max_reservations_per_minute=2)
    books.wait(1_000)
    books.hold(1)
    books.hold(1, BOT)
    books.wait(500)
    refusal = books.refused(books.reserve(1), "LIMIT_EXCEEDED")
    assert isinstance(refusal, RateLimited)
    assert refusal.details() == {"policy_id": "pol_p", "limit": 2, "retry_after_ms": 58_500}
    assert not books.events
    books.wait(58_499)
    books.refused(books.reserve(1), "LIMIT_EXCEEDED")
    books.wait(1)
    books.hold(1)
    books.hold(1)
    books.refused(books.reserve(1), "LIMIT_EXCEEDED")


def test_only_accepted_reservations_count() -> None:
    books = limited(max_reservations_per_minute=2)
    books.refused(books.reserve(1_001), "BUDGET_EXCEEDED")
    command = books.reserve(1)
    books.accepted(command)
    books.repeated(command)
    books.accepted(books.reserve(1, dry_run=True))
    books.accepted(books.evaluate(1))
    books.hold(1)
    books.refused(books.reserve(1), "LIMIT_EXCEEDED")


def test_previews_tell_of_the_limit_and_when_to_come_back() -> None:
    books = limited(max_reservations_per_minute=1)
    books.hold(1)
    for command in (books.reserve(1, dry_run=True), books.evaluate(1)):
        answer = books.accepted(command)
        assert (answer.decision, answer.reason_code) == (Decision.DENY, "LIMIT_EXCEEDED")
        assert answer.retry_after_ms == 60_000


def test_commits_have_their_own_limit_and_a_refused_one_keeps_its_hold() -> None:
    books = limited(max_commits_per_minute=1)
    first, second = books.hold(10), books.hold(10)
    books.accepted(books.commit(first, 10))
    late = books.commit(second, 10)
    books.refused(late, "LIMIT_EXCEEDED")
    books.wait(60_000)
    books.accepted(late)


def test_a_window_is_flushed_when_it_counts() -> None:
    books = limited(max_reservations_per_minute=5)
    books.hold(1)
    (window,) = books.last_changes.rate_windows.values()
    assert (window.policy_id, window.kind, window.minute_at, window.count) == ("pol_p", "reservations", START, 1)
    unlimited = Books(budget(PARENT))
    unlimited.hold(1)
    assert not unlimited.last_changes.rate_windows


# -- made and changed -------------------------------------------------------------------------------------------------


def test_a_policy_counts_from_the_moment_it_is_made() -> None:
    books = Books(budget(PARENT))
    made = books.accepted(books.create_policy("tenant:acme/*", caps=Caps(max_tokens=7), description="d", priority=3))
    assert (made.pattern.text, made.priority, made.status) == ("tenant:acme/*", 3, PolicyStatus.ACTIVE)
    assert books.event_types() == [EventType.POLICY_CREATED]
    assert books.last_changes.new_policies == {"pol_p"}
    assert books.accepted(books.evaluate(1, BOT)).caps == Caps(max_tokens=7)
    assert books.accepted(books.evaluate(1, WHOLE)).caps is None


def test_an_update_changes_what_is_given_and_says_what() -> None:
    books = Books(budget(PARENT))
    books.accepted(books.create_policy(PARENT, caps=Caps(max_tokens=7)))
    changed = books.accepted(books.update_policy(priority=0, caps=Caps(max_tokens=8), status=PolicyStatus.ACTIVE))
    assert (changed.caps, changed.name) == (Caps(max_tokens=8), "p")
    facts = books.events[0].facts
    assert facts == PolicyChange(policy_id="pol_p", name="p", scope_pattern=PARENT, changed_fields=("caps",))
    assert books.accepted(books.evaluate(1)).caps == Caps(max_tokens=8)
    books.accepted(books.update_policy(status=PolicyStatus.DISABLED))
    assert books.accepted(books.evaluate(1)).caps is None
    books.accepted(books.update_policy(status=PolicyStatus.DISABLED))
    assert [entry.operation for entry in books.last_changes.audit] == ["updatePolicy"]
    assert (books.last_changes.policies, books.last_changes.events) == ({}, [])


def test_an_updated_priority_changes_who_wins() -> None:
    books = Books(budget(PARENT))
    books.accepted(books.create_policy(PARENT, "one", caps=Caps(max_tokens=1), priority=1))
    books.accepted(books.create_policy(PARENT, "two", caps=Caps(max_tokens=2)))
    assert books.accepted(books.evaluate(1)).caps == Caps(max_tokens=1)
    books.accepted(books.update_policy("two", priority=2))
    assert books.accepted(books.evaluate(1)).caps == Caps(max_tokens=2)


def test_names_are_unique() -> None:
    books = Books(budget(PARENT))
    books.accepted(books.create_policy(PARENT, "one"))
    books.accepted(books.create_policy(PARENT, "two"))
    again = books.create_policy(PARENT, "one", policy_id="pol_x")
    refusal = books.refused(again, "DUPLICATE_RESOURCE")
    assert refusal.details() == {"resource": "policy", "resource_id": "pol_one"}
    books.refused(books.update_policy("two", name="one"), "DUPLICATE_RESOURCE")
    books.accepted(books.update_policy("two", name="two"))


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"priority": -1}, "priority"),
        ({"name": ""}, "name"),
        ({"description": "d" * 1_025}, "description"),
        ({"caps": Caps(max_steps_remaining=-1)}, "caps.max_steps_remaining"),
        ({"ttl_override": TtlOverride(default_ttl_ms=999)}, "reservation_ttl_override.default_ttl_ms"),
        ({"ttl_override": TtlOverride(max_ttl_ms=86_400_001)}, "reservation_ttl_override.max_ttl_ms"),
        ({"ttl_override": TtlOverride(max_extensions=-1)}, "reservation_ttl_override.max_extensions"),
        ({"rate_limits": RateLimits(max_reservations_per_minute=0)}, "rate_limits.max_reservations_per_minute"),
        ({"rate_limits": RateLimits(max_commits_per_minute=0)}, "rate_limits.max_commits_per_minute"),
        ({"effective_from_at": 5, "effective_until_at": 5}, "effective_until"),
    ],
)
def test_a_malformed_policy_is_refused_by_the_field(fields: dict[str, Any], field: str) -> None:
    books = Books()
    books.accepted(books.create_policy(name="there"))
    assert books.refused(replace(books.create_policy(), **fields), "INVALID_INPUT").details()["field"] == field
    assert books.refused(replace(books.update_policy("there"), **fields), "INVALID_INPUT").details()["field"] == field


def test_policies_of_an_unknown_id_or_a_closed_tenant_are_refused() -> None:
    books = Books()
    books.refused(books.update_policy(), "NOT_FOUND")
    books.accepted(books.create_policy())
    books.accepted(books.set_tenant(TenantStatus.CLOSED))
    books.refused(books.update_policy(), "TENANT_CLOSED")
    books.refused(books.create_policy(name="new"), "TENANT_CLOSED")


def test_a_subject_that_names_more_levels_does_not_shed_an_agents_caps() -> None:
    books = Books(budget(PARENT), policies=(policy("*/agent:bot", caps=Caps(max_tokens=9)),))
    subject = Subject(tenant=TENANT_ID, agent="bot", toolset="any")
    assert books.accepted(books.evaluate(1, subject)).caps == Caps(max_tokens=9)
