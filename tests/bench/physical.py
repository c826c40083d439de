"""The physical limit: pgbench, with nobody to ask, writes the rows of a whole batch again and again.

The same rows as a turn of the product writes, at a fixed size of batch, from one connection, with nothing decided, nothing
sent over but a number, and no event moved on to a stream.
"""

from __future__ import annotations

import asyncio
import math
import re
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from storage.database import Connection, connect
from storage.embedded.binaries import find_binaries
from tests.bench.demand import FLAVOR, POOL, PROVIDER, REGION
from tests.bench.harness import Window
from tests.bench.ledgers import lay_out, scopes_of, tenant_of
from tests.bench.processors import Processors

BATCH: Final = 64
LEAVE_S: Final = 30.0
POLL_S: Final = 0.01
_THERE: Final = "select exists (select 1 from pg_stat_activity where application_name = 'pgbench')"
_HEAD: Final = """
insert into capacity_reservation (
    key, account_id, reservation_id, provider, flavor, region, total, status, pool_id, external_in_use, clock_at,
    total_seq, missed_scans, created_at, version, outbox_seq
)
values ('physical', 'physical', 'physical', $1, $2, $3, 1000000, 'ready', $4, 0, 0, 0, 0, 0, 1, 0)
"""
_GRANTS: Final = f"""
create function bench_batch() returns void language plpgsql set plan_cache_mode = force_generic_plan as $$
declare
    last bigint;
    at bigint := floor(extract(epoch from clock_timestamp()) * 1000);
begin
    update capacity_reservation set version = version + 1, clock_at = at, outbox_seq = outbox_seq + {BATCH}
        where key = 'physical' returning outbox_seq into last;
    with ids as materialized (
        select last - {BATCH} + n as seq, 'rgrant_' || lpad((last - {BATCH} + n)::text, 26, '0') as grant_id,
            'tenant-' || n % 4 as tenant_id, at + 3600000 + floor(random() * 3600000000)::bigint as starts_at
        from generate_series(1, {BATCH}) n
    ), answers as (
        insert into answer
        select 'root', 'reservationGrants.create', 'physical-' || seq, '\\x0123456789abcdef0123456789abcdef', grant_id, at
        from ids
    ), places as (
        insert into capacity_locator select grant_id, 'physical' from ids
    ), told as (
        insert into capacity_outbox
        select 'physical', seq, 'evt_' || lpad(seq::text, 26, '0'), tenant_id, 'reservation-grant.created', at, at,
            jsonb_build_object('grantId', grant_id, 'poolId', '{POOL}', 'slots', 1, 'startsAt', starts_at,
                'endsAt', starts_at + 3600000), null, null
        from ids
    )
    insert into capacity_grant (
        key, grant_id, tenant_id, slots, starts_at, ends_at, created_at, created_by, pool_id, region, provider,
        started_applied, ended_applied, version, turn
    )
    select 'physical', grant_id, tenant_id, 1, starts_at, starts_at + 3600000, at, 'key_bench', '{POOL}', '{REGION}',
        '{PROVIDER}', false, false, 1, 1
    from ids;
end $$
"""
# A batch of reserves, then a batch of their commits, each a transaction; every one moves the budgets of all workspaces.
_HOLDS: Final = f"""
create sequence bench_batches;
create function bench_head(p_tenant_id text, p_reserved bigint, p_spent bigint, p_paths text[]) returns bigint
language plpgsql set plan_cache_mode = force_generic_plan as $$
declare
    at bigint := floor(extract(epoch from clock_timestamp()) * 1000);
begin
    update budget_tenant set version = version + 1, clock_at = at where tenant_id = p_tenant_id;
    update budget set reserved = reserved + p_reserved, spent = spent + p_spent, updated_at = at
        where tenant_id = p_tenant_id and scope_path = any (p_paths);
    return at;
end $$;
create function bench_answers(p_tenant_id text, p_operation text, p_batch bigint, p_paths text[], p_at bigint)
returns void language sql as $$
    insert into budget_answer
    select p_tenant_id, p_operation, p_batch || '-' || n, decode(repeat('ab', 32), 'hex'), json_build_object(
        'reservation_id', p_batch || '-' || n, 'status', 'ACTIVE', 'affected_scopes', p_paths, 'balances', p_paths
    ), p_at, null
    from generate_series(1, {BATCH}) n
$$;
create function bench_reserve(p_tenant_id text, p_paths text[]) returns void
language plpgsql set plan_cache_mode = force_generic_plan as $$
declare
    batch bigint := nextval('bench_batches');
    at bigint := bench_head(p_tenant_id, 50, 0, p_paths);
begin
    insert into budget_reservation (
        tenant_id, reservation_id, idempotency_key, subject, action, unit, estimate, scope_path, budgeted_scopes,
        overage_policy, created_at, expires_at, ttl_ms, grace_ms, max_extensions, extensions_used, status, debts
    )
    select p_tenant_id, 'rsv_' || lpad((batch * {BATCH} + n)::text, 26, '0'), batch || '-' || n,
        json_build_object('tenant', p_tenant_id, 'workspace', 'w1', 'app', 'x'), '{{"kind": "llm.completion"}}', 'TOKENS',
        50, p_paths[6], p_paths[1:6], 'ALLOW_IF_AVAILABLE', at, at + 60000, 60000, 5000, 10, 0, 'ACTIVE', '{{}}'
    from generate_series(1, {BATCH}) n;
    perform bench_answers(p_tenant_id, 'budget.reserve', batch, p_paths[1:6], at);
end $$;
create function bench_commit(p_tenant_id text, p_paths text[]) returns void
language plpgsql set plan_cache_mode = force_generic_plan as $$
declare
    batch bigint := (select last_value from bench_batches);
    at bigint := bench_head(p_tenant_id, -50, 40, p_paths);
begin
    update budget_reservation set status = 'COMMITTED', charged = 40, finalized_at = at
    where tenant_id = p_tenant_id and reservation_id = any (array(
        select 'rsv_' || lpad((batch * {BATCH} + n)::text, 26, '0') from generate_series(1, {BATCH}) n
    ));
    perform bench_answers(p_tenant_id, 'budget.commit', batch, p_paths[1:6], at);
end $$
"""
# pgbench would take what follows a colon for a variable of its own.
_PLACE: Final = """
create function bench_place(out tenant_id text, out paths text[]) language sql immutable as $$
    select '{tenant}', '{{{paths}}}'::text[]
$$
"""
_DONE: Final = re.compile(r"number of transactions actually processed: (\d+)")
_RATE: Final = re.compile(r"tps = ([0-9.]+)")


