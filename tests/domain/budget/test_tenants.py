"""The tenant's status and settings, and the close cascade (section 7, scenarios 95 to 106)."""

from __future__ import annotations

from typing import Any

import pytest

from domain.amounts import Unit
from domain.budget.decisions import decide
from domain.budget.events import EventType, TenantCascade, TenantLifecycle
from domain.budget.records import BudgetStatus, ExpiryPolicy, ReservationStatus, TenantStatus
from domain.budget.tenancy import MalformedTenantError
from domain.budget.values import Decision
from tests.domain.budget.books import AWO, BOT, CHILD, OPERATOR, PARENT, START, Books, budget

SUSPENDED, CLOSED, ACTIVE = TenantStatus.SUSPENDED, TenantStatus.CLOSED, TenantStatus.ACTIVE


def test_a_suspended_tenant_gets_no_new_work_but_settles_what_it_holds() -> None:
    books = Books(budget(PARENT, 1_000))
    first, second = books.hold(100), books.hold(100)
    books.accepted(books.set_tenant(SUSPENDED))
    for refused in (books.reserve(1), books.debit(1), books.extend(first, 1)):
        books.refused(refused, "TENANT_SUSPENDED")
    for preview in (books.reserve(1, dry_run=True), books.evaluate(1)):
        answer = books.accepted(preview)
        assert (answer.decision, answer.reason_code) == (Decision.DENY, "TENANT_SUSPENDED")
    books.accepted(books.commit(first, 150))
    books.accepted(books.release(second))
    books.accepted(books.fund("CREDIT", 1))
    books.accepted(books.set_tenant(ACTIVE))
    books.hold(1)


def closed_books() -> tuple[Books, dict[str, str]]:
    books = Books(
        budget(PARENT, 1_000), budget(CHILD, 500), budget("tenant:acme/app:x", 10, status=BudgetStatus.FROZEN)
    )
    ids = {"committed": books.hold(100, BOT), "open": books.hold(200, BOT), "wide": books.hold(50)}
    books.accepted(books.commit(ids["committed"], 70))
    books.wait(1_000)
    books.accepted(books.set_tenant(CLOSED))
    return books, ids


def test_nothing_can_be_changed_on_a_closed_tenant() -> None:
    books, ids = closed_books()
    for held in ids.values():
        for settling in (books.commit(held, 1), books.release(held, origin=OPERATOR), books.extend(held, 1)):
            books.refused(settling, "TENANT_CLOSED")
    for command in (
        books.reserve(1),
        books.debit(1),
        books.fund("CREDIT", 1),
        books.create_budget("tenant:acme/app:y", 1),
        books.freeze(),
        books.unfreeze(),
        books.close(),
        books.update_budget(),
        books.set_tenant(name="new"),
        books.set_tenant(ACTIVE),
    ):
        books.refused(command, "TENANT_CLOSED")
    books.refused(books.commit("rsv_none", 1), "NOT_FOUND")


def test_previews_of_a_closed_tenant_are_denied() -> None:
    books, _ = closed_books()
    for command in (books.reserve(1, dry_run=True), books.evaluate(1), books.evaluate(1, unit=Unit.CREDITS)):
        answer = books.accepted(command)
        assert (answer.decision, answer.reason_code) == (Decision.DENY, "TENANT_CLOSED")


def test_closing_releases_all_holds_and_closes_all_budgets() -> None:
    books, ids = closed_books()
    assert books.state.tenant.closed_at == START + 1_000
    assert books.state.reservations[ids["committed"]].status is ReservationStatus.COMMITTED
    for name in ("open", "wide"):
        row = books.state.reservations[ids[name]]
        assert (row.status, row.release_reason) == (ReservationStatus.RELEASED, "tenant_closed")
        assert row.finalized_at == START + 1_000
    books.has(PARENT, rem=930, reserved=0, spent=70, debt=0)
    books.has(CHILD, rem=430, reserved=0, spent=70)
    assert {found.status for found in books.state.all_budgets()} == {BudgetStatus.CLOSED}
    assert {found.closed_at for found in books.state.all_budgets()} == {START + 1_000}


def test_the_cascade_is_told_for_each_budget_and_audited_for_each_object() -> None:
    books, ids = closed_books()
    assert [(event.type.value, event.scope) for event in books.events] == [
        ("reservation.released_via_tenant_cascade", PARENT),
        ("budget.closed_via_tenant_cascade", PARENT),
        ("reservation.released_via_tenant_cascade", CHILD),
        ("budget.closed_via_tenant_cascade", CHILD),
        ("budget.closed_via_tenant_cascade", "tenant:acme/app:x"),
        ("tenant.closed", None),
    ]
    drained = [event.facts.released_amount for event in books.events if isinstance(event.facts, TenantCascade)]
    assert drained == [250, None, 200, None, None]
    prior = [event.facts.prior_status for event in books.events if isinstance(event.facts, TenantCascade)]
    assert prior == [None, "ACTIVE", None, "ACTIVE", "FROZEN"]
    assert {event.correlation_id for event in books.events} == {"tenant_close_cascade:acme:req_admin"}
    audited = [(entry.operation, entry.resource_id) for entry in books.last_changes.audit]
    assert audited == [
        ("reservation.released_via_tenant_cascade", ids["open"]),
        ("reservation.released_via_tenant_cascade", ids["wide"]),
        ("budget.closed_via_tenant_cascade", "ldg_tenant:acme_TOKENS"),
        ("budget.closed_via_tenant_cascade", "ldg_tenant:acme/agent:bot_TOKENS"),
        ("budget.closed_via_tenant_cascade", "ldg_tenant:acme/app:x_TOKENS"),
        ("updateTenant", "acme"),
    ]
    assert {entry.correlation_id for entry in books.last_changes.audit} == {"tenant_close_cascade:acme:req_admin"}


