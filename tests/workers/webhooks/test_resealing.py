"""A new key for secrets at rest: what the former has sealed is delivered at once, and sealed anew until nothing is left."""

from __future__ import annotations

from itertools import count

from tests.receiver import Receiver
from tests.webhook_world import SECRET_KEY, WebhookWorld, webhook_world
from workers.schedule import RESEAL

KEYS = count(1)
"""Of requests: the worlds share a database."""
NEW_KEY = b"the next secret key of a test, 32 bytes and more"


async def delivered(world: WebhookWorld, receiver: Receiver, secret: str) -> bool:
    """Whether the next event arrives, signed with the secret and with the header of the subscription."""
    before = len(receiver.got)
    world._keys = KEYS
    await world.fund()
    await world.deliver()
    return [(got.is_signed_with(secret), got.header("X-Own")) for got in receiver.got[before:]] == [(True, "own")]


async def test_a_key_is_replaced_while_deliveries_go_on(database_url: str, receiver: Receiver) -> None:
    async with webhook_world(database_url) as world:
        made = await world.subscribe(receiver.url(), headers={"X-Own": "own"})
        gone = await world.subscribe(receiver.url())
        await world.node.webhooks.delete(world.acme, webhook_id=gone.subscription.subscription_id)
        assert (await world.node.schedule.run_job(RESEAL)).counts == {"resealed": 0}
    async with webhook_world(database_url, secret_key=NEW_KEY) as world:
        assert not await delivered(world, receiver, made.signing_secret or ""), "nobody here can open it"
    async with webhook_world(database_url, secret_key=NEW_KEY, former_secret_key=SECRET_KEY) as world:
        await world.deliver()
        assert receiver.got.pop().is_signed_with(made.signing_secret or "")
        assert await delivered(world, receiver, made.signing_secret or "")
        assert (await world.node.schedule.run_job(RESEAL)).counts == {"resealed": 1, "left": 0}
        assert (await world.node.schedule.run_job(RESEAL)).counts == {"resealed": 0, "left": 0}
    async with webhook_world(database_url, secret_key=NEW_KEY) as world:
        assert await delivered(world, receiver, made.signing_secret or "")
        await world.change(made.subscription.subscription_id, signing_secret="a secret of our own")
        assert await delivered(world, receiver, "a secret of our own")
