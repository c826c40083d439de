"""A wire to PostgreSQL that can be cut at the worst moments: just before a commit arrives, or just after it took effect.

`CuttingWire` stands between a node and the server and passes everything on. At each COMMIT, and at each statement that
is a transaction of its own and writes a turn, it asks its `plan` what shall happen. Real sockets, the real server;
nothing of ours is replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import urllib.parse
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from enum import StrEnum

COMMIT = b"Q\x00\x00\x00\x0cCOMMIT;\x00"
"""How the driver ends a transaction, as one message of the protocol."""
PREPARE = re.compile(rb"P....([^\x00]+)\x00[^\x00]*\b\w+_settle\(", re.DOTALL)
"""How it names a statement that writes a turn by itself."""
EXECUTE = re.compile(rb"B....\x00([^\x00]+)\x00", re.DOTALL)
"""How it begins to run a named one; it goes on until SYNC."""
SYNC = b"S\x00\x00\x00\x04"
CHUNK = 65_536


class Cut(StrEnum):
    NONE = "none"
    BEFORE = "before"
    """The server never hears of the commit: it rolls back."""
    AFTER = "after"
    """The server has committed; the client never hears of it."""
    SILENT = "silent"
    """The server has committed; the client never hears anything again, and nobody hangs up before it does."""
    BLIND = "blind"
    """The commit is on its way when the wire breaks: neither side waits for the other."""
    HALF = "half"
    """The server has half of the message, and waits for the rest until it notices."""


Plan = Callable[[], Cut]


class CuttingWire:
    """`everywhere`: the plan is asked at every message of the client, not at commits alone."""

    def __init__(self, url: str, plan: Plan, *, everywhere: bool = False) -> None:
        self._url = url
        self._plan = plan
        self._everywhere = everywhere
        self._port = 0
        self._pairs: set[asyncio.Task[None]] = set()
        self.cuts: Counter[Cut] = Counter()
        self.is_armed = False
        """Whether the plan is asked at all; connections that are opened before that may be cut later."""

    @property
    def url(self) -> str:
        """The same database, through the wire. In plain text, so that the commits can be seen."""
        parts = urllib.parse.urlsplit(self._url)
        place = {"host": "127.0.0.1", "port": str(self._port), "sslmode": "disable"}
        query = {**dict(urllib.parse.parse_qsl(parts.query)), **place}
        user, at, _ = parts.netloc.rpartition("@")
        return parts._replace(netloc=user + at, query=urllib.parse.urlencode(query)).geturl()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[CuttingWire]:
        server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self._port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in list(self._pairs):
                task.cancel()
            await asyncio.gather(*self._pairs, return_exceptions=True)

    async def _carry(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """One connection, both ways, until either side hangs up or the plan cuts it."""
        task = asyncio.current_task()
        assert task is not None
        self._pairs.add(task)
        writers = [to_client]
        try:
            server, to_server = await self._reach_server()
            writers.append(to_server)
            answers = asyncio.create_task(_pass_on(server, to_client))
            try:
                cut, commit = await self._pass_on_until_cut(client, to_server)
            finally:
                answers.cancel()  # before the commit is sent: nothing of its answer gets through
                await asyncio.gather(answers, return_exceptions=True)
            if commit is not None:
                to_server.write(commit)
                await server.read(1)
            while cut is Cut.SILENT and await client.read(CHUNK):
                pass
        except (OSError, asyncio.CancelledError):
            pass  # a side that hangs up is everyday here, and so is the end of the test
        finally:
            self._pairs.discard(task)
            for writer in writers:
                writer.transport.abort()

    async def _pass_on_until_cut(
        self, client: asyncio.StreamReader, to_server: asyncio.StreamWriter
    ) -> tuple[Cut, bytes | None]:
        """Everything the client says. How it ended, and the commit that the server shall still get, if it was held back."""
        settling: set[bytes] = set()
        while chunk := await client.read(CHUNK):
            settling.update(PREPARE.findall(chunk))
            run = EXECUTE.match(chunk)
            if run is not None and run[1] in settling:
                while not chunk.endswith(SYNC):
                    chunk += await client.read(CHUNK)
            is_commit = COMMIT in chunk or (run is not None and run[1] in settling)
            is_asked = self.is_armed and (is_commit or self._everywhere)
            cut = self._plan() if is_asked else Cut.NONE
            self.cuts[cut] += is_asked
            if cut is Cut.BEFORE or to_server.is_closing():
                return cut, None
            if cut in (Cut.AFTER, Cut.SILENT) and (is_commit or chunk.endswith(SYNC)):  # the rest is never answered
                return cut, chunk
            to_server.write(chunk[: len(chunk) // 2] if cut is Cut.HALF else chunk)
            await to_server.drain()
            if cut is not Cut.NONE:
                return cut, None
        return Cut.NONE, None

    async def _reach_server(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        parts = urllib.parse.urlsplit(self._url)
        query = dict(urllib.parse.parse_qsl(parts.query))
        host, port = query.get("host", parts.hostname or "127.0.0.1"), int(query.get("port", parts.port or 5432))
        if host.startswith("/"):
            return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        return await asyncio.open_connection(host, port)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until either side is gone, and then the other one hears of it. Whoever cancels this sees to that himself."""
    with contextlib.suppress(OSError):
        while (chunk := await reader.read(CHUNK)) and not writer.is_closing():
            writer.write(chunk)
            await writer.drain()
    writer.transport.abort()
