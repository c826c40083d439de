"""The desk for replays: events of the past, sent to one subscription again, all of a window or none of it (8.5)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from domain.events import MIRROR, EventRecord
from domain.identity import SYSTEM, WEBHOOK_ID
from domain.outcomes import Accepted, InvalidInput, InvalidState, Outcome, Refusal
from domain.shapes import Shape, check_integer, check_text, quoted
from domain.terms import INSTANT_MAX
from domain.webhooks.deliveries import Delivery
from domain.webhooks.messages import trace_of
from domain.webhooks.refusals import ReplayInProgress
from domain.webhooks.selectors import KNOWN_TYPES, published_type
from domain.webhooks.subscriptions import Status, Subscription
from domain.webhooks.thresholds import goes_to
from storage.database import AnyConnection
from storage.webhooks.deliveries import count_replayed, flush_queued, read_running_replay
from storage.webhooks.handing_out import read_places, read_window
from workers.budget.rights import origin_of
from workers.registry import Turn
from workers.request import Caller
from workers.webhooks import rights
from workers.webhooks.probing import TRACE_BYTES
from workers.webhooks.writing import Tools, lock_one, write_down

REPLAY: Final = "webhooks.replay"
ACCEPTED: Final = 202
EVENTS_MAX: Final = 1_000
EVENTS_DEFAULT: Final = 100
SCAN_MAX: Final = 20_000
"""Events of a window that are looked at, wanted or not."""
EACH_MS: Final = 100
"""What one delivery usually takes, for the estimate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    replay_id: str
    events_queued: int

    @property
    def estimated_ms(self) -> int:
        return self.events_queued * EACH_MS


class ReplayDesk:
    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    async def replay(
        self,
        caller: Caller,
        *,
        webhook_id: Any,
        since: int | None = None,
        until: int | None = None,
        event_types: Sequence[str] | None = None,
        max_events: Any = EVENTS_DEFAULT,
        idempotency_key: Any = None,
    ) -> Outcome[Replay]:
        """Queue every event of the window, both ends included, that the subscription would get today.

        Operators only. Refuses in this order: ACCESS_DENIED, INVALID_INPUT, CONFLICT (key), NOT_FOUND, INVALID_STATE
        (`closed`; or not ACTIVE: nothing is delivered then), REPLAY_IN_PROGRESS, INVALID_INPUT (`too-many`: more events
        than `max_events`; `scan-limit`: more than are looked at; then nothing is queued).
        """
        if denied := rights.refuse_at_all(caller, rights.OPERATE):
            return denied
        try:
            wanted = check_text(webhook_id, "webhook_id", WEBHOOK_ID)
            most = check_integer(max_events, "max_events", least=1, most=EVENTS_MAX)
            window = _window(since, until)
            kinds = _kinds(event_types)
            names = None if kinds is None else sorted(kinds)
            content = {"webhook_id": wanted, "window": window, "event_types": names, "max_events": most}
            request = self._tools.registrar.request(caller, REPLAY, idempotency_key=idempotency_key, content=content)
        except Shape as shape:
            return shape.refusal

        async def decide(turn: Turn) -> Outcome[Replay]:
            kept = await lock_one(turn.connection, caller, rights.OPERATE, wanted)
            if isinstance(kept, Refusal):
                return kept
            subscription = kept.subscription
            if subscription.status is not Status.ACTIVE:
                return InvalidState(
                    state=subscription.status, message="only an active webhook delivers: resume it first"
                )
            if (running := await read_running_replay(turn.connection, wanted)) is not None:
                return ReplayInProgress(replay_id=running, message="a replay of this webhook still runs")
            found = await _select(turn.connection, subscription, window, kinds, most)
            if isinstance(found, Refusal):
                return found
            now, replay_id = await turn.now(), self._tools.ids.new("whrep")
            queued = await self._queue(turn.connection, wanted, found, replay_id=replay_id, now=now)
            origin = origin_of(caller, subscription.tenant_id)
            told = {"replay_id": replay_id, "events_queued": queued}
            await write_down(
                turn.connection,
                self._tools.ids,
                "replayEvents",
                subscription,
                origin,
                now=now,
                status=ACCEPTED,
                metadata=told,
            )
            return Accepted(Replay(replay_id=replay_id, events_queued=queued))

        async def again(connection: AnyConnection, replay_id: str) -> Replay:
            queued = await count_replayed(connection, wanted, replay_id)
            return Replay(replay_id=replay_id, events_queued=queued)

        outcome = await self._tools.registrar.write(
            request, decide, subject=lambda replay: replay.replay_id, again=again
        )
        if isinstance(outcome, Accepted):
            self._tools.told()
        return outcome

    async def _queue(
        self,
        connection: AnyConnection,
        subscription_id: str,
        found: Sequence[EventRecord],
        *,
        replay_id: str,
        now: int,
    ) -> int:
        """How many: an event that retention has just taken from the mirror cannot be sent any more."""
        places = await read_places(connection, [event.event_id for event in found])
        deliveries = [
            Delivery(
                subscription_id=subscription_id,
                delivery_id=self._tools.ids.new("whdel"),
                place=places[event.event_id],
                event_id=event.event_id,
                event_type=published_type(event.type),
                created_at=now,
                replay_id=replay_id,
                trace=trace_of(event, otherwise=os.urandom(TRACE_BYTES).hex()),
            )
            for event in found
            if event.event_id in places
        ]
        if deliveries:
            await flush_queued(connection, deliveries, now=now)
        return len(deliveries)


async def _select(
    connection: AnyConnection,
    subscription: Subscription,
    window: tuple[int, int],
    kinds: frozenset[str] | None,
    most: int,
) -> list[EventRecord] | InvalidInput:
    """All events of the window for the subscription, or a refusal: never a part of them."""
    owner = subscription.tenant_id
    stream = MIRROR if owner == SYSTEM else owner
    seen = await read_window(connection, stream, since=window[0], until=window[1], limit=SCAN_MAX + 1)
    if len(seen) > SCAN_MAX:
        message = f"the window holds more than {SCAN_MAX} events: narrow it"
        return InvalidInput(field="to", reason="scan-limit", message=message)
    chosen = [event for event in seen if _is_wanted(event, subscription, kinds)]
    if len(chosen) > most:
        message = f"the window holds {len(chosen)} events for this webhook: narrow it, or raise max_events"
        return InvalidInput(field="max_events", reason="too-many", message=message)
    return chosen


def _is_wanted(event: EventRecord, subscription: Subscription, kinds: frozenset[str] | None) -> bool:
    kind = published_type(event.type)
    return (kinds is None or kind in kinds) and goes_to(
        event,
        kind,
        owner=subscription.tenant_id,
        types=subscription.event_types,
        categories=subscription.event_categories,
        scope_filter=subscription.scope_filter,
        thresholds=subscription.thresholds,
    )


def _window(since: int | None, until: int | None) -> tuple[int, int]:
    """Raises `Shape`."""
    first = 0 if since is None else check_integer(since, "from")
    last = INSTANT_MAX if until is None else check_integer(until, "to")
    if first > last:
        raise Shape(InvalidInput(field="from", reason="range", message="from lies after to"))
    return first, last


def _kinds(event_types: Sequence[str] | None) -> frozenset[str] | None:
    """Raises `Shape`."""
    for kind in event_types or ():
        if kind not in KNOWN_TYPES:
            message = f"there are no events of the type {quoted(kind)}"
            raise Shape(InvalidInput(field="event_types", reason="unknown-type", message=message))
    return frozenset(event_types) if event_types else None
