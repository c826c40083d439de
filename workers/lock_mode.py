"""Turns under locks: one transaction a batch, tried as often as makes sense, taken apart where it cannot work as a whole."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from storage.database import Connection, Trouble, Unavailable, trouble_of
from workers import measures
from workers.actor import Stopped
from workers.turns import Turn, TurnResult, Work, count_of, fail

log = logging.getLogger("earmark.lane")

ATTEMPTS_MAX: Final = 4
"""How often a batch is tried when the database drops out or is overtaken, before its callers are told to come back."""
RETRY_PAUSES_S: Final = (0.0, 0.05, 0.25)
STUCK_S: Final = 10.0
"""How long a key whose lock could not be had is given only a short wait."""
IMPATIENT: Final = "set local lock_timeout = '200ms'"


class LaneConnection:
    """The one connection of a lane, opened when it is needed and again after it was lost."""

    def __init__(self, connect: Callable[[], Awaitable[Connection]]) -> None:
        self._connect = connect
        self._connection: Connection | None = None

    async def get(self) -> Connection:
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._connect()
        return self._connection

    def drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and not connection.is_closed():
            connection.terminate()


class LockMode:
    """Runs batches of one lane under locks. `reply` tells everybody once a turn is durable."""

    def __init__(self, turn: Turn, connection: LaneConnection, reply: Callable[[TurnResult], None]) -> None:
        self._turn = turn
        self._connection = connection
        self._reply = reply
        self._stuck: dict[str, float] = {}
        """Keys whose lock could not be had in time, until when they are suspected of it."""

    async def settle(self, work: Work, *, was_tried: bool) -> None:
        """Run one batch to its end: committed, or every caller told why not."""
        error = await self._attempt(work, was_tried=was_tried)
        if error is None:
            return
        if trouble_of(error) is Trouble.TRANSIENT or isinstance(error, Unavailable):
            fail(work, Unavailable("the database did not answer; ask again with the same idempotency key"))
        elif len(work) > 1:
            await self._settle_apart([[(actor, asks)] for actor, asks in work], was_tried=was_tried)
        elif len(work[0][1]) > 1 and trouble_of(error) is not Trouble.BUSY:
            actor, asks = work[0]
            await self._settle_apart([[(actor, [ask])] for ask in asks], was_tried=was_tried)
        else:
            self._give_up(work, error)

    async def _settle_apart(self, parts: Iterable[Work], *, was_tried: bool) -> None:
        """A poisoned command, or a lock that cannot be had, must not fail its neighbours."""
        for part in parts:
            await self.settle(part, was_tried=was_tried)

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
                fail(work, Stopped("the node is closing"))
                raise
            except Exception as caught:  # noqa: BLE001 - classified right below; the lane must live
                error = caught
                self._turn.forget(actor for actor, _ in work)
                trouble = trouble_of(caught)
                if trouble is Trouble.BUSY:
                    self._stuck.update({actor.key: time.monotonic() + STUCK_S for actor, _ in work})
                measures.TURN_FAILURES.labels(context=self._turn.name, trouble=trouble.value).inc()
                if trouble is Trouble.TRANSIENT:
                    self._connection.drop()
                elif trouble is not Trouble.DUPLICATE:
                    break
        return error

    async def _run_turn(self, work: Work, *, was_tried: bool) -> None:
        connection = await self._connection.get()
        with measures.turn(self._turn.name, count_of(work)):
            async with connection.transaction():
                if self._is_suspect(work):
                    await connection.execute(IMPATIENT)
                try:
                    result = await self._turn.run(connection, work)
                except TimeoutError:  # nobody is there to hear of a rollback: do not wait once more for that
                    self._connection.drop()
                    raise
        for actor, _ in work:
            self._stuck.pop(actor.key, None)
        if was_tried:  # an earlier attempt may have been committed without an answer: look at everything it touched
            result.event_keys = [actor.key for actor, _ in work]
            result.changed_keys = list(result.event_keys)
        self._reply(result)

    def _is_suspect(self, work: Work) -> bool:
        """Whether a key's lock could not be had lately: the others of this lane must not wait for it again and again."""
        if not self._stuck:
            return False
        now = time.monotonic()
        self._stuck = {key: until for key, until in self._stuck.items() if until > now}
        return any(actor.key in self._stuck for actor, _ in work)

    def _give_up(self, work: Work, error: BaseException) -> None:
        if trouble_of(error) in (Trouble.BUSY, Trouble.DUPLICATE):
            fail(work, Unavailable("the key is busy; ask again with the same idempotency key"))
            return
        log.error("a %s command failed", type(work[0][1][0].command).__name__, exc_info=error)
        fail(work, error)
