"""The desk of webhooks: what it keeps, what it keeps secret, and whom it refuses."""

from __future__ import annotations

import asyncio

import pytest

from domain.outcomes import Accepted
from domain.webhooks.subscriptions import Status
from domain.webhooks.targets import STRICT
from tests.receiver import Receiver
from tests.webhook_world import ACME, OTHER, ROOT, WebhookWorld, accepted, member, refused, webhook_world
from workers.webhooks import writing
from workers.webhooks.desk import WebhookChanges
from workers.webhooks.vault import Vault, VaultError

URL = "https://hooks.example.test/in"


async def create(world: WebhookWorld, **given: object) -> object:
    wanted = {"url": URL, "event_types": ("budget.funded",), **given}
    by = wanted.pop("by", world.acme)
    return await world.node.webhooks.create(by, **wanted)  # type: ignore[arg-type]


async def test_secrets_are_sealed_in_the_database(world: WebhookWorld) -> None:
    made = await world.subscribe(URL, signing_secret="a secret", headers={"Authorization": "Bearer token"})
    row = await world.connection.fetchrow("select * from webhook_subscription")
    assert row is not None
    everything = b" ".join(value if isinstance(value, bytes) else str(value).encode() for value in row.values())
    assert b"a secret" not in everything
    assert b"token" not in everything
    assert row["header_names"] == ["Authorization"]
    dump = await world.value("select string_agg(payload::text, '') from event")
    assert "a secret" not in dump
    assert "token" not in dump
    assert "a secret" not in repr(made.subscription)


async def test_a_sealed_secret_opens_only_in_its_own_place_with_its_own_key() -> None:
    vault = Vault(b"k" * 32)
    sealed = vault.seal("a secret", place="whsub_1/secret")
    assert vault.open(sealed, key_id=vault.key_id, place="whsub_1/secret") == "a secret"
    assert vault.seal("a secret", place="whsub_1/secret") != sealed
    with pytest.raises(VaultError):
        vault.open(sealed, key_id=vault.key_id, place="whsub_2/secret")
    with pytest.raises(VaultError):
        Vault(b"l" * 32).open(sealed, key_id=vault.key_id, place="whsub_1/secret")
    with pytest.raises(VaultError):
        vault.open(sealed[:-1] + bytes([sealed[-1] ^ 1]), key_id=vault.key_id, place="whsub_1/secret")
    assert Vault(b"k" * 32).key_id == vault.key_id != Vault(b"l" * 32).key_id


async def test_a_node_without_a_key_makes_no_webhook_and_says_why(database_url: str) -> None:
    async with webhook_world(database_url, secret_key=None) as world:
        assert refused(await create(world)) == ("INVALID_STATE", "no-secret-key")


async def test_a_node_with_another_key_leaves_deliveries_and_secrets_to_those_who_can(
    database_url: str, receiver: Receiver
) -> None:
    async with webhook_world(database_url) as world:
        made = await world.subscribe(receiver.url())
        webhook_id = made.subscription.subscription_id
        async with webhook_world(database_url, secret_key=b"another key of a node, 32 bytes or more") as stranger:
            await world.fund()
            assert await stranger.deliver() == {"queued": 1, "attempts": 0}
            tested = await stranger.node.webhook_probes.test(stranger.root, webhook_id=webhook_id)
            assert refused(tested) == ("INVALID_STATE", "other-secret-key")
            changes = WebhookChanges(headers={"A": "1"})
            changed = await stranger.node.webhooks.update(stranger.root, webhook_id=webhook_id, changes=changes)
            assert refused(changed) == ("INVALID_STATE", "other-secret-key")
            renamed = WebhookChanges(name="what needs no secret")
            accepted(await stranger.node.webhooks.update(stranger.root, webhook_id=webhook_id, changes=renamed))
        assert await world.deliver() == {"queued": 0, "attempts": 1}


async def test_an_owner_has_only_so_many(world: WebhookWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "SUBSCRIPTIONS_MAX", 3)
    first = await world.subscribe(URL)
    for _ in range(2):
        await world.subscribe(URL)
    assert refused(await create(world)) == ("INVALID_STATE", "full")
    assert isinstance(await create(world, by=world.other), Accepted)
    await world.node.webhooks.delete(world.acme, webhook_id=first.subscription.subscription_id)
    assert isinstance(await create(world), Accepted)


