"""Grants that are asked for in the same moment, over real connections of several nodes (T14..T16, T24..T26, T88)."""

from __future__ import annotations

import asyncio

import pytest

from domain.capacity.boundaries import CAPACITY_SHORT
from domain.capacity.refusals import CapacityUnavailable
from domain.outcomes import Accepted, Conflict
from storage.database import Connection
from tests.capacity_world import answer_of, drained
from tests.faults.race_world import FIRST, SECOND, B, H, at_once, racing


async def test_seven_connections_want_three_of_ten_slots_each(database_url: str) -> None:
    """T14: exactly three get them, whatever the order; each of the others is told 10 and 9."""
    async with racing(database_url, nodes=7, lanes=1) as world:
        for day in range(20):
            starts_at = B + day * 24 * H
            accepted, refused = await at_once(
                *(world.grant(3, starts_at, starts_at + H, node=number) for number in range(7))
            )
            assert len(accepted) == 3
            assert [type(refusal) for refusal in refused] == [CapacityUnavailable] * 4
            assert {(each.details()["total"], each.details()["granted"]) for each in refused} == {(10, 9)}
        await world.audit()


async def test_nobody_is_refused_a_slot_that_is_there(database_url: str) -> None:
    """T15, B12: 36 at once fit into 37; of the next five exactly one."""
    async with racing(database_url, nodes=3, first=37) as world:
        accepted, refused = await at_once(*(world.grant(1, B, B + H, node=number) for number in range(36)))
        assert (len(accepted), refused) == (36, [])
        accepted, refused = await at_once(*(world.grant(1, B, B + H, node=number) for number in range(5)))
        assert len(accepted) == 1
        assert {refusal.details()["granted"] for refusal in refused} == {37}
        await world.audit()


async def test_two_reservations_fill_up_side_by_side(database_url: str) -> None:
    """T16: fifty at once for each, ten slots each."""
    async with racing(database_url, first=10, second=10) as world:
        outcomes = await asyncio.gather(
            *(
                at_once(*(world.grant(1, B, B + H, node=number, reservation=name) for number in range(50)))
                for name in (FIRST, SECOND)
            )
        )
        assert [(len(accepted), len(refused)) for accepted, refused in outcomes] == [(10, 40), (10, 40)]
        await world.audit()


async def test_one_key_sent_twenty_times_makes_one_grant(database_url: str) -> None:
    """T24, D50, B29: whoever comes while the first is under way waits for it and gets the same grant."""
    async with racing(database_url) as world:
        for number in range(10):
            starts_at = B + number * H
            sends = (world.grant(4, starts_at, starts_at + H, node=node, key=f"same-{number}") for node in range(20))
            accepted, refused = await at_once(*sends)
            assert refused == []
            assert len({view.grant.grant_id for view in accepted}) == 1
        assert await world.connection.fetchval("select count(*) from capacity_grant") == 10
        await world.audit()


async def test_one_key_for_twenty_requests_answers_one_of_them(database_url: str) -> None:
    """T25: one success, nineteen conflicts that name its grant."""
    async with racing(database_url, first=20) as world:
        for day in range(10):
            starts_at = B + day * 24 * H
            sends = (world.grant(1 + node, starts_at, starts_at + H, node=node, key=f"key-{day}") for node in range(20))
            accepted, refused = await at_once(*sends)
            assert len(accepted) == 1
            assert [type(refusal) for refusal in refused] == [Conflict] * 19
            assert {refusal.details()["grant_id"] for refusal in refused} == {accepted[0].grant.grant_id}
        await world.audit()


@pytest.mark.parametrize("nodes", [1, 2])
async def test_one_key_on_two_reservations_is_one_grant_and_no_deadlock(database_url: str, nodes: int) -> None:
    """T26: the two wait for each other's key at most, never in a circle."""
    async with racing(database_url, nodes=nodes, first=10, second=10) as world:
        for number in range(20):
            starts_at = B + number * H
            accepted, refused = await at_once(
                *(
                    world.grant(1, starts_at, starts_at + H, node=node, reservation=name, key=f"both-{number}")
                    for node, name in enumerate((FIRST, SECOND))
                )
            )
            assert len(accepted) == 1
            assert [type(refusal) for refusal in refused] == [Conflict]
        await world.audit()


async def test_a_shrinking_total_meets_a_create(database_url: str) -> None:
    """T88: either refused with the new total, or accepted and told short, once."""
    async with racing(database_url) as world:
        results = set()
        for day in range(40):
            starts_at = B + day * 24 * H
            before = await shortages(world.connection)
            create, report = world.grant(7, starts_at, starts_at + H, node=day), world.report(6, node=day + 1)
            if day < 2:  # each order once for certain; after that whoever is faster
                await (report if day else asyncio.sleep(0))
                created = await create
                await (asyncio.sleep(0) if day else report)
            else:
                race = [create, report] if day % 2 == 0 else [report, create]
                created = (await asyncio.gather(*race))[day % 2]
            told = (await shortages(world.connection))[len(before) :]
            if isinstance(created, Accepted):
                assert [(each["total"], each["grantedSlots"]) for each in told] == [(6, 7)]
                assert told[0]["grantIds"] == [created.answer.grant.grant_id]
                await world.end(created.answer.grant.grant_id)
            else:
                assert created.details() == {"total": 6, "granted": 0}
                assert told == []
            results.add(type(created))
            await world.report(10)
        await world.audit()
        assert results == {Accepted, CapacityUnavailable}


async def test_what_an_amendment_gave_back_was_taken_until_then_on_every_node(database_url: str) -> None:
    """A start within the tolerance meets the slots of that moment, whoever has read them from the tables (R7, R10)."""
    async with racing(database_url, nodes=2) as world:
        grant = answer_of(await world.grant(8, B, B + H)).grant
        world.clock.advance(60_000)
        answer_of(await world.amend(grant.grant_id, version=1, slots=2))
        world.clock.advance(60_000)
        for node in range(2):
            refused = await world.grant(5, B + 30_000, B + H, node=node)
            assert isinstance(refused, CapacityUnavailable)
            assert refused.details() == {"total": 10, "granted": 8}
        assert isinstance(await world.grant(5, B + 60_000, B + H, node=1), Accepted)
        await world.audit()


async def shortages(connection: Connection) -> list[dict[str, object]]:
    await drained(connection)
    rows = await connection.fetch(
        "select payload from event where tenant_id = 'root' and type = $1 order by seq", CAPACITY_SHORT
    )
    return [row["payload"] for row in rows]
