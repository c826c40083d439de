"""What a page of things asks for costs the same number of statements, whatever their number (T98)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

from tests.schema.world import World

WITH_ALL = """query ($first: Int!) { grants(all: true, first: $first) { nodes {
  id held running stopped idle usedSlotHours usedSlotMs committedSlotHours orphaned accountId
  instances(first: 5) { nodes { id grantId } }
} } }"""
WITH_USAGE = (
    "query ($first: Int!) { grants(all: true, first: $first) { nodes { id usedSlotHours committedSlotHours } } }"
)


COUNTS: ContextVar[bool] = ContextVar("counts", default=False)
"""Set where statements are counted, and so in whatever is begun there."""


@asynccontextmanager
async def counted(world: World) -> AsyncIterator[list[str]]:
    """The statements that reads send meanwhile, but for BEGIN, COMMIT and the clock."""
    seen: list[str] = []

    def note(record: Any) -> None:
        if not COUNTS.get():
            return  # a statement of the node itself, which is at work all the time
        words = record.query.split()
        is_read = "clock_timestamp()" not in record.query and "event_relay" not in record.query
        if words[0].lower() in ("select", "with") and is_read:
            seen.append(" ".join(words))

    holders = world.runtime.database._pool._holders
    connections = [await world.runtime.database._pool.acquire() for _ in holders]
    raw = [connection._con for connection in connections]
    for connection in raw:
        connection.add_query_logger(note)
    for connection in connections:
        await world.runtime.database._pool.release(connection)
    token = COUNTS.set(True)
    try:
        yield seen
    finally:
        COUNTS.reset(token)
        for connection in raw:
            connection.remove_query_logger(note)


async def make_grants(world: World, count: int) -> None:
    results = await asyncio.gather(*(world.create_grant(slots=1, reservationId="big") for _ in range(count)))
    assert {grant["state"] for grant in results} == {"ACTIVE"}


async def test_two_hundred_grants_cost_no_more_statements_than_two(world: World) -> None:
    await world.add_reservation("big", total=1_000)
    await make_grants(world, 2)
    async with counted(world) as for_two:
        await world.data(WITH_ALL, first=200)
    await make_grants(world, 198)
    async with counted(world) as for_all:
        shown = (await world.data(WITH_ALL, first=200))["grants"]["nodes"]
    async with counted(world) as for_usage:
        await world.data(WITH_USAGE, first=200)

    assert len(shown) == 200
    assert len(for_all) == len(for_two)
    assert 0 < len(for_usage) <= 3, for_usage


async def test_a_later_operation_sees_what_has_changed_since(world: World) -> None:
    """Loaders are of one operation, also where operations share a context."""
    made = await world.create_grant()
    document = "query ($id: ID!) { grant(id: $id) { held } }"
    before = await world.data(document, id=made["id"])
    await world.run_instance("a")
    after = await world.data(document, id=made["id"])

    assert (before["grant"]["held"], after["grant"]["held"]) == (0, 1)
