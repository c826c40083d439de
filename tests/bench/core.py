"""createGrant from the desk to the commit, in one process: one reservation that all want, and many."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Final

from tests.bench.bench import Bench
from tests.bench.demand import HOUR_MS, Shape
from tests.bench.earmark import earmark
from tests.bench.harness import Variant
from tests.bench.naive import naive

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


async def run(bench: Bench) -> None:
    for name, shape in SHAPES.items():
        for clients in bench.clients(1, 8, 32, 128):
            goal = GOALS.get((name, clients))
            await compare(bench, f"core {name}: createGrant", shape, clients=clients, goal=goal)
    for clients in bench.clients(32):
        await compare(bench, "core sold out: createGrant", SOLD_OUT, clients=clients)


async def compare(bench: Bench, title: str, shape: Shape, *, clients: int, goal: float | None = None) -> None:
    async with AsyncExitStack() as stack:
        ours = await stack.enter_async_context(bench.place.database())
        theirs = await stack.enter_async_context(bench.place.database())
        variants: list[Variant] = [
            await stack.enter_async_context(earmark(ours, bench.processors(), shape)),
            await stack.enter_async_context(naive(theirs, bench.processors(), shape)),
        ]
        await bench.compare(title, variants, clients=clients, goal=goal)
