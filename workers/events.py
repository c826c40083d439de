"""Fan-out of events to the subscribers of this node.

The table is the truth; what arrives here is a hint to look, or the very events that this node has just appended. A
subscriber joins its stream first and catches up from the table after, so nothing can fall between the two.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from domain.events import EventRecord, encode_cursor
from storage.database import Database
from storage.events import read_stream, read_tail, streams_of
from workers import measures

log = logging.getLogger("earmark.events")

QUEUE_MAX: Final = 1_000
"""Events that may wait for one subscriber: some seconds of a busy tenant. Beyond it the subscriber is cut, to resume."""
PAGE: Final = 500
"""Events read at once when catching up."""
SUBSCRIBERS_MAX: Final = 10_000
"""Open subscriptions of one node."""


class SubscriptionClosed(Exception):  # noqa: N818 - the end of a stream, not a mistake
    """The server ends a subscription. `cursor` resumes after the last event that was handed over."""

    def __init__(self, code: str, message: str, cursor: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.cursor = cursor


@dataclass(slots=True, eq=False)
class Subscriber:
    """One open subscription: what waits for it, and why it must end, if it must."""

    key_id: str
    accept: Callable[[EventRecord], bool]
    queue: deque[EventRecord] = field(default_factory=deque)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    has_overflowed: bool = False
    is_placed: bool = False
    """It knows after which event it begins."""
    closing: tuple[str, str] | None = None
    """(code, message)."""

    @property
    def is_flowing(self) -> bool:
        """Whether the next event can be taken from the queue without missing one."""
        return bool(self.queue) and not self.has_overflowed and self.closing is None

    def offer(self, events: Iterable[EventRecord]) -> None:
        """Only what it wants wakes it: of many who listen to a stream with filters, few are meant."""
        wanted = [event for event in events if self.accept(event)]
        if not wanted:
            return
        self.queue.extend(wanted)
        if len(self.queue) > QUEUE_MAX:
            self.queue.clear()
            self.has_overflowed = True
        self.wake.set()

    def close(self, code: str, message: str) -> None:
        self.closing = (code, message)
        self.wake.set()


@dataclass(slots=True, eq=False)
class _Feed:
    """One stream that somebody on this node listens to."""

    stream: str
    last_seq: int = 0
    is_ready: bool = False
    subscribers: set[Subscriber] = field(default_factory=set)
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    def push(self, events: Sequence[EventRecord]) -> None:
        fresh = [event for event in events if event.seq > self.last_seq]
        if fresh:
            self.last_seq = fresh[-1].seq
            for subscriber in self.subscribers:
                subscriber.offer(fresh)


class EventHub:
    """Who listens to what on this node."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._feeds: dict[str, _Feed] = {}
        self._count = 0
        self._placed = 0

    @property
    def listened(self) -> list[str]:
        return list(self._feeds)

    @property
    def count(self) -> int:
        """Subscribers that know where they begin: they miss nothing that comes from now on."""
        return self._placed

    @property
    def open_count(self) -> int:
        """The same, and those who are about to begin."""
        return self._count

    def key_ids(self) -> set[str]:
        """The API keys that open subscriptions were made with."""
        return {subscriber.key_id for feed in self._feeds.values() for subscriber in feed.subscribers}

    def close_keys(self, key_ids: Iterable[str]) -> None:
        """End every subscription of these keys: they were revoked, or have expired."""
        revoked = set(key_ids)
        for subscriber in self._everybody():
            if subscriber.key_id in revoked:
                measures.SUBSCRIBERS_CUT.labels(reason="revoked").inc()
                subscriber.close("UNAUTHENTICATED", "the API key is no longer valid")

    def close_all(self) -> None:
        """The node is closing: clients resume elsewhere with their cursor."""
        for subscriber in self._everybody():
            subscriber.close("SHUTTING_DOWN", "the server is closing; resume with the last cursor")

    def offer(self, events: Sequence[EventRecord]) -> list[str]:
        """Events that this node has just appended. The streams among them that missed something and must be read."""
        behind = []
        for stream, appended in streams_of(events).items():
            feed = self._feeds.get(stream)
            if feed is None or not feed.is_ready:
                continue
            if appended[0].seq <= feed.last_seq + 1:
                feed.push(appended)
            else:
                behind.append(stream)
        return behind

    async def catch_up(self, streams: Iterable[str]) -> None:
        """Read what is new in these streams, if somebody here listens to them."""
        for stream in streams:
            feed = self._feeds.get(stream)
            if feed is not None and feed.is_ready:
                await self._read_on(feed)

    async def subscribe(
        self,
        stream: str,
        *,
        key_id: str,
        after: int | None = None,
        accept: Callable[[EventRecord], bool] = lambda _: True,
    ) -> AsyncGenerator[EventRecord, None]:
        """Every later event of the stream once, in order, without end: after a number, or from now on.

        Raises `SubscriptionClosed` with the code CURSOR_EXPIRED (events after the cursor are no longer kept),
        CURSOR_AHEAD (the stream has not come that far: nobody was given that cursor), SLOW_CONSUMER (too far
        behind), TOO_MANY_SUBSCRIPTIONS, UNAUTHENTICATED or SHUTTING_DOWN.
        """
        if self._count >= SUBSCRIBERS_MAX:
            raise SubscriptionClosed("TOO_MANY_SUBSCRIPTIONS", "this node has too many open subscriptions")
        subscriber = Subscriber(key_id, accept)
        feed = self._feeds.setdefault(stream, _Feed(stream))
        feed.subscribers.add(subscriber)
        self._count += 1
        measures.SUBSCRIBERS.inc()
        try:
            if await self._make_ready(feed):
                await self._read_on(feed)  # what was appended while the number was read woke nobody
            position = await self._start(feed, after)
            subscriber.is_placed = True
            self._placed += 1
            async with aclosing(self._follow(feed, subscriber, position)) as events:
                async for event in events:
                    if accept(event):
                        measures.EVENTS_DELIVERED.inc()
                        yield event
        finally:
            self._leave(feed, subscriber)

    async def _follow(self, feed: _Feed, subscriber: Subscriber, position: int) -> AsyncGenerator[EventRecord, None]:
        """First from the table up to where the queue begins, then from the queue; `position` is the last one given."""
        catching_up = position < feed.last_seq
        while True:
            if catching_up:
                subscriber.has_overflowed = False
                async with aclosing(self._replay(feed, subscriber, position)) as missed:
                    async for event in missed:
                        position = event.seq
                        yield event
                catching_up = subscriber.has_overflowed  # fell behind again while it was reading
            while subscriber.is_flowing and not catching_up:
                event = subscriber.queue.popleft()
                if event.seq > position:
                    position = event.seq
                    yield event
            self._check(feed, subscriber, position, catching_up=catching_up)
            if not subscriber.queue and not catching_up:
                subscriber.wake.clear()
                await subscriber.wake.wait()

    async def _replay(self, feed: _Feed, subscriber: Subscriber, position: int) -> AsyncGenerator[EventRecord, None]:
        while position < feed.last_seq and not subscriber.closing:
            async with self._database.acquire() as connection:
                page = await read_tail(connection, feed.stream, after=position, limit=PAGE)
            for event in page:
                yield event
            if not page:
                return
            position = page[-1].seq

    def _check(self, feed: _Feed, subscriber: Subscriber, position: int, *, catching_up: bool) -> None:
        cursor = encode_cursor(feed.stream, position)
        if subscriber.closing:
            raise SubscriptionClosed(*subscriber.closing, cursor)
        if subscriber.has_overflowed and not catching_up:
            measures.SUBSCRIBERS_CUT.labels(reason="slow").inc()
            raise SubscriptionClosed("SLOW_CONSUMER", "too many events were waiting; resume with the cursor", cursor)

    async def _make_ready(self, feed: _Feed) -> bool:
        """Whether this call has made it ready."""
        async with feed.reading:
            if feed.is_ready:
                return False
            async with self._database.acquire() as connection:
                _, feed.last_seq = await read_stream(connection, feed.stream)
            feed.is_ready = True
            return True

    async def _start(self, feed: _Feed, after: int | None) -> int:
        if after is None:
            return feed.last_seq
        async with self._database.acquire() as connection:
            first, last = await read_stream(connection, feed.stream)
        if after + 1 < first:
            cursor = encode_cursor(feed.stream, first - 1)
            raise SubscriptionClosed("CURSOR_EXPIRED", "events after this cursor are no longer kept", cursor)
        last = max(last, feed.last_seq)
        if after > last:
            cursor = encode_cursor(feed.stream, last)
            raise SubscriptionClosed("CURSOR_AHEAD", "the cursor lies ahead of everything in this stream", cursor)
        return after

    async def _read_on(self, feed: _Feed) -> None:
        async with feed.reading:
            while feed.subscribers:
                async with self._database.acquire() as connection:
                    page = await read_tail(connection, feed.stream, after=feed.last_seq, limit=PAGE)
                feed.push(page)
                if len(page) < PAGE:
                    return

    def _leave(self, feed: _Feed, subscriber: Subscriber) -> None:
        feed.subscribers.discard(subscriber)
        self._count -= 1
        self._placed -= subscriber.is_placed
        measures.SUBSCRIBERS.dec()
        if not feed.subscribers and self._feeds.get(feed.stream) is feed:
            del self._feeds[feed.stream]

    def _everybody(self) -> list[Subscriber]:
        return [subscriber for feed in self._feeds.values() for subscriber in feed.subscribers]
