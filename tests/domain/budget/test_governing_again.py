"""Idempotent replay of what governs: budgets, policies and tenants changed once under a key, whatever came after (4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest

from domain.amounts import Amount, Unit
from domain.budget.commands import GoverningCommand
from domain.budget.decisions import DECISIONS
from domain.budget.records import BudgetStatus, PolicyStatus, TenantStatus, TtlOverride
from domain.budget.values import Caps
from tests.domain.budget.books import CHILD, PARENT, Books, budget

Ask = Callable[[Books], Any]

ASKS: dict[str, tuple[Ask, dict[str, Any]]] = {
    "create": (lambda books: books.create_budget(CHILD, 5), {"allocated": Amount(Unit.TOKENS, 6)}),
    "update": (lambda books: books.update_budget(metadata={"a": 1}), {"metadata": {"a": 2}}),
    "freeze": (lambda books: books.freeze(reason="r"), {"reason": "another"}),
    "close": (lambda books: books.close(), {"scope": CHILD}),
    "create_policy": (
        lambda books: books.create_policy("agent:*", caps=Caps(max_tokens=1)),
        {"caps": Caps(max_tokens=2)},
    ),
    "update_policy": (lambda books: books.update_policy("old", priority=4), {"priority": 5}),
    "update_tenant": (lambda books: books.set_tenant(TenantStatus.SUSPENDED), {"max_ttl_ms": 9_000}),
}
"""What is asked, and what makes it another request."""


def books_with_a_policy() -> Books:
    books = Books(budget(PARENT, 1_000))
    books.accepted(books.create_policy(PARENT, "old", ttl_override=TtlOverride(max_ttl_ms=2_000)))
    return books


def again(command: Any, **changes: Any) -> Any:
    """As a client's retry makes it: under the same key, with new ids of the desk's."""
    return replace(command, **dict.fromkeys(command.made_by_desk, "new") | changes)


@pytest.mark.parametrize("which", ASKS)
def test_a_retry_is_told_what_was_told_and_changes_nothing(which: str) -> None:
    """Not as it is by now, and without an event, a row or an entry on record (4.2)."""
    books = books_with_a_policy()
    command = ASKS[which][0](books)
    first = books.accepted(command)
    told = replace(first)
    if which not in ("close", "update_tenant"):
        books.accepted(books.update_budget(overdraft_limit=Amount(Unit.TOKENS, 77)))
    books.wait(10)
    assert books.repeated(again(command)) == told
    assert not books.last_changes


@pytest.mark.parametrize("which", ASKS)
def test_the_key_of_another_request_is_refused(which: str) -> None:
    books = books_with_a_policy()
    ask, changes = ASKS[which]
    command = ask(books)
    books.accepted(command)
    books.refused(again(command, **changes), "IDEMPOTENCY_MISMATCH")


@pytest.mark.parametrize("which", ASKS)
def test_a_retry_comes_before_the_tenants_end(which: str) -> None:
    books = books_with_a_policy()
    command = ASKS[which][0](books)
    told = replace(books.accepted(command))
    books.accepted(books.set_tenant(TenantStatus.CLOSED))
    assert books.repeated(again(command)) == told


@pytest.mark.parametrize("which", ASKS)
@pytest.mark.parametrize("key", ["", "x" * 257])
def test_a_key_has_1_to_256_characters(which: str, key: str) -> None:
    books = books_with_a_policy()
    refusal = books.refused(again(ASKS[which][0](books), idempotency_key=key), "INVALID_INPUT")
    assert refusal.field == "idempotency_key"


def test_freezing_and_thawing_under_their_keys_is_never_refused_as_done() -> None:
    """Whatever happened in between; under a new key it is."""
    books = Books(budget(PARENT))
    freeze, thaw, close = books.freeze(), books.unfreeze(), books.close()
    for command, status in ((freeze, BudgetStatus.FROZEN), (thaw, BudgetStatus.ACTIVE), (close, BudgetStatus.CLOSED)):
        assert books.accepted(command).status is status
    for command, status in ((freeze, BudgetStatus.FROZEN), (thaw, BudgetStatus.ACTIVE), (close, BudgetStatus.CLOSED)):
        assert books.repeated(again(command)).status is status
    books.refused(books.freeze(), "BUDGET_CLOSED")


def test_a_refused_change_burns_no_key() -> None:
    books = Books(budget(PARENT))
    thaw = books.unfreeze()
    books.refused(thaw, "INVALID_STATE")
    books.accepted(books.freeze())
    assert books.accepted(thaw).status is BudgetStatus.ACTIVE


def test_a_retry_that_made_nothing_says_so_again() -> None:
    books = Books(budget(PARENT))
    books.state.tenant.name = "Acme"
    found = books.create_tenant(name="Acme")
    assert books.accepted(found).created is False
    assert books.repeated(again(found)).created is False
    books.refused(again(found, max_ttl_ms=5_000), "IDEMPOTENCY_MISMATCH")


def test_a_confined_key_is_told_nothing_of_what_it_may_not_touch() -> None:
    """Its own retry, after the filter was narrowed."""
    books = books_with_a_policy()
    for command in (books.freeze(), books.update_policy("old", status=PolicyStatus.DISABLED)):
        books.accepted(command)
        books.refused(again(command, scope_filter=("agent:bot",)), "ACCESS_DENIED")


@pytest.mark.parametrize("kind", [kind for kind in DECISIONS if issubclass(kind, GoverningCommand)])
def test_a_fingerprint_covers_all_that_a_client_can_send(kind: type[GoverningCommand]) -> None:
    """Whoever adds a field is covered, too: all but the frame and the ids that the desk makes."""
    given = {each.name: None for each in fields(kind) if each.name != "fingerprint"}
    command = kind(**(given | {"tenant_id": "acme", "idempotency_key": "k"}))
    frame = {"tenant_id", "origin", "scope_filter", "idempotency_key"}
    assert set(command.content()) == set(given) - frame - kind.made_by_desk
