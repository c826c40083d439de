"""A receiver of webhooks, as somebody else would write it: a real HTTP server that knows nothing of Earmark.

It checks signatures as the published text says it, and answers as it is told to.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

REASONS = {200: "OK", 204: "No Content", 301: "Moved", 302: "Found", 307: "Temporary", 410: "Gone", 500: "Broken"}


@dataclass(frozen=True)
class Got:
    """One request, byte for byte."""

    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str:
        found = [value for each, value in self.headers if each.lower() == name.lower()]
        assert len(found) == 1, (name, found)
        return found[0]

    @property
    def event(self) -> dict[str, Any]:
        event: dict[str, Any] = json.loads(self.body)
        return event

    def is_signed_with(self, secret: str) -> bool:
        expected = "sha256=" + hmac.new(secret.encode(), self.body, hashlib.sha256).hexdigest()
        return hmac.compare_digest(expected, self.header("X-Cycles-Signature"))


Answer = int | bytes | Callable[[Got], Awaitable[int | bytes]]


@dataclass
class Receiver:
    """`answers` are given one after another; then `usually`. Bytes are sent as they are. Then the connection ends, unless
    it `keeps_alive`."""

    scheme: str = "http"
    host: str = "127.0.0.1"
    port: int = 0
    usually: Answer = 200
    answers: list[Answer] = field(default_factory=list)
    got: list[Got] = field(default_factory=list)
    keeps_alive: bool = False
    connections: int = 0
    open_connections: int = 0
    under_way: int = 0
    under_way_most: int = 0
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def url(self, path: str = "/hook") -> str:
        return f"{self.scheme}://{self.host}:{self.port}{path}"

    @property
    def types(self) -> list[str]:
        return [got.header("X-Cycles-Event-Type") for got in self.got]

    @property
    def event_ids(self) -> list[str]:
        return [got.header("X-Cycles-Event-Id") for got in self.got]

    async def until(self, count: int, *, within_s: float = 60.0) -> list[Got]:
        """The first requests, once there are so many."""
        async with asyncio.timeout(within_s):
            while len(self.got) < count:
                self._arrived.clear()
                await self._arrived.wait()
        return self.got[:count]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open_connections += 1
        try:
            while await self._serve_one(reader, writer) and self.keeps_alive:
                pass
        finally:
            self.open_connections -= 1
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """False when nothing more is asked."""
        got = await _read(reader)
        if got is None:
            return False
        self.under_way += 1
        self.under_way_most = max(self.under_way_most, self.under_way)
        self.got.append(got)
        self._arrived.set()
        answer = self.answers.pop(0) if self.answers else self.usually
        try:
            said = await answer(got) if callable(answer) else answer
        finally:
            self.under_way -= 1
        writer.write(said if isinstance(said, bytes) else _response(said))
        with suppress(ConnectionError):
            await writer.drain()
        return True


async def _read(reader: asyncio.StreamReader) -> Got | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    request, *lines = head.rstrip("\r\n").split("\r\n")
    method, path, _ = request.split(" ")
    headers = [(line.partition(":")[0], line.partition(":")[2].strip()) for line in lines]
    length = int({name.lower(): value for name, value in headers}.get("content-length", "0"))
    return Got(method, path, headers, await reader.readexactly(length))


def _response(status: int) -> bytes:
    location = "Location: http://127.0.0.1:9/elsewhere\r\n" if 300 <= status < 400 else ""
    return f"HTTP/1.1 {status} {REASONS.get(status, 'Other')}\r\n{location}Content-Length: 2\r\n\r\nok".encode()


@asynccontextmanager
async def receiving(*, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> AsyncIterator[Receiver]:
    """A receiver on a free port of this machine."""
    receiver = Receiver(scheme="http" if tls is None else "https", host=host)
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0, ssl=tls)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        await server.wait_closed()
