"""API keys as an operator lists them, over all tenants (section 11.2). Reads only: the registry's desks write them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from domain.amounts import INT64_MAX
from domain.budget.queries import KeyQuery, KeySort, KeyStatus, Place
from domain.tenancy import ApiKey
from storage.budget.keyset import NUMBER, Column, Listing, Page
from storage.database import AnyConnection, Row
from storage.identity import api_key_of
from storage.paging import like


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenKey:
    """`status` is as of the read."""

    key: ApiKey
    status: KeyStatus


_STATUS: Final = """case
    when revoked_at is not null then 'REVOKED'
    when expires_at <= $1::bigint then 'EXPIRED'
    else 'ACTIVE'
end"""
KEYS: Final = Listing(
    f"""
from api_key
where ($2::text is null or tenant_id = $2)
    and ($3::text is null or {_STATUS} = $3)
    and ($4::text is null or key_id ilike $4 or name ilike $4)
""",
    arguments=4,
    columns={
        KeySort.KEY_ID: Column("key_id"),
        KeySort.NAME: Column("name"),
        KeySort.TENANT_ID: Column("tenant_id"),
        KeySort.STATUS: Column(_STATUS),
        KeySort.CREATED_AT: Column("created_at", NUMBER),
        KeySort.EXPIRES_AT: Column(f"coalesce(expires_at, {INT64_MAX})", NUMBER),
    },
    id_column="key_id",
    shown=f"*, {_STATUS} as status",
)


async def page_keys(
    connection: AnyConnection, query: KeyQuery, *, now: int, after: Place | None, limit: int
) -> Page[SeenKey]:
    """`now`: what is over then, is expired."""
    search = like(query.search) if query.search else None
    return await KEYS.fetch(
        connection,
        (now, query.tenant_id, query.status, search),
        sort=query.sort_by,
        descending=query.descending,
        after=after,
        limit=limit,
        convert=_seen_key,
    )


def _seen_key(row: Row) -> SeenKey:
    return SeenKey(key=api_key_of(row), status=KeyStatus(row["status"]))
