"""Clients that leave in the middle of a request: before it is whole, right after it, or when the answer begins to come."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from urllib.parse import urlsplit


class Vanish:
    """Called with a POST before it is made; whether it was made here, by a client that did not wait for the answer."""

    def __init__(self, chance: random.Random, *, share: float) -> None:
        self.left: Counter[str] = Counter()
        """How many left, by when."""
        self._chance, self._share = chance, share

    async def __call__(self, address: str, path: str, headers: Mapping[str, str], body: bytes) -> bool:
        if self._chance.random() >= self._share:
            return False
        when = self._chance.choice(("in mid-request", "after the request", "with the answer"))
        self.left[when] += 1
        with suppress(OSError):
            await _leave(address, _request(address, path, headers, body), when)
        return True


def _request(address: str, path: str, headers: Mapping[str, str], body: bytes) -> Sequence[bytes]:
    """Head and body."""
    lines = {"host": urlsplit(address).netloc, **headers, "content-type": "application/json"}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST {path} HTTP/1.1\r\n{head}content-length: {len(body)}\r\n\r\n".encode(), body


async def _leave(address: str, request: Sequence[bytes], when: str) -> None:
    parts = urlsplit(address)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    head, body = request
    writer.write(head + (body[: len(body) // 2] if when == "in mid-request" else body))
    await writer.drain()
    if when == "with the answer":
        await reader.read(1)
    writer.transport.abort()
