"""Reserve and commit, as a pair, on six budgets each: ours through the desk, and the baseline with a lock a request."""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from domain.amounts import Amount, Unit
from domain.authority import EVERYTHING, Principal
from domain.budget.values import Action, Subject
from domain.outcomes import Accepted
from storage.database import Database
from tests.bench.demand import ROOT
from tests.bench.ledgers import ACTUAL, ESTIMATE, WORKSPACES, Told, check_ledgers, lay_out, scopes_of, tenant_of
from tests.bench.naive import naive_pool
from tests.bench.processors import Processors
from workers.clock import DatabaseClock
from workers.ids import IdSource
from workers.request import Caller
from workers.runtime import LANES, Runtime, RuntimeOptions

CALL: Final = Action(kind="llm.completion", name="openai:gpt-4o")


class Spending:
    """One call is a reserve and the commit of what it held."""

    def __init__(self, name: str, processors: Processors, tenants: int) -> None:
        self.name = name
        self.processors = processors
        self._told = Told()
        self._tenants = tenants
        self._numbers = itertools.count()

    async def prepare(self) -> None:
        """The budgets last for all windows."""

    async def settle(self) -> None:
        """Every reply came after its commit, and nothing else was begun."""

    async def call(self, client: int) -> bool:
        number = next(self._numbers)
        tenant_id, workspace = tenant_of(number % self._tenants), number % WORKSPACES
        held = await self._reserve(tenant_id, workspace, f"k{number}")
        self._told.reserved.add(held)
        await self._commit(tenant_id, held, f"k{number}")
        self._told.committed.add(held)
        return True

    async def _reserve(self, tenant_id: str, workspace: int, key: str) -> str:
        raise NotImplementedError

    async def _commit(self, tenant_id: str, held: str, key: str) -> None:
        raise NotImplementedError


class EarmarkSpending(Spending):
    def __init__(self, name: str, processors: Processors, tenants: int, runtime: Runtime) -> None:
        super().__init__(name, processors, tenants)
        self._runtime = runtime
        self._callers = {tenant_of(number): _caller(tenant_of(number)) for number in range(tenants)}

    async def _reserve(self, tenant_id: str, workspace: int, key: str) -> str:
        subject = Subject(tenant=tenant_id, workspace=f"w{workspace}", app="x", workflow="x", agent="x", toolset="x")
        outcome = await self._runtime.budgets.reserve(
            self._callers[tenant_id],
            idempotency_key=key,
            subject=subject,
            action=CALL,
            estimate=Amount(Unit.TOKENS, ESTIMATE),
        )
        assert isinstance(outcome, Accepted), outcome
        held = outcome.answer.reservation_id
        assert held is not None, "it was no dry run"
        return held

    async def _commit(self, tenant_id: str, held: str, key: str) -> None:
        outcome = await self._runtime.budgets.commit(
            self._callers[tenant_id], idempotency_key=key, reservation_id=held, actual=Amount(Unit.TOKENS, ACTUAL)
        )
        assert isinstance(outcome, Accepted), outcome

    async def check(self) -> list[str]:
        async with self._runtime.database.acquire() as connection:
            return await check_ledgers(connection, self._told)


def _caller(tenant_id: str) -> Caller:
    principal = Principal(key_id="key_bench", tenant_id=tenant_id, is_root=False, permissions=frozenset({EVERYTHING}))
    return Caller(principal=principal)


@asynccontextmanager
async def earmark_spending(
    url: str, processors: Processors, tenants: int, *, name: str = "earmark", lanes: int = LANES, is_cached: bool = True
) -> AsyncIterator[EarmarkSpending]:
    """A started node without timed jobs. With as many lanes as tenants, each of them commits for itself."""
    database = await Database.open(url)
    try:
        runtime = Runtime(database, options=RuntimeOptions(runs_jobs=False, lanes=lanes, is_cached=is_cached))
        await runtime.open(root_tenant=ROOT)
        try:
            async with database.acquire() as connection:
                await lay_out(connection, tenants)
            yield EarmarkSpending(name, processors, tenants, runtime)
        finally:
            await runtime.stop()
    finally:
        await database.close()


