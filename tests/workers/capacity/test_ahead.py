"""Decisions from memory stand only if the database agrees; where it does not, the turn is run again under the lock."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from domain.capacity.refusals import CapacityUnavailable
from domain.identity import reservation_key
from domain.outcomes import Accepted, InvalidInput, NotFound
from storage.database import connect
from storage.premises import Verdict
from tests import verdicts
from tests.capacity_world import answer_of, caller_of, drained
from tests.cutting import Cut
from tests.faults.race_world import ACCOUNT, FIRST, POOL, ROOT_CALLER, SECOND, B, H, RaceWorld, behind_a_wire, racing
from tests.registry_desks import lock_waiter

ending = partial(verdicts.ending, "capacity")


async def warm(world: RaceWorld, *, node: int = 0, reservation: str = FIRST) -> None:
    """The node has the books, and knows what a grant of tenant A asks about."""
    answer_of(await world.grant(1, B + 900 * H, B + 901 * H, node=node, reservation=reservation))


async def test_what_is_known_is_decided_from_memory(database_url: str) -> None:
    async with racing(database_url, nodes=1) as world:
        await warm(world)
        with ending(settled=3):
            grant = answer_of(await world.grant(10, B, B + H)).grant
            assert isinstance(await world.grant(1, B, B + H), CapacityUnavailable)
            answer_of(await world.end(grant.grant_id))
        await world.audit()


async def test_a_batch_over_several_reservations_is_one_statement(database_url: str) -> None:
    async with racing(database_url, nodes=1, lanes=1, first=10, second=10) as world:
        await warm(world)
        await warm(world, reservation=SECOND)
        with ending(settled=1):
            outcomes = await asyncio.gather(
                *(world.grant(4, B, B + H, reservation=name) for name in (FIRST, SECOND) for _ in range(3))
            )
        assert [type(outcome) for outcome in outcomes] == [Accepted, Accepted, CapacityUnavailable] * 2
        await world.audit()


async def test_slots_that_another_node_gave_away_are_not_given_twice(database_url: str) -> None:
    async with racing(database_url) as world:
        await warm(world)
        await warm(world, node=1)
        with ending(moved=1):
            assert isinstance(await world.grant(10, B, B + H, node=0), Accepted)
        with ending():  # the first node stays careful; the second has read the books under the lock
            answer_of(await world.grant(1, B + H, B + 2 * H, node=0))
        await world.audit()


async def test_slots_that_another_node_took_back_are_not_refused(database_url: str) -> None:
    async with racing(database_url) as world:
        grant = answer_of(await world.grant(10, B, B + H)).grant
        await warm(world)
        answer_of(await world.end(grant.grant_id, node=1))
        with ending(moved=1):
            assert isinstance(await world.grant(10, B, B + H), Accepted)
        await world.audit()


async def test_a_held_head_is_waited_for_under_the_lock(database_url: str) -> None:
    async with racing(database_url, nodes=1) as world:
        await warm(world)
        holder = world.connection.transaction()
        await holder.start()
        await world.connection.execute("select 1 from capacity_reservation for no key update")
        with ending(moved=1):
            waiting = asyncio.create_task(world.grant(1, B, B + H))
            await lock_waiter(world.node(0).database)
            assert not waiting.done()
            await holder.rollback()
            answer_of(await waiting)
        await world.audit()


async def test_a_deleted_tenant_gets_nothing_from_memory(database_url: str) -> None:
    async with racing(database_url) as world:
        await warm(world)
        await world.connection.execute("update tenant set deleted_at = 1 where tenant_id = 'A'")
        with ending(changed=1):
            assert isinstance(await world.grant(1, B, B + H), InvalidInput)


async def test_a_withdrawn_offer_is_not_offered_from_memory(database_url: str) -> None:
    async with racing(database_url) as world:
        await warm(world)
        answer_of(await world.end(await only_grant(world), node=0))
        desk = world.node(1).guards
        answer_of(await desk.withdraw_pool(ROOT_CALLER, tenant_id="root", pool_id=POOL, offered_to="*"))
        with ending(changed=1):
            assert isinstance(await world.grant(1, B, B + H), InvalidInput)


async def test_a_deleted_account_is_not_there_from_memory(database_url: str) -> None:
    async with racing(database_url) as world:
        await warm(world)
        await world.connection.execute("update provider_account set deleted_at = 1")
        with ending(changed=1):
            assert isinstance(await world.grant(1, B, B + H), NotFound)


async def test_a_deleted_project_gets_nothing_from_memory(database_url: str) -> None:
    async with racing(database_url) as world:
        await warm(world)
        answer_of(await world.run("A"))
        await world.connection.execute("update project set deleted_at = 1")
        with ending(changed=1):
            assert isinstance(await world.run("A"), InvalidInput)


async def only_grant(world: RaceWorld) -> str:
    found: str = await world.connection.fetchval("select grant_id from capacity_grant")
    return found


async def test_a_retry_on_the_same_node_is_told_from_memory(database_url: str) -> None:
    async with racing(database_url, nodes=1) as world:
        await warm(world)
        with ending(settled=1):  # the retry and the other request under its key need no database
            first = answer_of(await world.grant(10, B, B + H, key="k")).grant
            assert answer_of(await world.grant(10, B, B + H, key="k")).grant.grant_id == first.grant_id
            assert (await world.grant(9, B, B + H, key="k")).code == "CONFLICT"
        await world.audit()


@pytest.mark.parametrize("slots", [1, 10])
async def test_a_retry_on_another_node_makes_nothing_new(database_url: str, slots: int) -> None:
    """Whether it would fit once more or not: with ten slots the second node would refuse it, from memory (R5)."""
    async with racing(database_url) as world:
        first = answer_of(await world.grant(slots, B, B + H, key="k")).grant
        await warm(world, node=1)
        with ending(**({"answered": 1} if slots == 10 else {})):  # else the key itself stands in the way
            again = answer_of(await world.grant(slots, B, B + H, key="k", node=1)).grant
        assert again.grant_id == first.grant_id
        await world.audit()


async def test_one_key_twice_in_one_batch_is_one_grant(database_url: str) -> None:
    async with racing(database_url, nodes=1, lanes=1) as world:
        await warm(world)
        with ending(settled=1):
            made = await asyncio.gather(*(world.grant(1, B, B + H, key="k") for _ in range(5)))
        assert len({answer_of(each).grant.grant_id for each in made}) == 1
        await world.audit()


async def test_a_boundary_that_passes_meanwhile_is_applied_first(database_url: str) -> None:
    """The clock was seen long ago: by the time the database is asked, a grant may have ended."""
    async with racing(database_url, nodes=1) as world:
        answer_of(await world.grant(10, B, B + 400))
        await warm(world)
        seen = world.clock.database.estimate()
        assert seen is not None
        world.clock.database.forget()
        world.clock.database.see(seen - 500)
        with ending(late=1):
            assert isinstance(await world.grant(10, B + 399, B + H), CapacityUnavailable)
        world.clock.advance(399)
        with ending():  # due so soon that nothing is decided from memory
            assert isinstance(await world.grant(10, world.clock.now, B + H), CapacityUnavailable)
        world.clock.advance(1)
        answer_of(await world.grant(10, world.clock.now, B + H))
        await world.audit()


async def test_a_clock_that_was_set_back_is_seen_anew(database_url: str) -> None:
    async with racing(database_url, nodes=1) as world:
        await warm(world)
        seen = world.clock.database.estimate()
        assert seen is not None
        world.clock.database.see(seen + 3_600_000)
        with ending(set_back=1):
            answer_of(await world.grant(1, B, B + H))
        assert (world.clock.database.estimate() or 0) < seen + 60_000
        await world.audit()


@pytest.mark.parametrize("cut", [Cut.BEFORE, Cut.AFTER, Cut.BLIND])
async def test_decisions_whose_reply_is_lost_take_effect_once(database_url: str, cut: Cut) -> None:
    """Nobody knows whether they were written: under the lock the key tells, and its events go out in either case."""
    async with behind_a_wire(database_url) as (world, plan):
        await warm(world)
        await drained(world.connection)
        plan.next = [cut]
        with ending():
            grant = answer_of(await world.grant(4, B, B + H, key="k")).grant
        assert plan.next == []
        assert answer_of(await world.grant(4, B, B + H, key="k")).grant.grant_id == grant.grant_id
        assert await world.connection.fetchval("select count(*) from capacity_grant") == 2
        await world.audit()


async def test_instances_come_and_go_from_memory(database_url: str) -> None:
    async with racing(database_url, nodes=1) as world:
        await warm(world)
        first = answer_of(await world.run("A"))
        with ending(settled=4):
            second = answer_of(await world.run("A"))
            desk, caller = world.node(0).instances, caller_of("A")
            answer_of(await desk.stop(caller, tenant_id="A", instance_id=first.instance.instance_id))
            answer_of(await desk.start(caller, tenant_id="A", instance_id=first.instance.instance_id))
            answer_of(await world.delete(second))
        await world.audit()


async def test_a_head_that_is_not_there_has_moved(database_url: str) -> None:
    connection = await connect(database_url)
    try:
        row = await connection.fetchrow(
            """
            select verdict from capacity_settle(0, 1000, array[$1], '{1}', '{}', '{}', '{}', '{}', '{}', '{}', '{}',
                '{}', '{}', '{}', '{}', '{}', null, null, null, null, null, null, null, null, null)
            """,
            reservation_key(ACCOUNT, FIRST),
        )
        assert row["verdict"] == Verdict.MOVED
    finally:
        await connection.close()
