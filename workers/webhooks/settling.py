"""What came of attempts, written down for many subscriptions at once: whoever is first writes for all who wait.

Under the heads of the subscriptions concerned: the deliveries, what the subscriptions learn of them, and if one has
failed too often, that it is disabled.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Final

from domain.webhooks.deliveries import (
    TOO_MANY_FAILURES,
    Attempt,
    Delivery,
    DeliveryStatus,
    give_up,
    health_after,
    is_worn_out,
    settle,
)
from domain.webhooks.events import WebhookEvent, delivery_failed, disabled
from domain.webhooks.subscriptions import Health, Status, Subscription
from storage.database import AnyConnection, Database, Row, Unavailable, read_clock
from storage.webhooks.deliveries import flush_health, flush_settled
from storage.webhooks.subscriptions import flush_disabled, lock_heads
from workers import measures
from workers.clock import Clock
from workers.ids import IdSource
from workers.webhooks.writing import tell

BATCH_MAX: Final = 200
"""Attempts that one transaction writes down."""


@dataclass(slots=True, eq=False)
class Outcome:
    """What came of a delivery: an attempt, or why there was none. `goes_on` is known once it is written."""

    subscription: Subscription
    delivery: Delivery
    attempt: Attempt | None
    reason: str | None = None
    written: asyncio.Future[bool] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def after(self, *, now: int) -> Delivery:
        if self.attempt is None:
            return give_up(self.delivery, error=self.reason or "", now=now)
        return settle(self.delivery, self.attempt, self.subscription.retry_policy, now=now)


class Settler:
    """`lease` is this node's."""

    def __init__(self, database: Database, clock: Clock, ids: IdSource, *, lease: str) -> None:
        self._database = database
        self._clock = clock
        self._ids = ids
        self._lease = lease
        self._waiting: list[Outcome] = []
        self._writing = asyncio.Lock()

    async def settle(self, outcome: Outcome) -> bool:
        """Write it down. Whether the subscription goes on as it is known: active, unchanged, and ours to deliver for.

        Raises `storage.database.Unavailable`: then nobody knows, and the delivery is made again.
        """
        self._waiting.append(outcome)
        async with self._writing:
            while not outcome.written.done():
                batch, self._waiting = self._waiting[:BATCH_MAX], self._waiting[BATCH_MAX:]
                await self._write(batch)
        return await outcome.written

    async def _write(self, batch: Sequence[Outcome]) -> None:
        try:
            going_on = await self._flush(batch)
        except BaseException as error:
            told_to_all = error if isinstance(error, Exception) else Unavailable("the node is closing")
            for outcome in batch:
                outcome.written.set_exception(told_to_all)
                outcome.written.exception()  # whoever waited may be gone
            raise
        for outcome in batch:
            if not outcome.written.done():
                outcome.written.set_result(
                    going_on.get(outcome.subscription.subscription_id) == outcome.subscription.version
                )

    async def _flush(self, batch: Sequence[Outcome]) -> dict[str, int]:
        """The version of those subscriptions that go on."""
        async with self._database.transaction() as connection:
            heads = await lock_heads(connection, [outcome.subscription.subscription_id for outcome in batch])
            now = self._clock.instant(await read_clock(connection))
            settled = [(outcome, outcome.after(now=now)) for outcome in batch]
            written = await flush_settled(connection, [delivery for _, delivery in settled])
            by_subscription: dict[str, list[tuple[Outcome, Delivery]]] = defaultdict(list)
            for outcome, delivery in settled:
                if delivery.delivery_id in written:
                    by_subscription[delivery.subscription_id].append((outcome, delivery))
            going_on: dict[str, int] = {}
            told: list[WebhookEvent] = []
            for name, head in heads.items():
                is_active, events = await self._learn(connection, head, by_subscription[name], now=now)
                if is_active and head["lease"] == self._lease:
                    going_on[name] = head["version"]
                told += events
            await tell(connection, self._ids, told, now=now)
        return going_on

    async def _learn(
        self, connection: AnyConnection, head: Row, settled: Sequence[tuple[Outcome, Delivery]], *, now: int
    ) -> tuple[bool, list[WebhookEvent]]:
        """What one subscription learns: whether it is active still, and what is to be told."""
        status = Status(head["status"])
        if not settled:
            return status is Status.ACTIVE, []
        health = Health(**{each.name: head[each.name] for each in fields(Health)})
        events: list[WebhookEvent] = []
        for outcome, delivery in settled:
            if delivery.status is DeliveryStatus.FAILED:
                events.append(delivery_failed(outcome.subscription, delivery))
            if outcome.attempt is not None:  # what is given up without one says nothing of the receiver
                health = health_after(health, delivery, now=now)
        await flush_health(connection, head["subscription_id"], health)
        outcome, delivery = settled[-1]
        subscription = replace(outcome.subscription, status=status, health=health)
        if is_worn_out(subscription):
            await flush_disabled(connection, subscription.subscription_id, now=now)
            events.append(disabled(subscription, reason=TOO_MANY_FAILURES, batch=delivery.delivery_id))
            measures.WEBHOOKS_DISABLED.inc()
            return False, events
        return status is Status.ACTIVE, events
