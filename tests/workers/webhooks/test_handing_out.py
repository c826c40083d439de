"""From the streams to the queues: who gets which event, once, whoever hands out (section 8.3)."""

from __future__ import annotations

import asyncio

import pytest

from domain.budget.records import TenantStatus
from domain.webhooks.subscriptions import Status
from tests.capacity_world import eventually
from tests.receiver import Receiver
from tests.webhook_world import ACME, OTHER, ROOT, WebhookWorld, member, webhook_world
from workers.webhooks import handing_out

EVERYTHING = "system.high_latency"
"""A type that is never emitted: beside it the categories decide."""


async def queued(world: WebhookWorld, webhook_id: str) -> list[str]:
    return [each.event_type for each in await world.deliveries(webhook_id)]


async def hand_out(world: WebhookWorld, *, node: int = 0) -> int:
    await world.relay()
    return await world.nodes[node].courier._handing_out.run_once()


async def test_a_tenant_gets_its_own_events_and_the_system_everybodys(world: WebhookWorld, receiver: Receiver) -> None:
    root = member(ROOT)
    own = await world.subscribe(receiver.url("/own"), "budget.created", "budget.funded")
    others = await world.subscribe(receiver.url("/other"), "budget.created", by=world.other)
    everybodys = await world.subscribe(
        receiver.url("/all"),
        EVERYTHING,
        by=root,
        tenant_id="__system__",
        event_categories=("budget", "api_key", "webhook"),
    )
    await world.fund()
    await world.budget("tenant:other", by=world.other)
    await world.node.keys.create_api_key(root, tenant_id=OTHER, name="k", permissions=["balances:read"])
    await hand_out(world)
    assert await queued(world, own.subscription.subscription_id) == ["budget.funded"]
    assert await queued(world, others.subscription.subscription_id) == ["budget.created"]
    kinds = ["webhook.created", "budget.funded", "budget.created", "api_key.created"]
    assert sorted(await queued(world, everybodys.subscription.subscription_id)) == sorted(kinds)


async def test_what_happened_before_a_webhook_was_made_is_not_its(world: WebhookWorld, receiver: Receiver) -> None:
    await world.fund()
    world.advance(1)
    early = await world.subscribe(receiver.url())
    await world.fund()
    world.advance(1)
    late = await world.subscribe(receiver.url())
    await hand_out(world)
    assert len(await queued(world, early.subscription.subscription_id)) == 1
    assert await queued(world, late.subscription.subscription_id) == []


async def test_what_waits_in_the_outbox_when_a_webhook_is_made_is_not_its(
    world: WebhookWorld, receiver: Receiver
) -> None:
    """It happened before, although its stream gets it after."""

    async def both_wait() -> bool:
        waiting = (
            "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
        )
        async with world.node.database.acquire() as connection:  # one transaction sees the same all the time
            return bool(await connection.fetchval(waiting) >= 2)

    async with world.connection.transaction():
        await world.connection.execute("select * from event_stream for update")  # nothing is appended meanwhile
        await world.fund()
        world.advance(1)
        making = asyncio.ensure_future(world.subscribe(receiver.url()))
        await eventually(both_wait)
    made = await making
    await hand_out(world)
    assert await queued(world, made.subscription.subscription_id) == []


async def test_scopes_narrow_what_is_queued(world: WebhookWorld, receiver: Receiver) -> None:
    below = await world.subscribe(receiver.url(), "budget.created", scope_filter="tenant:acme/*")
    exactly = await world.subscribe(receiver.url(), "budget.created", scope_filter="tenant:acme/agent:x")
    await world.budget("tenant:acme/agent:x")
    await world.budget("tenant:acme/agent:y")
    await hand_out(world)
    assert len(await queued(world, below.subscription.subscription_id)) == 2
    assert len(await queued(world, exactly.subscription.subscription_id)) == 1


