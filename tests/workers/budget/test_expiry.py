"""The end of holds, to the millisecond, whoever notices it: commands, the job, several nodes, and nobody (section 3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from domain.budget.records import ReservationStatus
from domain.budget.settlement import EXPIRIES_MAX
from storage.database import Database
from tests.budget_world import (
    ACME,
    BOT,
    PARENT,
    START,
    WHOLE,
    BudgetWorld,
    accepted,
    at_once,
    budget_world,
    make_tenants,
    refused,
    repeated,
)
from tests.capacity_world import caller_of, eventually, running_node
from workers.budget.expiry import ExpiryJob
from workers.budget.reads import Listing, ReservationQuery
from workers.runtime import Runtime

TTL, GRACE = 10_000, 500
LIFE: dict[str, Any] = {"ttl_ms": TTL, "grace_ms": GRACE}


async def test_extending_ends_with_the_lifetime_and_settling_with_the_grace(world: BudgetWorld) -> None:
    """80, 82: inclusive on the permissive side."""
    await world.budget()
    extended, committed, late = [await world.hold(10, **LIFE) for _ in range(3)]
    world.clock.now = START + TTL
    assert accepted(await world.extend(extended, 1)).expires_at == START + TTL + 1
    world.clock.now += 1
    refused(await world.extend(committed, 1), "RESERVATION_EXPIRED")
    world.clock.now = START + TTL + GRACE
    accepted(await world.commit(committed, 10))
    world.clock.now += 1
    refused(await world.commit(late, 10), "RESERVATION_EXPIRED")
    accepted(await world.commit(extended, 10))
    await world.has(spent=20, reserved=0)


@pytest.mark.parametrize("asked", ["commit", "release", "extend"])
async def test_what_nobody_has_swept_is_over_all_the_same(world: BudgetWorld, asked: str) -> None:
    """86."""
    await world.budget()
    hold = await world.hold(10, **LIFE)
    world.clock.now = START + TTL + GRACE + 1
    refused(await world.node.budget_reads.reservation(world.acme, reservation_id=hold), "RESERVATION_EXPIRED")
    listed = await world.node.budget_reads.reservations(
        world.acme, query=ReservationQuery(status=ReservationStatus.EXPIRED)
    )
    assert isinstance(listed, Listing)
    assert [seen.status for seen in listed.items] == [ReservationStatus.EXPIRED]
    assert await world.status_of(hold) == "ACTIVE"
    ask = {"commit": world.commit(hold, 1), "release": world.release(hold), "extend": world.extend(hold, 1)}
    refused(await ask.pop(asked), "RESERVATION_EXPIRED")
    for unasked in ask.values():
        unasked.close()
    assert await world.status_of(hold) == "EXPIRED"


async def test_a_turn_gives_back_what_is_overdue_before_it_decides(world: BudgetWorld) -> None:
    """A hold that is over takes nothing from the next one, though no job has run."""
    await world.budget(PARENT, 10)
    hold = await world.hold(10, **LIFE)
    world.clock.now = START + TTL + GRACE
    refused(await world.reserve(1), "BUDGET_EXCEEDED")
    world.clock.now += 1
    accepted(await world.reserve(10))
    assert await world.status_of(hold) == "EXPIRED"


async def test_the_job_gives_back_once_and_only_after_the_grace(world: BudgetWorld) -> None:
    """88."""
    await world.budget()
    hold = await world.hold(10, **LIFE)
    for instant, status in ((TTL + GRACE, "ACTIVE"), (TTL + GRACE + 1, "EXPIRED"), (TTL + GRACE + 2, "EXPIRED")):
        world.clock.now = START + instant
        await world.expire()
        assert await world.status_of(hold) == status
    await world.has(reserved=0)
    expired = [event for event in await world.events() if event.type == "reservation.expired"]
    assert len(expired) == 1
    assert expired[0].payload["source"] == "expiry"
    assert "actor" not in expired[0].payload
    assert expired[0].payload["data"]["expired_at"] == START + TTL + GRACE + 1


async def test_the_job_says_when_it_is_wanted_next(world: BudgetWorld) -> None:
    await world.budget()
    job = ExpiryJob(world.node.budget_asker)
    assert (await job.run_once()).wake_in_ms is None
    await world.hold(10, **LIFE)
    assert (await job.run_once()).wake_in_ms == TTL + GRACE + 1
    world.clock.advance(TTL)
    assert (await job.run_once()).wake_in_ms == GRACE + 1
    world.clock.advance(GRACE + 1)
    assert (await job.run_once()).wake_in_ms is None


async def test_a_settled_hold_wakes_nobody_twice(world: BudgetWorld) -> None:
    """The head still names its end; the first look takes it away."""
    await world.budget()
    accepted(await world.commit(await world.hold(10, **LIFE), 10))
    world.clock.advance(TTL + GRACE + 1)
    job = ExpiryJob(world.node.budget_asker)
    assert (await job.run_once()).counts["tenants"] == 1
    ran = await job.run_once()
    assert (ran.counts["tenants"], ran.wake_in_ms) == (0, None)


async def test_more_than_a_turn_takes_is_given_back_in_several(world: BudgetWorld) -> None:
    await world.budget(PARENT, 10**6)
    await asyncio.gather(*(world.hold(1, WHOLE, **LIFE) for _ in range(EXPIRIES_MAX + 50)))
    world.clock.advance(TTL + GRACE + 1)
    async with budget_world_again(world) as fresh:
        job, runs = ExpiryJob(fresh.node.budget_asker), 1
        while (await job.run_once()).wake_in_ms == 0:
            runs += 1
    assert runs in (1, 2)
    await world.has(reserved=0)
    assert (await world.event_types()).count("reservation.expired") == EXPIRIES_MAX + 50


@asynccontextmanager
async def budget_world_again(world: BudgetWorld) -> AsyncIterator[BudgetWorld]:
    """A second node of the same database, that has nothing in memory."""
    async with running_node(world.node.database.url, clock=world.clock) as node:
        yield BudgetWorld([node], world.clock, world.connection)


@pytest.mark.parametrize("offset", [-1, 0, 1])
async def test_the_job_and_a_commit_at_the_boundary_end_a_hold_once(two_nodes: BudgetWorld, offset: int) -> None:
    """89: whoever comes first under the lock, time decides; in the end the books add up."""
    world = two_nodes
    await world.budget(PARENT, 10**6)
    holds = [await world.hold(10, WHOLE, **LIFE) for _ in range(40)]
    world.clock.now = START + TTL + GRACE + offset
    jobs = [ExpiryJob(node.budget_asker).run_once() for node in world.nodes]
    commits = [world.commit(hold, 10, node=number % 2) for number, hold in enumerate(holds)]
    outcomes = (await asyncio.gather(*commits, *jobs))[: len(holds)]
    in_time = offset <= 0
    for outcome in outcomes:
        if in_time:
            accepted(outcome)
        else:
            refused(outcome, "RESERVATION_EXPIRED")
    assert {await world.status_of(hold) for hold in holds} == {"COMMITTED" if in_time else "EXPIRED"}
    await world.has(reserved=0, spent=400 if in_time else 0)


@pytest.mark.parametrize("grace", [0, GRACE])
@pytest.mark.parametrize("offset", [-1, 0, 1])
async def test_the_job_and_an_extension_at_the_boundary(two_nodes: BudgetWorld, offset: int, grace: int) -> None:
    """80, 89: prolonged in time, or not at all; what is in its grace is too late to prolong and in time to settle."""
    world = two_nodes
    await world.budget(PARENT, 10**6)
    holds = [await world.hold(10, WHOLE, ttl_ms=TTL, grace_ms=grace) for _ in range(20)]
    world.clock.now = START + TTL + offset
    jobs = [ExpiryJob(node.budget_asker).run_once() for node in world.nodes]
    extensions = [world.extend(hold, 1_000, node=number % 2) for number, hold in enumerate(holds)]
    outcomes = (await asyncio.gather(*extensions, *jobs))[: len(holds)]
    in_time, lives = offset <= 0, offset <= grace
    for outcome in outcomes:
        if in_time:
            assert accepted(outcome).expires_at == START + TTL + 1_000
        else:
            refused(outcome, "RESERVATION_EXPIRED")
    assert {await world.status_of(hold) for hold in holds} == {"ACTIVE" if lives else "EXPIRED"}
    for number, hold in enumerate(holds):
        outcome = await world.commit(hold, 10, node=number % 2)
        accepted(outcome) if lives else refused(outcome, "RESERVATION_EXPIRED")
    await world.has(reserved=0, spent=200 if lives else 0)


@pytest.mark.parametrize("offset", [0, 1])
async def test_everything_that_ends_a_hold_at_the_boundary_at_once_ends_it_once(
    two_nodes: BudgetWorld, offset: int
) -> None:
    """89, 104: a commit, a release and an operator's release on two nodes, while the job runs on both."""
    world = two_nodes
    await world.budget(PARENT, 10**6)
    holds = [await world.hold(10, WHOLE, **LIFE) for _ in range(20)]
    world.clock.now = START + TTL + GRACE + offset
    jobs = [ExpiryJob(node.budget_asker).run_once() for node in world.nodes]

    async def end(number: int, hold: str) -> None:
        here, there = number % 2, 1 - number % 2
        answers, refusals = await at_once(
            world.commit(hold, 10, node=here),
            world.release(hold, node=there),
            world.release(hold, node=here, by=world.root, as_admin=True),
        )
        codes = sorted(refusal.code for refusal in refusals)
        expected = (1, ["RESERVATION_FINALIZED"] * 2) if offset == 0 else (0, ["RESERVATION_EXPIRED"] * 3)
        assert (len(answers), codes) == expected

    await asyncio.gather(*(end(number, hold) for number, hold in enumerate(holds)), *jobs)
    await world.has(reserved=0)
    await world.audit()


