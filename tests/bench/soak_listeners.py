"""The subscribers of a soak: what each was told, how late, and what it resumes with; and one that stops reading."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
from collections.abc import Sequence
from typing import Any, Final

from storage.database import AnyConnection
from tests.bench.sockets import Listener

GRANT_EVENTS: Final = "subscription ($after: String) { told: grantEvents(after: $after) { cursor recordedAt type } }"
BUDGET_EVENTS: Final = "subscription ($after: String) { told: budgetEvents(after: $after) { cursor recordedAt type } }"
MIRROR: Final = (
    "subscription ($after: String) { told: grantEvents(all: true, after: $after) { cursor recordedAt type } }"
)
TIMED_EVERY: Final = 20
"""Messages of which one is timed: reading the clock's digits out of all of them would be most of the work."""
RECEIVE_BUFFER: Final = 4_096
_RECORDED: Final = re.compile(rb'"recordedAt":\s*"?(\d+)')
_CURSOR: Final = re.compile(rb'"cursor":\s*"([^"]+)"')


class Subscriber(Listener):
    """Counts, notes some delays in ms, and keeps the last message for its cursor."""

    def __init__(self) -> None:
        super().__init__()
        self.delays: list[float] = []
        self.last = b""
        self.errors: list[dict[str, Any]] = []
        self.is_closed = False

    @property
    def cursor(self) -> str | None:
        match = _CURSOR.search(self.last)
        return match[1].decode() if match else None

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True
        super().connection_lost(exc)

    def end(self) -> str | None:
        """How the server ended it: with a word and the cursor to resume with, or, since nobody answered its pings either,
        by hanging up. None as long as it has not."""
        if self.errors:
            return str(self.errors[0]["extensions"]["code"])
        return "the socket was closed" if self.is_closed else None

    def _take(self, kind: int, text: bytes) -> None:
        if b'"errors":' in text:  # that is how a stream is ended
            self.errors += json.loads(text)["payload"]["errors"]
            return
        before = self.count
        super()._take(kind, text)
        if self.count > before:
            self.last = text
            if self.count % TIMED_EVERY == 0 and (match := _RECORDED.search(text)):
                self.delays.append(time.time() * 1_000 - int(match[1]))


class SlowReader(Subscriber):
    """It subscribes and then reads nothing for a while, with as small a buffer as the system gives it."""

    @classmethod
    async def open(cls, port: int, key: str) -> SlowReader:
        plain = socket.socket()
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        plain.setblocking(False)
        await asyncio.get_running_loop().sock_connect(plain, ("127.0.0.1", port))
        _, reader = await asyncio.get_running_loop().create_connection(cls, sock=plain)
        await reader.greet(key)
        return reader

    def stop_reading(self) -> None:
        assert self._transport is not None, "it is open"
        self._transport.pause_reading()

    def read_on(self) -> None:
        assert self._transport is not None, "it is open"
        self._transport.resume_reading()


_LAST: Final = "select coalesce((select last_seq from event_stream where tenant_id = $1), 0)"
_COUNT: Final = (
    "select count(*) from event where tenant_id = $1 and seq > $2 and starts_with(type, 'reservation-grant.') = $3"
)


async def last_seq(connection: AnyConnection, stream: str) -> int:
    seq: int = await connection.fetchval(_LAST, stream)
    return seq


async def count_since(connection: AnyConnection, stream: str, seq: int, *, about_grants: bool) -> int:
    """Events of a stream behind a number: those about grants, or all others."""
    count: int = await connection.fetchval(_COUNT, stream, seq, about_grants)
    return count


def percentiles(values: Sequence[float], *shares: float) -> list[float]:
    """Of nothing it is nothing."""
    ordered = sorted(values) or [0.0]
    return [ordered[min(len(ordered) - 1, int(len(ordered) * share))] for share in shares]
