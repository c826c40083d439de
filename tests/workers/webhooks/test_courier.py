"""Nodes at work: order, receivers that do not hold up each other, nodes that share, die and leave (section 8.4)."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict

from domain.webhooks.subscriptions import RetryPolicy, Status
from storage.webhooks.handing_out import claim
from tests.capacity_world import eventually
from tests.receiver import Got, Receiver, receiving
from tests.webhook_world import WebhookWorld, webhook_world
from workers.clock import DatabaseClock
from workers.webhooks.courier import HOST_MAX, LEASE_MS, STRANDS_MAX

QUICK = RetryPolicy(max_retries=1, initial_delay_ms=100)
OPEN = "select count(*) from webhook_delivery where status in ('PENDING', 'RETRYING')"


async def all_settled(world: WebhookWorld) -> None:
    """Every event is handed out, and every delivery over."""
    await world.relay()

    async def is_over() -> bool:
        place = await world.value("select place from webhook_cursor")
        last = await world.value("select last_seq from event_stream where tenant_id = '*'")
        return bool(place == last and await world.value(OPEN) == 0)

    await eventually(is_over, timeout_ms=60_000)


async def many_events(world: WebhookWorld, count: int) -> None:
    """As a relay appends them: acme's stream and the mirror."""
    await world.relay()
    now = DatabaseClock().local_ms()
    payload = {"category": "budget", "source": "request", "scope": "tenant:acme", "data": {}}
    for number in range(0, count, 500):
        rows = [
            {
                "event_id": f"evt_{number + each:026}",
                "tenant_id": "acme",
                "type": "budget.funded",
                "occurred_at": now,
                "payload": payload,
                "recorded_at": now,
                "is_for_operators": False,
            }
            for each in range(min(500, count - number))
        ]
        await world.value("select event_append($1::text::json, 7000)", json.dumps(rows))


async def test_thousands_that_wait_are_delivered_by_two_nodes_in_order_and_none_twice(
    database_url: str, receiver: Receiver
) -> None:
    subscribers, events, both = 50, 60, asyncio.Barrier(2 * HOST_MAX)

    async def meet(_got: Got) -> int:
        """The first ones wait for each other: a single node never has so many under way at one host."""
        await both.wait()
        return 200

    async with webhook_world(database_url, clock=DatabaseClock()) as made:
        for number in range(subscribers):
            await made.subscribe(receiver.url(f"/{number}"))
        await many_events(made, events)
    receiver.answers += [meet] * (2 * HOST_MAX)
    async with webhook_world(database_url, nodes=2, runs_jobs=True, clock=DatabaseClock()) as world:
        await all_settled(world)
        stream = [event.event_id for event in await world.events("budget.funded")]
    by_path: dict[str, list[str]] = defaultdict(list)
    for got in receiver.got:
        by_path[got.path].append(got.header("X-Cycles-Event-Id"))
    assert len(receiver.got) == subscribers * events, "none twice"
    assert len(by_path) == subscribers
    assert all(seen == stream for seen in by_path.values()), "first attempts in the order of the stream"


async def test_a_receiver_that_never_answers_does_not_hold_up_the_others(database_url: str, receiver: Receiver) -> None:
    never = asyncio.Event()

    async def hang(_got: Got) -> int:
        await never.wait()
        return 200

    async with (
        receiving() as silent,
        webhook_world(database_url, runs_jobs=True, clock=DatabaseClock(), webhook_within_s=90.0) as world,
    ):
        silent.usually = hang
        for _ in range(3):
            await world.subscribe(silent.url(), retry_policy=QUICK)
        await world.subscribe(receiver.url())
        for _ in range(20):
            await world.fund()
        await receiver.until(20)
        assert len(silent.got) == 3, "one first attempt for each subscription, still under way"
        never.set()
        await all_settled(world)
    assert len(silent.got) == 60


async def test_a_dead_host_takes_no_more_than_its_share_of_the_places(database_url: str, receiver: Receiver) -> None:
    """However many subscribe with it."""
    go_on = asyncio.Event()

    async def hang(_got: Got) -> int:
        await go_on.wait()
        return 200

    assert HOST_MAX < STRANDS_MAX
    async with receiving(host="localhost") as dead, webhook_world(database_url, clock=DatabaseClock()) as world:
        dead.usually = hang
        for _ in range(3 * HOST_MAX):
            await world.subscribe(dead.url())
        await world.subscribe(receiver.url())
        await world.fund()
        delivering = asyncio.ensure_future(world.deliver())
        await dead.until(HOST_MAX)
        await receiver.until(1)
        assert dead.under_way_most == HOST_MAX
        go_on.set()
        await delivering
        while await world.value(OPEN):
            await world.deliver()
    assert len(dead.got) == 3 * HOST_MAX
    assert dead.under_way_most == HOST_MAX


