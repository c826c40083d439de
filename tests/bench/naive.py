"""The baseline: what a good team writes first. One transaction a request, row locks, and the peak summed up in SQL.

It works on the very tables of the product, in a database of its own, and does less: it asks nothing about tenants, pools
or projects, keeps no way from a bare id to its key, and leaves events where it wrote them.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import asyncpg
import msgspec

from domain.replay import fingerprint
from storage.database import SESSION
from tests.bench.books import check_grants, check_outboxes
from tests.bench.demand import FLAVOR, POOL, PROVIDER, REGION, ROOT, Demand, GrantRequest, Shape
from tests.bench.processors import Processors
from tests.bench.seeding import seed_grants
from workers.clock import DatabaseClock
from workers.ids import IdSource

POOL_MAX: Final = 20
"""Connections. More only make PostgreSQL slower on a few cores."""
CREATE: Final = "reservationGrants.create"

_RESERVATION: Final = """
insert into capacity_reservation (
    key, account_id, reservation_id, provider, flavor, region, total, status, pool_id, external_in_use, clock_at,
    total_seq, missed_scans, created_at, version, outbox_seq
)
values ($1, $2, $3, $4, $5, $6, $7, 'ready', $8, 0, 0, 0, 0, 0, 1, 0)
"""
_KNOWN: Final = """
select fingerprint, subject_id from answer where owner = $1 and operation = $2 and idempotency_key = $3
"""
_HEAD: Final = "select total, status, pool_id, outbox_seq from capacity_reservation where key = $1 for update"
# With the terms cut to the asked one, slots are counted up and down along time; ends before starts at one instant.
_PEAK: Final = """
select coalesce(max(level), 0)::bigint from (
    select sum(change) over (order by at, change rows unbounded preceding) as level
    from (
        select g.starts_at, g.ends_at, g.slots from capacity_grant g
        where g.key = $1 and g.cancelled_at is null and g.starts_at < $3 and g.ends_at > $2
    ) g, lateral (values (greatest(g.starts_at, $2), g.slots), (least(g.ends_at, $3), -g.slots)) c (at, change)
) steps
"""
_PEAK_BY_RANGE: Final = _PEAK.replace(
    "g.starts_at < $3 and g.ends_at > $2", "int8range(g.starts_at, g.ends_at) && int8range($2, $3)"
)
_RANGES: Final = """
create extension if not exists btree_gist;
create index on capacity_grant using gist (key, int8range(starts_at, ends_at)) where cancelled_at is null
"""
_GRANT: Final = """
insert into capacity_grant (
    key, grant_id, tenant_id, project_id, slots, starts_at, ends_at, created_at, created_by, pool_id, region, provider,
    started_applied, ended_applied, version
)
values ($1, $2, $3, null, $4, $5, $6, $7, 'key_bench', $8, $9, $10, false, false, 1)
"""
_ANSWER: Final = "insert into answer values ($1, $2, $3, $4, $5, $6)"
_EVENT: Final = (
    "insert into capacity_outbox values ($1, $2, $3, $4, 'reservation-grant.created', $5, $5, $6, null, null)"
)
_MOVE_ON: Final = "update capacity_reservation set outbox_seq = outbox_seq + 1, version = version + 1 where key = $1"


class NaiveDesk:
    """createGrant, statement by statement."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], *, by_range: bool) -> None:
        self._pool = pool
        self._peak = _PEAK_BY_RANGE if by_range else _PEAK
        self._ids = IdSource(DatabaseClock())

    async def create(self, request: GrantRequest) -> str | None:
        """The id of the grant, also when the request was made before; None when it is refused."""
        asked = fingerprint(request._asdict())
        async with self._pool.acquire() as connection, connection.transaction():
            known = await connection.fetchrow(_KNOWN, ROOT, CREATE, request.idempotency_key)
            if known is not None:
                return known["subject_id"] if known["fingerprint"] == asked else None
            key = f"{request.account_id}/{request.reservation_id}"
            head = await connection.fetchrow(_HEAD, key)
            if head is None or head["status"] != "ready" or head["pool_id"] is None:
                return None
            peak = await connection.fetchval(self._peak, key, request.starts_at, request.ends_at)
            if peak + request.slots > head["total"]:
                return None
            return await self._write(connection, key, head["outbox_seq"] + 1, request, asked)

    async def _write(self, connection: Any, key: str, seq: int, request: GrantRequest, asked: bytes) -> str:
        now = time.time_ns() // 1_000_000
        grant_id, event_id = self._ids.new("rgrant"), self._ids.new("evt")
        tenant_id, slots, starts_at, ends_at = request[2:6]
        payload = {"grantId": grant_id, "poolId": POOL, "slots": slots, "startsAt": starts_at, "endsAt": ends_at}
        await connection.execute(
            _GRANT, key, grant_id, tenant_id, slots, starts_at, ends_at, now, POOL, REGION, PROVIDER
        )
        await connection.execute(_ANSWER, ROOT, CREATE, request.idempotency_key, asked, grant_id, now)
        await connection.execute(_EVENT, key, seq, event_id, tenant_id, now, payload)
        await connection.execute(_MOVE_ON, key)
        return grant_id


