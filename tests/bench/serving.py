"""Servers in processes of their own, and a keep-alive client that costs little beside them."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import uvicorn
from starlette.applications import Starlette

ROOT_KEY: Final = "bench-root-key-0123456789abcdefghijklmnop"
PROJECT: Final = Path(__file__).resolve().parents[2]
PORTS: Final = range(21_000, 29_000)
"""Below the range that clients' own sockets are taken from: a server there could not be started now and then."""
START_S: Final = 120.0
STOP_S: Final = 20.0
POLL_S: Final = 0.05
LOG_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Served:
    process: Process
    port: int


@asynccontextmanager
async def served_earmark(url: str) -> AsyncIterator[Served]:
    """`earmark serve` with its own defaults, logs included."""
    port = _free_port()
    settings = {
        "EARMARK_DATABASE_URL": url,
        "EARMARK_PORT": str(port),
        "EARMARK_ROOT_KEY": ROOT_KEY,
        "EARMARK_ENVIRONMENT": "production",
    }
    async with _served([sys.executable, "-m", "server.cli", "serve"], port, settings) as served:
        yield served


@asynccontextmanager
async def served_naive(url: str) -> AsyncIterator[Served]:
    port = _free_port()
    async with _served([sys.executable, "-m", "tests.bench.naive_app", url, str(port)], port, {}) as served:
        yield served


@asynccontextmanager
async def served_strawberry(url: str) -> AsyncIterator[Served]:
    port = _free_port()
    command = [sys.executable, "-m", "tests.bench.strawberry_app", url, str(port)]
    async with _served(command, port, {}) as served:
        yield served


@asynccontextmanager
async def _served(command: Sequence[str], port: int, settings: Mapping[str, str]) -> AsyncIterator[Served]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("EARMARK_")}
    with tempfile.TemporaryFile() as log:
        process = await asyncio.create_subprocess_exec(
            *command, cwd=PROJECT, env={**inherited, **settings}, stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
        try:
            await _until_ready(process, port, log.fileno())
            yield Served(process, port)
        finally:
            await _stop(process)


async def _stop(process: Process) -> None:
    if process.returncode is None:
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), timeout=STOP_S)
    except TimeoutError:
        process.kill()
        await process.wait()


async def _until_ready(process: Process, port: int, log: int) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.returncode is None:
        try:
            connection = await KeepAlive.open(port)
            status, _ = await connection.get("/readyz")
            connection.close()
            if status == 200:
                return
        except OSError:
            pass
        await asyncio.sleep(POLL_S)
    said = os.pread(log, LOG_MAX, 0).decode(errors="replace")
    raise RuntimeError(f"the server did not start:\n{said[-2_000:]}")


def _free_port() -> int:
    """Two benches at once begin their search in different places."""
    first = os.getpid() % len(PORTS)
    for port in (*PORTS[first:], *PORTS[:first]):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port")


class KeepAlive(asyncio.Protocol):
    """One keep-alive connection with one request under way. Replies carry a content length."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._reply: asyncio.Future[tuple[int, bytes]] | None = None

    @classmethod
    async def open(cls, port: int) -> KeepAlive:
        _, connection = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        return connection

    @property
    def is_closed(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def get(self, path: str) -> tuple[int, bytes]:
        return await self._ask(f"GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n".encode())

    async def post(self, path: str, body: bytes, *, key: str) -> tuple[int, bytes]:
        head = (
            f"POST {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return await self._ask(head.encode() + body)

    async def _ask(self, request: bytes) -> tuple[int, bytes]:
        if self._transport is None or self.is_closed:
            raise ConnectionError("the connection is closed")
        self._reply = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._reply

    # -- what the event loop calls -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(exc or ConnectionError("the server hung up"))

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, rest = self._received.partition(b"\r\n\r\n")
        if not end or len(rest) < (length := _content_length(head)):
            return
        self._received = rest[length:]
        if self._reply is not None and not self._reply.done():
            self._reply.set_result((int(head[9:12]), rest[:length]))


def _content_length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line[15:])
    return 0


def serve(application: Starlette, *, port: int) -> None:
    """An application that Earmark is compared with, in this process, as Earmark serves itself. Until it is ended."""
    uvicorn.run(
        application,
        host="127.0.0.1",
        port=port,
        http="httptools",
        loop="uvloop",
        access_log=False,
        log_level="warning",
    )