def test_holds_on_a_budget_that_was_closed_before_are_drained_without_closing_it_again() -> None:
    books = Books(budget(PARENT, 1_000))
    books.hold(40)
    books.accepted(books.close())
    books.wait(10)
    answer = books.accepted(books.set_tenant(CLOSED))
    assert answer.closed_now
    assert answer.correlation_id == "tenant_close_cascade:acme:req_admin"
    assert books.event_types() == [EventType.RESERVATION_RELEASED_VIA_CASCADE, EventType.TENANT_CLOSED]
    books.has(rem=1_000, reserved=0)
    assert books.state.all_budgets()[0].closed_at == START


def test_closing_again_does_nothing() -> None:
    books, _ = closed_books()
    answer = books.accepted(books.set_tenant(CLOSED))
    assert (answer.closed_now, answer.changed_fields) == (False, ())
    assert [entry.operation for entry in books.last_changes.audit] == ["updateTenant"]
    assert (books.last_changes.tenant, books.last_changes.budgets, books.last_changes.events) == (False, {}, [])


def test_closing_needs_all_that_is_held() -> None:
    books = Books(budget(PARENT))
    books.state.is_complete = False
    with pytest.raises(AssertionError, match="every active reservation"):
        decide(books.state, books.set_tenant(CLOSED), books.now)


def test_an_expired_hold_is_not_released_by_the_cascade() -> None:
    books = Books(budget(PARENT, 100))
    held = books.hold(100)
    books.wait(65_001)
    books.accepted(books.set_tenant(CLOSED))
    assert books.state.reservations[held].status is ReservationStatus.EXPIRED
    assert EventType.RESERVATION_RELEASED_VIA_CASCADE not in books.event_types()


def test_a_tenant_whose_status_cannot_be_read_fails_closed() -> None:
    books = Books(budget(PARENT, 100))
    held = books.hold(1)
    books.state.tenant.status = None
    for command in (
        books.reserve(1),
        books.reserve(1, dry_run=True),
        books.evaluate(1),
        books.commit(held, 1),
        books.release(held),
        books.extend(held, 1),
        books.debit(1),
        books.fund("CREDIT", 1),
    ):
        with pytest.raises(MalformedTenantError):
            decide(books.state, command, books.now)
    books.has(reserved=1, spent=0)


@pytest.mark.parametrize(
    ("before", "fields", "event", "changed"),
    [
        (ACTIVE, {"status": SUSPENDED}, EventType.TENANT_SUSPENDED, ("status",)),
        (SUSPENDED, {"status": ACTIVE}, EventType.TENANT_REACTIVATED, ("status",)),
        (ACTIVE, {"status": SUSPENDED, "name": "x"}, EventType.TENANT_SUSPENDED, ("status", "name")),
        (ACTIVE, {"max_ttl_ms": 5_000}, EventType.TENANT_SETTINGS_CHANGED, ("max_ttl_ms",)),
        (
            ACTIVE,
            {"default_overage_policy": AWO, "metadata": {"a": 1}},
            EventType.TENANT_SETTINGS_CHANGED,
            ("default_overage_policy", "metadata"),
        ),
        (ACTIVE, {"name": "x"}, EventType.TENANT_UPDATED, ("name",)),
        (ACTIVE, {"status": ACTIVE}, None, ()),
        (ACTIVE, {"expiry_policy": ExpiryPolicy.AUTO_RELEASE}, None, ()),
    ],
)
def test_an_update_is_told_once_by_the_weightiest_change(
    before: TenantStatus, fields: dict[str, Any], event: EventType | None, changed: tuple[str, ...]
) -> None:
    books = Books(budget(PARENT))
    books.accepted(books.set_tenant(before))
    answer = books.accepted(books.set_tenant(**fields))
    assert answer.changed_fields == changed
    assert books.event_types() == ([] if event is None else [event])
    assert books.last_changes.tenant is (event is not None)
    if event is not None:
        facts = books.events[0].facts
        assert isinstance(facts, TenantLifecycle)
        assert (facts.previous_status, facts.changed_fields) == (before.value, changed)


def test_suspension_is_dated_until_it_ends() -> None:
    books = Books()
    assert books.accepted(books.set_tenant(SUSPENDED)).tenant.suspended_at == START
    assert books.accepted(books.set_tenant(ACTIVE)).tenant.suspended_at is None


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"default_ttl_ms": 999}, "default_reservation_ttl_ms"),
        ({"max_ttl_ms": 86_400_001}, "max_reservation_ttl_ms"),
        ({"max_extensions": -1}, "max_reservation_extensions"),
        ({"extension_lead_max_ms": 0}, "extension_lead_max_ms"),
        ({"name": " "}, "name"),
        ({"name": "n" * 257}, "name"),
    ],
)
def test_malformed_settings_are_refused_by_the_field(fields: dict[str, Any], field: str) -> None:
    books = Books()
    assert books.refused(books.set_tenant(**fields), "INVALID_INPUT").details()["field"] == field


def test_a_command_for_another_tenant_is_a_fault_of_ours() -> None:
    books, others = Books(), Books()
    others.state.tenant.tenant_id = "other"
    with pytest.raises(AssertionError, match="another tenant"):
        decide(books.state, others.reserve(1), books.now)
