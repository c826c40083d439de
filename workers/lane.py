"""Lanes: the node's writers. Decide per key, commit per lane.

A lane owns one database connection. It drains what its actors' mailboxes hold, runs one turn for all of it and replies
after the commit. There is no timer: while one batch is being written the next one gathers.

A turn is decided from memory where it can be, and written by one statement if the database agrees (cached mode). What
cannot be decided so, and what the database did not agree to, is run in one transaction under locks (lock mode). An actor
whose decisions did not stand stays in lock mode for a while: somebody else is at work on its key.
"""

from __future__ import annotations

import asyncio
import logging
import time
import zlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

from domain.replay import RequestKey
from storage.database import AnyConnection, Connection, Trouble, Unavailable, trouble_of
from workers import measures
from workers.actor import Actor, Ask, Stopped

log = logging.getLogger("earmark.lane")

BATCH_MAX: Final = 256
"""Commands a turn takes: the cost of one falls to its floor about here, and a failed batch is not too long to redo."""
ATTEMPTS_MAX: Final = 4
"""How often a batch is tried when the database drops out or is overtaken, before its callers are told to come back."""
RETRY_PAUSES_S: Final = (0.0, 0.05, 0.25)
STUCK_S: Final = 10.0
"""How long a key whose lock could not be had is given only a short wait."""
CAUTIOUS_S: Final = 2.0
"""How long an actor stays in lock mode after its decisions from memory did not stand: while two nodes ask for one key it
is the fair way, and to find out that they do not any more costs one batch decided twice."""
IMPATIENT: Final = "set local lock_timeout = '200ms'"

Work: TypeAlias = Sequence[tuple[Actor[Any], Sequence[Ask]]]


@dataclass(slots=True)
class TurnResult:
    """Outcomes to reply with once the transaction is durable, and what to wake then."""

    replies: list[tuple[Ask, Any]] = field(default_factory=list)
    changed_keys: list[str] = field(default_factory=list)
    event_keys: list[str] = field(default_factory=list)
    """Keys whose outbox has something new."""
    answers: Mapping[RequestKey, Any] = field(default_factory=dict)
    """What is remembered, or was found to be, under request keys."""


@dataclass(slots=True, kw_only=True)
class Prepared:
    """Decisions made from memory, before the database has agreed. The actors' states are ahead of it."""

    work: Work
    result: TurnResult


class Turn(Protocol):
    """What a context does with a batch."""

    name: str

    def prepare(self, work: Work) -> tuple[Prepared | None, Work]:
        """Decide what can be decided from memory; and the rest of the work, which needs locks."""

    async def settle(self, connection: AnyConnection, prepared: Prepared) -> bool:
        """Write these decisions in one statement, a transaction of its own, if the database agrees that they stand."""

    async def run(self, connection: AnyConnection, work: Work) -> TurnResult:
        """Lock, instant, read, advance, decide, flush, all on the given transaction."""

    def committed(self, result: TurnResult) -> None:
        """The turn is durable."""

    def forget(self, actors: Iterable[Actor[Any]]) -> None:
        """The turn failed: what these actors hold in memory may be ahead of the database."""


