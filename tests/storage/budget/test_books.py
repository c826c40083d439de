"""Rows and answers on a real database: whatever is written comes back as it was, and what may not be written is not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import asyncpg
import msgspec
import pytest

from domain.amounts import INT64_MAX, Unit
from domain.budget.answers import (
    CommitAnswer,
    DebitAnswer,
    EvaluateAnswer,
    ExtendAnswer,
    FundAnswer,
    ReleaseAnswer,
    ReserveAnswer,
)
from domain.budget.commands import KeyedCommand
from domain.budget.decisions import DECISIONS
from domain.budget.patterns import ScopePattern, parse_pattern
from domain.budget.records import (
    Budget,
    BudgetReservation,
    BudgetStatus,
    DirectDebit,
    ExpiryPolicy,
    Funding,
    FundingOperation,
    Policy,
    PolicyStatus,
    RateKind,
    RateLimits,
    RateWindow,
    ReservationStatus,
    RolloverPolicy,
    Tenant,
    TenantStatus,
    TtlOverride,
)
from domain.budget.replay import ANSWERS_KEPT_MS, SETTLEMENTS_KEPT_MS, RememberedAnswer
from domain.budget.state import BudgetState
from domain.budget.tenants import TenantAnswer
from domain.budget.values import Action, Balance, Caps, Decision, Metrics, OveragePolicy, Subject
from domain.replay import RequestKey
from storage.budget.answers import ANSWERS, forget_answers
from storage.budget.books import (
    Flush,
    Head,
    flush_books,
    lock_tenants,
    read_owners,
    read_policies,
    read_reservations,
    read_some_budgets,
)
from storage.database import Connection, Trouble, connect, trouble_of
from tests.budget_world import ACME, OTHER, START, make_tenants

BALANCE = Balance("tenant:acme", Unit.TOKENS, INT64_MAX, 1, 2, 3, 4, True)
BALANCES = (BALANCE, BALANCE._replace(scope_path="tenant:acme/agent:bot", is_over_limit=False))
CAPS = Caps(max_tokens=1, max_steps_remaining=0, tool_allowlist=("a", "b"), tool_denylist=("c",), cooldown_ms=5)

RESERVED = ReserveAnswer(
    decision=Decision.ALLOW_WITH_CAPS,
    scope_path="tenant:acme/agent:bot",
    affected_scopes=("tenant:acme", "tenant:acme/agent:bot"),
    unit=Unit.USD_MICROCENTS,
    decided_at=START,
    reservation_id="rsv_1",
    reserved=INT64_MAX,
    expires_at=START + 1,
    remaining_ttl_ms=1,
    grace_ms=0,
    overage_policy=OveragePolicy.ALLOW_WITH_OVERDRAFT,
    caps=CAPS,
    balances=BALANCES,
)
DENIED = ReserveAnswer(
    decision=Decision.DENY,
    scope_path="workspace:w",
    affected_scopes=("workspace:w",),
    unit=Unit.CREDITS,
    decided_at=START,
    reason_code="LIMIT_EXCEEDED",
    retry_after_ms=7,
)
BUDGET = Budget(
    budget_id="bud_1",
    scope_path="tenant:acme",
    unit=Unit.TOKENS,
    allocated=INT64_MAX,
    created_at=START,
    debt=2,
    capped=True,
    status=BudgetStatus.FROZEN,
    commit_overage_policy=OveragePolicy.REJECT,
    caps=CAPS,
    rollover_policy=RolloverPolicy.CARRY_FORWARD,
    metadata={"z": [1, {"a": 1.5, "big": 2**63 - 1}], "a": None},
)
POLICY = Policy(
    policy_id="pol_1",
    name="p",
    pattern=ScopePattern(text="*/agent:x/*", segments=("agent:x",), floating=True, below=True),
    created_at=START,
    caps=CAPS,
    ttl_override=TtlOverride(max_ttl_ms=1),
    rate_limits=RateLimits(max_commits_per_minute=INT64_MAX),
    status=PolicyStatus.DISABLED,
)
TENANT = TenantAnswer(
    tenant=Tenant(tenant_id="acme", status=TenantStatus.CLOSED, metadata={"k": "v"}, max_ttl_ms=7, closed_at=START),
    changed_fields=("status", "name"),
    closed_now=True,
    correlation_id="c",
)
EVERY_ANSWER: list[tuple[str, Any]] = [
    ("budget.reserve", RESERVED),
    ("budget.reserve", DENIED),
    (
        "budget.evaluate",
        EvaluateAnswer(decision=Decision.DENY, affected_scopes=("a",), decided_at=1, caps=CAPS, reason_code="X"),
    ),
    (
        "budget.commit/rsv_1",
        CommitAnswer(
            reservation_id="rsv_1", unit=Unit.TOKENS, charged=1, released=None, finalized_at=2, balances=BALANCES
        ),
    ),
    (
        "budget.release/rsv_1",
        ReleaseAnswer(reservation_id="rsv_1", unit=Unit.RISK_POINTS, released=0, finalized_at=2, balances=BALANCES),
    ),
    (
        "budget.extend/rsv_1",
        ExtendAnswer(
            reservation_id="rsv_1", expires_at=9, remaining_ttl_ms=8, extensions_used=1, decided_at=1, balances=()
        ),
    ),
    (
        "budget.debit",
        DebitAnswer(debit_id="dbt_1", unit=Unit.TOKENS, actual=9, charged=3, decided_at=1, balances=BALANCES),
    ),
    (
        "budget.fund",
        FundAnswer(
            budget_id="bud_1", operation=FundingOperation.RESET_SPENT, before=BALANCE, after=BALANCE, decided_at=1
        ),
    ),
    *((f"budget.{operation}", BUDGET) for operation in ("create", "update", "freeze", "unfreeze", "close")),
    *((f"budget.{operation}", POLICY) for operation in ("create_policy", "update_policy")),
    *((f"budget.{operation}", TENANT) for operation in ("create_tenant", "update_tenant")),
]


@pytest.fixture
async def connection(database_url: str) -> AsyncIterator[Connection]:
    """With the tenants root, acme and other."""
    opened = await connect(database_url)
    await make_tenants(opened, at=START)
    yield opened
    await opened.close()


class Written:
    """Acme's head, and changes to it as a turn would flush them."""

    def __init__(self, head: Head) -> None:
        self.head = head
        self.state = BudgetState(head.tenant)

    async def flush(self, connection: Connection) -> None:
        self.state.tenant.version += 1
        flush = Flush()
        flush.add_changes(self.head, self.state.take_changes(), events=(), audit=(), now=START)
        async with connection.transaction():
            await flush_books(connection, flush)


