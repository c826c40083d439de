"""Deliveries to real receivers: slow, dead, moody ones; and what becomes of their subscriptions (section 8.4)."""

from __future__ import annotations

import asyncio

from domain.events import EventRecord
from domain.webhooks.deliveries import DeliveryStatus
from domain.webhooks.subscriptions import RetryPolicy, Status
from tests.ports import reserved_port
from tests.receiver import Got, Receiver, receiving
from tests.webhook_world import ROOT, START, WebhookWorld, member, webhook_world

SUCCESS, FAILED, RETRYING, PENDING = (
    DeliveryStatus.SUCCESS,
    DeliveryStatus.FAILED,
    DeliveryStatus.RETRYING,
    DeliveryStatus.PENDING,
)
AT_ONCE = RetryPolicy(max_retries=0)
DAY = 86_400_000


def dead_url() -> str:
    """A port that nobody listens on."""
    return f"http://127.0.0.1:{reserved_port()}/"


async def test_events_arrive_in_their_order_signed_with_the_secret_and_once(
    world: WebhookWorld, receiver: Receiver
) -> None:
    made = await world.subscribe(receiver.url("/in?a=b"), "budget.funded", "reservation.denied")
    for number in range(10):
        await (world.deny() if number % 3 == 0 else world.fund())
    ran = await world.deliver()
    assert ran == {"queued": 10, "attempts": 10}
    stream = await world.events("budget.funded", "reservation.denied")
    assert receiver.event_ids == [event.event_id for event in stream]
    assert {(got.method, got.path) for got in receiver.got} == {("POST", "/in?a=b")}
    assert made.signing_secret is not None
    assert all(got.is_signed_with(made.signing_secret) for got in receiver.got)
    assert not any(got.is_signed_with("another secret") for got in receiver.got)
    assert {each.status for each in await world.deliveries(made.subscription.subscription_id)} == {SUCCESS}
    assert await world.deliver() == {"queued": 0, "attempts": 0}


async def test_s122_a_receiver_that_fails_is_asked_again_after_the_published_pauses(
    world: WebhookWorld, receiver: Receiver
) -> None:
    webhook_id = (await world.subscribe(receiver.url())).subscription.subscription_id
    receiver.usually = 500
    await world.fund()
    await world.deliver()
    for pause in (1_000, 2_000, 4_000, 8_000, 16_000):
        (delivery,) = await world.deliveries(webhook_id)
        assert delivery.status is RETRYING
        world.advance(pause - 1)
        assert (await world.deliver())["attempts"] == 0, "not a moment before"
        world.advance(1)
        assert (await world.deliver())["attempts"] == 1
    (delivery,) = await world.deliveries(webhook_id)
    assert (delivery.status, delivery.attempts, delivery.response_status) == (FAILED, 6, 500)
    assert len(set(receiver.event_ids)) == 1
    assert len({got.header("traceparent") for got in receiver.got}) == 6, "every attempt has a span of its own"
    assert len({got.body for got in receiver.got}) == 1
    (told,) = await world.events("system.webhook_delivery_failed")
    assert (told.tenant_id, told.payload["data"]["details"]["delivery_id"]) == ("__system__", delivery.delivery_id)
    assert (await world.webhook(webhook_id)).health.consecutive_failures == 1


