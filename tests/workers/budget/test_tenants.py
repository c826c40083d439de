"""Tenants as budgets have them: defaults, suspension, closing with all they hold, and what deleting one does (section 7)."""

from __future__ import annotations

import asyncio
from typing import Any

from domain.budget.records import ExpiryPolicy, TenantStatus
from domain.budget.values import Decision, OveragePolicy
from domain.outcomes import Accepted
from tests.budget_world import (
    ACME,
    CHILD,
    OTHER,
    PARENT,
    ROOT,
    START,
    TOKENS,
    WHOLE,
    BudgetWorld,
    accepted,
    holder,
    refused,
    repeated,
    tokens,
)
from workers.budget.reads import SeenTenant, TenantQuery
from workers.request import Caller


async def update(world: BudgetWorld, tenant_id: str = ACME, **given: Any) -> Any:
    return await world.node.budgets.update_tenant(world.root, tenant_id=tenant_id, **given)


# -- making and changing -----------------------------------------------------------------------------------------------


async def test_a_new_tenant_has_its_defaults_and_can_be_used_at_once(world: BudgetWorld) -> None:
    desk = world.node.budgets
    answer = accepted(
        await desk.create_tenant(
            world.root,
            tenant_id="new",
            name="New",
            metadata={"plan": "small"},
            default_overage_policy=OveragePolicy.REJECT,
            default_ttl_ms=2_000,
            expiry_policy=ExpiryPolicy.GRACE_ONLY,
        )
    )
    assert answer.created
    again = accepted(await desk.create_tenant(world.root, tenant_id="new", name="New", default_ttl_ms=9_000))
    assert (again.created, again.tenant.default_ttl_ms) == (False, 2_000)
    refused(await desk.create_tenant(world.root, tenant_id="new", name="Another name"), "DUPLICATE_RESOURCE")
    seen = await world.node.budget_reads.tenant(world.root, tenant_id="new")
    assert isinstance(seen, SeenTenant)
    assert (seen.tenant.metadata, seen.tenant.expiry_policy) == ({"plan": "small"}, ExpiryPolicy.GRACE_ONLY)
    assert (seen.created_at, seen.updated_at) == (START, START)
    new = holder("new", "*")
    await world.budget("tenant:new", by=new)
    hold = accepted(await world.reserve(1, WHOLE.__class__(tenant="new"), by=new))
    assert (hold.remaining_ttl_ms, hold.overage_policy) == (2_000, OveragePolicy.REJECT)
    assert await world.event_types("new") == ["tenant.created", "budget.created"]


async def test_a_tenant_made_elsewhere_has_the_general_defaults(world: BudgetWorld) -> None:
    """The registry makes tenants too; their heads come with the first question."""
    seen = await world.node.budget_reads.tenant(world.root, tenant_id=OTHER)
    assert isinstance(seen, SeenTenant)
    assert (seen.tenant.status, seen.tenant.version, seen.tenant.name) == (TenantStatus.ACTIVE, 0, OTHER)


async def test_a_tenant_is_called_by_a_legal_name_and_known_before_it_is_used(world: BudgetWorld) -> None:
    desk = world.node.budgets
    for name in ("no spaces", "a\0b", "", "x" * 129):
        refused(await desk.create_tenant(world.root, tenant_id=name, name="n"), "INVALID_INPUT")
    refused(await desk.create_tenant(world.root, tenant_id="ok", name=" "), "INVALID_INPUT")
    given: dict[str, Any] = {"scope": "tenant:nobody", "unit": TOKENS, "allocated": tokens(1)}
    refusal: Any = refused(await desk.create_budget(world.root, tenant_id="nobody", **given), "NOT_FOUND")
    assert refusal.field == "tenant_id"
    refused(await update(world, "nobody", name="n"), "NOT_FOUND")
    refused(await desk.create_budget(world.root, tenant_id="a\0", **given), "INVALID_INPUT")