async def test_retries_come_on_time_while_first_attempts_go_on(database_url: str, receiver: Receiver) -> None:
    async with webhook_world(database_url, runs_jobs=True, clock=DatabaseClock()) as world:
        made = await world.subscribe(receiver.url(), retry_policy=QUICK)
        receiver.answers.append(500)
        for _ in range(5):
            await world.fund()
        await all_settled(world)
        found = await world.deliveries(made.subscription.subscription_id)
    assert Counter(each.status.value for each in found) == {"SUCCESS": 5}
    (retried,) = [each for each in found if each.attempts == 2]
    assert retried.attempted_at is not None
    assert retried.attempted_at - retried.created_at >= 100


async def test_another_node_goes_on_when_the_lease_of_a_dead_one_has_run_out(
    database_url: str, receiver: Receiver
) -> None:
    """What a dead node leaves behind is a lease: here one that nobody prolongs."""
    async with webhook_world(database_url) as world:
        made = await world.subscribe(receiver.url())
        await world.fund()
        await world.relay()
        await world.node.courier._handing_out.run_once()
        vault = world.node.courier._vault
        assert vault is not None
        claimed = await claim(
            world.connection,
            now=world.clock.local_ms(),
            is_failing=False,
            key_ids=vault.key_ids,
            limit=10,
            lease="of a node that died",
            leased_until=world.clock.local_ms() + LEASE_MS,
            but_not_of=[],
        )
        assert [name for name, _ in claimed] == [made.subscription.subscription_id]
        world.advance(LEASE_MS - 1)
        assert (await world.deliver())["attempts"] == 0
        world.advance(1)
        assert (await world.deliver())["attempts"] == 1


async def test_what_a_node_settles_without_its_lease_is_not_settled_twice(
    database_url: str, receiver: Receiver
) -> None:
    """A node that stood still for longer than its lease: the other one has delivered and written that down."""
    async with webhook_world(database_url, nodes=2) as world:
        made = await world.subscribe(receiver.url(), retry_policy=RetryPolicy(max_retries=0))

        async def meanwhile(_got: Got) -> int:
            world.advance(LEASE_MS)
            await world.nodes[1].courier.run_once()
            return 500

        receiver.answers += [meanwhile, 200]
        await world.fund()
        await world.deliver()
        (delivery,) = await world.deliveries(made.subscription.subscription_id)
        webhook = await world.webhook(made.subscription.subscription_id)
    assert len(receiver.got) == 2, "at least once"
    assert (delivery.status.value, delivery.attempts) == ("SUCCESS", 1)
    assert webhook.health.consecutive_failures == 0


async def test_a_node_that_leaves_lets_what_is_on_its_way_arrive_and_gives_its_leases_back(
    database_url: str, receiver: Receiver
) -> None:
    async with webhook_world(database_url, nodes=2, runs_jobs=True, clock=DatabaseClock()) as world:
        go_on = asyncio.Event()

        async def hold(_got: Got) -> int:
            await go_on.wait()
            return 200

        receiver.answers += [hold]
        await world.subscribe(receiver.url())
        for _ in range(3):
            await world.fund()
        await receiver.until(1)
        leaving = [asyncio.ensure_future(node.courier.stop(within_s=20)) for node in world.nodes]
        go_on.set()
        await asyncio.gather(*leaving)
        assert await world.value("select count(*) from webhook_head where lease is not null") == 0
        assert await world.value("select count(*) from webhook_delivery where status = 'SUCCESS'") == len(receiver.got)


async def test_a_pause_takes_hold_in_the_middle_of_a_queue(database_url: str, receiver: Receiver) -> None:
    async with webhook_world(database_url) as world:
        made = await world.subscribe(receiver.url())
        webhook_id = made.subscription.subscription_id

        async def pause(_got: Got) -> int:
            await world.change(webhook_id, status=Status.PAUSED)
            return 200

        receiver.answers += [200, pause]
        for _ in range(10):
            await world.fund()
        await world.deliver()
        assert len(receiver.got) == 2
        assert (await world.webhook(webhook_id)).health.last_success_at is not None
        await world.change(webhook_id, status=Status.ACTIVE)
        await world.deliver()
    assert len(receiver.got) == 10
