"""Webhooks over GraphQL: made with a secret that is shown once, changed, tested, replayed, and refused in typed words."""

from __future__ import annotations

from typing import Any

from tests.receiver import Receiver, receiving
from tests.schema.world import World

WEBHOOK = "id tenantId url eventTypes eventCategories status consecutiveFailures headerNames scopeFilter"
MADE = f"... on CreatedWebhook {{ signingSecret webhook {{ {WEBHOOK} }} }}"
URL_INVALID = "... on WebhookUrlInvalid { urlReason: reason }"
DELIVERIES = "nodes { id eventId eventType status attempts responseStatus queuedAt completedAt replayId }"
ENDED = "custom.reservation-grant.ended"
CREATED = "custom.reservation-grant.created"


async def make(world: World, receiver: Receiver, **changes: Any) -> Any:
    wanted = {"url": receiver.url(), "eventTypes": [CREATED], "tenantId": "a", **changes}
    return await world.mutate("createWebhook", wanted, f"{MADE} {URL_INVALID}")


async def deliver(world: World) -> None:
    await world.runtime.relay.flush()
    await world.runtime.courier.run_once()


async def test_a_webhook_is_made_with_a_secret_that_is_shown_once(world: World) -> None:
    async with receiving() as receiver:
        made = await make(world, receiver, headers=[{"name": "Authorization", "value": "Bearer x"}])
    webhook_id = made["webhook"]["id"]
    assert made["signingSecret"].startswith("whsec_")
    assert made["webhook"] == {
        "id": webhook_id,
        "tenantId": "a",
        "url": receiver.url(),
        "eventTypes": [CREATED],
        "eventCategories": [],
        "status": "ACTIVE",
        "consecutiveFailures": 0,
        "headerNames": ["Authorization"],
        "scopeFilter": None,
    }
    shown = await world.data(f"query ($id: ID!) {{ webhook(id: $id) {{ {WEBHOOK} }} }}", id=webhook_id)
    assert shown["webhook"] == made["webhook"]


async def test_a_retry_of_a_creation_gets_the_same_webhook_and_no_secret(world: World) -> None:
    async with receiving() as receiver:
        first = await make(world, receiver, idempotencyKey="k", signingSecret="a secret of ours")
        again = await make(world, receiver, idempotencyKey="k", signingSecret="a secret of ours")
        other = await make(world, receiver, idempotencyKey="k", signingSecret="another secret")
    assert first["signingSecret"] == "a secret of ours"
    assert again == {**first, "signingSecret": None}
    assert (other["code"], other["conflictReason"]) == ("CONFLICT", "idempotency-key-reused")


async def test_an_event_about_a_grant_arrives_and_its_delivery_can_be_looked_at(world: World) -> None:
    async with receiving() as receiver:
        made = await make(world, receiver)
        grant = await world.create_grant()
        await deliver(world)
        (got,) = receiver.got
    assert got.is_signed_with(made["signingSecret"])
    assert got.event["event_type"] == CREATED
    assert got.event["category"] == "custom"
    assert got.event["tenant_id"] == "a"
    assert got.event["data"]["grantId"] == grant["id"]
    nested = f"query ($id: ID!) {{ webhook(id: $id) {{ deliveries(first: 5) {{ {DELIVERIES} }} }} }}"
    listed = f"query ($id: ID!) {{ webhookDeliveries(webhookId: $id, status: SUCCESS) {{ {DELIVERIES} }} }}"
    webhook_id = made["webhook"]["id"]
    (delivery,) = (await world.data(nested, id=webhook_id))["webhook"]["deliveries"]["nodes"]
    assert (await world.data(listed, id=webhook_id))["webhookDeliveries"]["nodes"] == [delivery]
    assert delivery["eventId"] == got.event["event_id"]
    expected = {"eventType": CREATED, "status": "SUCCESS", "attempts": 1, "responseStatus": 200, "replayId": None}
    assert delivery | expected == delivery


async def test_a_webhook_is_updated_paused_resumed_and_deleted(world: World) -> None:
    async with receiving() as receiver:
        webhook_id = (await make(world, receiver))["webhook"]["id"]
    shown = f"... on Webhook {{ {WEBHOOK} }}"
    wanted = {"webhookId": webhook_id, "eventTypes": [], "eventCategories": ["budget"], "scopeFilter": "tenant:a/*"}
    updated = await world.mutate("updateWebhook", wanted, shown)
    assert (updated["eventTypes"], updated["eventCategories"], updated["scopeFilter"]) == ([], ["budget"], "tenant:a/*")
    for mutation, status in (("pauseWebhook", "PAUSED"), ("pauseWebhook", "PAUSED"), ("resumeWebhook", "ACTIVE")):
        assert (await world.mutate(mutation, {"webhookId": webhook_id}, shown))["status"] == status
    deleted = await world.mutate("deleteWebhook", {"webhookId": webhook_id, "idempotencyKey": "d"}, shown)
    assert deleted["id"] == webhook_id
    assert (await world.mutate("deleteWebhook", {"webhookId": webhook_id}, shown))["code"] == "NOT_FOUND"
    again = await world.mutate("deleteWebhook", {"webhookId": webhook_id, "idempotencyKey": "d"}, shown)
    assert again["id"] == webhook_id
    assert (await world.data(f'{{ webhook(id: "{webhook_id}") {{ id }} }}'))["webhook"] is None


