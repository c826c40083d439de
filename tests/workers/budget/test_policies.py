"""Policies through the desk: caps, lifetimes, overage, and calls a minute that count over all nodes (section 11.6)."""

from __future__ import annotations

import asyncio

from domain.budget.commands import Reserve
from domain.budget.records import PolicyStatus, RateLimits, TtlOverride
from domain.budget.values import ActorType, Caps, Decision, Origin, OveragePolicy, Subject
from domain.outcomes import Refusal
from domain.terms import MINUTE_MS
from tests.budget_world import ACME, BOT, CALL, CHILD, START, WHOLE, BudgetWorld, accepted, holder, refused, tokens
from workers.budget.rights import origin_of

UNTIL_THE_MINUTE_IS_OVER = MINUTE_MS - START % MINUTE_MS


async def test_the_winning_policy_shapes_a_hold(world: BudgetWorld) -> None:
    await world.budget()
    desk = world.node.budgets
    policy = accepted(
        await desk.create_policy(
            world.acme,
            name="bots",
            scope_pattern="*/agent:Bot",
            caps=Caps(max_tokens=7),
            ttl_override=TtlOverride(default_ttl_ms=2_000, max_extensions=0),
            commit_overage_policy=OveragePolicy.REJECT,
        )
    )
    answer = accepted(await world.reserve(1))
    assert (answer.decision, answer.caps) == (Decision.ALLOW_WITH_CAPS, Caps(max_tokens=7))
    assert (answer.remaining_ttl_ms, answer.overage_policy) == (2_000, OveragePolicy.REJECT)
    refused(await world.extend(answer.reservation_id, 1), "MAX_EXTENSIONS_EXCEEDED")
    assert accepted(await world.reserve(1, WHOLE)).caps is None
    accepted(await desk.update_policy(world.acme, policy_id=policy.policy_id, status=PolicyStatus.DISABLED))
    assert accepted(await world.reserve(1)).caps is None
    refused(await desk.create_policy(world.acme, name="bots", scope_pattern="agent:*"), "DUPLICATE_RESOURCE")
    refused(await desk.update_policy(world.acme, policy_id="pol_none", name="x"), "NOT_FOUND")
    assert [kind for kind in await world.event_types() if kind.startswith("policy.")] == [
        "policy.created",
        "policy.updated",
    ]


async def test_calls_a_minute_are_counted_over_all_nodes(two_nodes: BudgetWorld) -> None:
    world = two_nodes
    await world.budget()
    limits = RateLimits(max_reservations_per_minute=5, max_commits_per_minute=2)
    accepted(await world.node.budgets.create_policy(world.acme, name="p", scope_pattern="agent:*", rate_limits=limits))
    outcomes = await asyncio.gather(*(world.reserve(1, node=number % 2) for number in range(12)))
    held = [outcome.answer.reservation_id for outcome in outcomes if not isinstance(outcome, Refusal)]
    assert len(held) == 5
    refusals = [outcome for outcome in outcomes if isinstance(outcome, Refusal)]
    assert {(refusal.code, refusal.retry_after_ms) for refusal in refusals} == {  # type: ignore[attr-defined]
        ("LIMIT_EXCEEDED", UNTIL_THE_MINUTE_IS_OVER)
    }
    commits = await asyncio.gather(*(world.commit(hold, 1, node=number % 2) for number, hold in enumerate(held)))
    assert sum(not isinstance(outcome, Refusal) for outcome in commits) == 2
    world.clock.advance(UNTIL_THE_MINUTE_IS_OVER)
    accepted(await world.reserve(1, node=1))
    rows = await world.connection.fetch("select kind, count from budget_rate_window order by kind")
    assert [(row["kind"], row["count"]) for row in rows] == [("commits", 2), ("reservations", 1)]


async def test_a_command_of_ones_own_is_asked_with_ones_own_rights(world: BudgetWorld) -> None:
    """`ask` takes what an edge has put together; the permission and the tenant are looked at all the same."""
    await world.budget(CHILD)
    narrow = holder(ACME, "reservations:create", scope_filter=("agent:bot",))
    command = Reserve(
        tenant_id=ACME,
        origin=origin_of(narrow, ACME),
        scope_filter=("agent:bot",),
        idempotency_key="k",
        reservation_id="rsv_1",
        subject=BOT,
        action=CALL,
        estimate=tokens(1),
    )
    desk = world.node.budgets
    assert accepted(await desk.ask(narrow, command)).reservation_id == "rsv_1"
    refused(await desk.ask(holder(ACME, "budgets:read"), command), "ACCESS_DENIED")
    refused(await desk.ask(world.other, command), "ACCESS_DENIED")
    refused(await desk.ask(world.root, command), "ACCESS_DENIED")
    assert command.origin == Origin(
        actor_type=ActorType.API_KEY, key_id="key_acme", request_id="req_test", trace_id="0" * 31 + "1"
    )
    outside = Subject(tenant=ACME, app="a")
    refused(await world.reserve(1, outside, by=narrow), "ACCESS_DENIED")
