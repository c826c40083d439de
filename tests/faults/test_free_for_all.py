"""Everything at once on three nodes: histories whose steps are sent in waves, with no order among those of one wave.

Nobody can say what must come of it; the auditor can say what must not, and PostgreSQL whether it had to break a
deadlock (R12).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest

from storage.database import connect
from tests.capacity_world import drained, lay_out, running_node
from tests.faults.race_world import deadlocks
from tests.simulation.auditor import audit_all
from tests.simulation.histories import HOUR_MS, START_AT, Step, random_history
from tests.simulation.player import ID_OF_REFERENCE
from tests.simulation.product import PRODUCT_WORLD, Played, ProductWorld
from tests.simulation.product_rows import export_rows
from tests.simulation.twin import seeds, with_plain_project
from workers.clock import ManualClock

WAVE = 12
NODES = 3


class Wave:
    """Labels so far, and what each command came to."""

    def __init__(self, product: ProductWorld, clock: ManualClock) -> None:
        self.product = product
        self.clock = clock
        self.ids: dict[str, str] = {}
        self.tally: Counter[tuple[str, str]] = Counter()
        self.sent = 0

    async def send(self, steps: Sequence[Step]) -> None:
        self.clock.now = steps[0].at
        ready = [step for step in map(self._with_ids, steps) if step is not None]
        played = await asyncio.gather(*(self._send(step) for step in ready))
        for step, answer in zip(ready, played, strict=True):
            self.tally[step.command, answer.outcome[0]] += 1
            if step.label is not None and answer.outcome[0] == "ok":
                self.ids[step.label] = str(answer.outcome[1])

    async def _send(self, step: Step) -> Played:
        """Some of them twice, over two nodes, under one key."""
        self.sent += 1
        key, node = f"step-{self.sent}", self.sent % NODES
        if self.sent % 5:
            return await self.product.play(step, key=key, node=node)
        both = (node, (node + 1) % NODES)
        first, second = await asyncio.gather(*(self.product.play(step, key=key, node=each) for each in both))
        assert first.outcome[0] != "ok" or second.outcome[0] != "ok" or first.outcome == second.outcome, step
        return first if first.outcome[0] == "ok" else second

    def _with_ids(self, step: Step) -> Step | None:
        """An amendment names the first version: some are stale, as among people who do not know of each other."""
        arguments = dict(with_plain_project(step).arguments)
        for reference, name in ID_OF_REFERENCE.items():
            if reference in arguments:
                label = arguments.pop(reference)
                if label not in self.ids:
                    return None
                arguments[name] = self.ids[label]
        if step.command == "move_instance" and arguments["project_id"] is None:
            return None
        if "stale" in arguments:
            arguments["version"] = 2 if arguments.pop("stale") else 1
        return step._replace(at=self.clock.now, arguments=arguments)


@pytest.mark.parametrize("seed", seeds(2, first=600_000))
async def test_nothing_is_amiss_after_a_free_for_all(database_url: str, seed: int) -> None:
    clock, connection = ManualClock(START_AT), await connect(database_url)
    try:
        async with (
            running_node(database_url, clock=clock) as first,
            running_node(database_url, clock=clock) as second,
            running_node(database_url, clock=clock) as third,
        ):
            await lay_out(first, PRODUCT_WORLD, at=START_AT)
            wave = Wave(ProductWorld([first, second, third]), clock)
            history = random_history(seed, 180)
            for begin in range(0, len(history), WAVE):
                await wave.send(history[begin : begin + WAVE])
            clock.now = (clock.now // HOUR_MS + 100 * 24) * HOUR_MS
            await first.meter.run_once()
            await first.boundaries.run_once()
            await drained(connection)
            assert audit_all(await export_rows(connection, now=clock.now, metered=True)) == []
            assert wave.tally["create_grant", "ok"] > 0
            assert wave.tally["create_instance", "ok"] > 0
        assert await deadlocks(connection) == 0
    finally:
        await connection.close()
