"""Clients that go on asking while something happens to what they ask, each again under its key until it is answered."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from tests.capacity_world import eventually

Answer = TypeVar("Answer")

ANSWER_WITHIN_S = 60
PAUSE_S = 0.005


class Crowd:
    """What a client does is a subclass's: `one_after_another`, until `has_enough`."""

    def __init__(self) -> None:
        self.answered = 0
        self.unanswered = 0
        """Sends after which nobody knew whether they had an effect."""
        self.latencies_ms: list[float] = []
        """From when something was first asked until it was answered."""
        self.run_number = 0
        """Clients of another run are others: with other keys, and another chance."""
        self.clients = 0
        self.has_enough = False

    async def one_after_another(self, number: int) -> None:
        """Client `number` asks, counts what was answered in `answered`, and asks again."""
        raise NotImplementedError

    @asynccontextmanager
    async def running(self, *, clients: int) -> AsyncIterator[None]:
        """The clients ask while the block runs, and each gets its last answer after it."""
        self.run_number, self.clients, self.has_enough = self.run_number + 1, clients, False
        async with asyncio.TaskGroup() as group:
            for number in range(clients):
                group.create_task(self.one_after_another(number))
            yield
            self.has_enough = True

    async def more_answers(self, count: int) -> None:
        """Wait until so many more have been answered."""
        wanted = self.answered + count

        async def has_them() -> bool:
            return self.answered >= wanted

        await eventually(has_them, timeout_ms=ANSWER_WITHIN_S * 1_000)

    async def more_unanswered(self) -> None:
        """Wait until somebody was left without an answer once more: what was done to the servers has been noticed."""
        before = self.unanswered

        async def has_one() -> bool:
            return self.unanswered > before

        await eventually(has_one)

    async def until_answered(self, send_once: Callable[[int], Awaitable[Answer | None]], what: object) -> Answer:
        """Ask until there is an answer. `send_once` is told which attempt it is; None: nobody knows what happened."""
        began = asyncio.get_running_loop().time()
        for attempt in range(1_000_000):
            answer = await send_once(attempt)
            took_s = asyncio.get_running_loop().time() - began
            if answer is not None:
                self.latencies_ms.append(took_s * 1_000)
                return answer
            self.unanswered += 1
            assert took_s < ANSWER_WITHIN_S, f"{what} was never answered"
            await asyncio.sleep(PAUSE_S)
        raise AssertionError


def server_of(key: str, attempt: int, *, servers: int) -> int:
    """Which server is asked first under a key is as good as by chance; then they take turns."""
    return (zlib.crc32(key.encode()) + attempt) % servers


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """`work` goes on while the block runs and is stopped after it. It never ends by itself."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work)
        yield
        task.cancel()
