"""Where the product and the rules are known to differ, apart from words: each is a test that fails until it is mended."""

from __future__ import annotations

from tests.capacity_world import answer_of
from tests.faults.race_world import ACCOUNT, FIRST, PROJECTS, ROOT_CALLER, B, H, racing
from tests.simulation.world_plan import ROOT


async def test_a_grant_of_a_deleted_project_takes_nobody_in(database_url: str) -> None:
    async with racing(database_url) as world:
        node = world.nodes[0]
        running = answer_of(await world.run("A")).instance
        created = await node.grants.create(
            ROOT_CALLER,
            tenant_id=ROOT,
            account_id=ACCOUNT,
            reservation_id=FIRST,
            grant_tenant_id="A",
            project_id=PROJECTS["A"],
            slots=1,
            starts_at=B + H,
            ends_at=B + 2 * H,
            idempotency_key="key",
        )
        answer_of(created)
        answer_of(await node.tenancy.delete_project(ROOT_CALLER, project_id=PROJECTS["A"]))
        world.clock.now = B + H
        await node.boundaries.run_once()
        row = await world.connection.fetchrow(
            "select grant_id from capacity_instance where instance_id = $1", running.instance_id
        )
        assert row is not None
        assert row["grant_id"] is None