@pytest.fixture
async def books(connection: Connection) -> Written:
    return Written(await head_of(connection))


async def head_of(connection: Connection, tenant_id: str = ACME) -> Head:
    async with connection.transaction():
        return (await lock_tenants(connection, [tenant_id], [])).heads[tenant_id]


# -- answers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("operation", "answer"), EVERY_ANSWER, ids=lambda value: str(value)[:20])
async def test_an_answer_comes_back_exactly_as_it_was(
    connection: Connection, books: Written, operation: str, answer: Any
) -> None:
    key = RequestKey(ACME, operation, 'a key with \\u0000 and é\n"quotes"')
    remembered = RememberedAnswer(fingerprint=bytes(range(32)), answer=answer, answered_at=START)
    books.state.remember(key, remembered)
    await books.flush(connection)
    async with connection.transaction():
        locked = await lock_tenants(connection, [ACME], [key, RequestKey(OTHER, operation, key.idempotency_key)])
    assert locked.remembered == {key: remembered}
    assert type(locked.remembered[key].answer) is type(answer)


def test_every_operation_under_a_key_has_a_type_for_its_answers() -> None:
    keyed = {kind.operation for kind in DECISIONS if issubclass(kind, KeyedCommand)}
    assert keyed == set(ANSWERS) == {operation.partition("/")[0] for operation, _ in EVERY_ANSWER}
    assert {type(answer) for _, answer in EVERY_ANSWER} == set(ANSWERS.values())


