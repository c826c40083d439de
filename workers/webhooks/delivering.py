"""One subscription's deliveries, by the node that has its lease: first attempts one after another, retries beside them."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import msgspec

from domain.events import EventRecord
from domain.webhooks.deliveries import EVENT_GONE, OVERDUE, Attempt, Delivery, is_overdue
from domain.webhooks.messages import headers_of, message_of
from domain.webhooks.refusals import WebhookUrlInvalid
from domain.webhooks.subscriptions import Status, Subscription
from domain.webhooks.targets import Security, Target, parse_url
from storage.database import Database, PooledConnection, read_clock
from storage.webhooks.deliveries import read_pending, read_retrying
from storage.webhooks.handing_out import read_events_at
from storage.webhooks.subscriptions import read_subscription
from workers.clock import Clock
from workers.webhooks.guarding import Guard
from workers.webhooks.probing import SPAN_BYTES
from workers.webhooks.secrets import Secrets, unseal
from workers.webhooks.sender import AGENT, Sender
from workers.webhooks.settling import Outcome, Settler
from workers.webhooks.vault import Vault, VaultError

LOADED_MAX: Final = 20
"""Deliveries of a kind that are read at once. Whoever reads more holds on to what a change of the URL should stop."""
RETRIES_AT_ONCE: Final = 4
"""Retries that one receiver gets at a time, besides the one first attempt."""
TURN_S: Final = 2.0
"""After which a subscription is looked at anew: retries that have become due must not wait for a slow receiver's queue."""
TURNS_MAX: Final = 10
"""Turns in a row before others get their chance."""
READS_AT_ONCE: Final = 2
"""Pooled connections that deliveries take at a time: the rest is for those who ask."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Load:
    """What one turn goes by, as of one moment."""

    subscription: Subscription
    secrets: Secrets
    target: Target
    security: Security
    pending: Sequence[Delivery]
    retrying: Sequence[Delivery]
    events: Mapping[int, EventRecord]
    now: int


class Delivering:
    def __init__(
        self, database: Database, clock: Clock, *, vault: Vault | None, guard: Guard, sender: Sender, settler: Settler
    ) -> None:
        self._database = database
        self._clock = clock
        self._vault = vault
        self._guard = guard
        self._sender = sender
        self._settler = settler
        self._reading = asyncio.Semaphore(READS_AT_ONCE)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[PooledConnection]:
        """A connection, for one of the few at a time."""
        async with self._reading, self._database.acquire() as connection:
            yield connection

    async def deliver(self, subscription_id: str, *, is_ours: Callable[[], bool]) -> int:
        """Everything that is due, or a good part of it; how many attempts that took. `is_ours`: the lease still holds.

        Raises `storage.database.Unavailable`, and `VaultError` when the secrets cannot be opened.
        """
        attempts = 0
        for _ in range(TURNS_MAX):
            load = await self._load(subscription_id)
            if load is None or not (load.pending or load.retrying):
                break
            turn = _Turn(load, self._sender, self._settler, is_ours)
            attempts += await turn.run()
            if not turn.goes_on:
                break
        return attempts

    async def _load(self, subscription_id: str) -> _Load | None:
        """None when there is nothing to be delivered for it any more."""
        async with self.reading() as connection:
            kept = await read_subscription(connection, subscription_id)
            if kept is None or kept.subscription.status is not Status.ACTIVE:
                return None
            now = self._clock.instant(await read_clock(connection))
            pending = await read_pending(connection, subscription_id, limit=LOADED_MAX)
            retrying = await read_retrying(connection, subscription_id, now=now, limit=LOADED_MAX)
            places = [each.place for each in (*pending, *retrying) if each.place is not None]
            events = await read_events_at(connection, places)
            security = await self._guard.security(connection)
        if self._vault is None:
            raise VaultError("this node has no key")
        target = parse_url(kept.subscription.url)
        assert not isinstance(target, WebhookUrlInvalid), "it was checked before it was kept"
        return _Load(
            subscription=kept.subscription,
            secrets=unseal(self._vault, kept),
            target=target,
            security=security,
            pending=pending,
            retrying=retrying,
            events=events,
            now=now,
        )


class _Turn:
    """What was loaded, sent. `goes_on` turns False when the subscription is not to be delivered for as it was loaded."""

    def __init__(self, load: _Load, sender: Sender, settler: Settler, is_ours: Callable[[], bool]) -> None:
        self._load = load
        self._sender = sender
        self._settler = settler
        self._is_ours = is_ours
        self._until = time.monotonic() + TURN_S
        self.goes_on = True

    async def run(self) -> int:
        """How many attempts were made. First attempts keep their order; a failed one waits aside, and the next follows."""
        retries = list(reversed(self._load.retrying))
        queues = [list(reversed(self._load.pending)), *([retries] * min(RETRIES_AT_ONCE, len(retries)))]
        results = await asyncio.gather(*(self._work_off(queue) for queue in queues), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return sum(result for result in results if isinstance(result, int))

    async def _work_off(self, queue: list[Delivery]) -> int:
        """`queue` is worked off from its end, by as many as share it."""
        attempts = 0
        while queue and self.goes_on and self._is_ours() and time.monotonic() < self._until:
            delivery = queue.pop()
            event = None if delivery.place is None else self._load.events.get(delivery.place)
            attempt, reason = None, None
            if is_overdue(delivery, now=self._load.now):
                reason = OVERDUE
            elif event is None:
                reason = EVENT_GONE
            else:
                attempt = await self._send(delivery, event)
                attempts += 1
            outcome = Outcome(self._load.subscription, delivery, attempt, reason)
            if not await self._settler.settle(outcome):
                self.goes_on = False
        return attempts

    async def _send(self, delivery: Delivery, event: EventRecord) -> Attempt:
        body = msgspec.json.encode(message_of(event, delivery.trace))
        secrets = self._load.secrets
        headers = headers_of(
            event_id=event.event_id,
            kind=delivery.event_type,
            body=body,
            secret=secrets.signing_secret,
            trace=delivery.trace,
            span_id=os.urandom(SPAN_BYTES).hex(),
            agent=AGENT,
            request_id=event.request_id,
            own=secrets.headers,
        )
        return await self._sender.send(self._load.target, headers, body, security=self._load.security)
