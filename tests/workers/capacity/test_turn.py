"""One turn over a batch: what each command in it asks about, whatever the others ask about."""

from __future__ import annotations

import asyncio

from domain.capacity.commands import BindReservation, CreateGrant, StartInstance, StopInstance
from domain.identity import reservation_key
from domain.outcomes import Accepted
from tests.capacity_world import answer_of
from tests.faults.race_world import ACCOUNT, FIRST, POOL, PROJECTS, B, H, racing


async def test_commands_that_ask_about_different_tenants_share_a_batch(database_url: str) -> None:
    """A start makes the turn look around again: what the create beside it asked about must not be lost on the way."""
    async with racing(database_url, nodes=1, lanes=1) as world:
        asker, key = world.node(0).asker, reservation_key(ACCOUNT, FIRST)
        running = answer_of(await world.run("B")).instance
        await asker.ask(key, StopInstance(instance_id=running.instance_id))
        create = CreateGrant(
            grant_id=asker.ids.new("rgrant"),
            account_id=ACCOUNT,
            reservation_id=FIRST,
            grant_tenant_id="A",
            project_id=PROJECTS["A"],
            slots=1,
            starts_at=B,
            ends_at=B + H,
            created_by="test",
        )
        replies = await asyncio.gather(
            asker.ask(key, create),
            asker.ask(key, StartInstance(instance_id=running.instance_id)),
            asker.ask(key, BindReservation(pool_id=POOL)),
        )
        assert [type(reply.outcome) for reply in replies] == [Accepted] * 3
