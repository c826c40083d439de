"""Many at once, on one node and on two: nothing is spent twice, nothing happens twice, and nobody waits for ever."""

from __future__ import annotations

import asyncio

import pytest

from domain.budget.records import TenantStatus
from domain.budget.values import Subject
from domain.outcomes import Accepted, Refusal
from tests.budget_world import (
    ACME,
    AWO,
    BOT,
    CHILD,
    PARENT,
    WHOLE,
    BudgetWorld,
    accepted,
    at_once,
    holder,
    refused,
)


async def test_two_hundred_reserves_at_once_take_no_more_than_there_is(two_nodes: BudgetWorld) -> None:
    world = two_nodes
    await world.budget(PARENT, 1_000)
    await world.budget(CHILD, 700)
    answers, refusals = await at_once(*(world.reserve(10, node=number % 2) for number in range(200)))
    assert (len(answers), len(refusals)) == (70, 130)
    assert {refusal.code for refusal in refusals} == {"BUDGET_EXCEEDED"}
    await world.has(CHILD, remaining=0, reserved=700)
    await world.has(PARENT, remaining=300, reserved=700)


async def test_the_same_request_on_two_nodes_at_once_is_one_hold(two_nodes: BudgetWorld) -> None:
    """Scenario 70: every one of the 32 is told the same reservation."""
    world = two_nodes
    await world.budget(PARENT, 1_000)
    answers, refusals = await at_once(
        *(world.reserve(10, node=number % 2, idempotency_key="same") for number in range(32))
    )
    assert refusals == []
    assert len({answer.reservation_id for answer in answers}) == 1
    await world.has(PARENT, reserved=10)


async def test_one_key_for_two_requests_at_once_is_one_of_them(two_nodes: BudgetWorld) -> None:
    """The other is refused, whichever node it came to."""
    world = two_nodes
    await world.budget(PARENT, 1_000)
    for _ in range(10):
        key = world.key()
        answers, refusals = await at_once(
            world.reserve(10, node=0, idempotency_key=key), world.reserve(11, node=1, idempotency_key=key)
        )
        assert (len(answers), [refusal.code for refusal in refusals]) == (1, ["IDEMPOTENCY_MISMATCH"])


async def test_a_commit_and_an_operators_release_at_once_end_the_hold_once(two_nodes: BudgetWorld) -> None:
    """Scenario 104."""
    world = two_nodes
    await world.budget(PARENT, 1_000)
    for _ in range(20):
        hold = await world.hold(10)
        answers, refusals = await at_once(
            world.commit(hold, 10, node=0), world.release(hold, node=1, by=world.root, as_admin=True)
        )
        assert (len(answers), [refusal.code for refusal in refusals]) == (1, ["RESERVATION_FINALIZED"])
    balance = await world.balance()
    assert balance.reserved == 0
    assert balance.spent % 10 == 0


async def test_two_commits_into_debt_at_once_stay_within_the_limit(two_nodes: BudgetWorld) -> None:
    """Scenario 133: each has a deficit of 4000 under a limit of 5000."""
    world = two_nodes
    await world.budget(PARENT, 2_000, 5_000)
    first, second = [await world.hold(1_000, WHOLE, overage_policy=AWO) for _ in range(2)]
    answers, refusals = await at_once(world.commit(first, 5_000, node=0), world.commit(second, 5_000, node=1))
    assert (len(answers), [refusal.code for refusal in refusals]) == (1, ["OVERDRAFT_LIMIT_EXCEEDED"])
    await world.has(debt=4_000, is_over_limit=False)