async def test_answers_are_forgotten_in_their_time_and_debits_never(connection: Connection, books: Written) -> None:
    """Section 4.4: 7 days, 30 for commits and releases; a late retry of a debit is still known."""
    for operation, answer in EVERY_ANSWER[1:]:
        remembered = RememberedAnswer(fingerprint=bytes(32), answer=answer, answered_at=START)
        books.state.remember(RequestKey(ACME, operation, "k"), remembered)
    await books.flush(connection)

    async def left() -> set[str]:
        rows = await connection.fetch("select operation from budget_answer")
        return {row["operation"].partition("/")[0].removeprefix("budget.") for row in rows}

    assert await forget_answers(connection, now=START + ANSWERS_KEPT_MS - 1, limit=100) == 0
    assert await forget_answers(connection, now=START + ANSWERS_KEPT_MS, limit=3) == 3
    assert await forget_answers(connection, now=START + ANSWERS_KEPT_MS, limit=100) == 10
    assert await left() == {"commit", "release", "debit"}
    assert await forget_answers(connection, now=START + SETTLEMENTS_KEPT_MS, limit=100) == 2
    assert await forget_answers(connection, now=INT64_MAX, limit=100) == 0
    assert await left() == {"debit"}


# -- rows --------------------------------------------------------------------------------------------------------------


def full_budget(**fields: Any) -> Budget:
    values: dict[str, Any] = {
        "budget_id": "bud_1",
        "scope_path": "tenant:acme",
        "unit": Unit.TOKENS,
        "allocated": INT64_MAX,
        "created_at": START,
        "reserved": 1,
        "spent": 2,
        "debt": 3,
        "overdraft_limit": 4,
        "capped": True,
        "status": BudgetStatus.CLOSED,
        "commit_overage_policy": OveragePolicy.REJECT,
        "caps": CAPS,
        "rollover_policy": RolloverPolicy.CARRY_FORWARD,
        "period_start_at": 5,
        "period_end_at": 6,
        "metadata": {"b": 1.0, "a": [{}, None, "é"]},
        "updated_at": 7,
        "closed_at": 8,
    }
    return Budget(**(values | fields))


def held(**fields: Any) -> BudgetReservation:
    values: dict[str, Any] = {
        "reservation_id": "rsv_1",
        "idempotency_key": "k",
        "subject": Subject(tenant="acme", agent="Bot", toolset="", dimensions={"x": "y"}),
        "action": Action(kind="k", name="n", tags=("a", "b")),
        "unit": Unit.TOKENS,
        "estimate": INT64_MAX,
        "scope_path": "tenant:acme/agent:bot",
        "affected_scopes": ("tenant:acme", "tenant:acme/agent:bot"),
        "budgeted_scopes": ("tenant:acme",),
        "overage_policy": OveragePolicy.ALLOW_IF_AVAILABLE,
        "created_at": START,
        "expires_at": START + 10,
        "ttl_ms": 10,
        "grace_ms": 5,
        "max_extensions": 3,
        "extensions_used": 2,
        "metadata": {"m": 1},
    }
    return BudgetReservation(**(values | fields))


SETTLED: dict[str, Any] = {
    "status": ReservationStatus.COMMITTED,
    "charged": 5,
    "debts": (4,),
    "finalized_at": START + 1,
    "committed_metadata": {"c": []},
    "metrics": Metrics(tokens_input=1, model_version="v", custom={"x": [1.5]}),
    "release_reason": None,
}


@pytest.mark.parametrize(
    "make", [full_budget, lambda: full_budget(status=BudgetStatus.ACTIVE, closed_at=None, caps=None)]
)
async def test_a_budget_comes_back_as_it_was(
    connection: Connection, books: Written, make: Callable[[], Budget]
) -> None:
    books.state.add_budget(make())
    await books.flush(connection)
    assert await read_some_budgets(connection, ACME, limit=None) == [make()]
    row = await connection.fetchrow("select remaining, is_over_limit from budget")
    assert row is not None
    assert (row["remaining"], row["is_over_limit"]) == (make().remaining, make().is_over_limit)


