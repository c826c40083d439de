"""From the mirror stream to the subscriptions' queues: every event once to each that wants it, in the stream's order.

This is no part of what made the event: it reads what the relay has appended, in transactions of its own. One node at a
time hands out, whoever has the cursor's row; it is the same rows whoever does it.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from domain.budget.events import EventType as BudgetEventType
from domain.events import MIRROR, EventRecord
from domain.identity import SYSTEM
from domain.webhooks.deliveries import Delivery
from domain.webhooks.events import WebhookEvent, is_about_itself
from domain.webhooks.messages import trace_of
from domain.webhooks.selectors import published_type
from domain.webhooks.thresholds import goes_to
from storage.database import AnyConnection, Database, read_clock
from storage.events import read_stream, read_tail
from storage.webhooks.deliveries import flush_queued
from storage.webhooks.handing_out import Selecting, flush_cursor, is_anybody_there, lock_cursor, read_selecting
from storage.webhooks.subscriptions import lock_heads, read_ids_of_tenant
from workers import measures
from workers.clock import Clock
from workers.ids import IdSource
from workers.webhooks.closing import cause_of, disable_all
from workers.webhooks.probing import TRACE_BYTES
from workers.webhooks.writing import tell

PAGE: Final = 500
"""Events that one transaction looks at."""
QUEUED_MAX: Final = 1_000
"""Deliveries that one transaction queues, more or less: an event that everybody wants must not make it a long one."""


class HandingOut:
    def __init__(self, database: Database, clock: Clock, ids: IdSource) -> None:
        self._database = database
        self._clock = clock
        self._ids = ids
        self.found_nobody = False
        """Whether the last step passed over events since there is no webhook at all."""

    async def run_once(self) -> int:
        """Hand out everything that there is, or nothing while another node is at it. How many deliveries were queued."""
        total = 0
        while (queued := await self.step()) is not None:
            total += queued
        return total

    async def step(self) -> int | None:
        """One transaction. How many deliveries were queued; None: there is nothing more to look at."""
        self.found_nobody = False
        async with self._database.transaction() as connection:
            place = await lock_cursor(connection)
            if place is None:
                return None
            _, last = await read_stream(connection, MIRROR)
            if last <= place:
                return None
            # Only after the end was read: who subscribes later begins behind it (`active_from_place`).
            if not await is_anybody_there(connection):
                await flush_cursor(connection, last)
                self.found_nobody = True
                return None
            events = await read_tail(connection, MIRROR, after=place, limit=PAGE)
            if not events:  # retention was faster
                await flush_cursor(connection, last)
                return None
            queued = await self._hand_out(connection, events)
        measures.WEBHOOK_QUEUED.inc(queued)
        return queued

    async def _hand_out(self, connection: AnyConnection, events: Sequence[EventRecord]) -> int:
        """How many deliveries were queued. Subscriptions of a tenant that was closed go down with it."""
        wanting = await self._wanting(connection, events)
        now = self._clock.instant(await read_clock(connection))
        deliveries: list[Delivery] = []
        closings: list[EventRecord] = []
        for event in events:
            if event.type == BudgetEventType.TENANT_CLOSED:
                closings.append(event)
                wanting.pop(event.tenant_id, None)
            deliveries.extend(self._deliveries(event, wanting, now=now))
            last = event
            if len(deliveries) >= QUEUED_MAX:
                break
        owned = {event.tenant_id: await read_ids_of_tenant(connection, event.tenant_id) for event in closings}
        await lock_heads(
            connection, [each.subscription_id for each in deliveries] + [name for ids in owned.values() for name in ids]
        )
        if deliveries:
            await flush_queued(connection, deliveries, now=now)
        await flush_cursor(connection, last.seq)
        told: list[WebhookEvent] = []
        for event in closings:
            names = owned[event.tenant_id]
            told += await disable_all(connection, self._ids, names, cause_of(event), now=now)
        await tell(connection, self._ids, told, now=now)
        return len(deliveries)

    async def _wanting(self, connection: AnyConnection, events: Sequence[EventRecord]) -> dict[str, list[Selecting]]:
        """The active subscriptions of everybody concerned, by owner."""
        owners = {event.tenant_id for event in events} | {SYSTEM}
        wanting: dict[str, list[Selecting]] = defaultdict(list)
        for selecting in await read_selecting(connection, owners):
            wanting[selecting.owner].append(selecting)
        return wanting

    def _deliveries(
        self, event: EventRecord, wanting: Mapping[str, Sequence[Selecting]], *, now: int
    ) -> list[Delivery]:
        kind = published_type(event.type)
        takers = [
            selecting
            for owner in dict.fromkeys((event.tenant_id, SYSTEM))
            for selecting in wanting.get(owner, ())
            if _is_wanted(event, kind, selecting)
        ]
        if not takers:
            return []
        trace = trace_of(event, otherwise=os.urandom(TRACE_BYTES).hex())
        return [
            Delivery(
                subscription_id=taker.subscription_id,
                delivery_id=self._ids.new("whdel"),
                place=event.seq,
                event_id=event.event_id,
                event_type=kind,
                created_at=now,
                trace=trace,
            )
            for taker in takers
        ]


def _is_wanted(event: EventRecord, kind: str, selecting: Selecting) -> bool:
    """What happened before the subscription became active, or while it was not, is not its (8.3)."""
    if event.seq <= selecting.active_from_place or event.recorded_at < selecting.active_from_at:
        return False
    is_meant = goes_to(
        event,
        kind,
        owner=selecting.owner,
        types=selecting.types,
        categories=selecting.categories,
        scope_filter=selecting.scope_filter,
        thresholds=selecting.thresholds,
    )
    return is_meant and not is_about_itself(event.type, event.payload.get("data"), selecting.subscription_id)
