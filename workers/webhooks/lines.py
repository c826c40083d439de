"""Connections to receivers that are kept for a while after an answer: the next delivery is spared the handshakes.

A kept connection is used only for the host that it was made for, and only while it goes to one of the addresses that the
host has just been looked up at: so a name that has moved, or an address that is blocked by now, is never reached by it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

import h11

from domain.webhooks.targets import Address, Target, read_address

HEAD_MAX: Final = 16_384
"""Bytes of an answer's status and headers."""
REST_MAX: Final = 65_536
"""Bytes of an answer's body that are read past, unseen: beyond them a new connection is cheaper."""
REST_WITHIN_S: Final = 0.25
GOODBYE_S: Final = 1.0
KEPT_S: Final = 10.0
"""How long a connection is kept: shorter than most receivers keep theirs."""
KEPT_MAX: Final = 8
"""Of one host, as many as it has places."""
KEPT_ALL_MAX: Final = 256


class CutOffError(OSError):
    """The other side has ended the connection without a word of an answer."""


@dataclass(slots=True, eq=False)
class Line:
    """One connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    talk: h11.Connection = field(default_factory=lambda: h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_MAX))

    @property
    def peer(self) -> Address | None:
        """The socket's own word on where it goes."""
        name = self.writer.get_extra_info("peername")
        return read_address(str(name[0]).partition("%")[0]) if name else None

    async def ask(self, request: h11.Request, body: bytes) -> int:
        """The status of the answer; nothing else of it matters. Raises OSError, among them `CutOffError`, and h11's."""
        for part in (request, h11.Data(data=body), h11.EndOfMessage()):
            self.writer.write(self.talk.send(part) or b"")
        await self.writer.drain()
        while True:
            event = self.talk.next_event()
            if isinstance(event, h11.Response):
                return event.status_code
            if event is h11.NEED_DATA:
                await self._hear()

    async def is_free_again(self) -> bool:
        """Read past the rest of the answer; whether the next request may follow."""
        size = 0
        try:
            async with asyncio.timeout(REST_WITHIN_S):
                while (event := self.talk.next_event()) is not h11.PAUSED and not isinstance(event, h11.EndOfMessage):
                    if event is h11.NEED_DATA:
                        await self._hear()
                    elif isinstance(event, h11.Data) and (size := size + len(event.data)) > REST_MAX:
                        return False
            self.talk.start_next_cycle()
        except (OSError, h11.ProtocolError):  # among them timeouts
            return False
        return True

    def is_open(self) -> bool:
        return not (self.reader.at_eof() or self.writer.is_closing())

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):  # among them timeouts, and TLS that ends without a word
            async with asyncio.timeout(GOODBYE_S):
                await self.writer.wait_closed()

    def drop(self) -> None:
        """At once, whatever the other side thinks of it."""
        self.writer.transport.abort()

    async def _hear(self) -> None:
        data = await self.reader.read(HEAD_MAX)
        if not data:
            raise CutOffError("the connection was closed without an answer")
        self.talk.receive_data(data)


class Lines:
    """The connections that are kept. One object a node."""

    def __init__(self) -> None:
        self._kept: defaultdict[tuple[str, str, int], list[Line]] = defaultdict(list)
        self._ends: dict[Line, asyncio.TimerHandle] = {}

    def take(self, target: Target, addresses: Collection[Address]) -> Line | None:
        """One that goes to one of these addresses, which were looked up for this very request."""
        kept = self._kept.get(_door(target), [])
        while kept:
            line = self._forget(target, kept[-1])
            if line.is_open() and line.peer in addresses:
                return line
            line.drop()
        return None

    def keep(self, target: Target, line: Line) -> bool:
        """False when there are enough of them: then it is the caller's to close."""
        kept = self._kept[_door(target)]
        if len(kept) >= KEPT_MAX or len(self._ends) >= KEPT_ALL_MAX:
            return False
        kept.append(line)
        self._ends[line] = asyncio.get_running_loop().call_later(KEPT_S, self._expire, target, line)
        return True

    def close(self) -> None:
        for handle in self._ends.values():
            handle.cancel()
        for line in self._ends:
            line.drop()
        self._ends.clear()
        self._kept.clear()

    def _expire(self, target: Target, line: Line) -> None:
        self._forget(target, line).drop()

    def _forget(self, target: Target, line: Line) -> Line:
        door = _door(target)
        self._kept[door].remove(line)
        if not self._kept[door]:
            del self._kept[door]
        self._ends.pop(line).cancel()
        return line


def _door(target: Target) -> tuple[str, str, int]:
    return target.scheme, target.host, target.port
