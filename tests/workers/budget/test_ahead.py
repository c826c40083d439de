"""Decisions from memory stand only if the database agrees; where it does not, the turn is run again under the lock."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from domain.budget.values import Subject
from tests import verdicts
from tests.budget_world import ACME, BOT, CHILD, PARENT, START, BudgetWorld, accepted, at_once, budget_world, refused
from tests.registry_desks import lock_waiter

ending = partial(verdicts.ending, "budget")


async def test_what_is_known_is_decided_from_memory(world: BudgetWorld) -> None:
    await world.budget(PARENT, 1_000)
    await world.budget(CHILD, 100)
    with ending(settled=7):
        first, second = await world.hold(60), await world.hold(40)
        refused(await world.reserve(1), "BUDGET_EXCEEDED")
        accepted(await world.extend(first, 1_000))
        accepted(await world.commit(first, 50))
        accepted(await world.release(second))
        accepted(await world.fund("CREDIT", 100))
    await world.has(CHILD, reserved=0, spent=50)
    await world.audit()


async def test_a_batch_over_several_tenants_is_one_statement(database_url: str) -> None:
    async with budget_world(database_url, lanes=1) as world:
        await world.budget(PARENT, 100)
        await world.budget("tenant:other", 100, by=world.other)
        with ending(settled=1):
            answers, refusals = await at_once(
                *(world.reserve(30, Subject(tenant=ACME)) for _ in range(4)),
                *(world.reserve(30, Subject(tenant="other"), by=world.other) for _ in range(4)),
            )
        assert (len(answers), len(refusals)) == (6, 2)
        await world.audit()


async def test_what_another_node_reserved_is_not_reserved_twice(two_nodes: BudgetWorld) -> None:
    world = two_nodes
    await world.budget(PARENT, 100)
    await world.hold(60, node=1)
    with ending(moved=1):
        refused(await world.reserve(60), "BUDGET_EXCEEDED")
    await world.has(reserved=60)


async def test_what_another_node_gave_back_is_not_refused(two_nodes: BudgetWorld) -> None:
    world = two_nodes
    await world.budget(PARENT, 100)
    hold = await world.hold(60)
    accepted(await world.release(hold, node=1))
    with ending(moved=1):
        accepted(await world.reserve(60))
    await world.has(reserved=60)


async def test_a_held_head_is_waited_for_under_the_lock(world: BudgetWorld) -> None:
    await world.budget(PARENT, 100)
    holder = world.connection.transaction()
    await holder.start()
    await world.connection.execute("select 1 from budget_tenant for no key update")
    with ending(moved=1):
        waiting = asyncio.ensure_future(world.reserve(10))
        await lock_waiter(world.node.database)
        assert not waiting.done()
        await holder.rollback()
        accepted(await waiting)


async def test_a_retry_on_the_same_node_is_told_from_memory(world: BudgetWorld) -> None:
    await world.budget(PARENT, 100)
    with ending(settled=1):  # the retry and the other request under its key need no database
        hold = await world.hold(60, idempotency_key="k")
        again = await world.reserve(60, idempotency_key="k")
        assert again.answer.reservation_id == hold
        refused(await world.reserve(61, idempotency_key="k"), "IDEMPOTENCY_MISMATCH")
    await world.has(reserved=60)


@pytest.mark.parametrize("amount", [10, 80])
async def test_a_retry_on_another_node_holds_nothing_more(two_nodes: BudgetWorld, amount: int) -> None:
    """Whether it would fit once more, and meets the key itself, or not, and would be refused from memory."""
    world = two_nodes
    await world.budget(PARENT, 100)
    hold = await world.hold(amount, idempotency_key="k")
    await world.hold(1, node=1)  # it has the books now
    with ending(**({"answered": 1} if amount == 80 else {})):
        again = await world.reserve(amount, node=1, idempotency_key="k")
    assert again.answer.reservation_id == hold
    await world.has(reserved=amount + 1)


async def test_a_hold_that_is_over_meanwhile_is_given_back_first(world: BudgetWorld) -> None:
    """The clock was seen long ago: by the time the database is asked, the hold's grace is over."""
    await world.budget(PARENT, 100)
    await world.hold(100, ttl_ms=1_000, grace_ms=0)
    world.clock.advance(900)
    look_back(world, 500)
    with ending(late=1):
        refused(await world.reserve(1), "BUDGET_EXCEEDED")
    world.clock.advance(100)
    with ending():  # over so soon that nothing is decided from memory
        refused(await world.reserve(1), "BUDGET_EXCEEDED")
    world.clock.advance(1)
    accepted(await world.reserve(100))


async def test_an_extension_that_would_come_too_late_is_not_given_from_memory(world: BudgetWorld) -> None:
    await world.budget(PARENT, 100)
    hold = await world.hold(100, ttl_ms=1_000, grace_ms=60_000)
    world.clock.advance(900)
    look_back(world, 500)
    with ending(late=1):
        accepted(await world.extend(hold, 10_000))


async def test_a_policy_that_begins_meanwhile_is_looked_at(world: BudgetWorld) -> None:
    await world.budget(PARENT, 100)
    desk = world.node.budgets
    accepted(
        await desk.create_policy(
            world.acme, name="p", scope_pattern="tenant:acme/*", effective_from_at=START + 400, priority=1
        )
    )
    look_back(world, 500)
    with ending(late=1):
        accepted(await world.reserve(1))


def look_back(world: BudgetWorld, by_ms: int) -> None:
    """As if the node had last seen the database's clock so long ago, and its own had stood still since."""
    seen = world.clock.database.estimate()
    assert seen is not None
    world.clock.database.forget()
    world.clock.database.see(seen - by_ms)


async def test_holds_that_end_early_leave_the_index_of_what_is_due_alone(world: BudgetWorld) -> None:
    """The head says an instant that is early enough; it is set right when that has passed."""
    await world.budget(PARENT, 100)
    said = "select next_expiry_at from budget_tenant where tenant_id = 'acme'"
    first, second = await world.hold(10, ttl_ms=10_000, grace_ms=0), await world.hold(10, ttl_ms=60_000, grace_ms=0)
    accepted(await world.commit(first, 10))
    assert await world.connection.fetchval(said) == START + 10_001
    world.clock.advance(20_000)
    await world.expire()
    assert await world.connection.fetchval(said) == START + 60_001
    accepted(await world.commit(second, 10))
    world.clock.advance(60_000)
    await world.expire()
    assert await world.connection.fetchval(said) is None


async def test_what_is_not_in_memory_is_looked_for_under_the_lock(world: BudgetWorld) -> None:
    await world.budget(PARENT, 100)
    with ending():
        refused(await world.release("res_unknown"), "NOT_FOUND")
    with ending(settled=1):
        accepted(await world.reserve(10, BOT))
