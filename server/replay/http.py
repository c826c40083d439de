"""A small HTTP/1.1 client over keep-alive connections: enough to ask a running server, and light beside it.

A connection carries one request at a time. Whatever keeps an answer from arriving whole is a `NoAnswer`: the request may
have been carried out or not, and asking again is the caller's decision.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

import httptools

CHUNK: Final = 65_536
ANSWER_WITHIN_S: Final = 15.0
"""For one request, from its first byte to its answer's last."""
PORTS: Final = {"http": 80, "https": 443}


class NoAnswer(Exception):  # noqa: N818 - a state of the world
    """Nobody knows whether the request was carried out."""


@dataclass(slots=True)
class HttpAnswer:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    """By name in lower case."""
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a server is. `path` comes before every path that is asked for."""

    host: str
    port: int
    is_secure: bool
    path: str

    @classmethod
    def parse(cls, url: str) -> Address:
        """Raises ValueError for what is not an http or https address."""
        parts = urlsplit(url)
        if parts.scheme not in PORTS or not parts.hostname or parts.query or parts.fragment or parts.username:
            raise ValueError("an address such as http://127.0.0.1:7878 is needed")
        port = parts.port or PORTS[parts.scheme]
        return cls(host=parts.hostname, port=port, is_secure=parts.scheme == "https", path=parts.path.rstrip("/"))

    @property
    def host_header(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS["https" if self.is_secure else "http"] else f"{host}:{self.port}"


class HttpClient:
    """Up to `connections` requests at once; further ones wait for a connection."""

    def __init__(self, address: Address, *, connections: int) -> None:
        self._address = address
        self._idle: asyncio.LifoQueue[_Connection] = asyncio.LifoQueue()
        for _ in range(connections):
            self._idle.put_nowait(_Connection(address))

    async def ask(self, method: str, path: str, *, headers: Mapping[str, str], body: bytes | None = None) -> HttpAnswer:
        """Raises `NoAnswer`."""
        lines = {"host": self._address.host_header, **headers}
        if body is not None:
            lines |= {"content-type": "application/json", "content-length": str(len(body))}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        request = f"{method} {self._address.path}{path} HTTP/1.1\r\n{head}\r\n".encode() + (body or b"")
        connection = await self._idle.get()
        try:
            return await connection.exchange(request)
        finally:
            self._idle.put_nowait(connection)

    def close(self) -> None:
        """When nothing is under way any more."""
        while not self._idle.empty():
            self._idle.get_nowait().close()


class _Connection:
    """Opened when it is needed, and again after it broke."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def exchange(self, request: bytes) -> HttpAnswer:
        is_whole = False
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                reader, writer = self._streams or await self._open()
                writer.write(request)
                answer = await _read_answer(reader)
            is_whole = answer.headers.get("connection", "").lower() != "close"
            return answer
        except (OSError, EOFError, httptools.HttpParserError) as error:
            raise NoAnswer(str(error) or type(error).__name__) from error
        finally:
            if not is_whole:
                self.close()

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = ssl.create_default_context() if self._address.is_secure else None
        self._streams = await asyncio.open_connection(self._address.host, self._address.port, ssl=context)
        return self._streams

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None


class _Receiver:
    """What the parser calls."""

    def __init__(self) -> None:
        self.answer = HttpAnswer()
        self.is_complete = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.answer.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self.answer.body += body

    def on_message_complete(self) -> None:
        self.is_complete = True


async def _read_answer(reader: asyncio.StreamReader) -> HttpAnswer:
    receiver = _Receiver()
    parser = httptools.HttpResponseParser(receiver)
    while not receiver.is_complete:
        chunk = await reader.read(CHUNK)
        if not chunk:
            raise EOFError("the server hung up")
        parser.feed_data(chunk)
    receiver.answer.status = parser.get_status_code()
    return receiver.answer