class Physical:
    """One connection of pgbench. It has no calls to be made by clients: a window is its own."""

    name = f"physical batch of {BATCH}"

    def __init__(self, url: str, processors: Processors, connection: Connection, script: str, count: str) -> None:
        self.processors = processors
        self._url = url
        self._connection = connection
        self._script = script
        self._count = count
        self._written = 0

    async def prepare(self) -> None:
        """Everything is there."""

    async def call(self, client: int) -> bool:
        raise AssertionError("it is measured by itself")

    async def settle(self) -> None:
        """Every transaction is committed, and nothing else was begun."""

    async def run(self, seconds: float) -> Window:
        """Raises RuntimeError with what pgbench says when it fails."""
        with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
            script.write(self._script)
            script.flush()
            before = self.processors.read()
            told = await self._pgbench(script.name, max(1, math.ceil(seconds)))
            await self._leave()
            after = self.processors.read()
        done, rate = _DONE.search(told), _RATE.search(told)
        if done is None or rate is None:
            raise RuntimeError(told)
        batches, each_s = int(done[1]), 1 / float(rate[1])
        self._written += batches * BATCH
        return Window(
            latencies=[each_s] * (batches * BATCH),
            seconds=batches * each_s,
            postgres_seconds=after.postgres - before.postgres,
        )

    async def check(self) -> list[str]:
        found = await self._connection.fetchval(self._count)
        return [] if found == self._written else [f"{self._written} rows were written, {found} are there"]

    async def _leave(self) -> None:
        """Wait until its backend has ended: what it took is counted then."""
        async with asyncio.timeout(LEAVE_S):
            while await self._connection.fetchval(_THERE):  # noqa: ASYNC110 - it happens in PostgreSQL
                await asyncio.sleep(POLL_S)

    async def _pgbench(self, script: str, seconds: int) -> str:
        program = Path(find_binaries(bin_dir=None, made_by=None).folder) / "pgbench"
        arguments = ("--no-vacuum", "--protocol=prepared", "--client=1", f"--time={seconds}", f"--file={script}")
        process = await asyncio.create_subprocess_exec(
            program, *arguments, self._url, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        output, _ = await process.communicate()
        return output.decode()


@asynccontextmanager
async def physical_grants(url: str, processors: Processors) -> AsyncIterator[Physical]:
    """On a migrated database of its own: what batches of createGrant write on one reservation."""
    connection = await connect(url)
    try:
        await connection.execute(_GRANTS)
        await connection.execute(_HEAD, PROVIDER, FLAVOR, REGION, POOL)
        yield Physical(url, processors, connection, "select bench_batch();", "select count(*) from capacity_grant")
    finally:
        await connection.close()


@asynccontextmanager
async def physical_spending(url: str, processors: Processors) -> AsyncIterator[Physical]:
    """On a migrated database of its own: what batches of reserves, and of their commits, write for one tenant."""
    connection = await connect(url)
    try:
        await lay_out(connection, 1)
        await connection.execute(_HOLDS)
        paths = [
            *scopes_of(tenant_of(0), 0),
            *(path for each in range(1, 5) for path in scopes_of(tenant_of(0), each)[1:]),
        ]
        await connection.execute(_PLACE.format(tenant=tenant_of(0), paths=",".join(paths)))
        script = "".join(
            f"select bench_{what}(p.tenant_id, p.paths) from bench_place() p;\n" for what in ("reserve", "commit")
        )
        count = "select count(*) from budget_reservation where status = 'COMMITTED'"
        yield Physical(url, processors, connection, script, count)
    finally:
        await connection.close()
