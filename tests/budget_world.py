"""Budgets on a real database for tests: nodes, tenants, and short ways to ask the desk. Nothing here decides anything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from typing import Any

from domain.amounts import Amount, Unit
from domain.authority import Principal
from domain.budget.records import FundingOperation
from domain.budget.replay import Repeated
from domain.budget.values import Action, Balance, OveragePolicy, Subject
from domain.events import MIRROR, EventRecord
from domain.outcomes import Accepted, Refusal
from domain.tenancy import ApiKey, Tenant
from storage import identity
from storage.budget.audit import find_breaches
from storage.database import Connection, connect
from storage.events import read_tail
from tests.capacity_world import CapacityNode, caller_of, eventually, running_node
from workers.budget.expiry import ExpiryJob
from workers.clock import ManualClock
from workers.request import Caller

START = 1_800_000_000_000
ROOT, ACME, OTHER = "root", "acme", "other"
TENANTS = (ROOT, ACME, OTHER)
PARENT = "tenant:acme"
CHILD = "tenant:acme/agent:bot"
WHOLE = Subject(tenant=ACME)
BOT = Subject(tenant=ACME, agent="bot")
CALL = Action(kind="llm.completion", name="gpt")
TOKENS = Unit.TOKENS
REJECT = OveragePolicy.REJECT
AIA = OveragePolicy.ALLOW_IF_AVAILABLE
AWO = OveragePolicy.ALLOW_WITH_OVERDRAFT


def tokens(amount: int) -> Amount:
    return Amount(TOKENS, amount)


def holder(tenant_id: str, *words: str, scope_filter: tuple[str, ...] = ()) -> Caller:
    """A member of a tenant with these permissions only."""
    principal = Principal(
        key_id=f"key_{tenant_id}",
        tenant_id=tenant_id,
        is_root=tenant_id == ROOT,
        permissions=frozenset(words),
        scope_filter=scope_filter,
    )
    return Caller(principal=principal, request_id="req_test", trace_id="0" * 31 + "1")


class BudgetWorld:
    """`nodes` share a clock that stands still. Whatever does not say otherwise is asked of the first, by acme."""

    def __init__(self, nodes: Sequence[CapacityNode], clock: ManualClock, connection: Connection) -> None:
        self.nodes = nodes
        self.clock = clock
        self.connection = connection
        self.root = caller_of(ROOT)
        self.acme = caller_of(ACME)
        self.other = caller_of(OTHER)
        self._keys = count(1)

    @property
    def node(self) -> CapacityNode:
        return self.nodes[0]

    def key(self) -> str:
        return f"key-{next(self._keys)}"

    # -- asking ----------------------------------------------------------------------------------------------------

    def reserve(
        self, amount: int, subject: Subject = BOT, *, by: Caller | None = None, node: int = 0, **given: Any
    ) -> Any:
        values = {"idempotency_key": self.key(), "subject": subject, "action": CALL, "estimate": tokens(amount)}
        return self.nodes[node].budgets.reserve(by or self.acme, **(values | given))

    def evaluate(self, amount: int, subject: Subject = BOT, *, by: Caller | None = None, **given: Any) -> Any:
        values = {"idempotency_key": self.key(), "subject": subject, "action": CALL, "estimate": tokens(amount)}
        return self.node.budgets.evaluate(by or self.acme, **(values | given))

    def commit(self, hold: str, amount: int, *, by: Caller | None = None, node: int = 0, **given: Any) -> Any:
        values = {"idempotency_key": self.key(), "reservation_id": hold, "actual": tokens(amount)}
        return self.nodes[node].budgets.commit(by or self.acme, **(values | given))

    def release(self, hold: str, *, by: Caller | None = None, node: int = 0, **given: Any) -> Any:
        values = {"idempotency_key": self.key(), "reservation_id": hold}
        return self.nodes[node].budgets.release(by or self.acme, **(values | given))

    def extend(self, hold: str, by_ms: int, *, by: Caller | None = None, node: int = 0, **given: Any) -> Any:
        values = {"idempotency_key": self.key(), "reservation_id": hold, "extend_by_ms": by_ms}
        return self.nodes[node].budgets.extend(by or self.acme, **(values | given))

    def debit(
        self, amount: int, subject: Subject = BOT, *, by: Caller | None = None, node: int = 0, **given: Any
    ) -> Any:
        values = {"idempotency_key": self.key(), "subject": subject, "action": CALL, "actual": tokens(amount)}
        return self.nodes[node].budgets.debit(by or self.acme, **(values | given))

    def fund(self, kind: str, amount: int, scope: str = PARENT, **given: Any) -> Any:
        values = {"scope": scope, "unit": TOKENS, "kind": FundingOperation(kind), "amount": tokens(amount)}
        return self.node.budgets.fund(self.acme, **(values | {"idempotency_key": self.key()} | given))

    async def budget(
        self, scope: str = PARENT, allocated: int = 1_000, limit: int = 0, *, by: Caller | None = None, **given: Any
    ) -> None:
        unit = given.setdefault("unit", TOKENS)
        amounts = {"allocated": Amount(unit, allocated), "overdraft_limit": Amount(unit, limit)}
        accepted(await self.node.budgets.create_budget(by or self.acme, scope=scope, **amounts, **given))

    async def hold(self, amount: int, subject: Subject = BOT, **given: Any) -> str:
        """The id of a new reservation."""
        reservation_id: str = accepted(await self.reserve(amount, subject, **given)).reservation_id
        return reservation_id

    async def expire(self) -> None:
        """A run of the job."""
        await ExpiryJob(self.node.budget_asker).run_once()

    # -- looking ---------------------------------------------------------------------------------------------------

    async def balance(self, scope: str = PARENT, unit: Unit = TOKENS) -> Balance:
        seen = await self.node.budget_reads.budget(self.root, scope=scope, unit=unit, tenant_id=scope_tenant(scope))
        assert not isinstance(seen, Refusal), seen
        return seen.budget.balance()

    async def has(self, scope: str = PARENT, **expected: int | bool) -> None:
        """Balances by name; `remaining` among them."""
        balance = await self.balance(scope)
        names = {name: getattr(balance, name) for name in expected}
        assert names == expected, balance

    async def status_of(self, hold: str) -> str:
        """As stored."""
        status: str = await self.connection.fetchval(
            "select status from budget_reservation where reservation_id = $1", hold
        )
        return status

    async def events(self, tenant_id: str = ACME) -> list[EventRecord]:
        """Everything that a tenant's stream has, once nothing waits any more."""

        async def is_moved() -> bool:
            return not await self.connection.fetchval("select exists (select 1 from budget_outbox)")

        await eventually(is_moved)
        return await read_tail(self.connection, tenant_id, after=0, limit=100_000)

    async def event_types(self, tenant_id: str = ACME) -> list[str]:
        return [event.type for event in await self.events(tenant_id)]

    async def audit(self) -> None:
        """The books add up, and every stream is whole."""
        await self.events()
        async with self.connection.transaction(isolation="repeatable_read"):
            breaches = await find_breaches(self.connection, [*TENANTS, MIRROR])
        assert breaches == [], breaches


