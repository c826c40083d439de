"""From the outboxes to the streams, within milliseconds of the commit, and the word to other nodes that there is news."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable
from typing import Final

from domain.events import EventRecord
from storage.database import AnyConnection, Database, trouble_of
from storage.events import CHANNEL, notify, relay, waiting_keys
from workers import measures
from workers.changes import ChangeBoard
from workers.clock import Clock
from workers.events import EventHub

log = logging.getLogger("earmark.relay")

KEYS_MAX: Final = 500
"""Reservations whose outboxes one transaction moves."""
HINT_MAX: Final = 7_000
"""PostgreSQL takes payloads below 8000 bytes; a longer hint becomes "look everywhere"."""
LATE_MS: Final = 1_000
"""An event that waits longer belongs to a node that is gone, or to one that was interrupted."""
RETRY_PAUSE_S: Final = 0.2


class Relay:
    """One a node. What another node leaves behind is swept by `sweep`."""

    def __init__(self, database: Database, hub: EventHub, board: ChangeBoard, clock: Clock, *, node: str) -> None:
        self._database = database
        self._hub = hub
        self._board = board
        self._clock = clock
        self._node = node
        self._pending: set[str] = set()
        self._changed: set[str] = set()
        self._wake = asyncio.Event()

    def wake(self, *, event_keys: Iterable[str], changed_keys: Iterable[str]) -> None:
        """A turn has committed: its outboxes have news, and these reservations look different."""
        self._pending.update(event_keys)
        changed = list(changed_keys)
        self._changed.update(changed)
        self._board.wake(changed)
        self._wake.set()

    async def run(self) -> None:
        """Move what there is, whenever there is something, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self.flush()

    async def flush(self, *, give_up: bool = False) -> None:
        """Move everything that is pending on this node, however often it takes; `give_up` after the first failure."""
        while self._pending or self._changed:
            keys = sorted(self._pending)[:KEYS_MAX]
            changed, self._changed = self._changed, set()
            self._pending.difference_update(keys)
            try:
                await self._move(keys, changed)
            except Exception as error:  # noqa: BLE001 - nothing is lost: it waits in the table
                log.warning("events wait in the outbox: %s (%s)", error, trouble_of(error).value)
                if give_up:
                    return
                self._pending.update(keys)
                self._changed.update(changed)
                await asyncio.sleep(RETRY_PAUSE_S)

    async def sweep(self, *, limit: int = KEYS_MAX) -> int:
        """Move what has waited too long, whoever left it; how many reservations had something. A job, safe anywhere."""
        until = self._clock.local_ms() - LATE_MS
        async with self._database.acquire() as connection:
            keys = await waiting_keys(connection, recorded_until=until, limit=limit)
        if keys:
            await self._move(keys, set())
        return len(keys)

    async def sweep_all(self) -> int:
        """The same until nothing late is left; how many reservations had something."""
        moved = 0
        while (swept := await self.sweep()) > 0:
            moved += swept
        return moved

    async def _move(self, keys: list[str], changed: set[str]) -> None:
        events: list[EventRecord] = []
        async with self._database.transaction() as connection:
            if keys:
                events = await relay(connection, keys)
            await notify(connection, self._hint(events, changed))
        measures.EVENTS_RELAYED.inc(len(events) // 2)  # each is in its tenant's stream and in the mirror
        behind = self._hub.offer(events)
        await self._hub.catch_up(behind)

    def _hint(self, events: Iterable[EventRecord], changed: Iterable[str]) -> str:
        streams = sorted({event.stream for event in events})
        hint = json.dumps({"node": self._node, "streams": streams, "keys": sorted(changed)}, separators=(",", ":"))
        return hint if len(hint) <= HINT_MAX else json.dumps({"node": self._node})


class Listener:
    """One LISTEN connection a node: hints of the others, and after every reconnect a look at everything."""

    def __init__(self, database: Database, hub: EventHub, board: ChangeBoard, *, node: str) -> None:
        self._database = database
        self._hub = hub
        self._board = board
        self._node = node
        self._streams: set[str] = set()
        self._wake = asyncio.Event()
        self.is_connected = False

    async def run(self) -> None:
        """Listen until cancelled; a lost connection is opened again by the supervisor's restart."""
        connection = await self._database.connect()
        lost = asyncio.Event()

        def end(_connection: AnyConnection) -> None:
            lost.set()
            self._wake.set()

        connection.add_termination_listener(end)
        try:
            await connection.add_listener(CHANNEL, self._on_hint)
            self.is_connected = True
            self._look_everywhere()
            while not lost.is_set():
                await self._wake.wait()
                self._wake.clear()
                streams, self._streams = self._streams, set()
                await self._hub.catch_up(streams)
            raise ConnectionError("the listening connection was lost")
        finally:
            self.is_connected = False
            if not connection.is_closed():
                connection.terminate()

    def _on_hint(self, _connection: AnyConnection, _pid: int, _channel: str, payload: object) -> None:
        hint = json.loads(str(payload))
        if hint.get("node") == self._node:
            return  # fed from memory already
        if "streams" not in hint:
            self._look_everywhere()
            return
        self._board.wake(hint["keys"])
        self._streams.update(hint["streams"])
        self._wake.set()

    def _look_everywhere(self) -> None:
        self._board.wake_all()
        self._streams.update(self._hub.listened)
        self._wake.set()
