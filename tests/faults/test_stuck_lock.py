"""D42: a lock that cannot be had makes the command retryable, and holds up no other reservation of its lane for long."""

from __future__ import annotations

import asyncio

import pytest

from domain.identity import reservation_key
from storage.database import Unavailable
from tests.capacity_world import answer_of
from tests.faults.race_world import ACCOUNT, FIRST, SECOND, B, H, racing


async def test_a_lock_that_somebody_keeps_refuses_its_own_key_alone(database_url: str) -> None:
    async with racing(database_url, nodes=1, lanes=1, first=10, second=10) as world:
        holder = world.connection.transaction()
        await holder.start()
        head = "select 1 from capacity_reservation where key = $1 for update"
        await world.connection.execute(head, reservation_key(ACCOUNT, FIRST))
        stuck = [asyncio.create_task(world.grant(1, B, B + H)) for _ in range(3)]
        for refused in stuck:
            with pytest.raises(Unavailable):
                await refused
        assert answer_of(await world.grant(1, B, B + H, reservation=SECOND)).grant.slots == 1
        with pytest.raises(Unavailable):
            await world.grant(1, B, B + H)
        await holder.rollback()
        assert answer_of(await world.grant(1, B, B + H)).grant.slots == 1