async def test_an_extension_moves_the_end_for_every_node(two_nodes: BudgetWorld) -> None:
    """83, 68."""
    world = two_nodes
    await world.budget()
    hold = await world.hold(10, ttl_ms=TTL, grace_ms=0)
    world.clock.advance(TTL)
    answer = accepted(await world.extend(hold, 30_000, node=1, idempotency_key="k"))
    assert (answer.expires_at, answer.remaining_ttl_ms) == (START + TTL + 30_000, 30_000)
    world.clock.advance(1)
    await asyncio.gather(*(ExpiryJob(node.budget_asker).run_once() for node in world.nodes))
    assert await world.status_of(hold) == "ACTIVE"
    assert repeated(await world.extend(hold, 30_000, node=0, idempotency_key="k")).remaining_ttl_ms == 29_999
    world.clock.now = START + TTL + 30_001
    await world.expire()
    assert await world.status_of(hold) == "EXPIRED"


async def test_extensions_are_counted_and_end_before_the_expiry_does(world: BudgetWorld) -> None:
    """85, and the number that was fixed when the hold was made."""
    accepted(await world.node.budgets.update_tenant(world.root, tenant_id=ACME, max_extensions=1))
    await world.budget()
    hold = await world.hold(10, **LIFE)
    accepted(await world.node.budgets.update_tenant(world.root, tenant_id=ACME, max_extensions=5))
    accepted(await world.extend(hold, 1))
    refused(await world.extend(hold, 1), "MAX_EXTENSIONS_EXCEEDED")
    world.clock.now = START + TTL + 2
    refused(await world.extend(hold, 1), "RESERVATION_EXPIRED")


