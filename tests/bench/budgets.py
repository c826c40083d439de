"""Reserve and commit from the desk to the commit, in one process: one tenant whom all ask for, and many."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Final

from tests.bench.bench import Bench
from tests.bench.harness import Variant
from tests.bench.physical import physical_spending
from tests.bench.spending import earmark_spending, naive_spending

TENANTS: Final = {"hot": 1, "spread": 64}
GOALS: Final = {
    ("hot", 1): 2.0,
    ("hot", 32): 15.0,
    ("hot", 128): 20.0,
    ("spread", 1): 2.0,
    ("spread", 32): 5.0,
    ("spread", 128): 7.0,
}
CACHED_TO_PHYSICAL: Final = 0.6
LOCKED_TO_PHYSICAL: Final = 0.4


async def run(bench: Bench) -> None:
    """Pairs: one operation in the figures is a reserve and its commit."""
    for name, tenants in TENANTS.items():
        for clients in bench.clients(1, 32, 128):
            title = f"budgets {name}: reserve and commit"
            await compare(bench, title, tenants, clients=clients, goal=GOALS.get((name, clients)))
    for clients in bench.clients(64):
        await compare_physically(bench, clients=clients)


async def compare(bench: Bench, title: str, tenants: int, *, clients: int, goal: float | None) -> None:
    """Naive first, for its goal; where there are many tenants also the same product with a lane for each of them."""
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(bench.place.database()) for _ in range(3)]
        variants: list[Variant] = [
            await stack.enter_async_context(earmark_spending(urls[0], bench.processors(), tenants)),
            await stack.enter_async_context(naive_spending(urls[1], bench.processors(), tenants)),
        ]
        if tenants > 1 and clients > 1:
            alone = earmark_spending(urls[2], bench.processors(), tenants, name="own commit", lanes=tenants)
            variants.append(await stack.enter_async_context(alone))
        await bench.compare(title, variants, clients=clients, goal=goal)


async def compare_physically(bench: Bench, *, clients: int) -> None:
    """Against batches that pgbench writes: as it is, and under locks alone."""
    for title, is_cached, goal in (
        ("budgets hot: reserve and commit", True, CACHED_TO_PHYSICAL),
        ("budgets hot, locks: reserve and commit", False, LOCKED_TO_PHYSICAL),
    ):
        async with bench.place.database() as ours, bench.place.database() as theirs:
            name = "earmark" if is_cached else "lock mode"
            async with (
                earmark_spending(ours, bench.processors(), 1, name=name, is_cached=is_cached) as mine,
                physical_spending(theirs, bench.processors()) as limit,
            ):
                await bench.compare(title, [mine, limit], clients=clients, goal=goal)