class Naive:
    """The naive desk, called in this process."""

    def __init__(
        self, pool: asyncpg.Pool[asyncpg.Record], processors: Processors, shape: Shape, desk: NaiveDesk, *, name: str
    ) -> None:
        self.name = name
        self.processors = processors
        self._pool = pool
        self._desk = desk
        self._demand = Demand(shape)
        self._windows = 0

    async def prepare(self) -> None:
        self._windows += 1
        async with self._pool.acquire() as connection:
            await prepare_window(connection, self._demand, account_id=f"pacct_{self._windows:026}")

    async def call(self, client: int) -> bool:
        request = self._demand.next()
        grant_id = await self._desk.create(request)
        if grant_id is None:
            self._demand.refused(request)
            return False
        self._demand.made(request, grant_id)
        return True

    async def settle(self) -> None:
        """Every reply came after its commit, and nothing else was begun."""

    async def check(self) -> list[str]:
        async with self._pool.acquire() as connection:
            return await check(connection, self._demand)


async def prepare_window(connection: Any, demand: Demand, *, account_id: str) -> None:
    """The window's reservations, and the grants that are there before it."""
    names = demand.begin(account_id)
    rows = [
        (f"{account_id}/{name}", account_id, name, PROVIDER, FLAVOR, REGION, demand.shape.total, POOL) for name in names
    ]
    await connection.executemany(_RESERVATION, rows)
    if demand.shape.seeded:
        await seed_grants(connection, demand)


async def check(connection: Any, demand: Demand) -> list[str]:
    return [*await check_grants(connection, demand), *await check_outboxes(connection, demand.told)]


async def _prepare_session(connection: Any) -> None:
    for kind in ("json", "jsonb"):
        await connection.set_type_codec(
            kind,
            schema="pg_catalog",
            encoder=lambda value: msgspec.json.encode(value).decode(),
            decoder=msgspec.json.decode,
        )


async def _no_reset(_connection: Any) -> None:
    """The pool's RESET at every release is a round trip that the product does not pay either."""


@asynccontextmanager
async def naive_pool(url: str, *, by_range: bool) -> AsyncIterator[asyncpg.Pool[asyncpg.Record]]:
    """On a migrated database of its own. `by_range`: with an index over terms, which long and many grants need."""
    session = {**SESSION, "lock_timeout": "0"}  # its queue of row locks is how it works: nobody is turned away
    async with asyncpg.create_pool(
        url, min_size=POOL_MAX, max_size=POOL_MAX, server_settings=session, init=_prepare_session, reset=_no_reset
    ) as pool:
        if by_range:
            await pool.execute(_RANGES)
        yield pool


@asynccontextmanager
async def naive(url: str, processors: Processors, shape: Shape, *, by_range: bool = False) -> AsyncIterator[Naive]:
    async with naive_pool(url, by_range=by_range) as pool:
        yield Naive(pool, processors, shape, NaiveDesk(pool, by_range=by_range), name="naive")
