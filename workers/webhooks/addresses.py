"""Looking hosts up, on threads of its own: a name server that says nothing must not hold up anything else."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeAlias

from domain.webhooks.targets import Address, Target, read_address

THREADS: Final = 16
"""Look-ups at once. Every host has one under way at most, so that a single slow zone takes one thread."""
WITHIN_S: Final = 5.0

Resolve: TypeAlias = Callable[[Target], Awaitable[list[Address]]]
"""The addresses of a host, in the order to try them. Raises OSError when there is none."""


class Addresses:
    """The system's own resolver."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="webhook-names")
        self._under_way: dict[tuple[str, int], asyncio.Future[list[Address]]] = {}

    async def resolve(self, target: Target) -> list[Address]:
        """Raises OSError: also when it takes too long."""
        literal = target.literal()
        if literal is not None:
            return [literal]
        wanted = (target.host, target.port)
        under_way = self._under_way.get(wanted)
        if under_way is None:
            loop = asyncio.get_running_loop()
            under_way = loop.run_in_executor(self._threads, _look_up, *wanted)
            self._under_way[wanted] = under_way
            under_way.add_done_callback(partial(self._forget, wanted))
        try:
            async with asyncio.timeout(WITHIN_S):
                return await asyncio.shield(under_way)
        except TimeoutError:
            raise OSError("the name server did not answer") from None

    def _forget(self, wanted: tuple[str, int], done: asyncio.Future[list[Address]]) -> None:
        """Whoever waited may have left: what came of it then is nobody's, and no fault to be told of."""
        self._under_way.pop(wanted, None)
        if not done.cancelled():
            done.exception()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _look_up(host: str, port: int) -> list[Address]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    texts = dict.fromkeys(str(entry[4][0]) for entry in found)
    return [address for text in texts if (address := read_address(text.partition("%")[0])) is not None]
