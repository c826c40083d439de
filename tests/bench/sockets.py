"""Many graphql-transport-ws sockets in one process that count what they are sent, and cost as little as that allows."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import time
from typing import Any, Final, Self, cast

_NEXT: Final = b'"type":"next"'
_ACKNOWLEDGED: Final = b'"type":"connection_ack"'
_UPGRADED: Final = b"HTTP/1.1 101"
_SHORT_MAX: Final = 125
_MEDIUM: Final = 126
"""Stands for a length of two bytes. Nothing longer is sent here."""
_MEDIUM_MAX: Final = 65_535
_PING: Final = 0x9


class Listener(asyncio.Protocol):
    """One socket. `count`: the answers that it got; `arrived`: when each of them came, if it is told to note that."""

    def __init__(self) -> None:
        self.count = 0
        self.arrived: list[float] | None = None
        self.upgraded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.acknowledged: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport | None = None
        self._kept = b""

    @classmethod
    async def open(cls, port: int, key: str) -> Self:
        _, listener = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        await listener.greet(key)
        return listener

    async def greet(self, key: str) -> None:
        """Become a WebSocket, and say who it is."""
        token = base64.b64encode(os.urandom(16)).decode()
        self._write(
            f"GET /graphql HTTP/1.1\r\nHost: bench\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {token}\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Protocol: graphql-transport-ws\r\n\r\n".encode()
        )
        await self.upgraded
        self.say({"type": "connection_init", "payload": {"apiKey": key}})
        await self.acknowledged

    def subscribe(self, name: str, document: str, **variables: Any) -> None:
        self.say({"id": name, "type": "subscribe", "payload": {"query": document, "variables": variables}})

    def complete(self, name: str) -> None:
        self.say({"id": name, "type": "complete"})

    def say(self, message: dict[str, Any]) -> None:
        """A masked text frame; the mask of zeros leaves the text as it is."""
        text = json.dumps(message).encode()
        length = len(text)
        if length <= _SHORT_MAX:
            head = bytes([0x81, 0x80 | length])
        else:
            assert length <= _MEDIUM_MAX
            head = bytes([0x81, 0x80 | _MEDIUM]) + length.to_bytes(2)
        self._write(head + bytes(4) + text)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _write(self, data: bytes) -> None:
        assert self._transport is not None, "it is open"
        self._transport.write(data)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        for waiting in (self.upgraded, self.acknowledged):
            if not waiting.done():
                waiting.set_exception(exc or ConnectionError("the server hung up"))

    def data_received(self, data: bytes) -> None:
        received = self._kept + data
        if not self.upgraded.done():
            head, end, received = received.partition(b"\r\n\r\n")
            if not end:
                self._kept = head
                return
            assert head.startswith(_UPGRADED), head
            self.upgraded.set_result(None)
        self._kept = received[self._take_frames(received) :]

    def _take_frames(self, received: bytes) -> int:
        """Frames of a server are not masked. Where the first incomplete one begins."""
        start, end = 0, len(received)
        while start + 2 <= end:
            length, body = received[start + 1], start + 2
            if length == _MEDIUM and body + 2 <= end:
                length, body = int.from_bytes(received[body : body + 2]), body + 2
            if length == _MEDIUM or body + length > end:
                break
            self._take(received[start] & 0x0F, received[body : body + length])
            start = body + length
        return start

    def _take(self, kind: int, text: bytes) -> None:
        if kind == _PING:
            self._write(bytes([0x8A, 0x80 | len(text)]) + bytes(4) + text)
        elif _NEXT in text:
            self.count += 1
            if self.arrived is not None:
                self.arrived.append(time.perf_counter())
        elif _ACKNOWLEDGED in text:
            self.acknowledged.set_result(None)
