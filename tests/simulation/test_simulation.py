"""Seeded histories on the real product against the naive model, and the auditor over what the tables hold."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from storage.database import connect
from tests.capacity_world import lay_out, running_node
from tests.cutting import Cut, CuttingWire
from tests.simulation.bursts import TOGETHER, WANDERING, bursts, play_burst
from tests.simulation.dense import dense_history
from tests.simulation.histories import HOUR_MS, MINUTE_MS, START_AT, Step, random_history
from tests.simulation.product import PRODUCT_WORLD, Played, ProductWorld, with_plain_projects
from tests.simulation.product_rows import dump
from tests.simulation.roaming import ROAMING_WORLD, roaming_history
from tests.simulation.twin import Send, Twin, seeds, send_once, send_twice_at_once, send_until_answered
from tests.simulation.world_plan import WorldPlan
from workers.clock import ManualClock
from workers.relay import LATE_MS

MakeDatabase = Callable[..., Awaitable[str]]


@asynccontextmanager
async def twin_on(
    url: str, *, nodes: int = 1, send: Send = send_once, nodes_url: str | None = None, plan: WorldPlan = PRODUCT_WORLD
) -> AsyncIterator[Twin]:
    """`nodes_url`: how the nodes reach the database, if not like the test itself."""
    clock = ManualClock(START_AT)
    async with AsyncExitStack() as stack:
        started = [await stack.enter_async_context(running_node(nodes_url or url, clock=clock)) for _ in range(nodes)]
        await lay_out(started[0], plan, at=START_AT)
        connection = await connect(url)
        stack.push_async_callback(connection.close)
        yield Twin(ProductWorld(started, plan), clock, connection, send=send)


@pytest.mark.parametrize("seed", seeds(6))
async def test_one_node_decides_as_the_rules_say(database_url: str, seed: int) -> None:
    async with twin_on(database_url) as twin:
        for number, step in enumerate(random_history(seed, 80)):
            await twin.play_beside(step)
            if number % 20 == 19:
                await twin.compare()
        await twin.finish()


ROAMING: WorldPlan = with_plain_projects(ROAMING_WORLD)


@pytest.mark.parametrize("seed", seeds(4, first=600_000))
async def test_what_starts_again_is_placed_as_the_rules_say(database_url: str, seed: int) -> None:
    """R36, D27, D32: on any reservation of its flavor, whichever node is asked."""
    chance = random.Random(seed)

    async def send_to_any(product: ProductWorld, step: Step, key: str) -> Played:
        return await product.play(step, key=key, node=chance.randrange(2))

    async with twin_on(database_url, nodes=2, send=send_to_any, plan=ROAMING) as twin:
        for number, step in enumerate(roaming_history(seed, 120)):
            await twin.play_beside(step)
            if number % 30 == 29:
                await twin.compare()
        await twin.finish()


@pytest.mark.parametrize("seed", seeds(3, first=650_000))
async def test_starts_at_once_over_two_nodes_equal_some_serial_order(database_url: str, seed: int) -> None:
    """P10, for what may move from one reservation to another while it is stopped, moved and deleted."""
    async with twin_on(database_url, nodes=2, plan=ROAMING) as twin:
        for burst in bursts(roaming_history(seed, 100)):
            if burst[0].command in TOGETHER:
                await play_burst(twin, burst)
            else:
                await twin.play_beside(burst[0])
        await twin.finish()


@pytest.mark.parametrize("seed", seeds(2, first=700_000))
async def test_moves_survive_cut_connections(database_url: str, seed: int) -> None:
    """P11: the wire breaks at commits, and every answer is asked for until it comes."""
    chance = random.Random(seed)
    kinds, odds = [Cut.NONE, Cut.BEFORE, Cut.AFTER, Cut.BLIND], [7, 1, 1, 1]
    wire = CuttingWire(database_url, lambda: chance.choices(kinds, odds)[0])
    async with wire.open(), twin_on(database_url, send=send_until_answered, nodes_url=wire.url, plan=ROAMING) as twin:
        wire.is_armed = True
        for step in roaming_history(seed, 80):
            await twin.play_beside(step)
        wire.is_armed = False
        await sweep(twin)
        await twin.finish()


@pytest.mark.parametrize("seed", seeds(4, first=50_000))
async def test_nodes_that_take_turns_decide_as_the_rules_say(database_url: str, seed: int) -> None:
    """Each step goes to any of two nodes, so that what one holds in memory is behind, and is read again."""
    chance = random.Random(seed)

    async def send_to_any(product: ProductWorld, step: Step, key: str) -> Played:
        return await product.play(step, key=key, node=chance.randrange(2))

    async with twin_on(database_url, nodes=2, send=send_to_any) as twin:
        for step in either_history(seed, 80):
            await twin.play_beside(step)
        await twin.finish()


def either_history(seed: int, steps: int) -> list[Step]:
    """A crowded one for every other seed."""
    return dense_history(seed, steps) if seed % 2 else random_history(seed, steps)


@pytest.mark.parametrize("seed", seeds(4, first=100_000))
async def test_commands_at_once_over_two_nodes_equal_some_serial_order(database_url: str, seed: int) -> None:
    """P10."""
    async with twin_on(database_url, nodes=2) as twin:
        for burst in bursts(either_history(seed, 80)):
            if burst[0].command in TOGETHER:
                await play_burst(twin, burst)
            else:
                await twin.play_beside(burst[0])
        await twin.finish()


@pytest.mark.parametrize("seed", seeds(4, first=200_000))
async def test_a_repeated_send_over_the_other_node_changes_nothing(database_url: str, seed: int) -> None:
    """P11: every mutation goes to two nodes in the same moment under one key, and has one effect."""
    async with twin_on(database_url, nodes=2, send=send_twice_at_once) as twin:
        for step in random_history(seed, 60):
            await twin.play_beside(step)
        await twin.finish()


@pytest.mark.parametrize("seed", seeds(2, first=250_000))
async def test_a_second_pass_of_the_jobs_changes_nothing(database_url: str, seed: int) -> None:
    """P12: not a byte in any table, whichever node runs them."""
    async with twin_on(database_url, nodes=2) as twin:
        history = random_history(seed, 60)
        for step in history:
            await twin.play_beside(step)
        scans = {
            step.arguments["account_id"]: step._replace(at=twin.end()) for step in history if step.command == "scan"
        }
        for scan in scans.values():
            await twin.play_beside(scan)
        await twin.finish()
        before = await dump(twin.connection)
        for node in (1, 0):
            for scan in scans.values():
                await twin.product.play(scan, key="again", node=node)
            await twin.product.nodes[node].meter.run_once()
            await twin.product.nodes[node].boundaries.run_once()
            await twin.product.nodes[node].relay.sweep()
        assert await dump(twin.connection) == before


@pytest.mark.parametrize("seed", seeds(2, first=300_000))
async def test_cut_connections_leave_exactly_one_effect(database_url: str, seed: int) -> None:
    """The wire breaks at commits: before, after, or nobody knows. Whoever asks again by key gets the one answer."""
    chance = random.Random(seed)
    kinds, odds = [Cut.NONE, Cut.BEFORE, Cut.AFTER, Cut.BLIND], [7, 1, 1, 1]
    wire = CuttingWire(database_url, lambda: chance.choices(kinds, odds)[0])
    async with wire.open(), twin_on(database_url, send=send_until_answered, nodes_url=wire.url) as twin:
        wire.is_armed = True
        for step in random_history(seed, 50):
            await twin.play_beside(step)
        wire.is_armed = False
        await sweep(twin)
        await twin.finish()
    assert sum(wire.cuts.values()) > wire.cuts[Cut.NONE], wire.cuts


@pytest.mark.parametrize("seed", seeds(2, first=350_000))
async def test_killed_turns_leave_exactly_one_effect(database_url: str, seed: int) -> None:
    """While a step is under way, every now and then one of the node's backends is ended in what it does."""
    chance, connection = random.Random(seed), await connect(database_url)
    ended: list[int] = []

    async def send_and_kill(product: ProductWorld, step: Step, key: str) -> Played:
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(send_until_answered(product, step, key))
            if chance.random() < 0.4:
                await asyncio.sleep(chance.uniform(0, 0.006))
                ended.extend(row["pid"] for row in await connection.fetch(_END_ONE, spared))
        return sending.result()

    try:
        async with twin_on(database_url, send=send_and_kill) as twin:
            spared = [connection.get_server_pid(), twin.connection.get_server_pid()]
            for step in random_history(seed, 70):
                await twin.play_beside(step)
            await sweep(twin)
            twin.send = send_until_answered
            await twin.finish()
    finally:
        await connection.close()
    assert ended, "no turn was killed"