async def test_a_url_is_held_against_what_operators_allow(database_url: str) -> None:
    async with webhook_world(database_url, security=STRICT) as world:
        for url, reason in (
            ("http://hooks.example.test/", "scheme"),
            ("https://127.0.0.1/", "blocked"),
            ("https://[::ffff:10.0.0.1]/", "blocked"),
            ("https://169.254.169.254/latest/meta-data", "blocked"),
            ("https://localhost/", "blocked"),
        ):
            assert refused(await create(world, url=url)) == ("WEBHOOK_URL_INVALID", reason)
        made = await world.subscribe(URL)  # a name that does not resolve today may do so tomorrow
        webhook_id = made.subscription.subscription_id
        changes = WebhookChanges(url="https://10.0.0.1/")
        changed = await world.node.webhooks.update(world.acme, webhook_id=webhook_id, changes=changes)
        assert refused(changed) == ("WEBHOOK_URL_INVALID", "blocked")


async def test_who_may_do_what(world: WebhookWorld) -> None:
    made = await world.subscribe(URL)
    webhook_id = made.subscription.subscription_id
    reader, writer = member(ACME, "webhooks:read"), member(ACME, "webhooks:write")
    operator = member(ROOT, "admin:webhooks:write")
    stranger = member(OTHER, "webhooks:read", "webhooks:write")
    changes = WebhookChanges(name="x")
    desk, reads = world.node.webhooks, world.node.webhook_reads
    assert refused(await create(world, by=reader)) == ("ACCESS_DENIED", None)
    assert refused(await create(world, by=writer, tenant_id=OTHER)) == ("ACCESS_DENIED", None)
    assert refused(await create(world, by=writer, tenant_id="__system__")) == ("ACCESS_DENIED", None)
    assert refused(await reads.webhook(writer, webhook_id=webhook_id)) == ("ACCESS_DENIED", None)
    assert refused(await desk.update(reader, webhook_id=webhook_id, changes=changes)) == ("ACCESS_DENIED", None)
    assert refused(await desk.update(stranger, webhook_id=webhook_id, changes=changes)) == ("NOT_FOUND", None)
    assert refused(await desk.delete(stranger, webhook_id=webhook_id)) == ("NOT_FOUND", None)
    assert refused(await reads.webhook(stranger, webhook_id=webhook_id)) == ("NOT_FOUND", None)
    assert refused(await world.node.webhook_replays.replay(writer, webhook_id=webhook_id)) == ("ACCESS_DENIED", None)
    accepted(await desk.update(operator, webhook_id=webhook_id, changes=changes))
    accepted(await desk.update(writer, webhook_id=webhook_id, changes=changes))
    admin = member(ROOT, "admin:write")
    accepted(await world.node.webhook_replays.replay(admin, webhook_id=webhook_id))


async def test_changes_at_once_come_one_after_another_and_none_is_lost(world: WebhookWorld) -> None:
    made = await world.subscribe(URL)
    webhook_id = made.subscription.subscription_id
    fields = [{"name": "n"}, {"description": "d"}, {"metadata": {"a": 1}}, {"disable_after_failures": 3}]
    changes = [WebhookChanges(**each) for each in fields]  # type: ignore[arg-type]
    await asyncio.gather(
        *(world.node.webhooks.update(world.acme, webhook_id=webhook_id, changes=each) for each in changes)
    )
    webhook = await world.webhook(webhook_id)
    assert (webhook.name, webhook.description, webhook.metadata) == ("n", "d", {"a": 1})
    assert (webhook.disable_after_failures, webhook.version) == (3, 5)
    assert len(await world.events("webhook.updated")) == 4


async def test_a_retry_under_its_key_changes_nothing_again(world: WebhookWorld) -> None:
    made = await world.subscribe(URL)
    webhook_id = made.subscription.subscription_id
    pause, resume = WebhookChanges(status=Status.PAUSED), WebhookChanges(status=Status.ACTIVE)
    desk = world.node.webhooks
    accepted(await desk.update(world.acme, webhook_id=webhook_id, changes=pause, idempotency_key="p"))
    accepted(await desk.update(world.acme, webhook_id=webhook_id, changes=resume))
    again = accepted(await desk.update(world.acme, webhook_id=webhook_id, changes=pause, idempotency_key="p"))
    assert again.status is Status.ACTIVE, "it is shown as it is by now"
    other = await desk.update(world.acme, webhook_id=webhook_id, changes=resume, idempotency_key="p")
    assert refused(other) == ("CONFLICT", "idempotency-key-reused")


async def test_the_database_itself_keeps_both_invariants(world: WebhookWorld) -> None:
    await world.subscribe(URL)
    for column, value, constraint in (
        ("event_types", "'{}'", "webhook_subscription_selects"),
        ("event_types", "'{budget.funded,api_key.created}'", "webhook_subscription_is_the_tenants"),
        ("event_categories", "'{system}'", "webhook_subscription_is_the_tenants"),
    ):
        with pytest.raises(Exception, match=constraint):
            await world.value(f"update webhook_subscription set {column} = {value}")
