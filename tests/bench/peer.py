"""Reserve and commit against budgets that are kept in Redis by a script a request, as others do it, where there is a Redis.

Both are durable: Redis flushes its log before each reply, as PostgreSQL does at each commit. Both are called from this
process, without HTTP. The script keeps no ledger that can be queried and tells nobody of what happens: it does less.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

from tests.bench.bench import Bench
from tests.bench.harness import Variant
from tests.bench.ledgers import ACTUAL, ALLOCATED, ESTIMATE, WORKSPACES, scopes_of, tenant_of
from tests.bench.processors import Processors
from tests.bench.redis import RedisConnection, RunningRedis, durable_redis, has_redis
from tests.bench.spending import Spending, earmark_spending

SCRIPT: Final = Path(__file__).with_name("peer.lua").read_text()
EXPIRIES: Final = "expiries"
TTL_MS: Final = 60_000
GOAL: Final = 1.5


async def run(bench: Bench) -> None:
    if not has_redis():
        bench.report.skip("peer: there is no redis-server")
        return
    for name, tenants in {"hot": 1, "spread": 64}.items():
        for clients in bench.clients(1, 32, 128):
            async with AsyncExitStack() as stack:
                url = await stack.enter_async_context(bench.place.database())
                redis = await stack.enter_async_context(durable_redis())
                variants: list[Variant] = [
                    await stack.enter_async_context(earmark_spending(url, bench.processors(), tenants)),
                    await stack.enter_async_context(_peer(redis, tenants)),
                ]
                title, goal = f"peer {name}: reserve and commit", GOAL if clients > 1 else None
                await bench.compare(title, variants, clients=clients, goal=goal)


class PeerSpending(Spending):
    """A connection a client. In the figures Redis has the column of PostgreSQL."""

    def __init__(self, redis: RunningRedis, tenants: int) -> None:
        processors = Processors(python_pids=[os.getpid()], postmaster_pid=redis.pid)
        super().__init__("Redis, one script", processors, tenants)
        self._redis = redis
        self._idle: list[RedisConnection] = []
        self._all: list[RedisConnection] = []
        self._digest = ""
        self._places: dict[str, int] = {}

    async def open(self) -> None:
        connection = await self._connection()
        digest = await connection.ask("SCRIPT", "LOAD", SCRIPT)
        assert isinstance(digest, bytes)
        self._digest = digest.decode()
        for scope in self._scopes():
            fields = {"status": "ACTIVE", "allocated": ALLOCATED, "reserved": 0, "spent": 0, "debt": 0}
            await connection.ask("HSET", scope, *(word for pair in fields.items() for word in pair))
        self._idle.append(connection)

    async def close(self) -> None:
        for connection in self._all:
            await connection.close()

    async def _reserve(self, tenant_id: str, workspace: int, key: str) -> str:
        held = f"rsv_{key}"
        self._places[held] = workspace
        answer = await self._run("reserve", tenant_id, workspace, held, key, ESTIMATE)
        assert answer["status"] == "ACTIVE", answer
        return held

    async def _commit(self, tenant_id: str, held: str, key: str) -> None:
        answer = await self._run("commit", tenant_id, self._places.pop(held), held, key, ACTUAL)
        assert answer["status"] == "COMMITTED", answer

    async def _run(self, verb: str, tenant_id: str, workspace: int, held: str, key: str, amount: int) -> Any:
        now = time.time_ns() // 1_000_000
        keys = (f"answer:{tenant_id}:{verb}:{key}", held, EXPIRIES, *scopes_of(tenant_id, workspace))
        arguments = (verb, held, amount, now, now + TTL_MS, f"{verb}/{workspace}/{amount}")
        connection = self._idle.pop() if self._idle else await self._connection()
        try:
            answer = await connection.ask("EVALSHA", self._digest, len(keys), *keys, *arguments)
        finally:
            self._idle.append(connection)
        assert isinstance(answer, bytes)
        return json.loads(answer)

    async def _connection(self) -> RedisConnection:
        connection = await RedisConnection.open(self._redis.socket)
        self._all.append(connection)
        return connection

    def _scopes(self) -> list[str]:
        pairs = ((tenant_of(number), workspace) for number in range(self._tenants) for workspace in range(WORKSPACES))
        return sorted({scope for tenant_id, workspace in pairs for scope in scopes_of(tenant_id, workspace)})

    async def check(self) -> list[str]:
        """Nothing is held any more, what was charged is what was committed, and every reservation says so."""
        connection = self._idle.pop()
        wrong, spent = [], 0
        for scope in self._scopes():
            reserved, charged = await _numbers(connection, scope)
            if reserved:
                wrong.append(f"{scope} still holds {reserved}")
            spent += charged if "/" not in scope else 0
        if spent != ACTUAL * len(self._told.committed):
            wrong.append(f"{spent} are spent after {len(self._told.committed)} commits")
        if left := await connection.ask("ZCARD", EXPIRIES):
            wrong.append(f"{left} reservations are still to expire")
        self._idle.append(connection)
        return wrong


async def _numbers(connection: RedisConnection, scope: str) -> tuple[int, int]:
    found = await connection.ask("HMGET", scope, "reserved", "spent")
    assert isinstance(found, list)
    reserved, spent = (int(each) for each in found if isinstance(each, bytes))
    return reserved, spent


@asynccontextmanager
async def _peer(redis: RunningRedis, tenants: int) -> AsyncIterator[PeerSpending]:
    made = PeerSpending(redis, tenants)
    await made.open()
    try:
        yield made
    finally:
        await made.close()
