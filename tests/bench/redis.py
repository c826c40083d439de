"""A Redis of its own for a bench, as durable as PostgreSQL is there, and the little of its protocol that a script needs."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

START_S: Final = 30.0
POLL_S: Final = 0.05

Reply = bytes | int | list["Reply"] | None


@dataclass(frozen=True, slots=True)
class RunningRedis:
    socket: Path
    pid: int
    version: str


def has_redis() -> bool:
    return shutil.which("redis-server") is not None


@asynccontextmanager
async def durable_redis() -> AsyncIterator[RunningRedis]:
    """Every write is in its log, and flushed, before the reply; nothing else writes to the disk."""
    with tempfile.TemporaryDirectory(prefix="earmark-bench-redis-") as folder:
        socket = Path(folder, "socket")
        settings = ("--port", "0", "--unixsocket", str(socket), "--dir", folder, "--save", "")
        durable = ("--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0")
        process = await asyncio.create_subprocess_exec(
            "redis-server", *settings, *durable, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            yield RunningRedis(socket, process.pid, await _until_ready(socket))
        finally:
            process.terminate()
            await process.wait()


async def _until_ready(socket: Path) -> str:
    """Its version."""
    deadline = time.monotonic() + START_S
    while True:
        try:
            connection = await RedisConnection.open(socket)
        except OSError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(POLL_S)
            continue
        try:
            info = await connection.ask("INFO", "server")
        finally:
            await connection.close()
        assert isinstance(info, bytes)
        return info.decode().partition("redis_version:")[2].partition("\r\n")[0]


class RedisConnection:
    """One request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, socket: Path) -> RedisConnection:
        return cls(*await asyncio.open_unix_connection(str(socket)))

    async def ask(self, *words: str | int) -> Reply:
        """Raises AssertionError for an error."""
        encoded = [str(word).encode() for word in words]
        parts = [b"*%d\r\n" % len(encoded), *(b"$%d\r\n%s\r\n" % (len(word), word) for word in encoded)]
        self._writer.write(b"".join(parts))
        return await self._reply()

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def _reply(self) -> Reply:
        line = (await self._reader.readuntil(b"\r\n"))[:-2]
        kind, rest = line[:1], line[1:]
        assert kind != b"-", rest.decode()
        if kind == b"+":
            return rest
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == b"-1" else (await self._reader.readexactly(int(rest) + 2))[:-2]
        assert kind == b"*", line
        return [await self._reply() for _ in range(int(rest))]
