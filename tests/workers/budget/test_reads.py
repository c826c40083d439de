"""Lists and single looks: filters, orders, cursors, and what a moment shows (section 6)."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest

from domain.amounts import Unit
from domain.budget.records import BudgetStatus, PolicyStatus, ReservationStatus, TenantStatus
from domain.budget.replay import ANSWERS_KEPT_MS
from domain.budget.values import Subject
from domain.outcomes import Refusal
from tests.budget_world import (
    ACME,
    AWO,
    BOT,
    CHILD,
    PARENT,
    ROOT,
    START,
    TOKENS,
    WHOLE,
    BudgetWorld,
    accepted,
    refused,
)
from workers.budget.reads import (
    AuditQuery,
    AuditSort,
    BudgetQuery,
    BudgetSort,
    Listing,
    Overview,
    PolicyQuery,
    ReservationQuery,
    ReservationSort,
    SeenReservation,
    TenantQuery,
    TenantSort,
    Window,
)

Item = TypeVar("Item")


def shown(found: Listing[Item] | Refusal) -> Listing[Item]:
    assert isinstance(found, Listing), found
    return found


async def listed(world: BudgetWorld, query: ReservationQuery, **given: Any) -> list[str]:
    """Ids of one page."""
    found = shown(await world.node.budget_reads.reservations(world.acme, query=query, **given))
    return [seen.reservation.reservation_id for seen in found.items]


async def all_pages(world: BudgetWorld, query: ReservationQuery, *, limit: int) -> list[SeenReservation]:
    seen: list[SeenReservation] = []
    cursor = None
    while True:
        page = shown(await world.node.budget_reads.reservations(world.acme, query=query, limit=limit, cursor=cursor))
        seen += page.items
        assert len(page.cursors) == len(page.items) <= limit
        if (cursor := page.next_cursor) is None:
            assert not page.has_more
            return seen


@pytest.fixture
async def twelve(world: BudgetWorld) -> list[str]:
    """Twelve reservations: in pairs of one millisecond, three amounts, two subjects, every status."""
    await world.budget(PARENT, 10**18)
    await world.budget(CHILD, 10**18)
    holds = []
    for number in range(12):
        subject = Subject(tenant=ACME, agent="Bot") if number % 2 else Subject(tenant=ACME)
        holds.append(await world.hold(2**53 + number % 3, subject, ttl_ms=10_000 + 1_000 * (number % 4), grace_ms=0))
        world.clock.advance(number % 2)
    accepted(await world.commit(holds[0], 5, metadata={"done": True}))
    accepted(await world.release(holds[1], reason="not needed"))
    return holds


KEYS: dict[ReservationSort, Any] = {
    ReservationSort.RESERVATION_ID: lambda seen: seen.reservation.reservation_id,
    ReservationSort.TENANT: lambda seen: seen.reservation.subject.tenant or "",
    ReservationSort.SCOPE_PATH: lambda seen: seen.reservation.scope_path,
    ReservationSort.STATUS: lambda seen: seen.status.value,
    ReservationSort.RESERVED: lambda seen: seen.reservation.estimate,
    ReservationSort.CREATED_AT: lambda seen: seen.reservation.created_at,
    ReservationSort.EXPIRES_AT: lambda seen: seen.reservation.expires_at,
}


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("sort", list(ReservationSort))
async def test_every_order_shows_everything_once_with_ties_by_id(
    world: BudgetWorld, twelve: list[str], *, sort: ReservationSort, descending: bool
) -> None:
    """6.1, 115: amounts above 2^53 are in their true order, and ties always ascend."""
    query = ReservationQuery(sort_by=sort, descending=descending)
    seen = await all_pages(world, query, limit=5)
    by_id = sorted(seen, key=lambda each: each.reservation.reservation_id)
    assert seen == sorted(by_id, key=KEYS[sort], reverse=descending)
    assert {each.reservation.reservation_id for each in seen} == set(twelve)


async def test_filters_are_exact_and_all_of_them_count(world: BudgetWorld, twelve: list[str]) -> None:
    bots = [hold for number, hold in enumerate(twelve) if number % 2]
    query = ReservationQuery(subject=Subject(agent="BOT"), sort_by=ReservationSort.RESERVATION_ID, descending=False)
    assert await listed(world, query) == bots
    assert await listed(world, ReservationQuery(subject=Subject(agent="bo"))) == []
    assert await listed(world, ReservationQuery(status=ReservationStatus.COMMITTED)) == [twelve[0]]
    assert await listed(world, ReservationQuery(status=ReservationStatus.RELEASED, subject=Subject(agent="bot"))) == [
        twelve[1]
    ]
    first = START
    window = ReservationQuery(created=Window(first, first), sort_by=ReservationSort.RESERVATION_ID, descending=False)
    assert await listed(world, window) == twelve[:2]
    assert len(await listed(world, ReservationQuery(finalized=Window(None, 10**15)))) == 2
    assert len(await listed(world, ReservationQuery(expires=Window(START + 13_000, None)))) == 3


async def test_time_alone_moves_a_reservation_between_statuses(world: BudgetWorld, twelve: list[str]) -> None:
    world.clock.now = START + 11_000
    expired = await listed(world, ReservationQuery(status=ReservationStatus.EXPIRED))
    active = await listed(world, ReservationQuery(status=ReservationStatus.ACTIVE))
    assert len(expired) + len(active) == 10
    assert expired
    stored = await world.connection.fetch("select distinct status from budget_reservation")
    assert {row["status"] for row in stored} == {"ACTIVE", "COMMITTED", "RELEASED"}


async def test_a_reservation_is_found_by_its_key_also_when_the_answer_is_forgotten(world: BudgetWorld) -> None:
    await world.budget()
    hold = accepted(await world.reserve(1, idempotency_key="wanted")).reservation_id
    await world.hold(1)
    query = ReservationQuery(idempotency_key="wanted")
    assert await listed(world, query) == [hold]
    assert await listed(world, ReservationQuery(idempotency_key="unknown")) == []
    await world.connection.execute("delete from budget_answer")
    assert await listed(world, query) == []
    world.clock.advance(ANSWERS_KEPT_MS)
    assert await listed(world, query) == [hold]


async def test_a_cursor_is_of_one_list_and_order_only(world: BudgetWorld, twelve: list[str]) -> None:
    """113: another direction, filter or window refuses it; another limit does not."""
    reads = world.node.budget_reads
    query = ReservationQuery()
    cursor = shown(await reads.reservations(world.acme, query=query, limit=2)).next_cursor
    assert cursor is not None
    assert len(shown(await reads.reservations(world.acme, query=query, limit=9, cursor=cursor)).items) == 9
    others = [
        ReservationQuery(descending=False),
        ReservationQuery(sort_by=ReservationSort.EXPIRES_AT),
        ReservationQuery(created=Window(1, None)),
        ReservationQuery(subject=Subject(agent="bot")),
    ]
    for other in others:
        refused(await reads.reservations(world.acme, query=other, cursor=cursor), "INVALID_INPUT")
    refused(await reads.reservations(world.root, query=query, tenant_id="other", cursor=cursor), "INVALID_INPUT")
    refused(await reads.budgets(world.acme, query=BudgetQuery(), cursor=cursor), "INVALID_INPUT")
    for broken in ("", "x", "é", cursor + "x" * 5_000, cursor[:-3], "W10"):
        refused(await reads.reservations(world.acme, query=query, cursor=broken), "INVALID_INPUT")


async def test_what_cannot_be_listed_is_refused(world: BudgetWorld) -> None:
    reads = world.node.budget_reads
    for limit in (201, -1):
        refused(await reads.reservations(world.acme, query=ReservationQuery(), limit=limit), "INVALID_INPUT")
    refused(await reads.reservations(world.acme, query=ReservationQuery(created=Window(2, 1))), "INVALID_INPUT")
    refused(await reads.budgets(world.acme, query=BudgetQuery(search="x" * 129)), "INVALID_INPUT")
    refused(await reads.budgets(world.acme, query=BudgetQuery(search="\0")), "INVALID_INPUT")
    refused(await reads.reservations(world.acme, query=ReservationQuery(idempotency_key="\ud800")), "INVALID_INPUT")
    refused(await reads.reservations(world.root, query=ReservationQuery(), tenant_id="nobody"), "NOT_FOUND")
    refused(await reads.reservations(world.root, query=ReservationQuery(), tenant_id="a\0"), "INVALID_INPUT")
    refused(await reads.balances(world.acme, subject=Subject()), "INVALID_INPUT")
    refused(await reads.balances(world.acme, subject=Subject(tenant="other")), "ACCESS_DENIED")


async def test_a_reservation_shows_everything_that_was_sent_with_it(world: BudgetWorld) -> None:
    """Dimensions and metadata come back as they were sent: number for number, key for key."""
    await world.budget()
    subject = Subject(tenant=ACME, agent="Bot", dimensions={"Team": "Red", "x": ""})
    metadata = {"z": 1.0, "a": [1, 2.5e300, {"ü": None}], "big": 2**70}
    hold = await world.hold(10, subject, metadata=metadata, overage_policy=AWO)
    accepted(await world.commit(hold, 3, metadata={"done": 1}))
    seen = await world.node.budget_reads.reservation(world.acme, reservation_id=hold)
    assert isinstance(seen, SeenReservation)
    reservation = seen.reservation
    assert (reservation.subject, reservation.committed_metadata) == (subject, {"done": 1})
    assert repr(reservation.metadata) == repr(metadata)
    assert (seen.status, reservation.charged, reservation.finalized_at) == (ReservationStatus.COMMITTED, 3, START)


# -- balances and budgets ----------------------------------------------------------------------------------------------


async def test_balances_show_the_subtree_or_exactly_one_path(world: BudgetWorld) -> None:
    """6.2."""
    await world.budget(PARENT)
    await world.budget(PARENT, unit=Unit.CREDITS)
    await world.budget(CHILD)
    await world.budget("tenant:acme/app:a/agent:bot")
    reads = world.node.budget_reads

    async def paths(subject: Subject, **given: Any) -> list[tuple[str, str]]:
        found = shown(await reads.balances(world.acme, subject=subject, **given))
        return [(balance.scope_path, balance.unit.value) for balance in found.items]

    assert await paths(WHOLE) == [
        (PARENT, "CREDITS"),
        (PARENT, "TOKENS"),
        (CHILD, "TOKENS"),
        ("tenant:acme/app:a/agent:bot", "TOKENS"),
    ]
    assert await paths(Subject(agent="BOT")) == [(CHILD, "TOKENS"), ("tenant:acme/app:a/agent:bot", "TOKENS")]
    assert await paths(BOT, exact=True) == [(CHILD, "TOKENS")]
    assert await paths(WHOLE, exact=True) == [(PARENT, "CREDITS"), (PARENT, "TOKENS")]
    first = shown(await reads.balances(world.acme, subject=WHOLE, limit=3))
    rest = shown(await reads.balances(world.acme, subject=WHOLE, limit=3, cursor=first.next_cursor))
    assert [balance.scope_path for balance in rest.items] == ["tenant:acme/app:a/agent:bot"]
    assert not rest.has_more


async def test_budgets_are_filtered_and_ordered(world: BudgetWorld) -> None:
    await world.budget(PARENT, 100)
    await world.budget("tenant:acme/app:full", 10)
    await world.budget("tenant:acme/app:empty", 0)
    await world.budget("tenant:acme/app:owing", 10, 100)
    await world.budget("tenant:other", 10, by=world.other)
    accepted(await world.debit(10, Subject(app="full", tenant=ACME)))
    accepted(await world.debit(50, Subject(app="owing", tenant=ACME), overage_policy=AWO))
    accepted(await world.node.budgets.freeze_budget(world.acme, scope="tenant:acme/app:empty", unit=TOKENS))
    reads = world.node.budget_reads

    async def names(query: BudgetQuery, **given: Any) -> list[str]:
        found = shown(await reads.budgets(world.root, query=query, **({"tenant_id": ACME} | given)))
        return [seen.budget.scope_path.rpartition(":")[2] for seen in found.items]

    assert await names(BudgetQuery()) == ["acme", "empty", "full", "owing"]
    assert await names(BudgetQuery(scope_prefix="Tenant:acme/app:", descending=True)) == ["owing", "full", "empty"]
    assert await names(BudgetQuery(status=BudgetStatus.FROZEN)) == ["empty"]
    assert await names(BudgetQuery(has_debt=True)) == ["owing"]
    assert await names(BudgetQuery(over_limit=True)) == []
    assert await names(BudgetQuery(unit=Unit.CREDITS)) == []
    assert await names(BudgetQuery(utilization_least_millionths=1_000_000)) == ["full", "owing"]
    assert await names(BudgetQuery(utilization_most_millionths=0)) == ["empty"]
    by_use = BudgetQuery(sort_by=BudgetSort.UTILIZATION, descending=True)
    assert (await names(by_use))[-1] == "empty"
    assert await names(BudgetQuery(search="FULL")) == ["full"]
    assert await names(BudgetQuery(search="%")) == []
    everybody = await names(BudgetQuery(sort_by=BudgetSort.TENANT), tenant_id=None, all_tenants=True)
    assert everybody[-1] == "other"
    for sort in BudgetSort:
        pages: list[str] = []
        cursor = None
        while True:
            page = shown(await reads.budgets(world.acme, query=BudgetQuery(sort_by=sort), limit=1, cursor=cursor))
            pages += [seen.budget.budget_id for seen in page.items]
            if (cursor := page.next_cursor) is None:
                break
        assert len(set(pages)) == len(pages) == 4, sort
    refused(await reads.budgets(world.acme, query=BudgetQuery(), all_tenants=True), "ACCESS_DENIED")
    refused(await reads.budget(world.acme, scope="tenant:acme/app:none", unit=TOKENS), "BUDGET_NOT_FOUND")


async def test_policies_are_listed_newest_first(world: BudgetWorld) -> None:
    desk = world.node.budgets
    made = []
    for name in ("first", "second", "third"):
        world.clock.advance(1)
        made.append(accepted(await desk.create_policy(world.acme, name=name, scope_pattern="agent:*")))
    accepted(await desk.update_policy(world.acme, policy_id=made[1].policy_id, status=PolicyStatus.DISABLED))
    reads = world.node.budget_reads
    page = shown(await reads.policies(world.acme, query=PolicyQuery(), limit=2))
    assert [seen.policy.name for seen in page.items] == ["third", "second"]
    rest = shown(await reads.policies(world.acme, query=PolicyQuery(), limit=2, cursor=page.next_cursor))
    assert [seen.policy for seen in rest.items] == [made[0]]
    for query, count in (
        (PolicyQuery(status=PolicyStatus.DISABLED), 1),
        (PolicyQuery(search="IR"), 2),
        (PolicyQuery(scope_pattern="agent:*"), 3),
        (PolicyQuery(scope_pattern="agent:x"), 0),
    ):
        assert len(shown(await reads.policies(world.root, query=query, tenant_id=ACME)).items) == count


# -- operators ---------------------------------------------------------------------------------------------------------


async def test_tenants_are_listed_with_their_true_status(world: BudgetWorld) -> None:
    desk, reads = world.node.budgets, world.node.budget_reads
    accepted(await desk.update_tenant(world.root, tenant_id=ACME, status=TenantStatus.SUSPENDED))
    for sort in TenantSort:
        found = shown(await reads.tenants(world.root, query=TenantQuery(sort_by=sort, descending=False)))
        assert {seen.tenant.tenant_id: seen.tenant.status for seen in found.items} == {
            ROOT: TenantStatus.ACTIVE,
            ACME: TenantStatus.SUSPENDED,
            "other": TenantStatus.ACTIVE,
        }
    suspended = shown(await reads.tenants(world.root, query=TenantQuery(status=TenantStatus.SUSPENDED)))
    assert [seen.tenant.tenant_id for seen in suspended.items] == [ACME]
    refused(await reads.tenant(world.root, tenant_id="nobody"), "NOT_FOUND")
    refused(await reads.tenant(world.root, tenant_id="a\0"), "NOT_FOUND")


async def test_the_audit_log_is_filtered_by_everything_it_says(world: BudgetWorld) -> None:
    await world.budget()
    world.clock.advance(1)
    accepted(await world.fund("CREDIT", 5, reason="top up of may"))
    world.clock.advance(10)
    accepted(await world.node.budgets.freeze_budget(world.root, tenant_id=ACME, scope=PARENT, unit=TOKENS))
    reads = world.node.budget_reads

    async def operations(**given: Any) -> list[str]:
        found = shown(await reads.audit_log(world.root, query=AuditQuery(**given)))
        return [entry.operation for entry in found.items]

    assert await operations() == ["freezeBudget", "fundBudget", "createBudget"]
    assert await operations(recorded=Window(START + 2, None)) == ["freezeBudget"]
    assert await operations(key_id="key_root") == ["freezeBudget"]
    assert await operations(operations=("fundBudget", "createBudget")) == ["fundBudget", "createBudget"]
    assert await operations(resource_types=("tenant",)) == []
    assert await operations(search="FUND") == ["fundBudget"]
    assert await operations(search="may") == []
    assert await operations(status_least=201, status_most=201) == ["createBudget"]
    assert await operations(error_codes=("NOT_FOUND",)) == []
    assert await operations(error_codes_excluded=("NOT_FOUND",), status_most=200) == ["freezeBudget", "fundBudget"]
    assert await operations(tenant_id="other") == []
    for sort in AuditSort:
        assert len(await operations(sort_by=sort)) == 3


async def test_an_overview_counts_everything_at_one_moment(world: BudgetWorld) -> None:
    await world.budget(PARENT, 100, 50)
    await world.budget(CHILD, 10)
    accepted(await world.debit(120, WHOLE, overage_policy=AWO))
    accepted(await world.debit(20, Subject(agent="bot", tenant=ACME)))
    refused(await world.reserve(1), "OVERDRAFT_LIMIT_EXCEEDED")
    await world.events()
    found = await world.node.budget_reads.overview(world.root)
    assert isinstance(found, Overview)
    assert found.tenants == {"ACTIVE": 3}
    assert (found.budgets, found.budgets_by_unit) == ({"ACTIVE": 2}, {"TOKENS": 2})
    assert (found.budgets_over_limit, found.budgets_with_debt) == (2, 1)
    assert [(tenant, budget.scope_path) for tenant, budget in found.in_debt] == [(ACME, PARENT)]
    assert [event.payload["data"]["reason_code"] for event in found.denials] == ["OVERDRAFT_LIMIT_EXCEEDED"]
    assert found.expiries == ()
    assert found.events_by_category["reservation"] == 1


async def test_a_read_changes_nothing(world: BudgetWorld) -> None:
    """I8: not even what is overdue."""
    await world.budget()
    hold = await world.hold(10, ttl_ms=1_000, grace_ms=0)
    version = await world.connection.fetchval("select version from budget_tenant where tenant_id = $1", ACME)
    world.clock.advance(5_000)
    reads = world.node.budget_reads
    refused(await reads.reservation(world.acme, reservation_id=hold), "RESERVATION_EXPIRED")
    shown(await reads.reservations(world.acme, query=ReservationQuery()))
    shown(await reads.balances(world.acme, subject=WHOLE))
    await world.has(reserved=10)
    assert version == await world.connection.fetchval("select version from budget_tenant where tenant_id = $1", ACME)
    assert await world.status_of(hold) == "ACTIVE"
