"""createGrant on a reservation that has many grants already, all of them over the asked term."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Final

from tests.bench.bench import Bench
from tests.bench.demand import HOUR_MS, Shape
from tests.bench.earmark import earmark
from tests.bench.harness import Variant
from tests.bench.naive import naive

COUNTS: Final = (100, 10_000, 100_000)
COST_GOAL: Final = 2.0
"""How much dearer a decision among the most grants may be than among the fewest."""
GOALS: Final = {100_000: 300.0}


async def run(bench: Bench) -> None:
    rates = {}
    for count in COUNTS:
        shape = Shape(reservations=1, seeded=count, length_ms=500 * HOUR_MS)
        for clients in bench.clients(8):
            async with AsyncExitStack() as stack:
                ours = await stack.enter_async_context(bench.place.database())
                theirs = await stack.enter_async_context(bench.place.database())
                variants: list[Variant] = [
                    await stack.enter_async_context(earmark(ours, bench.processors(), shape)),
                    await stack.enter_async_context(naive(theirs, bench.processors(), shape, by_range=True)),
                ]
                title = f"growth: createGrant over {count:,} grants"
                await bench.compare(title, variants, clients=clients, goal=GOALS.get(count))
            rates[count] = bench.report.comparisons[-1].figures[0].rate
    if all(rates.values()):
        dearer = rates[COUNTS[0]] / rates[COUNTS[-1]]
        bench.report.note(
            f"growth: {COUNTS[-1]:,} grants cost {dearer:.2f}x of {COUNTS[0]}, goal {COST_GOAL:g}x at most"
        )