async def test_closing_a_tenant_leaves_no_hold_behind(two_nodes: BudgetWorld) -> None:
    """Scenario 106: a hundred reserves race with the closing."""
    world = two_nodes
    await world.budget(PARENT, 1_000_000)
    closing = world.nodes[1].budgets.update_tenant(world.root, tenant_id=ACME, status=TenantStatus.CLOSED)
    reserves = [world.reserve(10, node=number % 2) for number in range(100)]
    outcomes = await asyncio.gather(*reserves[:50], closing, *reserves[50:])
    refusals = [outcome for outcome in outcomes if isinstance(outcome, Refusal)]
    assert {refusal.code for refusal in refusals} <= {"TENANT_CLOSED"}
    assert isinstance(outcomes[50], Accepted)
    active = "select count(*) from budget_reservation where status = 'ACTIVE'"
    assert await world.connection.fetchval(active) == 0
    await world.has(reserved=0)


async def test_mixed_work_on_one_tree_of_scopes_deadlocks_nowhere(two_nodes: BudgetWorld) -> None:
    """Scenario 131: 64 workers under six levels, reserving, committing, releasing and debiting on two nodes."""
    world = two_nodes
    scope = PARENT
    await world.budget(scope, 10**9)
    for level in ("workspace:w", "app:a", "workflow:f", "agent:bot", "toolset:t"):
        scope = f"{scope}/{level}"
        await world.budget(scope, 10**9)
    names = {"workspace": "w", "app": "a", "workflow": "f", "agent": "bot", "toolset": "t"}

    async def work(number: int) -> None:
        node = number % 2
        subject = Subject(tenant=ACME, **dict(list(names.items())[: number % 6]))
        for step in range(4):
            hold = await world.hold(10, subject, node=node)
            if step % 2:
                accepted(await world.commit(hold, 7, node=1 - node))
            else:
                accepted(await world.release(hold, node=1 - node))
            accepted(await world.debit(1, subject, node=node))

    await asyncio.gather(*(work(number) for number in range(64)))
    await world.has(PARENT, reserved=0, spent=64 * (2 * 7 + 4))
    assert (
        await world.connection.fetchval("select deadlocks from pg_stat_database where datname = current_database()")
        == 0
    )


async def test_a_tenants_row_made_by_two_nodes_at_once_is_one(two_nodes: BudgetWorld) -> None:
    """Whoever asks first about a tenant makes its head; the registry's tenant stays one too."""
    world = two_nodes
    answers, refusals = await at_once(
        *(
            world.nodes[number % 2].budgets.create_tenant(
                world.root, tenant_id="new", name="New", max_extensions=number
            )
            for number in range(8)
        )
    )
    assert refusals == []
    assert [answer.created for answer in answers].count(True) == 1
    assert len({answer.tenant.max_extensions for answer in answers}) == 1


async def test_a_node_that_was_overtaken_reads_again(two_nodes: BudgetWorld) -> None:
    world = two_nodes
    await world.budget(PARENT, 100)
    hold = await world.hold(60, WHOLE, node=0)
    refused(await world.reserve(60, WHOLE, node=1), "BUDGET_EXCEEDED")
    accepted(await world.release(hold, node=1))
    accepted(await world.reserve(100, WHOLE, node=0))
    refused(await world.reserve(1, WHOLE, node=1), "BUDGET_EXCEEDED")


@pytest.mark.parametrize("tenant", ["acme", "other"])
async def test_tenants_in_one_batch_do_not_mix(world: BudgetWorld, tenant: str) -> None:
    """Scenario 107: a subject without a tenant is the key's own, and both have a budget of this name."""
    for name, by in (("acme", world.acme), ("other", world.other)):
        await world.budget(f"tenant:{name}", 100, by=by)
    whose = {"acme": world.acme, "other": world.other}[tenant]
    answers, refusals = await at_once(
        *(world.reserve(10, Subject(tenant=name), by=by) for name, by in (("acme", world.acme), ("other", world.other)))
    )
    assert len(answers) == 2
    assert refusals == []
    accepted(await world.reserve(10, Subject(tenant=tenant), by=whose, idempotency_key="shared"))
    await world.has(f"tenant:{tenant}", reserved=20)
    refused(await world.reserve(1, BOT, by=holder("other", "*")), "ACCESS_DENIED")