async def test_ten_that_are_given_up_in_a_row_disable_a_webhook_and_that_is_told_once(
    world: WebhookWorld, receiver: Receiver
) -> None:
    webhook_id = (await world.subscribe(receiver.url(), retry_policy=AT_ONCE)).subscription.subscription_id
    receiver.usually = 500
    for _ in range(15):
        await world.fund()
    await world.deliver()
    webhook = await world.webhook(webhook_id)
    assert (webhook.status, webhook.health.consecutive_failures) == (Status.DISABLED, 10)
    assert len(receiver.got) == 10, "the rest waits"
    (told,) = await world.events("webhook.disabled")
    assert told.payload["data"] == {
        "subscription_id": webhook_id,
        "tenant_id": "acme",
        "previous_status": "ACTIVE",
        "new_status": "DISABLED",
        "changed_fields": [],
        "disable_reason": "consecutive_failures_exceeded_threshold",
    }
    tenth = (await world.deliveries(webhook_id, status=FAILED))[-1]
    assert told.payload["correlation_id"] == f"webhook_auto_disable:{webhook_id}:{tenth.delivery_id}"
    await world.fund()
    await world.deliver()
    assert len(receiver.got) == 10
    receiver.usually = 200
    resumed = await world.change(webhook_id, status=Status.ACTIVE)
    assert (resumed.status, resumed.health.consecutive_failures) == (Status.ACTIVE, 0)
    await world.deliver()
    assert len(receiver.got) == 15, "what waited arrives; what happened while it was disabled does not"
    assert len(await world.events("webhook.disabled")) == 1


async def test_any_success_begins_the_count_anew(world: WebhookWorld, receiver: Receiver) -> None:
    made = await world.subscribe(receiver.url(), retry_policy=AT_ONCE, disable_after_failures=3)
    receiver.answers += [500, 500, 200, 500, 500, 200]
    for _ in range(6):
        await world.fund()
    await world.deliver()
    webhook = await world.webhook(made.subscription.subscription_id)
    assert (webhook.status, webhook.health.consecutive_failures) == (Status.ACTIVE, 0)


async def test_a_failed_one_waits_aside_while_later_ones_arrive(world: WebhookWorld, receiver: Receiver) -> None:
    await world.subscribe(receiver.url())
    receiver.answers.append(503)
    for _ in range(3):
        await world.fund()
    await world.deliver()
    world.advance(1_000)
    await world.deliver()
    stream = [event.event_id for event in await world.events("budget.funded")]
    assert receiver.event_ids == [*stream, stream[0]]


async def test_gone_is_a_failure_like_any_other(world: WebhookWorld, receiver: Receiver) -> None:
    """The protocol knows no word for leaving: 410 is retried."""
    webhook_id = (await world.subscribe(receiver.url())).subscription.subscription_id
    receiver.answers.append(410)
    await world.fund()
    await world.deliver()
    (delivery,) = await world.deliveries(webhook_id)
    assert (delivery.status, delivery.response_status) == (RETRYING, 410)
    world.advance(1_000)
    await world.deliver()
    assert (await world.deliveries(webhook_id))[0].status is SUCCESS
    assert (await world.webhook(webhook_id)).status is Status.ACTIVE


async def test_redirects_are_not_followed(world: WebhookWorld, receiver: Receiver) -> None:
    webhook_id = (await world.subscribe(receiver.url())).subscription.subscription_id
    async with receiving() as elsewhere:

        async def redirect(_got: Got) -> bytes:
            return f"HTTP/1.1 307 Temporary\r\nLocation: {elsewhere.url()}\r\nContent-Length: 0\r\n\r\n".encode()

        receiver.answers.append(redirect)
        await world.fund()
        await world.deliver()
        assert elsewhere.got == []
    (delivery,) = await world.deliveries(webhook_id)
    assert (delivery.status, delivery.response_status) == (RETRYING, 307)
    assert delivery.error == "the receiver answered 307: redirects are not followed"


async def test_a_receiver_that_is_not_there_is_a_failure(world: WebhookWorld) -> None:
    webhook_id = (await world.subscribe(dead_url())).subscription.subscription_id
    await world.fund()
    await world.deliver()
    (delivery,) = await world.deliveries(webhook_id)
    assert (delivery.status, delivery.response_status) == (RETRYING, None)
    assert delivery.error == "the connection failed or was cut"


async def test_a_name_that_does_not_resolve_is_a_failure(world: WebhookWorld) -> None:
    webhook_id = (await world.subscribe("http://no-such-host.invalid/")).subscription.subscription_id
    await world.fund()
    await world.deliver()
    assert (await world.deliveries(webhook_id))[0].error == "the host cannot be resolved"


