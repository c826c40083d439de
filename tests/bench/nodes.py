"""Several `earmark serve` over one PostgreSQL against one: on a key that all of them want, and on keys of their own.

On one key the nodes stand in each other's way, and what counts is what is left in all and that no node starves. On keys of
their own they should add up, as long as there are cores: the note says how many were busy.
"""

from __future__ import annotations

import os
from collections import deque
from contextlib import AsyncExitStack
from typing import Final

from tests.bench.bench import Bench
from tests.bench.demand import GrantRequest, Shape
from tests.bench.harness import Variant
from tests.bench.http_edge import EarmarkRest
from tests.bench.serving import Served, served_earmark

COUNTS: Final = (2, 4)
TOTAL_GOAL: Final = 0.5
"""Of what one node does on a key alone."""
SHARE_GOAL: Final = 0.35
"""Of an even share of the key, for the node that gets the least in any window."""
WORDS: Final = {1: "one node", 2: "two nodes", 4: "four nodes"}


class Nodes(EarmarkRest):
    """REST create, asked of several nodes by clients of their own."""

    def __init__(self, bench: Bench, url: str, *served: Served, keys_of_each: int) -> None:
        """`keys_of_each`: how many reservations each node alone is asked about; with 0 they share a single one."""
        super().__init__(bench, url, *served, shape=Shape(reservations=len(served) * keys_of_each or 1))
        self.name = WORDS[len(served)]
        self.nodes = len(served)
        self.shares: list[float] = []
        """What the node that did the least did, of an even share, window by window; the first one is the warm-up's."""
        self._keys_of_each = keys_of_each
        self._put_by: list[deque[GrantRequest]] = [deque() for _ in served]
        self._answered = [0] * self.nodes

    async def prepare(self) -> None:
        self._put_by = [deque() for _ in self._put_by]
        await super().prepare()

    async def call(self, client: int) -> bool:
        node = client % self.nodes
        accepted = await self._ask(client, self._next(node))
        self._answered[node] += 1
        return accepted

    def _next(self, node: int) -> GrantRequest:
        """The next request, or the next one about a key of this node's: those of the others are put by for them."""
        while not self._put_by[node]:
            request = self._demand.next()
            reservation = int(request.reservation_id.rpartition("/")[2])
            self._put_by[reservation % self.nodes if self._keys_of_each else node].append(request)
        return self._put_by[node].popleft()

    async def check(self) -> list[str]:
        self.shares.append(min(self._answered) * self.nodes / sum(self._answered))
        self._answered = [0] * self.nodes
        return await super().check()


async def run(bench: Bench) -> None:
    for count in COUNTS:
        for clients in bench.clients(32):
            await _compare(bench, "one key", count, clients=clients, keys_of_each=0)
    for count in COUNTS:
        for clients in bench.clients(1, 32):
            await _compare(bench, "keys of their own", count, clients=clients, keys_of_each=8)


async def _compare(bench: Bench, where: str, count: int, *, clients: int, keys_of_each: int) -> None:
    """On one key the same clients ask of one node or several; otherwise each node brings its own."""
    async with AsyncExitStack() as stack:
        several = await _nodes(bench, stack, count, keys_of_each)
        alone = await _nodes(bench, stack, 1, keys_of_each)
        title = f"nodes, {where}: REST create"
        if keys_of_each:
            await bench.compare(title, [several, alone], clients=clients, times=_nodes_of)
            bench.report.note(f"{title}, {several.name}, {clients} clients a node: {_busy(bench)}")
        else:
            await bench.compare(title, [several, alone], clients=clients, goal=TOTAL_GOAL)
            least = min(several.shares[1:], default=0.0)
            bench.report.note(
                f"{title}, {several.name}: the least that a node did in a window was {least:.0%} of an even share, "
                f"goal {SHARE_GOAL:.0%}"
            )


async def _nodes(bench: Bench, stack: AsyncExitStack, count: int, keys_of_each: int) -> Nodes:
    """On a database of their own."""
    url = await stack.enter_async_context(bench.place.database())
    served = [await stack.enter_async_context(served_earmark(url)) for _ in range(count)]
    made = Nodes(bench, url, *served, keys_of_each=keys_of_each)
    stack.callback(made.close)
    await made.furnish()
    return made


def _nodes_of(variant: Variant) -> int:
    assert isinstance(variant, Nodes), "all of them are"
    return variant.nodes


def _busy(bench: Bench) -> str:
    """How much of the machine the last comparison took."""
    several, alone = bench.report.comparisons[-1].figures
    busy = [each.rate * (each.python_us + each.postgres_us) / 1e6 for each in (several, alone)]
    return (
        f"servers and PostgreSQL kept {busy[0]:.1f} cores busy, {busy[1]:.1f} with one node; "
        f"the clients have a part, too, of the {os.cpu_count()} that there are, and beyond them nothing can grow"
    )