@pytest.mark.parametrize("fields", [{}, SETTLED, {"status": ReservationStatus.EXPIRED}])
async def test_a_reservation_comes_back_as_it_was(
    connection: Connection, books: Written, fields: dict[str, Any]
) -> None:
    """Also when it was changed after it was written."""
    for reservation in (held(**fields), held(reservation_id="rsv_2")):
        books.state.add_reservation(reservation)
    await books.flush(connection)
    later = held(reservation_id="rsv_2", **fields)
    books.state.touch_reservation(later)
    await books.flush(connection)
    found = await read_reservations(connection, [(ACME, "rsv_1"), (ACME, "rsv_2"), (OTHER, "rsv_1")])
    assert sorted(found, key=lambda row: row[1].reservation_id) == [(ACME, held(**fields)), (ACME, later)]
    assert await read_owners(connection, ["rsv_1", "rsv_9"]) == {"rsv_1": ACME}


async def test_policies_and_their_windows_come_back_as_they_were(connection: Connection, books: Written) -> None:
    pattern = parse_pattern("*/agent:Bot")
    assert isinstance(pattern, ScopePattern)
    policy = Policy(
        policy_id="pol_1",
        name="n",
        pattern=pattern,
        created_at=START,
        description="d",
        priority=INT64_MAX,
        caps=CAPS,
        commit_overage_policy=OveragePolicy.REJECT,
        ttl_override=TtlOverride(default_ttl_ms=1, max_extensions=0),
        rate_limits=RateLimits(max_commits_per_minute=5),
        status=PolicyStatus.DISABLED,
        effective_from_at=1,
        effective_until_at=2,
        updated_at=START,
    )
    window = RateWindow(policy_id="pol_1", kind=RateKind.COMMITS, minute_at=START, count=3)
    books.state.add_policy(policy)
    books.state.touch_rate_window(window)
    await books.flush(connection)
    assert await read_policies(connection, [ACME, OTHER]) == ({ACME: [policy]}, {ACME: [window]})
    changed = replace(policy, status=PolicyStatus.ACTIVE, caps=None, effective_until_at=None)
    books.state.touch_policy(changed)
    books.state.touch_rate_window(replace(window, count=4))
    await books.flush(connection)
    assert await read_policies(connection, [ACME]) == ({ACME: [changed]}, {ACME: [replace(window, count=4)]})


async def test_a_tenants_head_comes_back_as_it_was(connection: Connection, books: Written) -> None:
    tenant = books.state.tenant
    tenant.name, tenant.metadata = "Acme Limited", {"z": 1.0, "a": None}
    tenant.default_overage_policy, tenant.expiry_policy = OveragePolicy.REJECT, ExpiryPolicy.MANUAL_CLEANUP
    tenant.default_ttl_ms, tenant.max_ttl_ms, tenant.max_extensions = 1_000, 2_000, 0
    tenant.denies_on_any_debt, tenant.extension_lead_max_ms = True, 3
    tenant.status, tenant.suspended_at, tenant.clock_at = TenantStatus.SUSPENDED, START, START
    books.state.touch_tenant()
    await books.flush(connection)
    head = await head_of(connection)
    assert head.tenant == tenant
    assert repr(head.tenant.metadata) == repr(tenant.metadata)


async def test_what_is_only_added_is_kept_whole(connection: Connection, books: Written) -> None:
    books.state.add_budget(full_budget())
    debit = DirectDebit(
        debit_id="dbt_1",
        idempotency_key="k",
        subject=Subject(agent="Bot", dimensions={"a": "b"}),
        action=Action(kind="k", name="n"),
        unit=Unit.TOKENS,
        actual=5,
        charged=3,
        scope_path="agent:bot",
        budgeted_scopes=("agent:bot",),
        debts=(),
        overage_policy=OveragePolicy.REJECT,
        created_at=START,
        metrics=Metrics(latency_ms=1),
        client_time_ms=-0,
        metadata={"a": 1},
    )
    funding = Funding(
        funding_id="fnd_1",
        budget_id="bud_1",
        operation=FundingOperation.CREDIT,
        amount=INT64_MAX,
        spent_given=None,
        before=BALANCE,
        after=BALANCE,
        created_at=START,
        idempotency_key="k",
        reason="r",
    )
    books.state.add_debit(debit)
    books.state.add_funding(funding)
    await books.flush(connection)
    row = await connection.fetchrow("select * from budget_debit")
    assert row is not None
    assert (msgspec.convert(row["subject"], Subject), row["charged"], row["debts"]) == (debit.subject, 3, [])
    kept = await connection.fetchrow("select * from budget_funding")
    assert kept is not None
    assert msgspec.convert(list(kept["before"].values()), Balance) == BALANCE
    assert (kept["amount"], kept["operation"]) == (INT64_MAX, "CREDIT")