async def test_a_slow_receiver_gets_so_much_time_and_no_more(database_url: str, receiver: Receiver) -> None:
    never = asyncio.Event()

    async def think(_got: Got) -> int:
        await never.wait()
        return 200

    async with webhook_world(database_url, webhook_within_s=0.5) as world:
        webhook_id = (await world.subscribe(receiver.url())).subscription.subscription_id
        receiver.answers.append(think)
        for _ in range(2):
            await world.fund()
        await world.deliver()
        first, second = await world.deliveries(webhook_id)
        never.set()
    assert (first.status, first.error) == (RETRYING, "no answer within 0.5 s")
    assert first.response_time_ms is not None
    assert first.response_time_ms >= 499
    assert second.attempts == 1


async def test_answers_that_are_none(world: WebhookWorld, receiver: Receiver) -> None:
    webhook_id = (await world.subscribe(receiver.url())).subscription.subscription_id
    receiver.answers += [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nnot all of it",
    ]
    for _ in range(5):
        await world.fund()
    await world.deliver()
    found = await world.deliveries(webhook_id)
    assert [each.status for each in found] == [RETRYING, RETRYING, RETRYING, SUCCESS, SUCCESS]
    assert {found[0].error, found[2].error} == {"the receiver's answer is no HTTP"}
    assert found[1].error == "the connection was closed without an answer"


async def test_what_is_paused_waits_and_what_happens_meanwhile_is_not_queued(
    world: WebhookWorld, receiver: Receiver
) -> None:
    webhook_id = (await world.subscribe(receiver.url())).subscription.subscription_id
    receiver.answers.append(500)
    await world.fund()
    await world.deliver()
    await world.change(webhook_id, status=Status.PAUSED)
    world.advance(5_000)
    await world.fund()
    await world.deliver()
    assert len(receiver.got) == 1
    world.advance(1)
    await world.change(webhook_id, status=Status.ACTIVE)
    await world.fund()
    await world.deliver()
    stream = [event.event_id for event in await world.events("budget.funded")]
    assert sorted(receiver.event_ids) == sorted([stream[0], stream[0], stream[2]])
    assert len(await world.deliveries(webhook_id)) == 2


async def test_what_waited_for_more_than_a_day_is_given_up_and_counts_for_nothing(
    world: WebhookWorld, receiver: Receiver
) -> None:
    webhook_id = (await world.subscribe(receiver.url(), disable_after_failures=1)).subscription.subscription_id
    await world.fund()
    await world.relay()
    await world.node.courier._handing_out.run_once()
    await world.change(webhook_id, status=Status.PAUSED)
    world.advance(DAY + 1)
    await world.change(webhook_id, status=Status.ACTIVE)
    await world.deliver()
    (delivery,) = await world.deliveries(webhook_id)
    assert (delivery.status, delivery.attempts, delivery.error) == (FAILED, 0, "not delivered within a day")
    webhook = await world.webhook(webhook_id)
    assert (webhook.status, webhook.health.consecutive_failures) == (Status.ACTIVE, 0)
    assert receiver.got == []


async def test_what_a_pause_holds_back_for_more_than_a_day_is_given_up_by_retention(
    world: WebhookWorld, receiver: Receiver
) -> None:
    webhook_id = (await world.subscribe(receiver.url())).subscription.subscription_id
    receiver.usually = 500
    await world.fund()
    await world.deliver()
    await world.change(webhook_id, status=Status.PAUSED)
    world.advance(DAY + 1)
    await world.node.schedule.run_job("retention")
    assert (await world.deliveries(webhook_id))[0].status is FAILED


