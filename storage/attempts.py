"""Keys that requests were sent with, counted by minute (`key_attempt`): how many were valid, and how many were not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from domain.identity import SYSTEM
from storage.database import AnyConnection, affected

_ADD: Final = """
insert into key_attempt as a (tenant_id, minute_at, succeeded, failed)
select * from unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[]) d (tenant_id, minute_at, succeeded, failed)
order by tenant_id, minute_at
on conflict (tenant_id, minute_at) do update
set succeeded = a.succeeded + excluded.succeeded, failed = a.failed + excluded.failed
"""


async def flush_attempts(connection: AnyConnection, counts: Mapping[tuple[str, int], Sequence[int]]) -> None:
    """Add (succeeded, failed) by tenant and minute."""
    columns = zip(*((tenant_id, at, *both) for (tenant_id, at), both in counts.items()), strict=True)
    await connection.execute(_ADD, *(list(column) for column in columns))


_READ: Final = """
with counted as (
    select a.tenant_id, sum(a.succeeded)::bigint as succeeded, sum(a.failed)::bigint as failed
    from key_attempt a
    where a.minute_at >= $1 and a.minute_at < $2 and ($3::text[] is null or a.tenant_id = any ($3))
    group by a.tenant_id
)
select * from counted where failed > 0 and tenant_id <> $4
union all
select $4, sum(succeeded)::bigint, sum(failed)::bigint from counted where $3::text[] is null having sum(failed) > 0
"""


async def read_attempts(
    connection: AnyConnection, *, since: int, until: int, tenant_ids: Sequence[str] | None
) -> dict[str, tuple[int, int]]:
    """(succeeded, failed) by tenant, of those who sent a key that was not valid. Under `__system__`: everybody's, whose
    keys nobody knows among them. None: of all tenants."""
    rows = await connection.fetch(_READ, since, until, tenant_ids, SYSTEM)
    return {row["tenant_id"]: (row["succeeded"], row["failed"]) for row in rows}


_REMOVE: Final = """
delete from key_attempt where (tenant_id, minute_at) in (
    select tenant_id, minute_at from key_attempt where minute_at < $1 order by minute_at limit $2
)
"""


async def expire_attempts(connection: AnyConnection, *, before: int, limit: int) -> int:
    """How many rows of minutes before an instant were removed."""
    return affected(await connection.execute(_REMOVE, before, limit))
