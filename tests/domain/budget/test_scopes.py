"""Scopes: derivation, the grammar of a budget's scope, and a key's scope filter (section 2.1, scenarios 5, 10, 11, 13, 14)."""

from __future__ import annotations

from typing import Any

import pytest

from domain.budget.patterns import ScopePattern, parse_pattern
from domain.budget.scopes import derive_scopes, parse_budget_scope, scope_filter_allows
from domain.budget.values import Subject
from domain.outcomes import InvalidInput
from domain.tenancy import check_scope_filter
from tests.domain.budget.books import BOT, CHILD, PARENT, Books, budget


@pytest.mark.parametrize(
    ("subject", "scopes"),
    [
        ({"tenant": "acme"}, ["tenant:acme"]),
        ({"tenant": "acme", "agent": "bot"}, ["tenant:acme", "tenant:acme/agent:bot"]),
        ({"workspace": "prod"}, ["workspace:prod"]),
        ({"tenant": "acme", "workspace": "", "agent": "bot"}, ["tenant:acme", "tenant:acme/agent:bot"]),
        ({"tenant": "acme", "agent": "Bot.V2"}, ["tenant:acme", "tenant:acme/agent:bot.v2"]),
        (
            {"toolset": "t", "agent": "g", "workflow": "f", "app": "p", "workspace": "w", "tenant": "acme"},
            [
                "tenant:acme",
                "tenant:acme/workspace:w",
                "tenant:acme/workspace:w/app:p",
                "tenant:acme/workspace:w/app:p/workflow:f",
                "tenant:acme/workspace:w/app:p/workflow:f/agent:g",
                "tenant:acme/workspace:w/app:p/workflow:f/agent:g/toolset:t",
            ],
        ),
    ],
)
def test_scopes_are_the_prefixes_of_the_levels_that_are_there(subject: dict[str, Any], scopes: list[str]) -> None:
    assert derive_scopes(Subject(**subject)) == tuple(scopes)


@pytest.mark.parametrize("value", ["a/b", "a:b", "a b", "ä", "a\n", " ", "x" * 129])
def test_a_value_outside_the_charset_is_refused(value: str) -> None:
    refusal = derive_scopes(Subject(tenant="acme", agent=value))
    assert isinstance(refusal, InvalidInput)
    assert refusal.field == "subject.agent"


@pytest.mark.parametrize("value", ["x" * 128, ".-_", "A.b-c_9"])
def test_a_value_inside_the_charset_is_accepted(value: str) -> None:
    assert derive_scopes(Subject(agent=value)) == (f"agent:{value.lower()}",)


@pytest.mark.parametrize(
    ("dimensions", "reason"),
    [
        ({"team": "red"}, "no-level"),
        ({str(number): "v" for number in range(17)}, "too-many"),
        ({"team": "v" * 257}, "too-long"),
    ],
)
def test_dimensions_make_no_scope_and_are_bounded(dimensions: dict[str, str], reason: str) -> None:
    refusal = derive_scopes(Subject(dimensions=dimensions))
    assert isinstance(refusal, InvalidInput)
    assert refusal.reason == reason


def test_dimensions_come_back_as_they_were_sent() -> None:
    subject = Subject(tenant="acme", agent="Bot", dimensions={"Team": "Red"})
    assert subject.content() == {"tenant": "acme", "agent": "Bot", "dimensions": {"Team": "Red"}}


def test_a_scope_without_a_budget_is_skipped_and_still_listed() -> None:
    books = Books(budget(PARENT, 1_000))
    answer = books.accepted(books.reserve(10, BOT))
    assert answer.affected_scopes == (PARENT, CHILD)
    assert answer.scope_path == CHILD
    assert [balance.scope_path for balance in answer.balances] == [PARENT]


def test_a_mixed_case_subject_spends_from_the_lower_case_budget() -> None:
    books = Books(budget(PARENT, 1_000), budget(CHILD, 50))
    books.refused(books.reserve(51, Subject(tenant="acme", agent="Bot")), "BUDGET_EXCEEDED")
    books.hold(50, Subject(tenant="acme", agent="BOT"))
    books.has(CHILD, reserved=50)


