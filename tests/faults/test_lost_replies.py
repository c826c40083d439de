"""Commits whose reply is lost: nobody knows whether they took effect, and everything goes on as if they had once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest

from domain.capacity.scan import ScanReport
from domain.capacity.state import ReservationStatus
from domain.capacity.views import InstanceView
from domain.events import EventRecord
from storage.database import Connection, Database, PooledConnection, Unavailable, connect
from tests.capacity_world import NO_ANSWER, CapacityNode, answer_of, drained, eventually, lay_out, running_node
from tests.cutting import Cut, CuttingWire
from tests.faults.race_world import ACCOUNT, ALIKE, FIRST, SECOND, B, H, Plan, RaceWorld, behind_a_wire, plan_of
from workers.clock import ManualClock

ANSWER_S = 1.0
"""How long a node of these tests waits for an answer of the database."""


@pytest.mark.parametrize("cut", [Cut.BEFORE, Cut.AFTER, Cut.BLIND, Cut.SILENT])
async def test_a_create_whose_commit_is_cut_is_made_once(database_url: str, cut: Cut) -> None:
    """D50: the lane asks again under the key by itself; the caller notices nothing."""
    async with behind_a_wire(database_url, answer_within_s=ANSWER_S) as (world, plan):
        plan.next = [cut]
        grant = answer_of(await world.grant(4, B, B + H, key="k")).grant
        assert plan.next == []
        assert answer_of(await world.grant(4, B, B + H, key="k")).grant.grant_id == grant.grant_id
        assert await world.connection.fetchval("select count(*) from capacity_grant") == 1
        world.clock.advance(5_000)
        await world.node(0).relay.sweep()
        await world.audit()


@pytest.mark.parametrize("cut", [Cut.BEFORE, Cut.AFTER, Cut.BLIND])
async def test_a_start_that_moves_and_is_cut_has_one_effect(database_url: str, cut: Cut) -> None:
    """Whether the move took effect nobody knows: the instance is in one place, and whoever asks again gets it running."""
    async with behind_a_wire(database_url, totals={FIRST: 1, SECOND: 9}, is_alike=True) as (world, plan):
        moving, key = await start_and_cut(world, plan, cut)
        await world.audit()
        world.clock.advance(H)
        for _ in range(2):
            started = answer_of(await world.act("start", moving, key=key))
            assert (started.key.rpartition("/")[2], started.instance.is_running) == ("second", True)
        segments = await world.connection.fetch(
            "select key, number, from_at, to_at from capacity_segment where instance_id = $1 order by number",
            moving.instance.instance_id,
        )
        began = {Cut.BEFORE: [B + H], Cut.AFTER: [B], Cut.BLIND: [B, B + H]}[cut]
        assert [(row["key"].rpartition("/")[2], row["number"]) for row in segments] == [("first", 0), ("second", 1)]
        assert segments[-1]["from_at"] in began
        assert segments[-1]["to_at"] is None
        await world.audit()


async def start_and_cut(world: RaceWorld, plan: Plan, cut: Cut) -> tuple[InstanceView, str]:
    """An instance, and the key of its start, which was cut in the transaction that moves it: turns that only ask commit
    before that one."""
    for turns_before in range(6):
        moving = answer_of(await world.run("A", reservation=ALIKE))
        answer_of(await world.act("stop", moving))
        stranger = answer_of(await world.run("B", reservation=ALIKE))
        await world.node(0).relay.flush()
        await eventually(lambda: is_quiet(world.connection))
        plan.next = [*[Cut.NONE] * turns_before, cut]
        try:
            answer_of(await world.act("start", moving, key=f"start-{turns_before}"))
        except NO_ANSWER:
            return moving, f"start-{turns_before}"
        plan.next = []
        answer_of(await world.act("delete", stranger))
    raise AssertionError("no transaction of the start was left without an answer")


async def is_quiet(connection: Connection) -> bool:
    busy = await connection.fetchval(
        "select count(*) from pg_stat_activity "
        "where datname = current_database() and pid <> pg_backend_pid() and state <> 'idle'"
    )
    return not busy


async def test_a_subscriber_misses_nothing_when_the_relays_reply_is_lost(database_url: str) -> None:
    """The events are in the stream, and the node that put them there is the one that was not told."""
    async with behind_a_wire(database_url) as (world, plan):
        told: list[EventRecord] = []
        listening = asyncio.create_task(collect(world.node(0), told, count=2))
        await eventually(lambda: has_subscriber(world.node(0)))
        plan.next = [Cut.NONE, Cut.AFTER]  # the turn's commit, then the relay's
        answer_of(await world.grant(4, B, B + H))
        await asyncio.wait_for(listening, timeout=2)
        assert [event.type.rpartition(".")[2] for event in told] == ["created", "active"]
        await world.audit()


async def has_subscriber(node: CapacityNode) -> bool:
    return bool(node.hub.listened)


async def collect(node: CapacityNode, told: list[EventRecord], *, count: int) -> None:
    async for event in node.hub.subscribe("A", key_id="key", after=0):
        told.append(event)
        if len(told) == count:
            return


async def test_one_scan_is_one_miss_however_often_it_is_written(database_url: str) -> None:
    """D13: with two misses wanted, a single scan whose commit is in doubt does not end every grant."""
    async with behind_a_wire(database_url, gone_after_misses=2) as (world, plan):
        answer_of(await world.grant(4, B, B + H))
        await drained(world.connection)
        plan.next = [Cut.AFTER]
        await scan_without_anything(world)
        assert await status(world) == ReservationStatus.READY
        await scan_without_anything(world)
        assert await status(world) == ReservationStatus.GONE


async def scan_without_anything(world: RaceWorld) -> None:
    await world.node(0).reservations.take_report(ACCOUNT, "gcp", ScanReport(reservations=(), complete=True))


async def status(world: RaceWorld) -> str:
    found: str = await world.connection.fetchval("select status from capacity_reservation")
    return found


class Silence:
    """The plan of a wire on which the server goes silent in the middle of whatever is said next, so many times."""

    times = 0

    def __call__(self) -> Cut:
        if self.times == 0:
            return Cut.NONE
        self.times -= 1
        return Cut.SILENT


async def test_a_turn_under_locks_that_hears_nothing_is_run_again(database_url: str) -> None:
    """In the middle of it, with the reservation locked: the lock is free as soon as the connection is given up."""
    silence = Silence()
    wire = CuttingWire(database_url, silence, everywhere=True)
    async with wire.open(), running_node(wire.url, clock=ManualClock(B), answer_within_s=ANSWER_S) as node:
        await lay_out(node, plan_of({FIRST: 10}), at=B)
        world = RaceWorld([node], ManualClock(B), await connect(database_url))
        wire.is_armed = True
        for number in range(4):  # wherever in its turn
            silence.times = 1 + number // 2
            assert answer_of(await world.grant(1, B, B + H, key=f"k{number}")).grant.slots == 1
        await world.connection.close()


async def test_a_read_that_hears_nothing_is_told_to_come_back(database_url: str) -> None:
    silence = Silence()
    wire = CuttingWire(database_url, silence, everywhere=True)
    async with wire.open():
        database = await Database.open(wire.url, answer_within_s=ANSWER_S)
        wire.is_armed = True

        async def read(begin: Callable[[], AbstractAsyncContextManager[PooledConnection]], *, silences: int) -> object:
            async with begin() as connection:
                silence.times = silences
                return await connection.fetchval("select 1")

        for begin in (database.acquire, database.transaction):
            with pytest.raises(Unavailable):
                await read(begin, silences=1)
            assert await read(begin, silences=0) == 1
        await database.close()


async def test_a_listener_that_hears_nothing_looks_whether_it_could(database_url: str) -> None:
    """A path that is dead while its sockets are not: the supervisor opens another one."""
    silence = Silence()
    wire = CuttingWire(database_url, silence, everywhere=True)
    async with wire.open(), running_node(wire.url, answer_within_s=ANSWER_S):
        watching = await connect(database_url)

        async def listening() -> int | None:
            """The session that has asked to be told, as long as it has said nothing since."""
            found: int | None = await watching.fetchval(
                "select pid from pg_stat_activity where datname = current_database() and query like 'LISTEN %'"
            )
            return found

        async def listens() -> bool:
            return await listening() not in (None, first)

        first = None
        await eventually(listens)
        first, silence.times, wire.is_armed = await listening(), 1, True
        await eventually(listens)
        assert wire.cuts[Cut.SILENT] == 1
        await watching.close()


async def test_a_connection_lost_on_its_way_back_to_the_pool_is_no_error(database_url: str) -> None:
    """What was read was read: the pool opens another one."""
    database = await Database.open(database_url)
    try:
        async with database.acquire() as connection:
            assert await connection.fetchval("select 1") == 1
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, connection.terminate)  # right between the two steps of the release
        async with database.acquire() as connection:
            assert await connection.fetchval("select 2") == 2
    finally:
        await database.close()
