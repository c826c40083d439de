"""The job that has due starts and ends applied: all of them in one pass, each once, late or not (R15..R17, B1..B5, B35)."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from domain.capacity.boundaries import ACTIVE, ENDED
from domain.capacity.commands import Advance
from domain.events import EventRecord
from storage.events import read_tail
from tests.capacity_world import caller_of, running_node
from tests.workers.capacity.world import ACCOUNT, HOUR, MINUTE, POOL, RESERVATION, ROOT, START, World, key_of
from workers import relay

MANY_GRANTS = """
with made as (
    insert into capacity_grant (key, grant_id, tenant_id, slots, starts_at, ends_at, created_at, created_by, pool_id,
        region, provider, started_applied, ended_applied, version)
    select key, 'grant-' || reservation_id || '-' || n, 'A', 1, $1::bigint, $2::bigint, $3::bigint, 'key', $4, region,
        provider, false, false, 1
    from capacity_reservation, generate_series(1, $5::integer) n where reservation_id like 'many-%'
    returning 1
), told as (
    update capacity_reservation set next_boundary_at = $1, version = version + 1 where reservation_id like 'many-%'
)
select count(*) from made
"""


async def with_many_grants(world: World, *, reservations: int, each: int, starts_at: int) -> None:
    """Grants of one slot that start together: written as a turn would have, because making them one by one takes long."""
    names = [f"many-{number:03}" for number in range(reservations)]
    await world.report(dict.fromkeys([RESERVATION, *names], each))
    made = await world.value(MANY_GRANTS, starts_at, starts_at + HOUR, START, POOL, each)
    assert made == reservations * each


async def test_a_thousand_grants_that_start_in_one_millisecond_are_on_after_one_pass(world: World) -> None:
    """T59, B4."""
    starts_at = START + HOUR
    await with_many_grants(world, reservations=100, each=10, starts_at=starts_at)
    early = await world.at(starts_at - 1).apply_boundaries()
    assert (early.counts["boundaries"], early.wake_in_ms) == (0, 1)
    ran = await world.at(starts_at).apply_boundaries()
    assert ran.counts == {"reservations": 100, "boundaries": 1_000, "failed": 0}
    assert ran.wake_in_ms == HOUR
    events = await world.events()
    assert Counter((event.type, event.occurred_at) for event in events) == {(ACTIVE, starts_at): 1_000}
    assert (await world.apply_boundaries()).counts["reservations"] == 0


async def test_there_is_no_number_of_boundaries_that_one_pass_stops_at(world: World) -> None:
    """B35: ten thousand on twelve hundred reservations, which is more than a page of them."""
    await with_many_grants(world, reservations=1_250, each=8, starts_at=START + HOUR)
    ran = await world.at(START + HOUR).apply_boundaries()
    assert ran.counts == {"reservations": 1_250, "boundaries": 10_000, "failed": 0}
    assert await world.value("select count(*) from capacity_grant where started_applied") == 10_000


async def test_what_an_outage_kept_from_being_told_is_told_with_the_instants_it_happened_at(world: World) -> None:
    """D41, R17."""
    grant = await world.grant(2, START + 10 * MINUTE, START + 50 * MINUTE)
    ran = await world.at(START + 72 * HOUR).apply_boundaries()
    assert ran.counts["boundaries"] == 2
    assert await world.story(grant) == [("created", 0), ("active", 10), ("ended", 50)]


async def test_a_renewal_ends_before_it_starts_in_the_tenants_stream(world: World) -> None:
    """T89, B1."""
    first = await world.grant(10, START, START + HOUR)
    second = await world.grant(10, START + HOUR, START + 2 * HOUR)
    instance = await world.run()
    await world.at(START + HOUR).apply_boundaries()
    told = [(event.type, event.payload["grantId"]) for event in await world.events() if event.type in (ACTIVE, ENDED)]
    assert told == [(ACTIVE, first), (ENDED, first), (ACTIVE, second)]
    assert await world.grants_of(instance) == [second]


async def test_a_renewal_on_another_reservation_ends_before_it_starts(world: World) -> None:
    """T89: whichever of the two is noticed first, and however much later the other is."""
    await world.report({RESERVATION: 10, "res-0": 10, "res-2": 10})
    for name in ("res-0", "res-2"):
        await world.bind(name)
    ending = await world.grant(1, START, START + HOUR)
    starting = [await world.grant(1, START + HOUR, START + 2 * HOUR, reservation=name) for name in ("res-0", "res-2")]
    world.at(START + HOUR)
    for name in ("res-0", "res-2"):
        await world.node.asker.ask(key_of(name), Advance())
    await world.node.relay.flush()
    assert [event.type for event in await told_to(world, "A")].count(ACTIVE) == 1, "the starts wait"
    await world.node.asker.ask(key_of(RESERVATION), Advance())
    told = [(event.type, event.payload["grantId"]) for event in await world.events() if event.type in (ACTIVE, ENDED)]
    assert told[:2] == [(ACTIVE, ending), (ENDED, ending)]
    assert sorted(told[2:]) == sorted((ACTIVE, grant) for grant in starting)


async def test_one_pass_over_many_reservations_tells_every_end_before_the_starts_of_its_instant(
    world: World, database_url: str
) -> None:
    """T89, B1: forty renewals, each on the next reservation, by two nodes at once."""
    names = [f"res-{number}" for number in range(40)]
    await world.report(dict.fromkeys([RESERVATION, *names], 10))
    for name in names:
        await world.bind(name)
    for number, name in enumerate(names):
        for tenant in ("A", "B"):
            await world.grant(1, START, START + HOUR, reservation=name, tenant=tenant)
            await world.grant(1, START + HOUR, START + 2 * HOUR, reservation=names[number - 1], tenant=tenant)
    world.at(START + HOUR)
    async with running_node(database_url, clock=world.clock) as other:
        await asyncio.gather(*(node.boundaries.run_once() for node in (world.node, other)))
        events = [event for event in await world.events() if event.occurred_at == START + HOUR]
    for stream in ("A", "B"):
        assert [event.type for event in events if event.tenant_id == stream] == [ENDED] * 40 + [ACTIVE] * 40


async def test_a_start_does_not_wait_for_ever_for_an_end_that_nobody_applies(world: World) -> None:
    """Its reservation is in trouble; the others' news goes on."""
    await world.report({RESERVATION: 10, "res-2": 10})
    await world.bind("res-2")
    await world.grant(1, START, START + HOUR)
    starting = await world.grant(1, START + HOUR, START + 2 * HOUR, reservation="res-2")
    await world.at(START + HOUR).node.asker.ask(key_of("res-2"), Advance())
    assert (await world.story(starting))[-1] == ("active", 60)