_END_ONE = """
select pid, pg_terminate_backend(pid) from pg_stat_activity
where datname = current_database() and pid <> all ($1) and state <> 'idle' order by random() limit 1
"""


async def sweep(twin: Twin) -> None:
    """The job that moves the events of a commit that nobody heard of."""
    twin.clock.now = twin.now + LATE_MS
    await twin.product.nodes[0].relay.sweep()


@pytest.mark.parametrize("seed", seeds(3, first=400_000))
async def test_it_makes_no_difference_when_boundaries_are_applied(database_url: str, seed: int) -> None:
    """P3: here at their very millisecond, on the model when a command needs them."""
    async with twin_on(database_url) as twin:
        for step in either_history(seed, 60):
            for edge in edges_between(twin, twin.now, step.at):
                twin.clock.now = edge
                await twin.product.nodes[0].boundaries.run_once()
            await twin.play_beside(step)
        await twin.finish()


def edges_between(twin: Twin, after: int, until: int) -> list[int]:
    edges = {edge for grant in twin.oracle.grants.values() for edge in (grant.starts_at, grant.ends_at)}
    return sorted(edge for edge in edges if after <= edge <= until)


@pytest.mark.parametrize("seed", seeds(3, first=500_000))
async def test_a_clock_that_jumps_never_takes_a_reservation_back(database_url: str, seed: int) -> None:
    """R3, D15: each reservation's own floor holds. The model starts every step from the floors that are stored."""
    chance = random.Random(seed)
    async with twin_on(database_url) as twin:
        for step in random_history(seed, 60):
            floors = await take_over_floors(twin)
            jump = chance.choice(JUMPS) if step.command in TOGETHER - WANDERING else 0
            at = max([step.at, *floors.values()]) if jump == 0 else step.at + jump
            if step.command not in TOGETHER - WANDERING:  # the model catches up with what the product may never look at
                twin.clock.now = at
                await twin.product.nodes[0].boundaries.run_once()
            await twin.play_beside(step._replace(at=at))
            risen = await read_floors(twin)
            assert all(risen[key] >= floor for key, floor in floors.items()), (step, floors, risen)
        twin.now = max((await take_over_floors(twin)).values())
        await twin.finish()


JUMPS = (0, 0, -1, -1_000, -5 * MINUTE_MS, -5 * MINUTE_MS - 1, -3 * HOUR_MS, 1, 999, 10 * MINUTE_MS)


async def read_floors(twin: Twin) -> dict[tuple[str, str], int]:
    rows = await twin.connection.fetch("select account_id, reservation_id, clock_at from capacity_reservation")
    return {(row["account_id"], row["reservation_id"]): row["clock_at"] for row in rows}


async def take_over_floors(twin: Twin) -> dict[tuple[str, str], int]:
    """A look that changes nothing leaves no floor in the product, and does in the model: both are fine (R3)."""
    floors = await read_floors(twin)
    for key, reservation in (*twin.oracle.reservations.items(), *twin.oracle.lost.items()):
        reservation.clock_at = floors[key]
    return floors
