"""Lanes: the node's writers. Decide per key, commit per lane.

A lane owns one database connection. It drains what its actors' mailboxes hold, runs one turn for all of it and replies
after the commit. There is no timer: while one batch is being written the next one gathers.

A turn is decided from memory where it can be, and written by one statement if the database agrees (cached mode). What
cannot be decided so, and what the database did not agree to, is run in one transaction under locks (lock mode). An actor
whose decisions did not stand stays in lock mode for a while: somebody else is at work on its key.

While one batch is under way to the database the next one is decided already, on top of it, once enough has come together
for that. It is sent when the first has landed; should that fail, the second is decided anew.
"""

from __future__ import annotations

import asyncio
import logging
import time
import zlib
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from storage.database import Connection, Trouble, trouble_of
from workers import measures
from workers.actor import Actor, Ask, Stopped
from workers.lock_mode import LaneConnection, LockMode
from workers.turns import Prepared, Turn, TurnResult, Work, count_of, fail

log = logging.getLogger("earmark.lane")

BATCH_MAX: Final = 256
"""Commands a turn takes: the cost of one falls to its floor about here, and a failed batch is not too long to redo."""
SPLIT_LEAST: Final = 24
"""With so many waiting and nothing under way, half are taken: the others are decided while the first are written."""


@dataclass(slots=True)
class _Flight:
    """A batch that is being written."""

    prepared: Prepared
    size: int
    landing: asyncio.Task[bool | None]
    """Whether its decisions stand; None when the database did not say. Those who asked have their replies if they do."""