async def test_starts_and_ends_that_wait_for_each_other_are_told_together(
    world: World, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two grants that are made and ended in one millisecond, on two nodes: each end is behind a start. Nothing is told
    because it has waited for long: that is an hour here."""
    monkeypatch.setattr(relay, "HELD_MAX_S", 3_600.0)
    await world.report({RESERVATION: 10, "res-2": 10})
    await world.bind("res-2")
    async with running_node(database_url, clock=world.clock) as other:
        for _ in range(10):
            world.clock.advance(1_000)
            grants = [
                await world.grant(1, world.clock.now, START + HOUR, reservation=name) for name in (RESERVATION, "res-2")
            ]
            place = {"tenant_id": ROOT, "account_id": ACCOUNT}
            await asyncio.gather(
                *(
                    node.grants.end(caller_of(ROOT), **place, grant_id=grant_id)
                    for node, grant_id in zip((world.node, other), grants, strict=True)
                )
            )
            for grant_id in grants:
                assert [kind for kind, _ in await world.story(grant_id)] == ["created", "active", "ended"]


async def told_to(world: World, stream: str) -> list[EventRecord]:
    """What its stream has, whatever still waits."""
    async with world.database.acquire() as connection:
        return await read_tail(connection, stream, after=0, limit=1_000)


async def test_two_nodes_at_once_apply_each_boundary_once(world: World, database_url: str) -> None:
    names = [f"res-{number}" for number in range(20)]
    await world.report(dict.fromkeys([RESERVATION, *names], 10))
    for name in names:
        await world.bind(name)
        await world.grant(1, START + MINUTE, START + 2 * MINUTE, reservation=name)
        await world.run("B", reservation=name)
    async with running_node(database_url, clock=world.clock) as other:
        for instant in (START + MINUTE, START + 2 * MINUTE):
            world.at(instant)
            await asyncio.gather(*(node.boundaries.run_once() for node in (world.node, other) for _ in range(2)))
        told = Counter(event.type for event in await world.events())
    assert told[ACTIVE] == told[ENDED] == 20


async def test_a_grant_that_is_on_when_it_is_made_is_on_whatever_pass_runs_beside(world: World) -> None:
    """B2: and it has its tenant's running instance, every time."""
    instance = await world.run()
    for attempt in range(100):
        world.clock.advance(1_000)
        grant, _ = await asyncio.gather(
            world.grant(1, world.clock.now - attempt % 2, world.clock.now + 500), world.apply_boundaries()
        )
        assert await world.grants_of(instance) == [grant]
        world.clock.advance(500)
        await world.apply_boundaries()
        assert await world.grants_of(instance) == [None]


async def test_a_pass_over_reservations_that_cannot_be_asked_ends_and_leaves_them_due(
    world: World, database_url: str
) -> None:
    await world.grant(1, START + MINUTE, START + HOUR)
    world.at(START + MINUTE)
    async with running_node(database_url, clock=world.clock) as closing:
        await closing.stop()
        ran = await closing.boundaries.run_once()
    assert ran.counts == {"reservations": 0, "boundaries": 0, "failed": 1}
    assert ran.wake_in_ms is None, "what failed waits for the next tick and is no reason to hurry"
    assert (await world.apply_boundaries()).counts["boundaries"] == 1


async def test_the_next_boundary_is_the_earliest_of_all_reservations(world: World) -> None:
    await world.report({RESERVATION: 10, "res-2": 10})
    await world.bind("res-2")
    assert (await world.apply_boundaries()).wake_in_ms is None
    await world.grant(1, START + 2 * HOUR, START + 3 * HOUR)
    await world.grant(1, START + MINUTE, START + 3 * HOUR, reservation="res-2")
    assert (await world.apply_boundaries()).wake_in_ms == MINUTE
    assert (await world.at(START + MINUTE).apply_boundaries()).wake_in_ms == 2 * HOUR - MINUTE
    assert await world.value("select next_boundary_at from capacity_reservation where key = $1", key_of()) == (
        START + 2 * HOUR
    )