# -- what may not be ---------------------------------------------------------------------------------------------------


async def test_a_head_that_has_moved_on_aborts_the_whole_flush(connection: Connection, books: Written) -> None:
    await books.flush(connection)
    overtaken = Written(await head_of(connection))
    await Written(await head_of(connection)).flush(connection)
    overtaken.state.add_budget(full_budget())
    with pytest.raises(asyncpg.PostgresError) as caught:
        await overtaken.flush(connection)
    assert trouble_of(caught.value) is Trouble.TRANSIENT
    assert await read_some_budgets(connection, ACME, limit=None) == []


async def test_a_reservation_that_has_ended_cannot_end_again(connection: Connection, books: Written) -> None:
    """I4, as the database sees it."""
    books.state.add_reservation(held(**SETTLED))
    await books.flush(connection)
    books.state.touch_reservation(held(status=ReservationStatus.RELEASED, finalized_at=START))
    with pytest.raises(asyncpg.PostgresError, match="has ended"):
        await books.flush(connection)


async def test_a_key_is_answered_once(connection: Connection, books: Written) -> None:
    """I5, as the database sees it."""
    for _ in range(2):
        remembered = RememberedAnswer(fingerprint=bytes(32), answer=RESERVED, answered_at=START)
        books.state.remember(RequestKey(ACME, "budget.reserve", "k"), remembered)
        if _ == 0:
            await books.flush(connection)
    with pytest.raises(asyncpg.PostgresError) as caught:
        await books.flush(connection)
    assert trouble_of(caught.value) is Trouble.DUPLICATE


@pytest.mark.parametrize(
    "change",
    [
        {"allocated": -1},
        {"reserved": -1},
        {"spent": -1},
        {"debt": -1},
        {"overdraft_limit": -1},
        {"status": BudgetStatus.ACTIVE},
        {"closed_at": None},
        {"allocated": 0, "spent": INT64_MAX, "debt": INT64_MAX},
    ],
)
async def test_the_database_keeps_no_budget_that_breaks_the_rules(
    connection: Connection, books: Written, change: dict[str, Any]
) -> None:
    """I1, I3 a second time."""
    books.state.add_budget(full_budget(**change))
    with pytest.raises(asyncpg.PostgresError, match=r"budget_|out of range"):
        await books.flush(connection)


@pytest.mark.parametrize(
    "change",
    [
        {"status": ReservationStatus.COMMITTED},
        {"charged": 1},
        {"finalized_at": 1},
        {"estimate": -1},
        {"budgeted_scopes": ()},
        {"debts": (1, 2)},
        {"extensions_used": 4},
    ],
)
async def test_the_database_keeps_no_reservation_that_breaks_the_rules(
    connection: Connection, books: Written, change: dict[str, Any]
) -> None:
    books.state.add_reservation(held(**change))
    with pytest.raises(asyncpg.PostgresError, match="budget_reservation_"):
        await books.flush(connection)


async def test_a_tenant_that_is_not_there_has_no_head(connection: Connection) -> None:
    async with connection.transaction():
        locked = await lock_tenants(connection, ["nobody"], [])
    assert locked.heads == {}
    assert await connection.fetchval("select count(*) from budget_tenant") == 0


async def test_heads_begin_with_the_general_defaults(connection: Connection) -> None:
    head = await head_of(connection)
    assert head.tenant == Tenant(tenant_id=ACME, name=ACME)
    assert (head.outbox_seq, head.next_expiry_at, head.updated_at) == (0, None, None)