class Lane:
    """One writer. Started and watched by the supervisor, through `run`."""

    def __init__(
        self,
        name: str,
        turn: Turn,
        *,
        connect: Callable[[], Awaitable[Connection]],
        committed: Callable[[TurnResult], None],
        is_cached: bool = True,
    ) -> None:
        """`is_cached` False: everything runs under locks."""
        self.name = name
        self._is_cached = is_cached
        self._turn = turn
        self._committed = committed
        self._connection = LaneConnection(connect)
        self._locks = LockMode(turn, self._connection, self._reply)
        self._queue: deque[Actor[Any]] = deque()
        self._waiting = 0
        """Commands in the mailboxes of the actors that are queued."""
        self._flight: _Flight | None = None
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_stopped = False

    def queue(self, actor: Actor[Any], ask: Ask) -> None:
        if self._is_stopped:
            raise Stopped("the node is closing")
        actor.mailbox.append(ask)
        self._waiting += 1
        if not actor.is_queued:
            actor.is_queued = True
            self._queue.append(actor)
        self._idle.clear()
        self._wake.set()

    async def run(self) -> None:
        """Turn after turn, until cancelled. Whatever a turn raises, the loop lives."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                if self._flight is not None and self._flight.landing.done():
                    await self._land()
                    await asyncio.sleep(0)  # whoever got a reply and asks again comes into the next batch
                if self._flight is None:
                    await self._begin()
                elif 2 * self._waiting >= self._flight.size:  # enough for a batch worth sending
                    await self._turn_over(self._drain())
        finally:
            await self._abandon()

    async def stop(self, *, within_s: float) -> None:
        """Take no more, finish what waits if it can be done in time, and let nobody hang."""
        self._is_stopped = True
        try:
            async with asyncio.timeout(within_s):
                await self._idle.wait()
        except TimeoutError:
            log.warning("lane %s stopped with commands waiting", self.name)
        fail(self._drain(limit=None), Stopped("the node is closing"))

    # -- batches -------------------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        """Nothing is under way: take what waits, or half of it."""
        while self._waiting:
            limit = min(BATCH_MAX, self._waiting // 2 if self._waiting >= SPLIT_LEAST else self._waiting)
            await self._turn_over(self._drain(limit))
            if self._flight is not None:
                self._wake.set()  # the other half
                return
            await asyncio.sleep(0)
        self._idle.set()

    def _drain(self, limit: int | None = BATCH_MAX) -> list[tuple[Actor[Any], list[Ask]]]:
        """Up to `limit` commands, from every waiting actor in turn, so that a busy key does not starve the others."""
        work: list[tuple[Actor[Any], list[Ask]]] = []
        left = limit if limit is not None else 1 << 62
        while self._queue and left > 0:
            actor = self._queue.popleft()
            asks = []
            while actor.mailbox and left > 0:
                asks.append(actor.mailbox.popleft())
                left -= 1
            if actor.mailbox:
                self._queue.append(actor)
            else:
                actor.is_queued = False
            work.append((actor, asks))
        self._waiting -= count_of(work)
        return work

    async def _turn_over(self, work: Work) -> None:
        """Decide one batch and send it off: from memory as far as that goes; the rest is run to its end under locks."""
        prepared, rest = self._prepare(work)
        try:
            if self._flight is not None and not await self._land(prepared) and prepared is not None:
                rest = [*prepared.work, *rest]
                prepared = None
            if prepared is not None:
                self._send(prepared)
            if rest:
                if self._flight is not None:
                    await self._land()
                await self._locks.settle(rest, was_tried=False)
        except asyncio.CancelledError:
            fail(work, Stopped("the node is closing"))
            raise

    def _prepare(self, work: Work) -> tuple[Prepared | None, Work]:
        """Decide from memory for the actors that may; and what is left."""
        if not self._is_cached:
            return None, work
        now = time.monotonic()
        bold = [(actor, asks) for actor, asks in work if actor.cautious_until <= now]
        cautious = [(actor, asks) for actor, asks in work if actor.cautious_until > now]
        if not bold:
            return None, cautious
        under_way = {} if self._flight is None else self._flight.prepared.result.answers
        try:
            prepared, rest = self._turn.prepare(bold, under_way=under_way)
        except Exception:
            log.exception("deciding from memory failed")  # the lock mode finds out whose command it was
            self._turn.forget(actor for actor, _ in bold)
            return None, work
        return prepared, [*rest, *cautious]

    # -- flights -------------------------------------------------------------------------------------------------

    def _send(self, prepared: Prepared) -> None:
        landing = asyncio.get_running_loop().create_task(self._settle(prepared))
        landing.add_done_callback(lambda _: self._wake.set())
        self._flight = _Flight(prepared, count_of(prepared.work), landing)

    async def _settle(self, prepared: Prepared) -> bool | None:
        """Whether the decisions stand, and then everybody has a reply; None when the database did not say."""
        try:
            connection = await self._connection.get()
            with measures.turn(self._turn.name, count_of(prepared.work)):
                stands = await self._turn.settle(connection, prepared)
        except Exception as error:  # noqa: BLE001 - classified here; what it means for whom shows in lock mode
            trouble = trouble_of(error)
            measures.TURN_FAILURES.labels(context=self._turn.name, trouble=trouble.value).inc()
            if trouble is not Trouble.TRANSIENT:
                return False
            self._connection.drop()
            return None
        if stands:
            self._reply(prepared.result)
        return stands

    async def _land(self, on_top: Prepared | None = None) -> bool:
        """Wait for the batch that is under way; what does not stand is run to its end under locks. Whether it stands.

        If it does not, neither does what was decided on top of it.
        """
        assert self._flight is not None, "something is under way"
        flight = self._flight
        stands = await flight.landing
        self._flight = None
        if stands:
            return True
        work, above = flight.prepared.work, () if on_top is None else on_top.work
        self._turn.forget(actor for actor, _ in (*work, *above))
        for actor, _ in work:
            actor.be_cautious()
        await self._locks.settle(work, was_tried=stands is None)
        return False

    async def _abandon(self) -> None:
        """The lane ends: nobody must wait for what is under way."""
        flight, self._flight = self._flight, None
        if flight is not None:
            flight.landing.cancel()
            await asyncio.gather(flight.landing, return_exceptions=True)
            fail(flight.prepared.work, Stopped("the node is closing"))
        self._connection.drop()

    def _reply(self, result: TurnResult) -> None:
        """The turn is durable: tell everybody."""
        for ask, outcome in result.replies:
            if not ask.reply.done():
                ask.reply.set_result(outcome)
        try:
            self._turn.committed(result)
            self._committed(result)
        except Exception:  # the turn stands and its callers have their replies: this must not look like its failure
            log.exception("what follows a committed turn failed")


def lane_for(key: str, lanes: Sequence[Lane]) -> Lane:
    """The lane of a key: the same on every call, spread over the lanes."""
    return lanes[zlib.crc32(key.encode()) % len(lanes)]
