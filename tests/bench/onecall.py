"""The better baseline: the same as the naive one, but a request is one call of a function in the database."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from domain.replay import fingerprint
from tests.bench.demand import POOL, PROVIDER, REGION, ROOT, GrantRequest, Shape
from tests.bench.naive import CREATE, Naive, NaiveDesk, naive_pool
from tests.bench.processors import Processors

NAME: Final = "one call"
_FUNCTION: Final = """
create function bench_create_grant(
    p_key text, p_grant_id text, p_event_id text, p_owner text, p_operation text, p_idempotency_key text,
    p_fingerprint bytea, p_tenant_id text, p_slots integer, p_starts_at bigint, p_ends_at bigint, p_now bigint,
    p_payload jsonb, p_pool_id text, p_region text, p_provider text
) returns text language plpgsql as $$
declare
    known answer;
    head capacity_reservation;
    peak bigint;
begin
    select a.* into known from answer a
        where a.owner = p_owner and a.operation = p_operation and a.idempotency_key = p_idempotency_key;
    if found then
        return case when known.fingerprint = p_fingerprint then known.subject_id end;
    end if;
    select r.* into head from capacity_reservation r where r.key = p_key for update;
    if not found or head.status <> 'ready' or head.pool_id is null then
        return null;
    end if;
    select coalesce(max(level), 0) into peak from (
        select sum(change) over (order by at, change rows unbounded preceding) as level
        from (
            select g.starts_at, g.ends_at, g.slots from capacity_grant g
            where g.key = p_key and g.cancelled_at is null and g.starts_at < p_ends_at and g.ends_at > p_starts_at
        ) g, lateral (
            values (greatest(g.starts_at, p_starts_at), g.slots), (least(g.ends_at, p_ends_at), -g.slots)
        ) c (at, change)
    ) steps;
    if peak + p_slots > head.total then
        return null;
    end if;
    insert into capacity_grant (
        key, grant_id, tenant_id, slots, starts_at, ends_at, created_at, created_by, pool_id, region, provider,
        started_applied, ended_applied, version
    )
    values (
        p_key, p_grant_id, p_tenant_id, p_slots, p_starts_at, p_ends_at, p_now, 'key_bench', p_pool_id, p_region,
        p_provider, false, false, 1
    );
    insert into answer values (p_owner, p_operation, p_idempotency_key, p_fingerprint, p_grant_id, p_now);
    insert into capacity_outbox values (
        p_key, head.outbox_seq + 1, p_event_id, p_tenant_id, 'reservation-grant.created', p_now, p_now, p_payload, null, null
    );
    update capacity_reservation set outbox_seq = outbox_seq + 1, version = version + 1 where key = p_key;
    return p_grant_id;
end $$
"""
_CALL: Final = """
select bench_create_grant($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
"""


class OneCallDesk(NaiveDesk):
    async def create(self, request: GrantRequest) -> str | None:
        now, asked = time.time_ns() // 1_000_000, fingerprint(request._asdict())
        grant_id, event_id = self._ids.new("rgrant"), self._ids.new("evt")
        tenant_id, slots, starts_at, ends_at, idempotency_key = request[2:7]
        key = f"{request.account_id}/{request.reservation_id}"
        payload = {"grantId": grant_id, "poolId": POOL, "slots": slots, "startsAt": starts_at, "endsAt": ends_at}
        known = (ROOT, CREATE, idempotency_key, asked)
        term = (tenant_id, slots, starts_at, ends_at, now, payload, POOL, REGION, PROVIDER)
        made: str | None = await self._pool.fetchval(_CALL, key, grant_id, event_id, *known, *term)
        return made


@asynccontextmanager
async def one_call(url: str, processors: Processors, shape: Shape) -> AsyncIterator[Naive]:
    """On a migrated database of its own."""
    async with naive_pool(url, by_range=False) as pool:
        await pool.execute(_FUNCTION)
        yield Naive(pool, processors, shape, OneCallDesk(pool, by_range=False), name=NAME)