async def test_a_deleted_webhook_gets_nothing_more_and_leaves_nothing_behind(
    world: WebhookWorld, receiver: Receiver
) -> None:
    webhook_id = (await world.subscribe(receiver.url(), headers={"A": "secret"})).subscription.subscription_id
    receiver.usually = 500
    await world.fund()
    await world.deliver()
    await world.node.webhooks.delete(world.acme, webhook_id=webhook_id)
    world.advance(60_000)
    await world.fund()
    await world.deliver()
    assert len(receiver.got) == 1
    secrets = "select count(*) from webhook_subscription where sealed_secret is not null or sealed_headers is not null"
    assert await world.value(secrets) == 0
    await world.node.schedule.run_job("retention")
    for table in ("webhook_delivery", "webhook_head", "webhook_subscription"):
        assert await world.value(f"select count(*) from {table}") == 0


async def test_deliveries_are_kept_for_a_fortnight(world: WebhookWorld, receiver: Receiver) -> None:
    webhook_id = (await world.subscribe(receiver.url())).subscription.subscription_id
    await world.fund()
    await world.deliver()
    world.advance(14 * DAY)
    await world.node.schedule.run_job("retention")
    assert len(await world.deliveries(webhook_id)) == 1
    world.advance(1)
    await world.node.schedule.run_job("retention")
    assert await world.deliveries(webhook_id) == []


async def test_a_new_url_and_a_new_secret_hold_for_what_waits_already(world: WebhookWorld, receiver: Receiver) -> None:
    webhook_id = (await world.subscribe(dead_url(), headers={"A": "1"})).subscription.subscription_id
    await world.fund()
    await world.deliver()
    await world.change(webhook_id, url=receiver.url(), signing_secret="rotated", headers={"A": "********", "B": "2"})
    world.advance(1_000)
    await world.deliver()
    (got,) = receiver.got
    assert got.is_signed_with("rotated")
    assert (got.header("A"), got.header("B")) == ("1", "2")


async def test_an_event_that_is_no_longer_kept_is_given_up(world: WebhookWorld, receiver: Receiver) -> None:
    webhook_id = (await world.subscribe(receiver.url())).subscription.subscription_id
    receiver.answers.append(500)
    await world.fund()
    await world.deliver()
    await world.value("delete from event where tenant_id = '*'")
    world.advance(1_000)
    await world.deliver()
    (delivery,) = await world.deliveries(webhook_id)
    assert (delivery.status, delivery.error) == (FAILED, "the event is no longer kept")


async def test_nobody_is_told_through_itself_that_it_cannot_be_reached(world: WebhookWorld, receiver: Receiver) -> None:
    """Or it would never end."""
    root = member(ROOT)
    await world.subscribe(
        dead_url(), "system.webhook_delivery_failed", by=root, tenant_id="__system__", retry_policy=AT_ONCE
    )
    watching = await world.subscribe(receiver.url(), "system.webhook_delivery_failed", by=root, tenant_id="__system__")
    await world.subscribe(dead_url(), retry_policy=AT_ONCE)
    await world.fund()
    for _ in range(5):
        await world.deliver()
    told: list[EventRecord] = await world.events("system.webhook_delivery_failed")
    assert len(told) == 2, "of acme's delivery, and of telling the dead operator's receiver of that"
    assert receiver.event_ids == [event.event_id for event in told]
    assert len(await world.deliveries(watching.subscription.subscription_id)) == 2


async def test_a_delivery_counts_from_when_it_was_queued(world: WebhookWorld, receiver: Receiver) -> None:
    webhook_id = (await world.subscribe(receiver.url())).subscription.subscription_id
    await world.fund()
    world.advance(250)
    await world.deliver()
    (delivery,) = await world.deliveries(webhook_id)
    assert (delivery.created_at, delivery.attempted_at, delivery.completed_at) == (START + 250,) * 3
    health = (await world.webhook(webhook_id)).health
    assert (health.last_triggered_at, health.last_success_at, health.last_failure_at) == (
        START + 250,
        START + 250,
        None,
    )