async def test_two_nodes_hand_out_every_event_once(database_url: str, receiver: Receiver) -> None:
    async with webhook_world(database_url, nodes=2) as world:
        made = await world.subscribe(receiver.url())
        for _ in range(40):
            await world.fund()
            await asyncio.gather(*(node.courier._handing_out.run_once() for node in world.nodes))
        await hand_out(world)
        found = await world.deliveries(made.subscription.subscription_id)
        stream = await world.events("budget.funded")
    assert [each.event_id for each in sorted(found, key=lambda each: each.place or 0)] == [
        event.event_id for event in stream
    ]


async def test_a_page_that_many_want_is_taken_in_parts(
    world: WebhookWorld, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handing_out, "QUEUED_MAX", 7)
    made = [await world.subscribe(receiver.url()) for _ in range(3)]
    for _ in range(10):
        await world.fund()
    assert await hand_out(world) == 30
    for each in made:
        assert len(await queued(world, each.subscription.subscription_id)) == 10


async def test_without_any_webhook_the_stream_is_passed_over_and_a_later_one_misses_nothing(
    world: WebhookWorld, receiver: Receiver
) -> None:
    for _ in range(3):
        await world.fund()
    assert await hand_out(world) == 0
    last = await world.value("select last_seq from event_stream where tenant_id = '*'")
    assert await world.value("select place from webhook_cursor") == last
    made = await world.subscribe(receiver.url())
    await world.fund()
    await hand_out(world)
    assert len(await queued(world, made.subscription.subscription_id)) == 1


async def test_what_retention_has_taken_does_not_hold_up_the_rest(world: WebhookWorld, receiver: Receiver) -> None:
    made = await world.subscribe(receiver.url())
    for _ in range(3):
        await world.fund()
    await world.relay()
    await world.value("delete from event where tenant_id = '*'")
    assert await hand_out(world) == 0
    await world.fund()
    await hand_out(world)
    assert len(await queued(world, made.subscription.subscription_id)) == 1


async def test_a_closed_tenants_webhooks_go_down_with_what_waits(world: WebhookWorld, receiver: Receiver) -> None:
    made = await world.subscribe(receiver.url(), "budget.funded", event_categories=("tenant", "budget"))
    webhook_id = made.subscription.subscription_id
    receiver.usually = 500
    await world.fund()
    await world.deliver()
    await world.node.budgets.update_tenant(world.root, tenant_id=ACME, status=TenantStatus.CLOSED)
    await world.deliver()
    assert (await world.webhook(webhook_id)).status is Status.DISABLED
    assert {each.status.value for each in await world.deliveries(webhook_id)} == {"FAILED"}
    assert len(receiver.got) == 1
    assert len(await world.events("webhook.disabled_via_tenant_cascade")) == 1


async def test_a_deleted_tenants_webhooks_go_down_too(world: WebhookWorld, receiver: Receiver) -> None:
    """Also of a tenant that budgets have never heard of."""
    made = await world.subscribe(receiver.url(), by=world.other)
    await world.node.tenancy.delete_tenant(world.root, tenant_id=OTHER)
    await world.deliver()
    assert (await world.webhook(made.subscription.subscription_id)).status is Status.DISABLED
    assert len(await world.events("webhook.disabled_via_tenant_cascade")) == 1


async def test_a_running_node_hands_out_by_itself_what_any_context_tells(database_url: str, receiver: Receiver) -> None:
    """Nobody runs a job here: the relay wakes the courier, and so does what is appended without a relay."""
    async with webhook_world(database_url, runs_jobs=True) as world:
        root = member(ROOT)
        await world.subscribe(
            receiver.url(), EVERYTHING, by=root, tenant_id="__system__", event_categories=("budget", "tenant")
        )
        await world.fund()
        await world.node.tenancy.create_tenant(root, tenant_id="newcomer", name="newcomer")
        await receiver.until(2)

        async def is_all_written() -> bool:
            open_ones = "select count(*) from webhook_delivery where status <> 'SUCCESS'"
            return bool(await world.value(open_ones) == 0)

        await eventually(is_all_written)
    assert sorted(receiver.types) == ["budget.funded", "tenant.created"]
