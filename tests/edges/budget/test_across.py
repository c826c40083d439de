"""A retry over the other edge is the same request: keys belong to an operation, whichever edge it comes over (Annex A)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.edges.budget.edge import BudgetEdge, Refused
from tests.edges.budget.graphql_edge import EDGES
from tests.edges.budget.story import AGENT, AWO, CALL, C, P, unchanging
from tests.edges.cycles.world import ACME, ADMIN, TOKENS, World

PLACE = {"scope": P, "unit": TOKENS}
WORK = {
    "subject": {**AGENT, "dimensions": {"team": "red", "a": "1"}},
    "action": {**CALL, "tags": ["x", "y"]},
    "metadata": {"z": [1, 2.5, {"deep": None}], "a": "ü"},
}
ASKED: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "reserve": ("reserve", {**WORK, "amount": 10, "ttl_ms": 9_000, "overage_policy": AWO}, {"amount": 11}),
    "reserve, plain": ("reserve", {"subject": AGENT, "action": CALL, "amount": 10}, {"grace_period_ms": 1}),
    "preview": ("reserve", {**WORK, "amount": 10, "dry_run": True}, {"dry_run": False}),
    "decide": ("decide", {**WORK, "amount": 10}, {"metadata": {"a": 1}}),
    "debit": ("debit", {**WORK, "amount": 10, "client_time_ms": 5}, {"client_time_ms": 6}),
    "commit": ("commit", {"amount": 7, "metadata": {"done": True}}, {"amount": 8}),
    "commit, measured": ("commit", {"amount": 7, "metrics": {"custom": {"b": 1, "a": [True]}}}, {"amount": 8}),
    "release": ("release", {"reason": "unused"}, {"reason": "another"}),
    "extend": ("extend", {"extend_by_ms": 1_000, "metadata": {"n": 1}}, {"extend_by_ms": 1_001}),
    "fund": ("fund", {**PLACE, "operation": "RESET_SPENT", "amount": 50, "spent": 5, "reason": "r"}, {"spent": 6}),
    "create": ("create", {**PLACE, "scope": C, "amount": 5, "overdraft_limit": 3}, {"amount": 6}),
    "update": ("update", {**PLACE, "overdraft_limit": 3}, {"overdraft_limit": 4}),
    "freeze": ("freeze", {**PLACE, "reason": "audit"}, {"reason": "another"}),
    "suspend": ("tenant", {"tenant_id": ACME, "status": "SUSPENDED"}, {"status": "CLOSED"}),
}
"""What is asked, and what makes it another request under its key."""
BY_OPERATORS = ("update", "freeze", "tenant")
ABOUT_A_HOLD = ("commit", "release", "extend")


async def books(world: World) -> tuple[Any, ...]:
    return await world.numbers(P, "allocated", "reserved", "spent", "debt", "overdraft_limit", "status")


@pytest.mark.parametrize("which", ASKED)
@pytest.mark.parametrize(("here", "there"), [("rest", "graphql"), ("graphql", "rest")])
async def test_a_retry_over_the_other_edge_is_told_the_same_and_changes_nothing(
    world: World, which: str, here: str, there: str
) -> None:
    await world.budget(P, 1_000)
    what, given, changes = ASKED[which]
    by = ADMIN if what in BY_OPERATORS else ACME
    request = {**given, "idempotency_key": "once", **(await hold_of(world, what))}
    first: BudgetEdge = EDGES[here](world)
    second: BudgetEdge = EDGES[there](world)

    told = await first.ask(what, request, by=by)
    world.clock.advance(50)
    before, events = await books(world), await world.events_told()
    again = await second.ask(what, request, by=by)
    other = await second.ask(what, {**request, **changes}, by=by)

    assert not isinstance(told, Refused), told
    assert not isinstance(again, Refused), again
    assert unchanging(again) == unchanging(told)
    assert (await books(world), await world.events_told()) == (before, events)
    assert isinstance(other, Refused)
    assert other.code == "IDEMPOTENCY_MISMATCH"


async def hold_of(world: World, what: str) -> dict[str, Any]:
    return {"reservation_id": await world.held(10)} if what in ABOUT_A_HOLD else {}
