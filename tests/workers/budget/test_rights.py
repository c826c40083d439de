"""Who may ask what: every command and read has its permission, keys can be confined, and operators act for others."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from domain.authority import BUDGET_DEFAULT, EVERYTHING, TENANT_DEFAULT, Permission, Principal
from domain.budget import commands as c
from domain.budget.decisions import DECISIONS
from domain.budget.records import FundingOperation
from domain.budget.values import Subject
from tests.budget_world import (
    ACME,
    BOT,
    CALL,
    CHILD,
    OTHER,
    PARENT,
    ROOT,
    TOKENS,
    WHOLE,
    BudgetWorld,
    accepted,
    holder,
    refused,
    tokens,
)
from workers.budget.reads import (
    AuditQuery,
    BudgetQuery,
    Listing,
    Overview,
    PolicyQuery,
    ReservationQuery,
    SeenBudget,
    SeenReservation,
    TenantQuery,
)
from workers.budget.rights import RIGHTS
from workers.request import Caller

PLACE: dict[str, Any] = {"scope": PARENT, "unit": TOKENS}
KEYED: dict[str, Any] = {"idempotency_key": "k"}
HELD: dict[str, Any] = {**KEYED, "reservation_id": "rsv_none"}
ASKED: dict[str, Any] = {**KEYED, "subject": BOT, "action": CALL}

# (method, its arguments, the permission in the caller's own tenant, the operator's in another one)
COMMANDS: list[tuple[str, dict[str, Any], str | None, str | None]] = [
    ("reserve", {**ASKED, "estimate": tokens(1)}, "reservations:create", None),
    ("evaluate", {**ASKED, "estimate": tokens(1)}, "reservations:create", None),
    ("commit", {**HELD, "actual": tokens(1)}, "reservations:commit", None),
    ("release", HELD, "reservations:release", None),
    ("extend", {**HELD, "extend_by_ms": 1}, "reservations:extend", None),
    ("debit", {**ASKED, "actual": tokens(1)}, "reservations:commit", None),
    ("fund", {**PLACE, "kind": FundingOperation.CREDIT, "amount": tokens(1)}, "budgets:write", "admin:budgets:write"),
    ("create_budget", {**PLACE, "allocated": tokens(1)}, "budgets:write", "admin:budgets:write"),
    ("update_budget", PLACE, "budgets:write", "admin:budgets:write"),
    ("freeze_budget", PLACE, "budgets:write", "admin:budgets:write"),
    ("unfreeze_budget", PLACE, "budgets:write", "admin:budgets:write"),
    ("close_budget", PLACE, "budgets:write", "admin:budgets:write"),
    ("create_policy", {"name": "p", "scope_pattern": PARENT}, "policies:write", "admin:policies:write"),
    ("update_policy", {"policy_id": "pol_none"}, "policies:write", "admin:policies:write"),
    ("create_tenant", {"tenant_id": ACME, "name": "n"}, None, "admin:tenants:write"),
    ("update_tenant", {"tenant_id": ACME, "name": "n"}, None, "admin:tenants:write"),
]
READS: list[tuple[str, dict[str, Any], str | None, str | None]] = [
    ("reservations", {"query": ReservationQuery()}, "reservations:list", "admin:read"),
    ("balances", {"subject": Subject(tenant=ACME)}, "balances:read", "admin:budgets:read"),
    ("budget", PLACE, "budgets:read", "admin:budgets:read"),
    ("budgets", {"query": BudgetQuery()}, "budgets:read", "admin:budgets:read"),
    ("policies", {"query": PolicyQuery()}, "policies:read", "admin:policies:read"),
    ("tenant", {"tenant_id": ACME}, None, "admin:tenants:read"),
    ("tenants", {"query": TenantQuery()}, None, "admin:tenants:read"),
    ("audit_log", {"query": AuditQuery()}, None, "admin:audit:read"),
    ("overview", {}, None, "admin:read"),
]


def is_denied(outcome: Any) -> bool:
    return getattr(outcome, "code", None) == "ACCESS_DENIED"


async def asked(desk: Any, method: str, caller: Caller, given: dict[str, Any]) -> bool:
    """Whether it was let in."""
    return not is_denied(await getattr(desk, method)(caller, **given))


@pytest.mark.parametrize(("method", "given", "own", "admin"), [*COMMANDS, *READS], ids=lambda value: str(value)[:20])
async def test_each_method_asks_for_its_permission_and_no_other(
    world: BudgetWorld, method: str, given: dict[str, Any], own: str | None, admin: str | None
) -> None:
    desk = world.node.budget_reads if (method, given, own, admin) in READS else world.node.budgets
    words = {word.value for word in Permission}
    member = holder(ACME, *words - {own, "admin:read", "admin:write", f"admin:{own}"})
    assert not await asked(desk, method, member, given)
    if own is not None:
        assert await asked(desk, method, holder(ACME, own), given)
    elif method != "overview":
        assert not await asked(desk, method, holder(ACME, EVERYTHING), given)
    if "tenant_id" not in given and own is not None:
        elsewhere = {**given, "tenant_id": ACME}
        if admin is None:
            return
        assert not await asked(desk, method, holder(OTHER, EVERYTHING), elsewhere)
    else:
        elsewhere = given
    assert admin is not None
    wide = "admin:read" if admin.endswith("read") else "admin:write"
    assert not await asked(desk, method, holder(ROOT, *words - {admin, wide}), elsewhere)
    assert await asked(desk, method, holder(ROOT, admin), elsewhere)
    assert await asked(desk, method, holder(ROOT, wide), elsewhere)


def test_everything_that_clients_can_ask_has_a_right() -> None:
    """What only jobs ask has none."""
    assert set(RIGHTS) == set(DECISIONS) - {c.ExpireDue}
    assert {kind for union in (c.RuntimeCommand, c.GovernanceCommand) for kind in get_args(union)} <= set(RIGHTS)


def test_reading_words_never_give_writing_and_the_other_way_round() -> None:
    """Section 7: `admin:write` stands for any writing word of the protocol, `admin:read` for any reading one."""
    reader = Principal(key_id="k", tenant_id=ACME, is_root=False, permissions=frozenset({"admin:read"}))
    writer = Principal(key_id="k", tenant_id=ACME, is_root=False, permissions=frozenset({"admin:write"}))
    protocol = [word for word in Permission if not word.startswith(("compute", "tenancy"))]
    assert len(protocol) == 27
    for word in protocol:
        assert reader.may(word) is not writer.may(word), word
    assert reader.may(Permission.RESERVATIONS_LIST)
    assert writer.may(Permission.RESERVATIONS_CREATE)
    for word in (Permission.QUOTAS_READ, Permission.TENANCY_MANAGE, Permission.PROVIDERS_MANAGE):
        assert not reader.may(word)
        assert not writer.may(word)


def test_a_key_without_a_list_gets_the_protocols_defaults_and_ours() -> None:
    assert set(BUDGET_DEFAULT) == {
        *(f"reservations:{word}" for word in ("create", "commit", "release", "extend", "list")),
        "balances:read",
        *(f"{what}:{right}" for what in ("budgets", "policies") for right in ("read", "write")),
    }
    assert {"compute:quotas:read", "tenancy:manage", *BUDGET_DEFAULT} <= set(TENANT_DEFAULT)


async def test_any_word_about_reservations_may_look_at_one(world: BudgetWorld) -> None:
    await world.budget()
    hold = await world.hold(1)
    reads = world.node.budget_reads
    for word in ("reservations:extend", "reservations:list"):
        assert isinstance(await reads.reservation(holder(ACME, word), reservation_id=hold), SeenReservation)
    refused(await reads.reservation(holder(ACME, "budgets:read"), reservation_id=hold), "ACCESS_DENIED")
    refused(await reads.reservation(holder(OTHER, "*"), reservation_id=hold), "ACCESS_DENIED")
    refused(await reads.reservation(holder(OTHER, "*"), reservation_id="rsv_none"), "NOT_FOUND")
    admin = holder(ROOT, "admin:read")
    seen = await reads.reservation(admin, reservation_id=hold, as_admin=True)
    assert isinstance(seen, SeenReservation)
    assert seen.tenant_id == ACME
    refused(await reads.reservation(holder(ACME, "*"), reservation_id=hold, as_admin=True), "ACCESS_DENIED")
    assert isinstance(await reads.overview(admin), Overview)


# -- confined keys -----------------------------------------------------------------------------------------------------


async def test_a_confined_key_reaches_only_what_its_filter_names(world: BudgetWorld) -> None:
    """A record is in reach when its path has one of the segments; the filter narrows lists too."""
    await world.budget(PARENT)
    await world.budget(CHILD)
    inside, outside = await world.hold(1), await world.hold(1, WHOLE)
    confined = holder(ACME, "*", scope_filter=("agent:bot",))
    accepted(await world.reserve(1, by=confined))
    refused(await world.reserve(1, WHOLE, by=confined), "ACCESS_DENIED")
    refused(await world.debit(1, WHOLE, by=confined), "ACCESS_DENIED")
    accepted(await world.commit(inside, 1, by=confined))
    refused(await world.commit(outside, 1, by=confined), "ACCESS_DENIED")
    refused(await world.node.budgets.freeze_budget(confined, **PLACE), "ACCESS_DENIED")
    reads = world.node.budget_reads
    refused(await reads.budget(confined, **PLACE), "ACCESS_DENIED")
    assert isinstance(await reads.budget(confined, scope=CHILD, unit=TOKENS), SeenBudget)
    refused(await reads.reservation(confined, reservation_id=outside), "ACCESS_DENIED")
    for listed in (
        await reads.reservations(confined, query=ReservationQuery()),
        await reads.budgets(confined, query=BudgetQuery()),
        await reads.balances(confined, subject=WHOLE),
    ):
        assert isinstance(listed, Listing)
        assert listed.items
        assert all(CHILD in str(item) for item in listed.items)


@pytest.mark.parametrize(("entry", "reaches"), [("agent:*", True), ("app:*", False), ("tenant:acme", True)])
async def test_a_filter_may_name_a_level(world: BudgetWorld, entry: str, *, reaches: bool) -> None:
    await world.budget()
    outcome = await world.reserve(1, by=holder(ACME, "*", scope_filter=(entry,)))
    assert is_denied(outcome) is not reaches


async def test_an_operator_is_not_confined_in_another_tenant(world: BudgetWorld) -> None:
    await world.budget()
    root = holder(ROOT, "*", scope_filter=("agent:none",))
    accepted(await world.node.budgets.freeze_budget(root, tenant_id=ACME, **PLACE))


async def test_a_key_made_with_a_filter_is_confined_by_it(world: BudgetWorld) -> None:
    """From the desk of keys to the principal of the next request, and never farther than whoever made it."""
    keys = world.node.keys
    issued = accepted(
        await keys.create_api_key(
            world.acme,
            tenant_id=ACME,
            name="narrow",
            scope_filter=["Agent:Bot"],
            description="for the bot",
            metadata={"a": 1},
        )
    )
    assert (issued.key.scope_filter, issued.key.description, issued.key.metadata) == (
        ("agent:bot",),
        "for the bot",
        {"a": 1},
    )
    principal = await world.node.authenticator.authenticate(issued.secret)
    assert principal is not None
    assert principal.scope_filter == ("agent:bot",)
    narrow = Caller(principal=principal)
    refused(await keys.create_api_key(narrow, tenant_id=ACME, name="wide"), "ACCESS_DENIED")
    refused(await keys.create_api_key(narrow, tenant_id=ACME, name="x", scope_filter=["app:a"]), "ACCESS_DENIED")
    accepted(await keys.create_api_key(narrow, tenant_id=ACME, name="same", scope_filter=["agent:bot"]))
    for wrong in ("agent", ["agent"], ["agent:"], ["planet:x"], ["agent:a/b"], [1], ["agent:a"] * 65):
        outcome = await keys.create_api_key(world.acme, tenant_id=ACME, name="x", scope_filter=wrong)
        refused(outcome, "INVALID_INPUT")


async def test_a_key_can_be_changed_by_whoever_could_have_made_it(world: BudgetWorld) -> None:
    keys = world.node.keys
    issued = accepted(await keys.create_api_key(world.acme, tenant_id=ACME, name="key", permissions=["budgets:read"]))
    key_id = issued.key.key_id
    changed = accepted(
        await keys.update_api_key(world.acme, key_id=key_id, permissions=["balances:read"], scope_filter=["app:a"])
    )
    assert (changed.name, changed.permissions, changed.scope_filter) == ("key", ("balances:read",), ("app:a",))
    poor = holder(ACME, "tenancy:manage", "tenancy:read")
    refused(await keys.update_api_key(poor, key_id=key_id, name="mine"), "ACCESS_DENIED")
    refused(await keys.update_api_key(world.other, key_id=key_id, name="mine"), "NOT_FOUND")
    accepted(await keys.revoke_api_key(world.acme, key_id=key_id))
    refused(await keys.update_api_key(world.acme, key_id=key_id, name="late"), "INVALID_STATE")


# -- operators ---------------------------------------------------------------------------------------------------------


async def test_an_operator_releases_for_a_tenant_and_it_is_on_record(world: BudgetWorld) -> None:
    """103."""
    await world.budget()
    hold = await world.hold(10)
    admin = holder(ROOT, "admin:write")
    accepted(await world.release(hold, by=admin, as_admin=True, reason="stuck\r\nsince friday"))
    log = await world.node.budget_reads.audit_log(holder(ROOT, "admin:audit:read"), query=AuditQuery(resource_id=hold))
    assert isinstance(log, Listing)
    (entry,) = log.items
    assert (entry.tenant_id, entry.operation, entry.actor_type) == (ACME, "releaseReservation", "admin_on_behalf_of")
    assert (entry.trace_id, entry.request_id, entry.amount) == ("0" * 31 + "1", "req_test", 10)
    assert entry.reason == "stuck since friday"
    refused(await world.release("rsv_none", by=admin, as_admin=True), "NOT_FOUND")
    refused(await world.release("r" * 129, by=admin, as_admin=True), "INVALID_INPUT")
    refused(await world.release(hold, by=world.acme, as_admin=True), "ACCESS_DENIED")
