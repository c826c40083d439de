"""Grants that are there before a window begins, put into the tables directly: a hundred thousand calls would take too long."""

from __future__ import annotations

from typing import Final

from storage.database import AnyConnection
from tests.bench.demand import POOL, PROVIDER, REGION, SEEDED_BY, TENANTS, Demand

# Starts and ends all differ: every grant adds two steps to the timeline that a decision looks at.
_SEED: Final = """
insert into capacity_grant (
    key, grant_id, tenant_id, slots, starts_at, ends_at, created_at, created_by, pool_id, region, provider,
    started_applied, ended_applied, version
)
select $1, 'rgrant_' || lpad(n::text, 26, '0'), $2, 1, $3::bigint - n, $4::bigint + n, 0, $5, $6, $7, $8, false, false, 1
from generate_series(1, $9::integer) n
"""

# Whoever holds the books of this reservation in memory reads them again.
_MOVE_ON: Final = "update capacity_reservation set version = version + 1 where key = $1"


async def seed_grants(connection: AnyConnection, demand: Demand) -> None:
    """Fill the hot reservation with grants that overlap whatever the window asks for."""
    starts_at, ends_at = demand.seeded_terms()
    key, count = demand.told.keys[0], demand.shape.seeded
    terms = (starts_at, ends_at + count)
    await connection.execute(_SEED, key, TENANTS[0], *terms, SEEDED_BY, POOL, REGION, PROVIDER, count, timeout=120)
    await connection.execute(_MOVE_ON, key)
    await connection.execute("analyze capacity_grant")
