"""createGrant under trouble: a disk that takes 2 ms longer to flush, clients that wait for 20 ms and no longer, and locks.

Nodes that share a key are `nodes`; kill -9 in mid-batch, and a recount of everything after it, is `make chaos`.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Final

from storage.database import connect
from tests.bench.bench import Bench
from tests.bench.core import SHAPES
from tests.bench.earmark import earmark
from tests.bench.harness import Variant, Window, measure
from tests.bench.naive import naive

# PostgreSQL waits for so long before each flush, whether or not others could join in: a disk with a slower fsync.
SLOW_DISK: Final = """
do $$ begin
    execute format('alter database %I set commit_delay = 2000', current_database());
    execute format('alter database %I set commit_siblings = 0', current_database());
end $$
"""
SLOW_GOALS: Final = {32: 20.0, 128: 20.0}

DEADLINE_S: Final = 0.020
IN_A_HURRY: Final = 64
IN_TIME_GOAL: Final = 0.95
_DEADLOCKS: Final = "select deadlocks from pg_stat_database where datname = current_database()"


async def run(bench: Bench) -> None:
    for clients in bench.clients(32, 128):
        async with AsyncExitStack() as stack:
            urls = [await stack.enter_async_context(bench.place.database()) for _ in range(2)]
            for url in urls:
                await _execute(url, SLOW_DISK)
            variants = await _variants(bench, stack, urls, "hot")
            goal = SLOW_GOALS.get(clients)
            await bench.compare("stress slow disk hot: createGrant", variants, clients=clients, goal=goal)
    for clients in bench.clients(IN_A_HURRY):
        async with AsyncExitStack() as stack:
            urls = [await stack.enter_async_context(bench.place.database()) for _ in range(2)]
            for variant in await _variants(bench, stack, urls, "hot"):
                await _be_in_a_hurry(bench, variant, clients)
    for clients in bench.clients(128):
        async with AsyncExitStack() as stack:
            urls = [await stack.enter_async_context(bench.place.database()) for _ in range(2)]
            variants = await _variants(bench, stack, urls, "spread")
            await bench.compare("stress locks spread: createGrant", variants, clients=clients)
            if deadlocks := await _value(urls[0], _DEADLOCKS):
                bench.report.complain([f"stress locks: {deadlocks} deadlocks"])


async def _variants(bench: Bench, stack: AsyncExitStack, urls: list[str], shape: str) -> list[Variant]:
    """Ours, and one lock a request."""
    ours = earmark(urls[0], bench.processors(), SHAPES[shape])
    theirs = naive(urls[1], bench.processors(), SHAPES[shape])
    return [await stack.enter_async_context(ours), await stack.enter_async_context(theirs)]


class InAHurry:
    """Clients that leave after 20 ms and ask for the next thing. What they asked for goes on, and is counted in the books."""

    def __init__(self, variant: Variant) -> None:
        self.name = variant.name
        self.processors = variant.processors
        self._variant = variant
        self._left: set[asyncio.Task[bool]] = set()

    async def prepare(self) -> None:
        await self._variant.prepare()

    async def call(self, client: int) -> bool:
        """Whether it was accepted in time."""
        task = asyncio.create_task(self._variant.call(client))
        done, _ = await asyncio.wait([task], timeout=DEADLINE_S)
        if done:
            return task.result()
        self._left.add(task)
        task.add_done_callback(self._left.discard)
        return False

    async def settle(self) -> None:
        await asyncio.gather(*self._left)
        await self._variant.settle()

    async def check(self) -> list[str]:
        return await self._variant.check()


async def _be_in_a_hurry(bench: Bench, variant: Variant, clients: int) -> None:
    hurried, windows = InAHurry(variant), list[Window]()
    for _ in range(bench.options.repetitions):
        windows.append(await measure(hurried, clients=clients, seconds=bench.options.seconds))
        bench.report.complain([f"stress deadlines, {variant.name}: {text}" for text in await hurried.check()])
    shares = sorted((each.operations - each.refused) / each.operations for each in windows)
    rates = sorted((each.operations - each.refused) / each.seconds for each in windows)
    middle = len(windows) // 2
    bench.report.note(
        f"stress deadlines: {clients} clients that wait for {DEADLINE_S * 1_000:.0f} ms, {variant.name}: "
        f"{shares[middle]:.1%} of requests are answered in time, {rates[middle]:,.0f} a second, goal {IN_TIME_GOAL:.0%}"
    )


async def _execute(url: str, statements: str) -> None:
    connection = await connect(url)
    try:
        await connection.execute(statements)
    finally:
        await connection.close()


async def _value(url: str, query: str) -> int:
    connection = await connect(url)
    try:
        found: int = await connection.fetchval(query)
        return found
    finally:
        await connection.close()
