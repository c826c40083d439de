"""Turns that die in doubt, and turns that cannot work: every request happens once or not at all, and nobody else suffers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from domain.budget.records import TenantStatus
from domain.budget.tenancy import MalformedTenantError
from storage.database import Unavailable, connect
from tests.budget_world import (
    ACME,
    PARENT,
    START,
    TOKENS,
    WHOLE,
    BudgetWorld,
    accepted,
    budget_world,
    make_tenants,
    refused,
    tokens,
)
from tests.capacity_world import running_node
from tests.cutting import Cut, CuttingWire
from workers.budget.changes import watched_keys
from workers.clock import ManualClock
from workers.lock_mode import ATTEMPTS_MAX


class Plan:
    """What happens to the next commits, in order; afterwards all goes well."""

    def __init__(self) -> None:
        self.next: list[Cut] = []

    def __call__(self) -> Cut:
        return self.next.pop(0) if self.next else Cut.NONE


@asynccontextmanager
async def behind_a_wire(url: str) -> AsyncIterator[tuple[BudgetWorld, Plan]]:
    """One node behind a wire, a budget of 1000, and the plan that cuts commits."""
    plan, clock = Plan(), ManualClock(START)
    connection = await connect(url)
    wire = CuttingWire(url, plan)
    try:
        await make_tenants(connection, at=START)
        async with wire.open(), running_node(wire.url, clock=clock) as node:
            world = BudgetWorld([node], clock, connection)
            await world.budget()
            await world.events()
            wire.is_armed = True
            yield world, plan
            wire.is_armed = False
            clock.advance(5_000)  # what a turn wrote without hearing of it is swept as if its node were gone
            await node.relay.sweep()
            await world.audit()
    finally:
        await connection.close()


@pytest.mark.parametrize("cut", [Cut.BEFORE, Cut.AFTER, Cut.BLIND])
async def test_a_reserve_whose_commit_is_cut_is_one_hold(database_url: str, cut: Cut) -> None:
    """The lane asks again under the key by itself; the caller gets its reservation, made once."""
    async with behind_a_wire(database_url) as (world, plan):
        plan.next = [cut]
        outcome: Any = await world.reserve(10, idempotency_key="k")
        assert plan.next == []
        again: Any = await world.reserve(10, idempotency_key="k")
        assert again.answer.reservation_id == outcome.answer.reservation_id
        await world.has(reserved=10)


@pytest.mark.parametrize("cut", [Cut.BEFORE, Cut.AFTER, Cut.BLIND])
async def test_what_settles_is_settled_once_however_its_commit_ends(database_url: str, cut: Cut) -> None:
    async with behind_a_wire(database_url) as (world, plan):
        committed, released = await world.hold(10), await world.hold(10)
        for ask in (
            world.commit(committed, 7),
            world.release(released),
            world.debit(5),
            world.fund("CREDIT", 100),
        ):
            plan.next = [cut]
            outcome: Any = await ask
            assert outcome.answer is not None
        await world.has(reserved=0, spent=12, allocated=1_100)


@pytest.mark.parametrize("cut", [Cut.BEFORE, Cut.AFTER, Cut.BLIND])
async def test_what_governs_is_done_once_without_any_key_and_never_refused_as_done(database_url: str, cut: Cut) -> None:
    """The second attempt finds what the first one did, and is told it as its own: made, frozen, closed by this request."""
    async with behind_a_wire(database_url) as (world, plan):
        desk, acme, root = world.node.budgets, world.acme, world.root
        place: Any = {"scope": "tenant:acme/app:a", "unit": TOKENS}

        async def done(ask: Any) -> Any:
            plan.next = [cut]
            outcome: Any = await ask
            assert plan.next == []
            return outcome.answer

        made = await done(desk.create_budget(acme, allocated=tokens(5), **place))
        policy = await done(desk.create_policy(acme, name="p", scope_pattern="agent:*"))
        statuses = [
            (await done(change(acme, **place))).status
            for change in (desk.freeze_budget, desk.unfreeze_budget, desk.close_budget)
        ]
        changed = await done(desk.update_policy(acme, policy_id=policy.policy_id, priority=7))
        tenant = await done(desk.create_tenant(root, tenant_id="new", name="New"))
        closed = await done(desk.update_tenant(root, tenant_id="new", status=TenantStatus.CLOSED))

        assert (made.allocated, statuses, changed.priority) == (5, ["FROZEN", "ACTIVE", "CLOSED"], 7)
        assert (tenant.created, closed.closed_now) == (True, True)
        assert await world.connection.fetchval("select count(*) from budget") == 2
        assert await world.connection.fetchval("select count(*) from budget_policy") == 1
        told = await world.connection.fetch("select operation from budget_audit order by entry_id")
        assert [row["operation"] for row in told] == [
            "createBudget",
            "createBudget",
            "createPolicy",
            "freezeBudget",
            "unfreezeBudget",
            "closeBudget",
            "updatePolicy",
            "createTenant",
            "updateTenant",
        ]


@pytest.mark.parametrize("cut", [Cut.BEFORE, Cut.AFTER, Cut.BLIND])
async def test_whoever_watches_a_budget_is_woken_by_a_turn_in_doubt(database_url: str, cut: Cut) -> None:
    """The second attempt changes nothing where the first one took effect: then all of the tenant's watchers look."""
    async with behind_a_wire(database_url) as (world, plan):
        hints = world.node.board.watch(*watched_keys(ACME, PARENT, TOKENS), key_id="key")
        await anext(hints)
        plan.next = [cut]
        outcome: Any = await world.reserve(10)
        assert outcome.answer.reserved == 10
        await asyncio.wait_for(anext(hints), timeout=60)
        await hints.aclose()


