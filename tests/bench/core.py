"""createGrant from the desk to the commit, in one process: one reservation that all want, and many."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Final

from tests.bench.bench import Bench
from tests.bench.demand import HOUR_MS, Shape
from tests.bench.earmark import earmark
from tests.bench.harness import Variant
from tests.bench.naive import naive
from tests.bench.onecall import one_call
from tests.bench.physical import physical_grants

SHAPES: Final = {"hot": Shape(reservations=1), "spread": Shape(reservations=64)}
SOLD_OUT: Final = Shape(reservations=1, total=100, horizon_ms=HOUR_MS)
"""Everybody wants the same hour: after the first moments everybody is refused, and nobody before."""
GOALS: Final = {
    ("hot", 1): 2.0,
    ("hot", 32): 20.0,
    ("hot", 128): 25.0,
    ("spread", 1): 2.0,
    ("spread", 32): 5.0,
    ("spread", 128): 7.0,
}


CACHED_TO_PHYSICAL: Final = 0.6
LOCKED_TO_PHYSICAL: Final = 0.4
TO_OWN_COMMIT: Final = 1.8


async def run(bench: Bench) -> None:
    for name, shape in SHAPES.items():
        for clients in bench.clients(1, 8, 32, 128):
            goal = GOALS.get((name, clients))
            await compare(bench, f"core {name}: createGrant", shape, clients=clients, goal=goal)
    for clients in bench.clients(32):
        await compare(bench, "core sold out: createGrant", SOLD_OUT, clients=clients)
    for clients in bench.clients(32, 128):
        await compare_alone(bench, clients=clients)
    for clients in bench.clients(64):
        await compare_physically(bench, clients=clients)


async def compare(bench: Bench, title: str, shape: Shape, *, clients: int, goal: float | None = None) -> None:
    """Naive first, for its goal."""
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(bench.place.database()) for _ in range(3)]
        variants: list[Variant] = [
            await stack.enter_async_context(earmark(urls[0], bench.processors(), shape)),
            await stack.enter_async_context(naive(urls[1], bench.processors(), shape)),
            await stack.enter_async_context(one_call(urls[2], bench.processors(), shape)),
        ]
        await bench.compare(title, variants, clients=clients, goal=goal)


async def compare_alone(bench: Bench, *, clients: int) -> None:
    """Against the same product with a lane for each reservation: every one of them commits for itself."""
    shape = SHAPES["spread"]
    async with bench.place.database() as ours, bench.place.database() as theirs:
        alone = earmark(theirs, bench.processors(), shape, name="own commit", lanes=shape.reservations)
        async with earmark(ours, bench.processors(), shape) as mine, alone as baseline:
            title = "core spread: createGrant, one by one"
            await bench.compare(title, [mine, baseline], clients=clients, goal=TO_OWN_COMMIT)


async def compare_physically(bench: Bench, *, clients: int) -> None:
    """Against batches that pgbench writes: as it is, and under locks alone."""
    shape = SHAPES["hot"]
    modes = (
        ("core hot: createGrant", True, CACHED_TO_PHYSICAL),
        ("core hot, locks: createGrant", False, LOCKED_TO_PHYSICAL),
    )
    for title, is_cached, goal in modes:
        async with bench.place.database() as ours, bench.place.database() as theirs:
            name = "earmark" if is_cached else "lock mode"
            async with (
                earmark(ours, bench.processors(), shape, name=name, is_cached=is_cached) as mine,
                physical_grants(theirs, bench.processors()) as limit,
            ):
                await bench.compare(title, [mine, limit], clients=clients, goal=goal)
