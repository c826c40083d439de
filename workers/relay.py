"""From the outboxes to the streams, within milliseconds of the commit, and the word to other nodes that there is news."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from storage.database import AnyConnection, Database, trouble_of
from storage.events import CHANNEL, Outbox, Relayed, relay, waiting_keys
from workers import measures
from workers.changes import ChangeBoard
from workers.clock import Clock
from workers.events import EventHub

log = logging.getLogger("earmark.relay")

KEYS_MAX: Final = 500
"""Keys whose waiting events one transaction moves."""
LATE_MS: Final = 1_000
"""An event that waits longer belongs to a node that is gone, or to one that was interrupted."""
RETRY_PAUSE_S: Final = 0.2
HELD_PAUSE_S: Final = 0.05
"""How soon events that wait for those of another reservation are looked at again: its end is applied within moments."""
HELD_MAX_S: Final = 3.0
"""How long they wait (T89). A reservation whose end is not applied by then is in trouble, and its neighbours' news does not
wait for it any longer."""
RESTS: Final = 4
"""How many times as long as it has worked the relay rests: its commits stand in the way of the lanes'. Under load it moves
more at once; an event that comes alone waits for nothing."""
REST_MAX_S: Final = 0.05
TELL_EVERY_S: Final = 0.1
"""How often at most the other nodes are told of changes that no event comes with. Budgets change with every request,
and each telling is a commit."""


class Relay:
    """One a node. What another node leaves behind is swept by `sweep`. `moved` is called when streams have grown."""

    def __init__(
        self,
        database: Database,
        hub: EventHub,
        board: ChangeBoard,
        clock: Clock,
        *,
        node: str,
        moved: Callable[[], None] = lambda: None,
    ) -> None:
        self._database = database
        self._hub = hub
        self._board = board
        self._clock = clock
        self._node = node
        self._moved = moved
        self._pending: dict[Outbox, set[str]] = {outbox: set() for outbox in Outbox}
        self._held: dict[str, float] = {}
        """Reservations whose events wait for those of another, since when."""
        self._looked_at = 0.0
        self._changed: set[str] = set()
        self._told_at = -TELL_EVERY_S
        self._wake = asyncio.Event()
        self._moving = asyncio.Lock()
        """One move at a time: whoever waits for what is pending waits for what is on its way, too."""
        self._is_in_doubt = False
        """A move may have taken effect without an answer: then this node does not know what it appended."""

    def wake(self, *, outbox: Outbox, event_keys: Iterable[str], changed_keys: Iterable[str]) -> None:
        """A turn has committed: its outbox has news under these keys, and what has the others looks different."""
        self._pending[outbox].update(event_keys)
        changed = list(changed_keys)
        self._changed.update(changed)
        self._board.wake(changed)
        self._wake.set()

    async def run(self) -> None:
        """Move what there is, whenever there is something, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            started = time.monotonic()
            went_well = await self._move_pending()
            if any(self._pending.values()):
                self._wake.set()
            elif self._changed or self._held:
                pause_s = HELD_PAUSE_S if self._held else TELL_EVERY_S
                asyncio.get_running_loop().call_later(pause_s, self._wake.set)
            if not went_well:
                await asyncio.sleep(RETRY_PAUSE_S)
            elif all(len(keys) < KEYS_MAX for keys in self._pending.values()):
                await asyncio.sleep(min(REST_MAX_S, RESTS * (time.monotonic() - started)))

    async def flush(self, *, give_up: bool = False) -> None:
        """Move everything that is pending on this node, however often it takes; `give_up` after the first failure."""
        while self._moving.locked() or self._has_work():
            if not await self._move_pending(tells=True):
                if give_up:
                    return
                await asyncio.sleep(RETRY_PAUSE_S)

    async def sweep(self, *, limit: int = KEYS_MAX) -> int:
        """Move what has waited too long, whoever left it; of how many keys. A job, safe anywhere."""
        until = self._clock.local_ms() - LATE_MS
        swept: set[str] = set()
        for outbox in Outbox:
            async with self._database.acquire() as connection:
                keys = await waiting_keys(connection, outbox, recorded_until=until, limit=limit)
            self._pending[outbox].update(keys)
            swept.update(keys)
        await self.flush()
        return len(swept.difference(self._held))

    async def sweep_all(self) -> int:
        """The same until nothing late is left; how many keys had something."""
        moved = 0
        while (swept := await self.sweep()) > 0:
            moved += swept
        return moved

    def _has_work(self) -> bool:
        return bool(self._changed) or any(self._pending.values())

    async def _move_pending(self, *, tells: bool = False) -> bool:
        """One transaction for each outbox that has news; whether all went well. What did not stays pending. `tells`:
        of changes too, even if they were told just now."""
        async with self._moving:
            return await self._move_each(tells=tells)

    async def _move_each(self, *, tells: bool) -> bool:
        went_well = True
        outboxes = [outbox for outbox, keys in self._pending.items() if keys]
        if self._changed and not outboxes and (tells or time.monotonic() >= self._told_at + TELL_EVERY_S):
            outboxes = [Outbox.CAPACITY]  # nothing to move, but something to tell
        is_held = bool(self._held) and time.monotonic() >= self._looked_at + HELD_PAUSE_S
        if is_held and Outbox.CAPACITY not in outboxes:
            outboxes.append(Outbox.CAPACITY)
        for outbox in outboxes:
            pending = self._pending[outbox]
            keys = sorted(pending)[:KEYS_MAX]
            if outbox is Outbox.CAPACITY:
                keys += sorted(self._held.keys() - pending)[:KEYS_MAX]
                self._looked_at = time.monotonic()
            changed, self._changed = self._changed, set()
            self._told_at = time.monotonic()
            pending.difference_update(keys)
            try:
                await self._move(outbox, keys, changed)
            except Exception as error:  # noqa: BLE001 - nothing is lost: it waits in the table
                log.warning("events wait in the outbox: %s (%s)", error, trouble_of(error).value)
                self._is_in_doubt, went_well = True, False
                pending.update(keys)
                self._changed.update(changed)
        return went_well

    async def _move(self, outbox: Outbox, keys: list[str], changed: set[str]) -> None:
        listened = self._hub.listened
        async with self._database.transaction() as connection:
            relayed = await relay(
                connection,
                outbox,
                keys,
                impatient=self._impatient(),
                changed=changed,
                listened=listened,
                node=self._node,
            )
        if outbox is Outbox.CAPACITY:
            self._note_held(keys, relayed)
        measures.EVENTS_RELAYED.inc(relayed.moved)
        if relayed.moved:
            self._moved()
        behind = set(relayed.streams).difference(listened)  # whoever has begun to listen meanwhile
        behind.update(self._hub.offer(relayed.appended))
        if self._is_in_doubt:
            self._is_in_doubt = False
            behind.update(self._hub.listened)
        await self._hub.catch_up(behind)

    def _impatient(self) -> list[str]:
        now = time.monotonic()
        return [key for key, since in self._held.items() if now - since >= HELD_MAX_S]

    def _note_held(self, keys: Iterable[str], relayed: Relayed) -> None:
        """Remember what waits, and take along next time what it waits for, whichever node it belongs to."""
        now = time.monotonic()
        for key in keys:
            if key in relayed.held:
                self._held.setdefault(key, now)
            else:
                self._held.pop(key, None)
        self._pending[Outbox.CAPACITY].update(relayed.needed - relayed.held)