async def test_a_request_that_never_gets_through_is_unavailable_and_can_be_sent_again(database_url: str) -> None:
    async with behind_a_wire(database_url) as (world, plan):
        plan.next = [Cut.BEFORE] * (ATTEMPTS_MAX + 1)  # once from memory, then under the lock
        with pytest.raises(Unavailable):
            await world.reserve(10, idempotency_key="k")
        await world.has(reserved=0)
        accepted(await world.reserve(10, idempotency_key="k"))


async def test_a_batch_in_doubt_is_decided_again_as_a_whole(database_url: str) -> None:
    """Forty at once, and the first commits are cut in every way: the books have each of them once."""
    async with behind_a_wire(database_url) as (world, plan):
        plan.next = [Cut.AFTER, Cut.NONE, Cut.BEFORE, Cut.BLIND]
        outcomes = await asyncio.gather(*(world.reserve(30, idempotency_key=f"k{number}") for number in range(40)))
        refusals = [outcome for outcome in outcomes if not hasattr(outcome, "answer")]
        assert len(refusals) == 40 - 33
        plan.next = []
        await world.has(reserved=990)


async def test_a_poisoned_command_fails_alone(database_url: str) -> None:
    """Its batch is run again key by key, and command by command."""
    async with budget_world(database_url) as world:
        await world.budget()
        await world.budget("tenant:other", by=world.other)
        poison: Any = {"subject": WHOLE, "action": None}
        results = await asyncio.gather(
            world.reserve(1, WHOLE),
            world.reserve(1, **poison),
            world.reserve(1, WHOLE),
            world.reserve(1, WHOLE.__class__(tenant="other"), by=world.other),
            return_exceptions=True,
        )
        assert isinstance(results.pop(1), AttributeError)
        for outcome in results:
            accepted(outcome)
        await world.has(PARENT, reserved=2)
        await world.audit()


async def test_a_tenant_whose_status_cannot_be_understood_is_decided_nothing_for(database_url: str) -> None:
    """Section 7: fail closed, as a fault of ours; reads and other tenants go on."""
    async with budget_world(database_url) as world:
        await world.budget()
        hold = await world.hold(10)
        await world.connection.execute("update budget_tenant set status = null, version = version + 1")
        for ask in (
            world.reserve(1),
            world.commit(hold, 1),
            world.release(hold),
            world.extend(hold, 1),
            world.debit(1),
        ):
            with pytest.raises(MalformedTenantError):
                await ask
        await world.has(reserved=10)
        await world.connection.execute("update budget_tenant set status = 'ACTIVE', version = version + 1")
        accepted(await world.commit(hold, 10))


async def test_a_locked_tenant_makes_its_callers_come_back_and_nobody_elses(database_url: str) -> None:
    """D42: the lock cannot be had in time."""
    async with budget_world(database_url, lanes=1) as world:
        await world.budget()
        await world.budget("tenant:other", by=world.other)
        for lane in world.node._lanes:
            await (await lane._connection.get()).execute("set lock_timeout = 200")
        async with world.connection.transaction():
            await world.connection.execute("select 1 from budget_tenant where tenant_id = $1 for update", ACME)
            blocked = asyncio.ensure_future(world.reserve(1, WHOLE))
            free = asyncio.ensure_future(world.reserve(1, WHOLE.__class__(tenant="other"), by=world.other))
            accepted(await free)
            with pytest.raises(Unavailable):
                await blocked
        accepted(await world.reserve(1, WHOLE))


async def test_a_caller_that_leaves_does_not_take_its_request_with_it(database_url: str) -> None:
    """Whether it was done is told under its key."""
    async with budget_world(database_url) as world:
        await world.budget()
        leaving = asyncio.ensure_future(world.reserve(10, idempotency_key="k"))
        await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        outcome: Any = await world.reserve(10, idempotency_key="k")
        assert outcome.answer.reserved == 10
        await world.has(reserved=10)


async def test_text_that_cannot_be_kept_is_refused_before_it_reaches_a_turn(database_url: str) -> None:
    """PostgreSQL has no NUL in a text, and half a surrogate pair is no UTF-8; JSON can carry both."""
    async with budget_world(database_url) as world:
        await world.budget()
        deep: Any = {}
        for _ in range(100):
            deep = {"deeper": deep}
        for given in (
            {"idempotency_key": "a\0b"},
            {"idempotency_key": "\ud800"},
            {"metadata": {"a": ["\0"]}},
            {"metadata": {"\udfff": 1}},
            {"metadata": deep},
        ):
            refused(await world.reserve(1, **given), "INVALID_INPUT")
        refused(await world.release("rsv_\0"), "INVALID_INPUT")
        refused(await world.release("rsv_\0", by=world.root, as_admin=True), "INVALID_INPUT")
        innocent = {"text": "\\u0000", "number": 10**30, "list": [[]] * 100, "float": 1.0}
        hold = await world.hold(1, metadata=innocent)
        seen: Any = await world.node.budget_reads.reservation(world.acme, reservation_id=hold)
        assert seen.reservation.metadata == innocent
