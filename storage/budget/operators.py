"""What operators look at across tenants: the tenants themselves, and figures for an overview. Reads only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from domain.budget.events import EventType
from domain.budget.queries import Place, TenantQuery, TenantSort
from domain.budget.records import Budget, Tenant, TenantStatus
from domain.events import MIRROR, EventRecord
from storage.budget.books import head_of
from storage.budget.keyset import NUMBER, Column, Listing, Page
from storage.budget.rows import budget_of
from storage.database import AnyConnection, Row
from storage.events import event_of
from storage.paging import like

# -- tenants -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenTenant:
    """A tenant as its head and the registry have it. One that was never asked about has the general defaults."""

    tenant: Tenant
    created_at: int
    updated_at: int | None


_TENANT_STATUS: Final = """case
    when b.tenant_id is not null then coalesce(b.status, '')
    when t.deleted_at is null then 'ACTIVE'
    else 'CLOSED'
end"""
_TENANT_SHOWN: Final = """
    t.tenant_id, t.name, t.created_at, t.deleted_at, case when b.tenant_id is not null then row_to_json(b) end as head
"""
TENANTS: Final = Listing(
    f"""
from tenant t left join budget_tenant b on b.tenant_id = t.tenant_id
where ($1::text is null or {_TENANT_STATUS} = $1)
    and ($2::text is null or t.tenant_id ilike $2 or t.name ilike $2)
    and ($3::text[] is null or t.tenant_id = any ($3))
    and ($4::text is null or b.parent_tenant_id = $4)
    and (not $5::boolean or t.tenant_id ~ '^[a-z0-9-]{{3,64}}$')
""",
    arguments=5,
    columns={
        TenantSort.TENANT_ID: Column("t.tenant_id"),
        TenantSort.NAME: Column("t.name"),
        TenantSort.STATUS: Column(_TENANT_STATUS),
        TenantSort.CREATED_AT: Column("t.created_at", NUMBER),
    },
    id_column="t.tenant_id",
    shown=_TENANT_SHOWN,
)


_NAMESAKES: Final = "select tenant_id from tenant where lower(tenant_id) = lower($1) order by tenant_id limit $2"
NAMESAKES_MAX: Final = 10
"""Tenants whose ids differ in case only, that are looked at: with more of them nobody finds one by its scope."""


async def namesakes(connection: AnyConnection, tenant_id: str) -> list[str]:
    """The tenants that are called so, in whatever case: scopes are lower-case, tenants are not."""
    return [row["tenant_id"] for row in await connection.fetch(_NAMESAKES, tenant_id, NAMESAKES_MAX)]


async def page_tenants(
    connection: AnyConnection,
    query: TenantQuery,
    *,
    after: Place | None,
    limit: int,
    tenant_ids: Sequence[str] | None = None,
) -> Page[SeenTenant]:
    """All tenants, or of those that are named."""
    return await TENANTS.fetch(
        connection,
        _tenant_arguments(query, tenant_ids),
        sort=query.sort_by,
        descending=query.descending,
        after=after,
        limit=limit,
        convert=_seen_tenant,
    )


async def count_tenants(connection: AnyConnection, query: TenantQuery) -> int:
    return await TENANTS.count(connection, _tenant_arguments(query, None))


def _tenant_arguments(query: TenantQuery, tenant_ids: Sequence[str] | None) -> tuple[object, ...]:
    search = like(query.search) if query.search else None
    named = None if tenant_ids is None else list(tenant_ids)
    return query.status, search, named, query.parent_tenant_id, query.nameable


def _seen_tenant(row: Row) -> SeenTenant:
    if row["head"] is not None:
        head = head_of(row["head"], row["name"])
        return SeenTenant(tenant=head.tenant, created_at=row["created_at"], updated_at=head.updated_at)
    deleted_at = row["deleted_at"]
    tenant = Tenant(
        tenant_id=row["tenant_id"],
        status=TenantStatus.ACTIVE if deleted_at is None else TenantStatus.CLOSED,
        name=row["name"],
        closed_at=deleted_at,
    )
    return SeenTenant(tenant=tenant, created_at=row["created_at"], updated_at=None)


# -- overview ----------------------------------------------------------------------------------------------------------

SHOWN_MAX: Final = 10
"""Things of a kind that an overview names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """`events` are those recorded since `since`. The lists name at most `SHOWN_MAX`, the worst or the newest first."""

    since: int
    tenants: Mapping[str, int]
    """By status."""
    budgets: Mapping[str, int]
    """By status."""
    budgets_by_unit: Mapping[str, int]
    budgets_over_limit: int
    budgets_with_debt: int
    over_limit: tuple[tuple[str, Budget], ...]
    """(tenant, budget)."""
    in_debt: tuple[tuple[str, Budget], ...]
    events_by_category: Mapping[str, int]
    """By what stands before the first dot of their type."""
    denials: tuple[EventRecord, ...]
    expiries: tuple[EventRecord, ...]


_COUNT_TENANTS: Final = f"""
select {_TENANT_STATUS} as word, count(*) as count from tenant t left join budget_tenant b on b.tenant_id = t.tenant_id
group by 1
"""
_COUNT_BUDGETS: Final = """
select status, unit, count(*) as count, count(*) filter (where is_over_limit) as over_limit,
    count(*) filter (where debt > 0) as with_debt
from budget group by status, unit
"""
_OVER_LIMIT: Final = "select * from budget where is_over_limit order by debt desc, tenant_id, budget_id limit $1"
_IN_DEBT: Final = "select * from budget where debt > 0 order by debt desc, tenant_id, budget_id limit $1"
_COUNT_EVENTS: Final = """
select split_part(type, '.', 1) as word, count(*) as count from event
where tenant_id = $1 and recorded_at >= $2 group by 1
"""
_NEWEST_EVENTS: Final = """
select * from event where tenant_id = $1 and recorded_at >= $2 and type = $3 order by seq desc limit $4
"""


async def read_overview(connection: AnyConnection, *, since: int) -> Overview:
    """Counts and a few names over all tenants; the caller's transaction makes them of one moment."""
    counted = await connection.fetch(_COUNT_BUDGETS)
    return Overview(
        since=since,
        tenants=_counts(await connection.fetch(_COUNT_TENANTS)),
        budgets=_summed(counted, "status"),
        budgets_by_unit=_summed(counted, "unit"),
        budgets_over_limit=sum(row["over_limit"] for row in counted),
        budgets_with_debt=sum(row["with_debt"] for row in counted),
        over_limit=tuple(_owned(row) for row in await connection.fetch(_OVER_LIMIT, SHOWN_MAX)),
        in_debt=tuple(_owned(row) for row in await connection.fetch(_IN_DEBT, SHOWN_MAX)),
        events_by_category=_counts(await connection.fetch(_COUNT_EVENTS, MIRROR, since)),
        denials=await _newest(connection, EventType.RESERVATION_DENIED, since),
        expiries=await _newest(connection, EventType.RESERVATION_EXPIRED, since),
    )


async def _newest(connection: AnyConnection, kind: EventType, since: int) -> tuple[EventRecord, ...]:
    return tuple(event_of(row) for row in await connection.fetch(_NEWEST_EVENTS, MIRROR, since, kind, SHOWN_MAX))


def _counts(rows: list[Row]) -> dict[str, int]:
    return {row["word"]: row["count"] for row in rows}


def _summed(rows: list[Row], column: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for row in rows:
        counts[row[column]] = counts.get(row[column], 0) + row["count"]
    return counts


def _owned(row: Row) -> tuple[str, Budget]:
    return row["tenant_id"], budget_of(row)