class Listener:
    """One LISTEN connection a node: hints of the others, and after every reconnect a look at everything.

    `appended` is called when events came into the streams without a relay; `lost` and `restored` when the connection is
    lost, and when there is another one.
    """

    def __init__(
        self,
        database: Database,
        hub: EventHub,
        board: ChangeBoard,
        *,
        node: str,
        appended: Callable[[], None] = lambda: None,
        lost: Callable[[], None] = lambda: None,
        restored: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._database = database
        self._hub = hub
        self._board = board
        self._node = node
        self._appended = appended
        self._lost = lost
        self._restored = restored
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
            if self._restored is not None:
                await self._restored()
            while not lost.is_set():
                try:
                    async with asyncio.timeout(self._database.answer_within_s):
                        await self._wake.wait()
                except TimeoutError:  # a silence that is one, or a connection that died without a word
                    await connection.execute("select 1")
                    continue
                self._wake.clear()
                streams, self._streams = self._streams, set()
                await self._hub.catch_up(streams)
            self._lost()
            raise ConnectionError("the listening connection was lost")
        finally:
            self.is_connected = False
            if not connection.is_closed():
                connection.terminate()

    def _on_hint(self, _connection: AnyConnection, _pid: int, _channel: str, payload: object) -> None:
        hint = json.loads(str(payload))
        if hint.get("node") == self._node:
            return  # fed from memory already
        if not hint.get("node"):
            self._appended()
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