_KNOWN: Final = """
select answer from budget_answer where tenant_id = $1 and operation = $2 and idempotency_key = $3
"""
_BUDGETS: Final = """
select scope_path, allocated - reserved - spent - debt as remaining, status from budget
where tenant_id = $1 and scope_path = any ($2) and unit = 'TOKENS' order by scope_path for update
"""
_HOLD: Final = """
update budget set reserved = reserved + $3 where tenant_id = $1 and scope_path = any ($2) and unit = 'TOKENS'
"""
_SPEND: Final = """
update budget set reserved = reserved - $3, spent = spent + $4
where tenant_id = $1 and scope_path = any ($2) and unit = 'TOKENS'
"""
_RESERVATION: Final = """
insert into budget_reservation (
    tenant_id, reservation_id, idempotency_key, subject, action, unit, estimate, scope_path, budgeted_scopes,
    overage_policy, created_at, expires_at, ttl_ms, grace_ms, max_extensions, extensions_used, status, debts
)
values ($1, $2, $3, $4, $5, 'TOKENS', $6, $7, $8, 'ALLOW_IF_AVAILABLE', $9, $10, 60000, 5000, 10, 0, 'ACTIVE', '{}')
"""
_HELD: Final = """
select budgeted_scopes, estimate, status, expires_at + grace_ms as until from budget_reservation
where tenant_id = $1 and reservation_id = $2 for update
"""
_COMMITTED: Final = """
update budget_reservation set status = 'COMMITTED', charged = $3, finalized_at = $4
where tenant_id = $1 and reservation_id = $2
"""
_ANSWER: Final = "insert into budget_answer values ($1, $2, $3, $4, $5, $6, null)"
FINGERPRINT: Final = bytes(32)


class NaiveSpending(Spending):
    """One transaction a request, on the very tables of the product: it computes no fingerprint and knows no policy."""

    def __init__(self, processors: Processors, tenants: int, pool: Any) -> None:
        super().__init__("naive", processors, tenants)
        self._pool = pool
        self._ids = IdSource(DatabaseClock())

    async def _reserve(self, tenant_id: str, workspace: int, key: str) -> str:
        now, scopes, held = time.time_ns() // 1_000_000, scopes_of(tenant_id, workspace), self._ids.new("rsv")
        async with self._pool.acquire() as connection, connection.transaction():
            assert await connection.fetchrow(_KNOWN, tenant_id, "budget.reserve", key) is None, "keys are new"
            for row in await connection.fetch(_BUDGETS, tenant_id, scopes):
                assert row["remaining"] >= ESTIMATE, "there is enough"
            await connection.execute(_HOLD, tenant_id, scopes, ESTIMATE)
            subject, action = (
                {"tenant": tenant_id, "workspace": f"w{workspace}"},
                {"kind": CALL.kind, "name": CALL.name},
            )
            await connection.execute(
                _RESERVATION, tenant_id, held, key, subject, action, ESTIMATE, scopes[-1], scopes, now, now + 60_000
            )
            answer = {"reservation_id": held, "status": "ACTIVE", "affected_scopes": scopes}
            await connection.execute(_ANSWER, tenant_id, "budget.reserve", key, FINGERPRINT, answer, now)
        return held

    async def _commit(self, tenant_id: str, held: str, key: str) -> None:
        now, operation = time.time_ns() // 1_000_000, f"budget.commit/{held}"
        async with self._pool.acquire() as connection, connection.transaction():
            assert await connection.fetchrow(_KNOWN, tenant_id, operation, key) is None, "keys are new"
            hold = await connection.fetchrow(_HELD, tenant_id, held)
            assert hold["status"] == "ACTIVE", "it is committed once"
            assert hold["until"] >= now, "it is not over"
            await connection.fetch(_BUDGETS, tenant_id, hold["budgeted_scopes"])
            await connection.execute(_SPEND, tenant_id, hold["budgeted_scopes"], hold["estimate"], ACTUAL)
            await connection.execute(_COMMITTED, tenant_id, held, ACTUAL, now)
            answer = {"reservation_id": held, "status": "COMMITTED", "charged": ACTUAL}
            await connection.execute(_ANSWER, tenant_id, operation, key, FINGERPRINT, answer, now)

    async def check(self) -> list[str]:
        async with self._pool.acquire() as connection:
            return await check_ledgers(connection, self._told)


@asynccontextmanager
async def naive_spending(url: str, processors: Processors, tenants: int) -> AsyncIterator[NaiveSpending]:
    """On a migrated database of its own."""
    async with naive_pool(url, by_range=False) as pool:
        await lay_out(pool, tenants)
        yield NaiveSpending(processors, tenants, pool)