def test_a_balance_is_named_by_its_last_segment() -> None:
    answer = Books(budget(PARENT), budget(CHILD)).state.all_budgets()[1].balance()
    assert (answer.scope, answer.scope_path) == ("agent:bot", CHILD)


@pytest.mark.parametrize(
    ("scope", "path"),
    [
        ("tenant:acme", "tenant:acme"),
        ("Tenant:ACME/Agent:Bot", "tenant:acme/agent:bot"),
        ("tenant:acme/workspace:a.b-c_d/toolset:t9", "tenant:acme/workspace:a.b-c_d/toolset:t9"),
        (f"tenant:acme/agent:{'x' * 128}", f"tenant:acme/agent:{'x' * 128}"),
    ],
)
def test_a_budget_scope_becomes_its_canonical_path(scope: str, path: str) -> None:
    assert parse_budget_scope(scope, tenant_id="acme") == path


@pytest.mark.parametrize(
    ("scope", "reason"),
    [
        ("", "grammar"),
        ("agent:bot", "grammar"),
        ("workspace:prod/tenant:acme", "grammar"),
        ("tenant:acme/agent:a/workspace:b", "grammar"),
        ("tenant:acme/agent:a/agent:b", "grammar"),
        ("tenant:acme/", "grammar"),
        ("tenant:acme/team:red", "grammar"),
        ("tenant:acme/agent:*", "charset"),
        ("tenant:acme/agent:", "charset"),
        ("tenant:acme/agent:-bot", "charset"),
        ("tenant:acme/agent:bot.", "charset"),
        ("tenant:acme/agent:a:b", "charset"),
        (f"tenant:acme/agent:{'x' * 129}", "charset"),
        ("tenant:other", "other-tenant"),
        ("tenant:acme2/agent:bot", "other-tenant"),
    ],
)
def test_a_budget_scope_outside_the_grammar_is_refused(scope: str, reason: str) -> None:
    refusal = parse_budget_scope(scope, tenant_id="acme")
    assert isinstance(refusal, InvalidInput)
    assert refusal.reason == reason


@pytest.mark.parametrize(
    ("scope_filter", "path", "allowed"),
    [
        ((), CHILD, True),
        (("agent:bot",), CHILD, True),
        (("AGENT:Bot",), CHILD, True),
        (("agent:*",), CHILD, True),
        (("agent:other", "tenant:acme"), CHILD, True),
        (("agent:bo",), CHILD, False),
        (("workspace:*",), CHILD, False),
        (("agent:*",), PARENT, False),
    ],
)
def test_a_scope_filter_needs_one_matching_segment(scope_filter: Any, path: str, allowed: bool) -> None:
    assert scope_filter_allows(scope_filter, path) is allowed


def test_a_confined_key_reaches_neither_other_scopes_nor_their_holds() -> None:
    books = Books(budget(PARENT), budget(CHILD))
    held = books.hold(10)
    confined: dict[str, Any] = {"scope_filter": ("agent:bot",)}
    books.accepted(books.reserve(1, BOT, **confined))
    for command in (
        books.reserve(1, **confined),
        books.evaluate(1, **confined),
        books.debit(1, **confined),
        books.commit(held, 1, **confined),
        books.release(held, **confined),
        books.extend(held, 1, **confined),
        books.fund("CREDIT", 1, **confined),
        books.create_budget("tenant:acme/app:x", 1, **confined),
        books.freeze(**confined),
    ):
        books.refused(command, "ACCESS_DENIED")


@pytest.mark.parametrize("tenant_id", ["Acme:EU", "_", "-a-", ":", "T" * 128])
def test_a_tenant_of_any_name_has_scopes_patterns_and_filters(tenant_id: str) -> None:
    scope = f"tenant:{tenant_id.lower()}"
    assert derive_scopes(Subject(tenant=tenant_id, agent="Bot")) == (scope, f"{scope}/agent:bot")
    assert parse_budget_scope(f"{scope}/agent:bot", tenant_id=tenant_id) == f"{scope}/agent:bot"
    pattern = parse_pattern(f"{scope}/*")
    assert isinstance(pattern, ScopePattern)
    assert pattern.governs(f"{scope}/agent:bot")
    assert check_scope_filter([scope], "scope_filter") == (scope,)
    assert scope_filter_allows([scope], f"{scope}/agent:bot")
