"""`earmark demo`: a world that is complete however often its building was interrupted, and is there again."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from domain.terms import MINUTE_MS
from server.demo.traffic import OWN_MAX, Traffic
from server.demo.world import GRANTS, INSTANCES, STEPS, TENANTS, Builder, World, load_world, save_world
from storage.database import Database
from tests.capacity_world import eventually
from tests.server.processes import Serving, graphql, started
from workers.clock import ManualClock
from workers.runtime import Runtime, RuntimeOptions

B = 1_800_000_000_000
RUNNING = sum(count for _, _, _, count in INSTANCES)


class Interrupted(Exception):  # noqa: N818 - what it is
    pass


@pytest.fixture
async def node(database_url: str) -> Any:
    database = await Database.open(database_url)
    opened = Runtime(database, clock=ManualClock(B), options=RuntimeOptions(runs_jobs=False))
    await opened.open(root_key="r" * 32)
    yield opened
    await opened.stop()
    await database.close()


async def states_of(node: Runtime) -> dict[str, int]:
    """How many grants are in which state, looked at from outside."""
    async with node.database.acquire() as connection:
        rows = await connection.fetch("select * from capacity_grant")
    now, counts = node.clock.local_ms(), dict.fromkeys(("scheduled", "active", "ended", "cancelled"), 0)
    for row in rows:
        if row["cancelled_at"] is not None:
            state = "cancelled"
        else:
            state = "scheduled" if now < row["starts_at"] else "active" if now < row["ends_at"] else "ended"
        counts[state] += 1
    return counts


async def count(node: Runtime, table: str) -> int:
    async with node.database.acquire() as connection:
        number: int = await connection.fetchval(f"select count(*) from {table}")
    return number


async def check_complete(node: Runtime, world: World) -> None:
    assert await states_of(node) == {"scheduled": 3, "active": 5, "ended": 1, "cancelled": 1}
    assert len(GRANTS) == 10
    assert await count(node, "capacity_instance") == RUNNING
    assert await count(node, "tenant") == len(TENANTS) + 1
    assert (await count(node, "provider_account"), await count(node, "capacity_reservation")) == (1, 2)
    for tenant_id in TENANTS:
        principal = await node.authenticator.authenticate(world.tenant_keys[tenant_id])
        assert principal is not None
        assert principal.tenant_id == tenant_id


async def test_the_world_has_grants_in_every_state_and_instances_in_them(node: Runtime) -> None:
    world = World(root_key="r" * 32)
    await Builder(node, world, root_tenant="root").build()
    await check_complete(node, world)
    async with node.database.acquire() as connection:
        inside = await connection.fetchval("select count(*) from capacity_instance where grant_id is not null")
    assert inside >= RUNNING - 3, "all but labelling, which no grant serves"


async def test_interrupted_after_any_step_and_begun_again_minutes_later_it_is_complete(
    node: Runtime, tmp_path: Path
) -> None:
    """Ten minutes later a term that began with the first attempt could not be asked for any more (R7)."""
    path = tmp_path / "demo.json"
    for step in range(1, STEPS + 1):

        def interrupt(done: int, _total: int, *, at: int = step) -> None:
            if done == at:
                raise Interrupted

        world = load_world(path, root_key="r" * 32)
        builder = Builder(
            node, world, root_tenant="root", save=lambda built: save_world(path, built), progress=interrupt
        )
        with pytest.raises(Interrupted):
            await builder.build()
        node.clock.advance(10 * MINUTE_MS)  # type: ignore[attr-defined]
    world = load_world(path, root_key="r" * 32)
    await Builder(node, world, root_tenant="root").build()
    await check_complete(node, world)
    assert await count(node, "api_key") == 1 + len(TENANTS), "each secret was written down before the next was made"


async def test_killed_in_the_middle_of_its_grants_it_makes_none_twice(node: Runtime, tmp_path: Path) -> None:
    path = tmp_path / "demo.json"
    for least in (2, 5, 8):
        world = load_world(path, root_key="r" * 32)
        builder = Builder(node, world, root_tenant="root", save=lambda built: save_world(path, built))
        building = asyncio.ensure_future(builder.build())

        async def has_some(*, least: int = least) -> bool:
            return await count(node, "capacity_grant") >= least

        await eventually(has_some)
        building.cancel()
        await asyncio.gather(building, return_exceptions=True)
        node.clock.advance(10 * MINUTE_MS)  # type: ignore[attr-defined]
    world = load_world(path, root_key="r" * 32)
    await Builder(node, world, root_tenant="root").build()
    await check_complete(node, world)


async def test_what_it_remembers_is_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "new" / "demo.json"
    world = load_world(path, root_key=None)
    assert len(world.root_key) >= 32
    save_world(path, world)
    assert path.stat().st_mode & 0o777 == 0o600
    assert load_world(path, root_key=None) == world
    assert load_world(path, root_key="another-key-0123456789-0123456789").root_key.startswith("another")


async def test_traffic_stays_small_and_knows_its_own_again(node: Runtime) -> None:
    world = World(root_key="r" * 32)
    await Builder(node, world, root_tenant="root").build()
    for seed in (1, 2):
        traffic = Traffic(node, world, root_tenant="root", seed=seed)
        await traffic.recognise()
        for _ in range(120):
            node.clock.advance(2_000)  # type: ignore[attr-defined]
            await traffic.act()
    async with node.database.acquire() as connection:
        left = await connection.fetchval(
            "select count(*) from capacity_instance where name like '%-burst-%' and run_state <> 'deleted'"
        )
    assert 0 < left <= OWN_MAX
    assert await count(node, "capacity_grant") > len(GRANTS)


@pytest.mark.timeout(300)
async def test_the_demo_itself_twice(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, first_s, counted = await _start_and_stop(data_dir, signal.SIGINT)
    second, second_s, counted_again = await _start_and_stop(data_dir, signal.SIGTERM)
    assert _keys(first) == _keys(second), "the same keys at the next start"
    assert len(_keys(first)) == 1 + len(TENANTS)
    assert counted_again >= counted >= len(GRANTS)
    with capsys.disabled():
        print(f"\n    demo: first start {first_s:.1f} s, second {second_s:.1f} s", end=" ")


async def _start_and_stop(data_dir: Path, number: signal.Signals) -> tuple[str, float, int]:
    """(the guide, seconds until it stood, grants that root sees)."""
    began = time.monotonic()
    settings = {"EARMARK_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/untouched"}
    async with started("demo", "--port", "0", "--data-dir", str(data_dir), settings=settings) as server:
        await server.wait_for("Ctrl-C stops it")
        seconds = time.monotonic() - began
        grants = await _try_the_three_things(server)
        assert await server.stop(number) == 0
    return server.plain, seconds, grants


async def _try_the_three_things(server: Serving) -> int:
    """What the guide tells people to paste works as it stands there."""
    guide = server.plain
    (server.address,) = re.findall(r"IDE +(http://\S+)/ ", guide)
    counts, listing = re.findall(r"curl .*?(?:\\\n.*?)?$", guide, re.MULTILINE)
    (query,) = re.findall(r"-d '(.*)'", counts)
    (wanted,) = re.findall(r"-d '(.*)'", listing)
    (tenant_key,) = re.findall(r"X-API-Key: (\S+)'", listing)
    (root_key,) = re.findall(r"Bearer (\S+)'", counts)
    async with server.client(root_key) as client:
        answer = (await client.post("/graphql", content=query, headers={"content-type": "application/json"})).json()
        assert [node["total"] > 0 for node in answer["data"]["capacityReservations"]["nodes"]] == [True, True]
        everybody = await graphql(client, "{ grants(all: true) { totalCount } }")
    async with server.client(tenant_key) as client:
        own = await client.post("/api/compute/reservationGrants/list", content=wanted)
        assert {grant["tenantId"] for grant in own.json()["items"]} == {json.loads(wanted)["tenantId"]}
    assert "subscription { grantEvents(all: true)" in guide
    total: int = everybody["grants"]["totalCount"]
    return total


def _keys(guide: str) -> list[tuple[str, str]]:
    return re.findall(r"^  (\w+) +(emk_\w+)$", guide, re.MULTILINE)
