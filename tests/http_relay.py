"""A relay between HTTP clients and a server that a test can have lie, lose answers, or take its time.

It passes on one request after another and asks its `tamper` what becomes of each answer. Real sockets, the real server.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

HEAD_MAX: Final = 65_536


@dataclass(frozen=True, slots=True)
class Passed:
    """One request and its answer, on their way back to the client."""

    method: str
    path: str
    request: bytes
    status: int
    answer: bytes


Tamper = Callable[[Passed], Awaitable[bytes | None]]
"""The body that the client gets; None: the connection breaks, and it gets nothing."""


@asynccontextmanager
async def relaying(port: int, tamper: Tamper) -> AsyncIterator[str]:
    """The address of a relay to the server at this port of this machine."""
    clients: set[asyncio.Task[None]] = set()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        clients.add(task)
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            while await _pass_one(reader, writer, there_reader, there_writer, tamper):
                pass
        except (OSError, asyncio.IncompleteReadError):
            pass  # either side hung up
        finally:
            clients.discard(task)
            for each in (writer, there_writer):
                each.transport.abort()

    server = await asyncio.start_server(carry, "127.0.0.1", 0, limit=HEAD_MAX)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for client in list(clients):
            client.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*clients, return_exceptions=True)


async def _pass_one(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    there_reader: asyncio.StreamReader,
    there_writer: asyncio.StreamWriter,
    tamper: Tamper,
) -> bool:
    """Whether the connection goes on."""
    head, request = await _read_message(reader)
    there_writer.write(head + request)
    answer_head, answer = await _read_message(there_reader)
    method, path, _ = head.decode("latin-1").partition("\r\n")[0].split(" ", 2)
    passed = Passed(method, path, request, int(answer_head[9:12]), answer)
    body = await tamper(passed)
    if body is None:
        return False
    lines = [line for line in answer_head.split(b"\r\n") if line and not line.lower().startswith(b"content-length:")]
    writer.write(b"\r\n".join([*lines, b"content-length: %d" % len(body), b"", body]))
    await writer.drain()
    return True


async def _read_message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Head and body of a message with a content length."""
    head = await reader.readuntil(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return head, await reader.readexactly(int(line[15:]))
    return head, b""