class Lane:
    """One writer. Started and watched by the supervisor, through `run`."""

    def __init__(
        self,
        name: str,
        turn: Turn,
        *,
        connect: Callable[[], Awaitable[Connection]],
        committed: Callable[[TurnResult], None],
    ) -> None:
        self.name = name
        self._turn = turn
        self._connect = connect
        self._committed = committed
        self._connection: Connection | None = None
        self._queue: deque[Actor[Any]] = deque()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_stopped = False
        self._stuck: dict[str, float] = {}
        """Keys whose lock could not be had in time, until when they are suspected of it."""

    def queue(self, actor: Actor[Any], ask: Ask) -> None:
        if self._is_stopped:
            raise Stopped("the node is closing")
        actor.mailbox.append(ask)
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
                work = self._drain()
                if work:
                    await self._turn_over(work)
                    await asyncio.sleep(0)  # whoever got a reply and asks again comes into the next batch
                else:
                    self._wake.clear()
                    self._idle.set()
        finally:
            await self._disconnect()

    async def stop(self, *, within_s: float) -> None:
        """Take no more, finish what waits if it can be done in time, and let nobody hang."""
        self._is_stopped = True
        try:
            await asyncio.wait_for(self._idle.wait(), timeout=within_s)
        except TimeoutError:
            log.warning("lane %s stopped with commands waiting", self.name)
        for _, asks in self._drain(limit=None):
            _fail(asks, Stopped("the node is closing"))

    # -- batches -------------------------------------------------------------------------------------------------

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
        return work

    async def _turn_over(self, work: Work) -> None:
        """Run one batch to its end: from memory as far as that goes, the rest under locks."""
        prepared, rest = self._prepare(work)
        is_in_doubt = False
        if prepared is not None and (stood := await self._settle_prepared(prepared)) is not True:
            is_in_doubt = stood is None
            rest = [*rest, *prepared.work]
        if rest:
            await self._settle(rest, was_tried=is_in_doubt)

    def _prepare(self, work: Work) -> tuple[Prepared | None, Work]:
        """Decide from memory for the actors that may; and what is left."""
        now = time.monotonic()
        bold = [(actor, asks) for actor, asks in work if actor.cautious_until <= now]
        cautious = [(actor, asks) for actor, asks in work if actor.cautious_until > now]
        if not bold:
            return None, cautious
        try:
            prepared, rest = self._turn.prepare(bold)
        except Exception:
            log.exception("deciding from memory failed")  # the lock mode finds out whose command it was
            self._turn.forget(actor for actor, _ in bold)
            return None, work
        return prepared, [*rest, *cautious]

    async def _settle_prepared(self, prepared: Prepared) -> bool | None:
        """Whether the decisions stand, and then everybody has a reply; None when the database did not say."""
        stands: bool | None = False
        try:
            connection = await self._connected()
            with measures.turn(self._turn.name, sum(len(asks) for _, asks in prepared.work)):
                stands = await self._turn.settle(connection, prepared)
        except asyncio.CancelledError:
            for _, asks in prepared.work:
                _fail(asks, Stopped("the node is closing"))
            raise
        except Exception as error:  # noqa: BLE001 - classified here; what it means for whom shows in lock mode
            trouble = trouble_of(error)
            measures.TURN_FAILURES.labels(context=self._turn.name, trouble=trouble.value).inc()
            if trouble is Trouble.TRANSIENT:
                stands = None
                await self._disconnect()
        if stands:
            self._reply(prepared.result)
            return True
        self._turn.forget(actor for actor, _ in prepared.work)
        cautious_until = time.monotonic() + CAUTIOUS_S
        for actor, _ in prepared.work:
            actor.cautious_until = cautious_until
        return stands

    async def _settle(self, work: Work, *, was_tried: bool = False) -> None:
        """Run one batch under locks to its end: committed, or every caller told why not."""
        error = await self._attempt(work, was_tried=was_tried)
        if error is None:
            return
        if trouble_of(error) is Trouble.TRANSIENT or isinstance(error, Unavailable):
            for _, asks in work:
                _fail(asks, Unavailable("the database did not answer; ask again with the same idempotency key"))
        elif len(work) > 1:
            await self._settle_apart([[(actor, asks)] for actor, asks in work], was_tried=was_tried)
        elif len(work[0][1]) > 1 and trouble_of(error) is not Trouble.BUSY:
            actor, asks = work[0]
            await self._settle_apart([[(actor, [ask])] for ask in asks], was_tried=was_tried)
        else:
            self._give_up(work[0][1], error)

    async def _settle_apart(self, parts: Iterable[Work], *, was_tried: bool) -> None:
        """A poisoned command, or a lock that cannot be had, must not fail its neighbours."""
        for part in parts:
            await self._settle(part, was_tried=was_tried)

    async def _attempt(self, work: Work, *, was_tried: bool) -> BaseException | None:
        """Try a batch as often as it makes sense; the last error, or None once it is committed."""
        error: BaseException | None = None
        for attempt in range(ATTEMPTS_MAX):
            if attempt:
                await asyncio.sleep(RETRY_PAUSES_S[min(attempt, len(RETRY_PAUSES_S)) - 1])
            try:
                await self._run_turn(work, was_tried=was_tried or attempt > 0)
                return None
            except asyncio.CancelledError:
                for _, asks in work:
                    _fail(asks, Stopped("the node is closing"))
                raise
            except Exception as caught:  # noqa: BLE001 - classified right below; the lane must live
                error = caught
                self._turn.forget(actor for actor, _ in work)
                trouble = trouble_of(caught)
                if trouble is Trouble.BUSY:
                    self._stuck.update({actor.key: time.monotonic() + STUCK_S for actor, _ in work})
                measures.TURN_FAILURES.labels(context=self._turn.name, trouble=trouble.value).inc()
                if trouble is Trouble.TRANSIENT:
                    await self._disconnect()
                elif trouble is not Trouble.DUPLICATE:
                    break
        return error

    async def _run_turn(self, work: Work, *, was_tried: bool) -> None:
        connection = await self._connected()
        with measures.turn(self._turn.name, sum(len(asks) for _, asks in work)):
            async with connection.transaction():
                if self._is_suspect(work):
                    await connection.execute(IMPATIENT)
                result = await self._turn.run(connection, work)
        for actor, _ in work:
            self._stuck.pop(actor.key, None)
        if was_tried:  # an earlier attempt may have been committed without an answer: look at everything it touched
            result.event_keys = [actor.key for actor, _ in work]
            result.changed_keys = list(result.event_keys)
        self._reply(result)

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

    def _is_suspect(self, work: Work) -> bool:
        """Whether a key's lock could not be had lately: the others of this lane must not wait for it again and again."""
        if not self._stuck:
            return False
        now = time.monotonic()
        self._stuck = {key: until for key, until in self._stuck.items() if until > now}
        return any(actor.key in self._stuck for actor, _ in work)

    def _give_up(self, asks: Sequence[Ask], error: BaseException) -> None:
        if trouble_of(error) in (Trouble.BUSY, Trouble.DUPLICATE):
            _fail(asks, Unavailable("the key is busy; ask again with the same idempotency key"))
            return
        log.error("a %s command failed", type(asks[0].command).__name__, exc_info=error)
        _fail(asks, error)

    # -- connection ----------------------------------------------------------------------------------------------

    async def _connected(self) -> Connection:
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._connect()
        return self._connection

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and not connection.is_closed():
            connection.terminate()


def lane_for(key: str, lanes: Sequence[Lane]) -> Lane:
    """The lane of a key: the same on every call, spread over the lanes."""
    return lanes[zlib.crc32(key.encode()) % len(lanes)]


def _fail(asks: Iterable[Ask], error: BaseException) -> None:
    for ask in asks:
        if not ask.reply.done():
            ask.reply.set_exception(error)