async def test_settings_and_names_change_with_one_event_each(world: BudgetWorld) -> None:
    accepted(await update(world, name="Acme Limited"))
    accepted(await update(world, default_ttl_ms=5_000, metadata={"a": 1}))
    accepted(await update(world, default_ttl_ms=5_000))
    assert await world.event_types() == ["tenant.updated", "tenant.settings_changed"]
    assert await world.connection.fetchval("select name from tenant where tenant_id = $1", ACME) == "Acme Limited"
    listed = await world.node.budget_reads.tenants(world.root, query=TenantQuery(search="limited"))
    assert [seen.tenant.tenant_id for seen in listed.items] == [ACME]  # type: ignore[union-attr]


# -- suspended ---------------------------------------------------------------------------------------------------------


async def test_a_suspended_tenant_finishes_what_it_began_and_begins_nothing(world: BudgetWorld) -> None:
    """[D] of section 7: authentication passes; settling, funding and reading go on."""
    await world.budget()
    committed, released, kept = [await world.hold(10) for _ in range(3)]
    accepted(await update(world, status=TenantStatus.SUSPENDED))
    for ask in (world.reserve(1), world.debit(1), world.extend(kept, 1)):
        refused(await ask, "TENANT_SUSPENDED")
    for ask in (world.reserve(1, dry_run=True), world.evaluate(1)):
        answer = accepted(await ask)
        assert (answer.decision, answer.reason_code) == (Decision.DENY, "TENANT_SUSPENDED")
    accepted(await world.commit(committed, 10))
    accepted(await world.release(released))
    accepted(await world.fund("CREDIT", 1))
    accepted(await update(world, status=TenantStatus.ACTIVE))
    accepted(await world.reserve(1))


# -- closed ------------------------------------------------------------------------------------------------------------


async def test_closing_takes_holds_budgets_and_keys_down_in_one_step(world: BudgetWorld) -> None:
    """Mode A: holds, budgets, keys, then the tenant; one audit entry each, one event each (holds: one a budget)."""
    await world.budget(PARENT, 100)
    await world.budget(CHILD, 100)
    holds = [await world.hold(10), await world.hold(20)]
    caller = Caller(principal=world.root.principal, request_id="req_1")
    answer = accepted(
        await world.node.budgets.update_tenant(caller, tenant_id=ACME, status=TenantStatus.CLOSED, name="Gone")
    )
    assert (answer.closed_now, answer.correlation_id) == (True, "tenant_close_cascade:acme:req_1")
    assert {await world.status_of(hold) for hold in holds} == {"RELEASED"}
    events = [event for event in await world.events() if event.payload.get("correlation_id") == answer.correlation_id]
    assert [event.type for event in events] == [
        *["reservation.released_via_tenant_cascade", "budget.closed_via_tenant_cascade"] * 2,
        "api_key.revoked_via_tenant_cascade",
        "tenant.closed",
    ]
    assert events[0].payload["data"]["released_amount"] == 30
    assert events[4].payload["data"] == {
        "key_id": "key_acme",
        "name": "key of acme",
        "prior_status": "ACTIVE",
        "new_status": "REVOKED",
        "cascade_reason": "tenant_closed",
    }
    entries = await world.connection.fetch(
        "select operation, resource_id, request_id from budget_audit where correlation_id = $1 order by entry_id",
        answer.correlation_id,
    )
    assert [row["operation"] for row in entries] == [
        *["reservation.released_via_tenant_cascade"] * 2,
        *["budget.closed_via_tenant_cascade"] * 2,
        "api_key.revoked_via_tenant_cascade",
        "updateTenant",
    ]
    assert {row["request_id"] for row in entries} == {"req_1"}
    assert await world.connection.fetchval("select revoked_at from api_key where key_id = 'key_acme'") == START
    assert await world.connection.fetchval("select revoked_at from api_key where key_id = 'key_root'") is None


