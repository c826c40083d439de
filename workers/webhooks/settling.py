"""What came of attempts, written down for many subscriptions at once: whoever is first writes for all who wait.

Under the heads of the subscriptions concerned: the deliveries, what the subscriptions learn of them, and if one has
failed too often, that it is disabled.
"""

from __future__ import annotations

import asyncio
import logging
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
from storage.database import Database, Row, Unavailable, read_clock
from storage.webhooks.deliveries import flush_health, flush_settled
from storage.webhooks.subscriptions import flush_disabled, lock_heads
from workers import measures
from workers.clock import Clock
from workers.ids import IdSource
from workers.webhooks.writing import tell

log = logging.getLogger("earmark.webhooks")

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
            lessons = [_learn(head, by_subscription[name], now=now) for name, head in heads.items()]
            if learned := {lesson.name: lesson.health for lesson in lessons if lesson.health is not None}:
                await flush_health(connection, learned)
            for lesson in lessons:
                if lesson.is_worn_out:
                    await flush_disabled(connection, lesson.name, now=now)
            await tell(connection, self._ids, [event for lesson in lessons for event in lesson.told], now=now)
        for lesson in lessons:
            if lesson.is_worn_out:
                measures.WEBHOOKS_DISABLED.inc()
                log.warning("a webhook failed too often and is disabled", extra={"webhook": lesson.name})
        ours = (lesson for lesson in lessons if lesson.goes_on and heads[lesson.name]["lease"] == self._lease)
        return {lesson.name: heads[lesson.name]["version"] for lesson in ours}


@dataclass(slots=True, kw_only=True)
class _Lesson:
    """What one subscription learns. `health` None: nothing."""

    name: str
    goes_on: bool
    health: Health | None = None
    is_worn_out: bool = False
    told: list[WebhookEvent] = field(default_factory=list)


def _learn(head: Row, settled: Sequence[tuple[Outcome, Delivery]], *, now: int) -> _Lesson:
    status = Status(head["status"])
    lesson = _Lesson(name=head["subscription_id"], goes_on=status is Status.ACTIVE)
    if not settled:
        return lesson
    health = Health(**{each.name: head[each.name] for each in fields(Health)})
    for outcome, delivery in settled:
        if delivery.status is DeliveryStatus.FAILED:
            lesson.told.append(delivery_failed(outcome.subscription, delivery))
        if outcome.attempt is not None:  # what is given up without one says nothing of the receiver
            health = health_after(health, delivery, now=now)
    lesson.health = health
    outcome, delivery = settled[-1]
    subscription = replace(outcome.subscription, status=status, health=health)
    if is_worn_out(subscription):
        lesson.is_worn_out, lesson.goes_on = True, False
        lesson.told.append(disabled(subscription, reason=TOO_MANY_FAILURES, batch=delivery.delivery_id))
    return lesson