def scope_tenant(scope: str) -> str:
    return scope.partition("/")[0].removeprefix("tenant:")


@asynccontextmanager
async def budget_world(url: str, *, nodes: int = 1, lanes: int = 2, at: int = START) -> AsyncIterator[BudgetWorld]:
    """Nodes on a migrated database with the tenants root, acme and other."""
    clock = ManualClock(at)
    connection = await connect(url)
    try:
        async with AsyncExitStack() as stack:
            started = [
                await stack.enter_async_context(running_node(url, clock=clock, lanes=lanes)) for _ in range(nodes)
            ]
            await make_tenants(connection, at=at)
            yield BudgetWorld(started, clock, connection)
    finally:
        await connection.close()


async def make_tenants(connection: Connection, *, at: int) -> None:
    """Each with one API key, which only closing a tenant looks at."""
    for tenant_id in TENANTS:
        tenant = Tenant(tenant_id=tenant_id, name=tenant_id, is_root=tenant_id == ROOT, created_at=at)
        await identity.flush_tenant(connection, tenant)
        key = ApiKey(
            key_id=f"key_{tenant_id}",
            tenant_id=tenant_id,
            name=f"key of {tenant_id}",
            prefix=f"prefix-{tenant_id}",
            permissions=("*",),
            created_at=at,
        )
        await identity.flush_api_key(connection, key, digest=b"")


def accepted(outcome: Any) -> Any:
    assert isinstance(outcome, Accepted), outcome
    return outcome.answer


def repeated(outcome: Any) -> Any:
    assert isinstance(outcome, Repeated), outcome
    return outcome.answer


def refused(outcome: Any, code: str) -> Refusal:
    assert isinstance(outcome, Refusal), outcome
    assert outcome.code == code, outcome
    return outcome


async def at_once(*asked: Awaitable[Any]) -> tuple[list[Any], list[Refusal]]:
    """Answers and refusals of what is asked at the same time."""
    outcomes = await asyncio.gather(*asked)
    refusals = [outcome for outcome in outcomes if isinstance(outcome, Refusal)]
    return [outcome.answer for outcome in outcomes if not isinstance(outcome, Refusal)], refusals
