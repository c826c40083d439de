"""Which events a subscription gets, and the two invariants (section 8.3)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from domain.budget.events import EventType as BudgetEventType
from domain.capacity import boundaries
from domain.outcomes import InvalidInput
from domain.webhooks.events import EventType
from domain.webhooks.selectors import (
    CATEGORIES,
    KNOWN_TYPES,
    SYSTEM,
    is_of_tenant,
    matches,
    published_type,
    refuse_reach,
    refuse_selectors,
    scope_matches,
)

SPEC = os.environ.get("EARMARK_TEST_CYCLES_SPEC")


def reason(owner: str, types: list[str], categories: list[str] | None = None) -> str | None:
    refused = refuse_selectors(owner, types, categories or [])
    return refused.reason if isinstance(refused, InvalidInput) else None


def fits(**changes: Any) -> bool:
    given: dict[str, Any] = {
        "owner": "acme",
        "types": {"budget.funded"},
        "categories": set(),
        "scope_filter": None,
        "kind": "budget.funded",
        "subject": "acme",
        "scope": "tenant:acme",
        **changes,
    }
    return matches(**given)


def test_every_type_of_both_contexts_and_of_webhooks_themselves_can_be_subscribed_to() -> None:
    told = {*BudgetEventType, *EventType, *boundaries.TYPES}
    assert {published_type(kind) for kind in told} <= KNOWN_TYPES
    for kind in KNOWN_TYPES:
        assert reason(SYSTEM, [kind]) is None


@pytest.mark.skipif(not SPEC, reason="the published documents are not here")
def test_the_types_and_categories_are_the_documents_and_those_of_grants() -> None:
    text = (Path(SPEC or "") / "cycles-governance-admin-v0.1.25.yaml").read_text()
    schemas = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))["components"]["schemas"]
    assert {kind for kind in KNOWN_TYPES if not kind.startswith("custom.")} == set(schemas["EventType"]["enum"])
    assert {*CATEGORIES} - {"custom"} == set(schemas["EventCategory"]["enum"])
    accessible = {kind for kind in schemas["EventType"]["enum"] if is_of_tenant(kind)}
    assert {kind.partition(".")[0] for kind in accessible} == {"budget", "reservation", "tenant"}
    assert len(accessible) == 29


@pytest.mark.parametrize(
    ("owner", "types", "categories", "expected"),
    [
        ("acme", ["budget.funded", "reservation.denied", "tenant.closed"], ["budget", "reservation", "tenant"], None),
        ("acme", ["custom.reservation-grant.ended"], ["custom"], None),
        ("acme", [], ["budget"], None),
        ("acme", [], [], "no-selector"),
        (SYSTEM, [], [], "no-selector"),
        ("acme", ["budget.nothing"], [], "unknown-type"),
        ("acme", ["reservation-grant.ended"], [], "unknown-type"),
        ("acme", ["budget.funded"], ["budgets"], "unknown-category"),
        ("acme", ["api_key.created"], [], "admin-only"),
        ("acme", ["budget.funded", "system.webhook_test"], [], "admin-only"),
        ("acme", ["budget.funded"], ["webhook"], "admin-only"),
        ("acme", [], ["policy"], "admin-only"),
        (SYSTEM, ["api_key.created"], ["webhook", "policy", "system"], None),
    ],
)
def test_the_invariants(owner: str, types: list[str], categories: list[str], expected: str | None) -> None:
    assert reason(owner, types, categories) == expected


def test_a_type_or_its_category_is_enough() -> None:
    assert fits()
    assert fits(types=set(), categories={"budget"})
    assert fits(types={"reservation.denied"}, categories={"budget"})
    assert not fits(types={"budget.closed"})
    assert not fits(types={"budget.closed"}, categories={"tenant"})


def test_the_owners_boundary_holds_whatever_is_stored() -> None:
    assert not fits(subject="other")
    assert not fits(types={"api_key.created"}, kind="api_key.created")
    assert not fits(categories={"system"}, kind="system.webhook_delivery_failed", subject="acme")
    assert fits(owner=SYSTEM, subject="other")
    assert fits(owner=SYSTEM, types={"api_key.created"}, kind="api_key.created", subject="acme", scope=None)


@pytest.mark.parametrize(
    ("scope_filter", "scope", "expected"),
    [
        (None, None, True),
        ("", None, True),
        ("  ", "tenant:a", True),
        ("tenant:a", "tenant:a", True),
        ("tenant:a", "tenant:a/agent:x", False),
        ("tenant:a", None, False),
        ("tenant:a/*", "tenant:a/agent:x", True),
        ("tenant:a/*", "tenant:a", False),
        ("tenant:a*", "tenant:ab", True),
        ("*", "tenant:a", True),
        ("*", None, False),
        ("Tenant:a", "tenant:a", False),
        ("tenant:*/agent:x", "tenant:a/agent:x", False),
        ("tenant:*/agent:x", "tenant:*/agent:x", True),
        ("tenant:a/**", "tenant:a/*x", True),
        ("tenant:a/**", "tenant:a/x", False),
    ],
)
def test_scope_filters(scope_filter: str | None, scope: str | None, expected: bool) -> None:
    assert scope_matches(scope_filter, scope) is expected


@pytest.mark.parametrize(
    ("scope_filter", "covered"),
    [
        ("tenant:a/agent:bot", True),
        ("tenant:a/agent:bot/*", True),
        ("tenant:a/agent:bot/toolset:*", True),
        ("tenant:a/agent:bot*", False),
        ("tenant:a/agent:b*", False),
        ("tenant:a/*", False),
        ("*", False),
        ("", False),
        (None, False),
    ],
)
def test_a_confined_key_reaches_only_what_is_certainly_within_its_scopes(
    scope_filter: str | None, covered: bool
) -> None:
    assert (refuse_reach(("agent:bot",), scope_filter) is None) is covered
    assert refuse_reach((), scope_filter) is None