async def test_a_closed_tenant_refuses_everything_but_reads_and_replays(world: BudgetWorld) -> None:
    """95, 97, 98, 100."""
    await world.budget()
    preview = accepted(await world.reserve(1, dry_run=True, idempotency_key="dry"))
    live = accepted(await world.reserve(10, idempotency_key="live"))
    hold = live.reservation_id
    accepted(await update(world, status=TenantStatus.CLOSED))
    for ask in (world.reserve(1), world.debit(1), world.commit(hold, 1), world.release(hold), world.extend(hold, 1)):
        refused(await ask, "TENANT_CLOSED")
    refused(await world.release(hold, by=world.root, as_admin=True), "TENANT_CLOSED")
    refused(await world.fund("CREDIT", 1), "TENANT_CLOSED")
    refused(await update(world, name="Back again"), "TENANT_CLOSED")
    assert accepted(await world.evaluate(1)).reason_code == "TENANT_CLOSED"
    assert repeated(await world.reserve(1, dry_run=True, idempotency_key="dry")) == preview
    assert repeated(await world.reserve(10, idempotency_key="live")).reservation_id == hold
    seen: Any = await world.node.budget_reads.reservation(world.acme, reservation_id=hold)
    assert seen.reservation.release_reason == "tenant_closed"


async def test_closing_again_does_nothing_and_tells_nothing(world: BudgetWorld) -> None:
    await world.budget()
    accepted(await update(world, status=TenantStatus.CLOSED))
    told = await world.event_types()
    answer = accepted(await update(world, status=TenantStatus.CLOSED))
    assert (answer.closed_now, answer.changed_fields) == (False, ())
    assert await world.event_types() == told


async def test_a_closed_tenant_gets_no_new_key(world: BudgetWorld) -> None:
    accepted(await update(world, status=TenantStatus.CLOSED))
    made: Any = await world.node.keys.create_api_key(world.root, tenant_id=ACME, name="late")
    assert (refused(made, "INVALID_STATE"), made.state) == (made, "closed")


async def test_a_key_made_while_its_tenant_closes_is_revoked_or_never_made(two_nodes: BudgetWorld) -> None:
    world = two_nodes
    makes = [world.nodes[n % 2].keys.create_api_key(world.root, tenant_id=ACME, name=f"k{n}") for n in range(10)]
    closing = world.nodes[1].budgets.update_tenant(world.root, tenant_id=ACME, status=TenantStatus.CLOSED)
    await asyncio.gather(*makes[:5], closing, *makes[5:])
    live = "select count(*) from api_key where tenant_id = $1 and revoked_at is null"
    assert await world.connection.fetchval(live, ACME) == 0


async def test_the_root_tenant_cannot_lock_everybody_out(world: BudgetWorld) -> None:
    for status in (TenantStatus.SUSPENDED, TenantStatus.CLOSED):
        refused(await update(world, ROOT, status=status), "INVALID_STATE")


# -- deleting ----------------------------------------------------------------------------------------------------------


async def test_deleting_a_tenant_closes_its_budgets_too(world: BudgetWorld) -> None:
    await world.budget()
    hold = await world.hold(10)
    deleted = await world.node.tenancy.delete_tenant(world.root, tenant_id=ACME)
    assert isinstance(deleted, Accepted), deleted
    assert await world.status_of(hold) == "RELEASED"
    assert (await world.event_types())[-1] == "tenant.closed"
    refused(await world.reserve(1), "TENANT_CLOSED")


async def test_a_tenant_that_was_deleted_before_budgets_knew_it_is_closed(world: BudgetWorld) -> None:
    """No head was made for it: it is born closed."""
    await world.connection.execute(
        "update tenant set deleted_at = $1, closed_at = $1 where tenant_id = $2", START, OTHER
    )
    given: dict[str, Any] = {"scope": "tenant:other", "unit": TOKENS, "allocated": tokens(1)}
    refused(await world.node.budgets.create_budget(world.root, tenant_id=OTHER, **given), "TENANT_CLOSED")
    await world.connection.execute("update api_key set revoked_at = $1 where tenant_id = $2", START, OTHER)


async def test_closing_for_budgets_deletes_nothing_else(world: BudgetWorld) -> None:
    """Its grants stay: root ends them, or deletes the tenant."""
    accepted(await update(world, status=TenantStatus.CLOSED))
    row = await world.connection.fetchrow("select deleted_at, closed_at from tenant where tenant_id = $1", ACME)
    assert row is not None
    assert (row["deleted_at"], row["closed_at"]) == (None, None)
    deleted = await world.node.tenancy.delete_tenant(world.root, tenant_id=ACME)
    assert isinstance(deleted, Accepted), deleted
