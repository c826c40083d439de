"""Thresholds of subscriptions (8.3): each is told of its own, whatever others ask for, and of none twice."""

from __future__ import annotations

import json
from typing import Any

from domain.amounts import Amount
from domain.budget.values import Action, Subject
from domain.outcomes import Accepted
from domain.terms import MINUTE_MS
from tests.receiver import Receiver
from tests.webhook_world import ACME, START, TOKENS, WebhookWorld
from workers.budget.rates import SETTLE_MS
from workers.schedule import RATES

CROSSED = "budget.threshold_crossed"
SPIKE = "reservation.denial_rate_spike"


async def spend(world: WebhookWorld, amount: int, *, node: int = 0) -> None:
    """Of the 1,000 that acme has."""
    outcome = await world.nodes[node].budgets.debit(
        world.acme,
        idempotency_key=f"spend-{amount}-{node}",
        subject=Subject(tenant=ACME),
        action=Action(kind="llm.completion", name="gpt"),
        actual=Amount(TOKENS, amount),
    )
    assert isinstance(outcome, Accepted), outcome


async def told(world: WebhookWorld, receiver: Receiver, field: str) -> dict[str, list[Any]]:
    """By path, what the events say in this field."""
    await world.deliver()
    found: dict[str, list[Any]] = {}
    for got in receiver.got:
        found.setdefault(got.path, []).append(json.loads(got.body)["data"][field])
    return found


async def test_each_is_told_of_the_crossings_that_it_asked_for(world: WebhookWorld, receiver: Receiver) -> None:
    await world.subscribe(receiver.url("/published"), CROSSED)
    await world.subscribe(receiver.url("/own"), CROSSED, thresholds={"budget_utilization": [0.25, 0.5]})
    await world.subscribe(receiver.url("/none"), CROSSED, thresholds={"budget_utilization": []})
    system = {"by": world.root, "tenant_id": "__system__"}
    await world.subscribe(receiver.url("/system"), CROSSED, **system, thresholds={"budget_utilization": [0.5, 0.8]})
    await spend(world, 600)
    await spend(world, 300)
    assert await told(world, receiver, "threshold") == {
        "/published": [0.8],
        "/own": [0.25, 0.5],
        "/system": [0.5, 0.8],
    }
    crossings = await world.events(CROSSED)
    assert [event.payload["data"]["threshold_millionths"] for event in crossings] == [250_000, 500_000, 800_000]


async def test_what_nobody_asks_for_any_more_is_not_told(world: WebhookWorld, receiver: Receiver) -> None:
    made = await world.subscribe(receiver.url(), CROSSED, thresholds={"budget_utilization": [0.5]})
    await world.subscribe(receiver.url(), "budget.funded", thresholds={"budget_utilization": [0.4]})
    await world.change(made.subscription.subscription_id, thresholds={"budget_utilization": [0.6]})
    await spend(world, 700)
    crossings = await world.events(CROSSED)
    assert [event.payload["data"]["threshold_millionths"] for event in crossings] == [600_000]


async def test_a_node_that_knows_nothing_yet_learns_before_it_decides(world: WebhookWorld, receiver: Receiver) -> None:
    await world.subscribe(receiver.url(), CROSSED, thresholds={"budget_utilization": [0.5]})
    world.node.thresholds._is_loaded = False
    world.node.thresholds._tenants = {}
    async with world.node.database.acquire() as connection:
        await world.node.thresholds.load(connection)
    assert 500_000 in world.node.thresholds.utilizations(ACME)


async def test_a_rate_is_counted_in_the_window_that_was_asked_for(world: WebhookWorld, receiver: Receiver) -> None:
    await world.subscribe(receiver.url("/published"), SPIKE)
    own = {"denial_rate_threshold": 0.5, "rate_window_seconds": 60}
    await world.subscribe(receiver.url("/own"), SPIKE, thresholds=own)
    run = world.node.schedule.run_job
    world.advance(SETTLE_MS)
    await run(RATES)
    for _ in range(25):
        await world.deny()
    await world.relay()
    world.advance(START + MINUTE_MS + SETTLE_MS - world.clock.local_ms())
    await run(RATES)
    assert await told(world, receiver, "window_seconds") == {"/own": [60]}
    world.advance(4 * MINUTE_MS)
    await run(RATES)
    assert await told(world, receiver, "threshold_rate") == {"/own": [0.5], "/published": [0.1]}
