"""What a grant's events keep of the request that caused them, over both edges: its trace and the flags of that."""

from __future__ import annotations

import pytest

from storage.events import read_tail
from tests.edges.edge import Edge
from tests.edges.world import A, World

TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.mark.parametrize("flags", ["00", "01", None])
async def test_events_of_grants_carry_the_trace_and_its_flags(world: World, edge: Edge, flags: str | None) -> None:
    if flags is not None:
        world.client.headers["traceparent"] = f"00-{TRACE}-00f067aa0ba902b7-{flags}"
    await world.made(edge)
    await world.settle()
    async with world.node.database.acquire() as connection:
        events = await read_tail(connection, A, after=0, limit=10)
    assert {event.payload.get("trace_flags") for event in events} == {flags}
    assert {event.trace_id == TRACE for event in events} == {flags is not None}