async def test_a_test_tells_how_the_receiver_took_it(world: World) -> None:
    shown = "... on WebhookTest { succeeded responseStatus error eventId }"
    async with receiving() as receiver:
        made = await make(world, receiver)
        receiver.answers.append(500)
        wanted = {"webhookId": made["webhook"]["id"]}
        failed = await world.mutate("testWebhook", wanted, shown)
        went_well = await world.mutate("testWebhook", wanted, shown)
    assert (failed["succeeded"], failed["responseStatus"]) == (False, 500)
    assert failed["error"] == "the receiver answered 500"
    assert (went_well["succeeded"], went_well["responseStatus"], went_well["error"]) == (True, 200, None)
    assert receiver.types == ["system.webhook_test"] * 2
    assert receiver.event_ids == [failed["eventId"], went_well["eventId"]]
    assert all(got.is_signed_with(made["signingSecret"]) for got in receiver.got)


async def test_a_replay_delivers_a_window_again_or_says_why_not(world: World) -> None:
    shown = "... on WebhookReplay { id eventsQueued } ... on ReplayInProgress { replayId }"
    async with receiving() as receiver:
        webhook_id = (await make(world, receiver))["webhook"]["id"]
        for _ in range(3):
            await world.create_grant(slots=1)
        await deliver(world)
        wanted = {"webhookId": webhook_id, "from": world.clock.now, "to": world.clock.now}
        too_many = await world.mutate("replayWebhook", {**wanted, "maxEvents": 2}, shown)
        assert (too_many["code"], too_many["field"], too_many["reason"]) == ("INVALID_INPUT", "maxEvents", "too-many")
        replay = await world.mutate("replayWebhook", wanted, shown)
        assert replay["eventsQueued"] == 3
        running = await world.mutate("replayWebhook", wanted, shown)
        assert (running["code"], running["replayId"]) == ("REPLAY_IN_PROGRESS", replay["id"])
        await deliver(world)
    assert receiver.event_ids[:3] == receiver.event_ids[3:]


async def test_refusals_have_their_names(world: World) -> None:
    async with receiving() as receiver:
        unknown = await make(world, receiver, eventTypes=["reservation-grant.ended"])
        assert (unknown["code"], unknown["field"], unknown["reason"]) == ("INVALID_INPUT", "eventTypes", "unknown-type")
        assert ENDED in unknown["message"]
        admin_only = await make(world, receiver, eventCategories=["api_key"])
        assert (admin_only["field"], admin_only["reason"]) == ("eventCategories", "admin-only")
        bad_url = await make(world, receiver, url="ftp://example.com/")
        assert (bad_url["code"], bad_url["urlReason"]) == ("WEBHOOK_URL_INVALID", "scheme")
        nobody = await make(world, receiver, tenantId="nobody")
        assert nobody["code"] == "NOT_FOUND"


async def test_a_tenant_sees_its_own_webhooks_only_and_needs_the_permission(world: World) -> None:
    listing = "query ($all: Boolean!) { webhooks(all: $all) { nodes { id tenantId } } }"
    async with receiving() as receiver:
        ids = {name: (await make(world, receiver, tenantId=name))["webhook"]["id"] for name in ("a", "__system__")}
    result = await world.ask(listing, world.callers["a"], all=False)
    assert result.errors is not None
    assert (result.errors[0].extensions or {})["code"] == "ACCESS_DENIED", "webhooks:read is not among the defaults"
    wanted = {"tenantId": "a", "name": "hooks", "permissions": ["webhooks:read", "webhooks:write"]}
    made = await world.mutate("createApiKey", wanted, "... on CreatedApiKey { secret }")
    hooks = await world.caller_of(made["secret"])
    own = await world.data(listing, hooks, all=False)
    assert own["webhooks"]["nodes"] == [{"id": ids["a"], "tenantId": "a"}]
    assert (await world.data(f'{{ webhook(id: "{ids["__system__"]}") {{ id }} }}', hooks))["webhook"] is None
    everybody = await world.data(listing, all=True)
    assert {node["id"] for node in everybody["webhooks"]["nodes"]} == set(ids.values())
