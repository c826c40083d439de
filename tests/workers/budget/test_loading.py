"""Tenants that are too large to be kept in memory whole, and memory that does not grow (`loading`)."""

from __future__ import annotations

from typing import Any

from domain.budget.records import BudgetReservation, ReservationStatus, Tenant, TenantStatus
from domain.budget.replay import ANSWERS_KEPT_MS
from domain.budget.state import BudgetState
from domain.budget.values import OveragePolicy, Subject
from domain.terms import DAY_MS
from tests.budget_world import (
    ACME,
    BOT,
    CALL,
    PARENT,
    START,
    TOKENS,
    WHOLE,
    BudgetWorld,
    accepted,
    budget_world,
    refused,
    repeated,
)
from workers.budget.loading import BUDGETS_WHOLE, HOLDS_MAX, SCOPES_MAX, TenantBooks
from workers.retention import RetentionJob

MANY = """
insert into budget (tenant_id, scope_path, unit, budget_id, allocated, reserved, spent, debt, overdraft_limit, capped,
    status, rollover_policy, created_at)
select 'acme', 'tenant:acme/app:a' || n, case when n % 10 = 0 then 'CREDITS' else 'TOKENS' end, 'bud_' || n, 100, 0, 0, 0,
    0, false, 'ACTIVE', 'NONE', 1
from generate_series(1, $1) n
"""


def app(number: int) -> Subject:
    return Subject(tenant=ACME, app=f"a{number}")


async def test_a_tenant_with_very_many_budgets_is_read_as_far_as_it_is_asked_about(database_url: str) -> None:
    async with budget_world(database_url, nodes=2) as world:
        await world.budget(PARENT, 1_000)
        await world.connection.execute(MANY, BUDGETS_WHOLE + 200)
        await world.connection.execute("update budget_tenant set version = version + 1")  # as another node's turn would
        hold = await world.hold(60, app(7))
        refused(await world.reserve(60, app(7)), "BUDGET_EXCEEDED")
        refused(await world.reserve(60, app(7), node=1), "BUDGET_EXCEEDED")
        accepted(await world.commit(hold, 60, node=1))
        accepted(await world.reserve(40, app(7)))
        accepted(await world.reserve(1, app(999_999)))
        refused(await world.reserve(1, Subject(app="a7")), "BUDGET_NOT_FOUND")
        late = f"tenant:acme/app:a{BUDGETS_WHOLE + 151}/agent:bot"
        await world.budget(late, 5)
        answer = accepted(await world.reserve(5, Subject(tenant=ACME, app=f"a{BUDGETS_WHOLE + 151}", agent="bot")))
        assert [balance.scope_path for balance in answer.balances] == [PARENT, late.rpartition("/")[0], late]
        books = world.nodes[0].budget_asker._directory.actor(ACME).state
        assert books is not None
        assert not books.has_all_budgets
        assert len(books.state.budgets) < 20
        closed = await world.node.budgets.update_tenant(world.root, tenant_id=ACME, status=TenantStatus.CLOSED)
        assert accepted(closed).closed_now
        open_ = "select count(*) from budget where status <> 'CLOSED'"
        assert await world.connection.fetchval(open_) == 0
        await world.audit()


def hold(number: int, **fields: Any) -> BudgetReservation:
    return BudgetReservation(
        reservation_id=f"rsv_{number}",
        idempotency_key="k",
        subject=BOT,
        action=CALL,
        unit=TOKENS,
        estimate=1,
        scope_path=PARENT,
        affected_scopes=(PARENT,),
        budgeted_scopes=(PARENT,),
        overage_policy=OveragePolicy.REJECT,
        created_at=START,
        expires_at=START + number,
        ttl_ms=number,
        grace_ms=0,
        max_extensions=0,
        **fields,
    )


def test_memory_keeps_active_holds_and_forgets_settled_ones() -> None:
    books = TenantBooks(BudgetState(Tenant(tenant_id=ACME)))
    for number in range(1, HOLDS_MAX + 1):
        reservation = hold(number)
        books.state.admit_reservation(reservation)
        if number > 10:
            reservation.status = ReservationStatus.EXPIRED
    assert books.trim()
    assert len(books.state.reservations) == 10
    assert books.state.next_expiry_at() == START + 2


def test_memory_that_stays_too_large_is_given_up() -> None:
    books = TenantBooks(BudgetState(Tenant(tenant_id=ACME)))
    for number in range(1, HOLDS_MAX + 2):
        books.state.admit_reservation(hold(number))
    assert not books.trim()
    wide = TenantBooks(BudgetState(Tenant(tenant_id=ACME)), scopes={str(number) for number in range(SCOPES_MAX + 1)})
    assert not wide.trim()


async def test_a_replay_finds_its_reservation_after_memory_has_let_go_of_it(database_url: str) -> None:
    async with budget_world(database_url) as world:
        await world.budget()
        first = accepted(await world.reserve(10, WHOLE, idempotency_key="k"))
        world.node.budget_asker._directory.actor(ACME).state = None
        world.clock.advance(1_000)
        assert repeated(await world.reserve(10, WHOLE, idempotency_key="k")).remaining_ttl_ms == 59_000
        accepted(await world.commit(first.reservation_id, 1))
        world.node.budget_asker._directory.actor(ACME).state = None
        assert repeated(await world.reserve(10, WHOLE, idempotency_key="k")).remaining_ttl_ms == 0


async def test_retention_forgets_keys_in_their_time(world: BudgetWorld) -> None:
    """Section 4.4: afterwards the key is new. A debit's never is."""
    await world.budget(PARENT, 10**6)
    held = accepted(await world.reserve(10, WHOLE, idempotency_key="k"))
    accepted(await world.debit(5, WHOLE, idempotency_key="k"))
    accepted(await world.release(held.reservation_id, idempotency_key="k"))
    job = RetentionJob(world.node.database, world.clock)
    assert (await job.run_once()).counts["answers"] == 0
    world.clock.advance(ANSWERS_KEPT_MS)
    assert (await job.run_once()).counts["answers"] == 2  # the reserve's, and that of the budget
    accepted(await world.reserve(20, WHOLE, idempotency_key="k"))
    repeated(await world.release(held.reservation_id, idempotency_key="k"))
    world.clock.advance(40 * DAY_MS)
    await job.run_once()
    refused(await world.release(held.reservation_id, idempotency_key="k"), "RESERVATION_FINALIZED")
    repeated(await world.debit(5, WHOLE, idempotency_key="k"))
    refused(await world.debit(6, WHOLE, idempotency_key="k"), "IDEMPOTENCY_MISMATCH")