async def test_a_tenants_maximum_cuts_the_lifetime(world: BudgetWorld) -> None:
    """79."""
    accepted(await world.node.budgets.update_tenant(world.root, tenant_id=ACME, max_ttl_ms=5_000))
    await world.budget()
    answer = accepted(await world.reserve(10, ttl_ms=60_000))
    assert (answer.remaining_ttl_ms, answer.expires_at) == (5_000, START + 5_000)


async def test_two_nodes_may_sweep_at_once(two_nodes: BudgetWorld) -> None:
    world = two_nodes
    await world.budget(PARENT, 10**6)
    await at_once(*(world.reserve(10, BOT, node=number % 2, **LIFE) for number in range(100)))
    world.clock.advance(TTL + GRACE + 1)
    await asyncio.gather(*(ExpiryJob(node.budget_asker).run_once() for node in world.nodes for _ in range(2)))
    await world.has(reserved=0)
    assert (await world.event_types()).count("reservation.expired") == 100


async def test_a_running_node_expires_by_itself(database_url: str) -> None:
    """The schedule's own timer, on the real clock: never before the instant."""
    database = await Database.open(database_url)
    runtime = Runtime(database)
    runtime.start()
    try:
        async with database.acquire() as connection:
            await make_tenants(connection, at=1)  # type: ignore[arg-type]
            acme = caller_of(ACME)
            world = BudgetWorld([runtime], None, connection)  # type: ignore[list-item, arg-type]
            await world.budget()
            hold = accepted(await world.reserve(10, by=acme, ttl_ms=1_000, grace_ms=0))

            async def is_over() -> bool:
                return await world.status_of(hold.reservation_id) == "EXPIRED"

            await eventually(is_over)
            at = "select occurred_at from budget_outbox union all select occurred_at from event order by 1 desc limit 1"
            assert await connection.fetchval(at) >= hold.expires_at
    finally:
        await runtime.stop()
        await database.close()


async def is_waiting(world: BudgetWorld) -> bool:
    """Whether a session waits for a row."""
    waiting = "select exists (select 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = $1)"
    async with world.node.database.acquire() as connection:
        found: bool = await connection.fetchval(waiting, await connection.fetchval("select current_database()"))
    return found


async def test_a_commit_that_waited_past_the_end_is_too_late(database_url: str) -> None:
    """91: the instant is read under the lock, not when the request came."""
    async with budget_world(database_url) as world:
        await world.budget()
        hold = await world.hold(10, **LIFE)
        async with world.connection.transaction():
            await world.connection.execute("select 1 from budget_tenant where tenant_id = 'acme' for update")
            commit = asyncio.ensure_future(world.commit(hold, 10))
            await eventually(lambda: is_waiting(world))
            world.clock.now = START + TTL + GRACE + 1
        refused(await commit, "RESERVATION_EXPIRED")
        await world.audit()
