"""Lists of budgets, balances, reservations and policies, for everybody's reads.

Rows as stored: what time makes of them is part of the conditions where it matters, and otherwise the caller's to tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from domain.budget.queries import (
    BalanceQuery,
    BudgetQuery,
    BudgetSort,
    Place,
    PolicyQuery,
    PolicySort,
    ReservationQuery,
    ReservationSort,
)
from domain.budget.records import Budget, BudgetReservation, Policy
from storage.budget.keyset import NUMBER, Column, Listing, Page
from storage.budget.rows import budget_of, policy_of, reservation_of
from storage.database import AnyConnection, Row
from storage.paging import like


def confined(scope: str, argument: str) -> str:
    """Whether a scope filter, if there is one, covers a path (section 7): any of its entries names a segment."""
    return f"""({argument}::text[] is null or exists (
        select 1 from unnest(string_to_array({scope}, '/')) s
        where s = any ({argument}) or split_part(s, ':', 1) || ':*' = any ({argument})
    ))"""


# -- reservations ------------------------------------------------------------------------------------------------------

_STATUS: Final = "case when status = 'ACTIVE' and settles_until < $2 then 'EXPIRED' else status end"
RESERVATIONS: Final = Listing(
    f"""
from budget_reservation
where tenant_id = $1
    and ($3::text is null or {_STATUS} = $3)
    and ($4::text[] is null or string_to_array(scope_path, '/') @> $4)
    and ($5::bigint is null or created_at >= $5) and ($6::bigint is null or created_at <= $6)
    and ($7::bigint is null or expires_at >= $7) and ($8::bigint is null or expires_at <= $8)
    and ($9::bigint is null or finalized_at >= $9) and ($10::bigint is null or finalized_at <= $10)
    and ($11::text is null or reservation_id = $11)
    and ($12::text is null or idempotency_key = $12)
    and {confined("scope_path", "$13")}
""",
    arguments=13,
    columns={
        ReservationSort.RESERVATION_ID: Column("reservation_id"),
        ReservationSort.TENANT: Column("coalesce(subject ->> 'tenant', '')"),
        ReservationSort.SCOPE_PATH: Column("scope_path"),
        ReservationSort.STATUS: Column(_STATUS),
        ReservationSort.RESERVED: Column("estimate", NUMBER),
        ReservationSort.CREATED_AT: Column("created_at", NUMBER),
        ReservationSort.EXPIRES_AT: Column("expires_at", NUMBER),
    },
    id_column="reservation_id",
)


async def page_reservations(
    connection: AnyConnection,
    tenant_id: str,
    query: ReservationQuery,
    *,
    now: int,
    scope_filter: Sequence[str],
    after: Place | None,
    limit: int,
    reservation_id: str | None = None,
    created_until: int | None = None,
) -> Page[BudgetReservation]:
    """`reservation_id` and `created_until` narrow a search by idempotency key to where it can be found."""
    segments = [f"{level}:{value}".lower() for level, value in _levels(query)]
    until = [each for each in (query.created.until, created_until) if each is not None]
    arguments = (
        tenant_id,
        now,
        query.status,
        segments or None,
        query.created.since,
        min(until, default=None),
        *query.expires,
        *query.finalized,
        reservation_id,
        query.idempotency_key if reservation_id is None else None,
        list(scope_filter) or None,
    )
    return await RESERVATIONS.fetch(
        connection,
        arguments,
        sort=query.sort_by,
        descending=query.descending,
        after=after,
        limit=limit,
        convert=reservation_of,
    )


def _levels(query: ReservationQuery) -> list[tuple[str, str]]:
    content = {} if query.subject is None else query.subject.content()
    return [(level, value) for level, value in content.items() if level != "dimensions" and value]


_RESERVED_UNDER: Final = """
select answer ->> 'reservation_id' from budget_answer
where tenant_id = $1 and operation = $2 and idempotency_key = $3
"""


async def find_reserved(connection: AnyConnection, tenant_id: str, *, operation: str, key: str) -> str | None:
    """The reservation that was made under an idempotency key, as long as that is remembered."""
    found: str | None = await connection.fetchval(_RESERVED_UNDER, tenant_id, operation, key)
    return found


# -- budgets -----------------------------------------------------------------------------------------------------------

_UTILIZATION: Final = """case
    when allocated > 0 then least(div(spent::numeric * 1000000, allocated), 9223372036854775807)::bigint
    else 0
end"""
_SCOPE_PREFIX: Final = """($2::text is null or case
    when $2 ~ '[:/]$' then starts_with(scope_path, $2)
    else scope_path = $2 or starts_with(scope_path, $2 || '/')
end)"""
"""A prefix ends where a segment does: `agent:a` is not one of `agent:ab`. One that ends open is taken as it stands."""
BUDGETS: Final = Listing(
    f"""
from budget
where ($1::text is null or tenant_id = $1)
    and {_SCOPE_PREFIX}
    and ($3::text is null or unit = $3)
    and ($4::text is null or status = $4)
    and ($5::boolean is null or is_over_limit = $5)
    and ($6::boolean is null or (debt > 0) = $6)
    and ($7::bigint is null or $7 <= 0 or (allocated > 0 and spent::numeric * 1000000 >= $7::numeric * allocated))
    and ($8::bigint is null or allocated = 0 or spent::numeric * 1000000 <= $8::numeric * allocated)
    and ($9::text is null or scope_path ilike $9 or tenant_id ilike $9)
    and {confined("scope_path", "$10")}
""",
    arguments=10,
    columns={
        BudgetSort.TENANT: Column("tenant_id"),
        BudgetSort.SCOPE: Column("scope_path"),
        BudgetSort.UNIT: Column("unit"),
        BudgetSort.STATUS: Column("status"),
        BudgetSort.OVERAGE_POLICY: Column("coalesce(commit_overage_policy, '')"),
        BudgetSort.UTILIZATION: Column(_UTILIZATION, NUMBER),
        BudgetSort.DEBT: Column("debt", NUMBER),
    },
    id_column="budget_id",
)


async def page_budgets(
    connection: AnyConnection,
    tenant_id: str | None,
    query: BudgetQuery,
    *,
    scope_filter: Sequence[str],
    after: Place | None,
    limit: int,
) -> Page[tuple[str, Budget]]:
    """(tenant, budget); the tenant None: everybody's."""
    return await BUDGETS.fetch(
        connection,
        _budget_arguments(tenant_id, query, scope_filter),
        sort=query.sort_by,
        descending=query.descending,
        after=after,
        limit=limit,
        convert=_owned_budget,
    )


async def count_budgets(connection: AnyConnection, tenant_id: str, query: BudgetQuery) -> int:
    return await BUDGETS.count(connection, _budget_arguments(tenant_id, query, ()))


def _budget_arguments(tenant_id: str | None, query: BudgetQuery, scope_filter: Sequence[str]) -> tuple[object, ...]:
    return (
        tenant_id,
        None if query.scope_prefix is None else query.scope_prefix.lower(),
        query.unit,
        query.status,
        query.over_limit,
        query.has_debt,
        query.utilization_least_millionths,
        query.utilization_most_millionths,
        like(query.search) if query.search else None,
        list(scope_filter) or None,
    )


_BALANCES: Final = """
select * from budget
where tenant_id = $1 and string_to_array(scope_path, '/') @> $2 and ($3::text is null or scope_path = $3)
    and {confined} and (scope_path, unit) > ($5::text collate "C", $6::text collate "C")
order by scope_path, unit limit $7
""".format(confined=confined("scope_path", "$4"))


async def page_balances(
    connection: AnyConnection,
    tenant_id: str,
    query: BalanceQuery,
    *,
    scope_filter: Sequence[str],
    after: Place | None,
    limit: int,
) -> Page[Budget]:
    """By scope path, then unit."""
    exact = "/".join(query.segments) if query.exact else None
    place = after or Place("", "")
    arguments = (tenant_id, list(query.segments), exact, list(scope_filter) or None, *place)
    rows = await connection.fetch(_BALANCES, *arguments, limit + 1)
    budgets = tuple(budget_of(row) for row in rows[:limit])
    places = tuple(Place(budget.scope_path, budget.unit) for budget in budgets)
    return Page(items=budgets, places=places, has_more=len(rows) > limit)


_BUDGET: Final = "select * from budget where tenant_id = $1 and scope_path = $2 and unit = $3"


async def get_budget(connection: AnyConnection, tenant_id: str, scope_path: str, unit: str) -> Budget | None:
    row = await connection.fetchrow(_BUDGET, tenant_id, scope_path, unit)
    return None if row is None else budget_of(row)


def _owned_budget(row: Row) -> tuple[str, Budget]:
    return row["tenant_id"], budget_of(row)


# -- policies ----------------------------------------------------------------------------------------------------------

POLICIES: Final = Listing(
    f"""
from budget_policy
where ($1::text is null or tenant_id = $1)
    and ($2::text is null or scope_pattern = $2)
    and ($3::text is null or status = $3)
    and ($4::text is null or name ilike $4 or scope_pattern ilike $4)
    and ($5::text is null or policy_id = $5)
    and {confined("scope_pattern", "$6")}
""",
    arguments=6,
    columns={PolicySort.CREATED_AT: Column("created_at", NUMBER)},
    id_column="policy_id",
)


async def page_policies(
    connection: AnyConnection,
    tenant_id: str | None,
    query: PolicyQuery,
    *,
    scope_filter: Sequence[str],
    after: Place | None,
    limit: int,
) -> Page[tuple[str, Policy]]:
    """(tenant, policy); the tenant None: everybody's."""
    pattern = None if query.scope_pattern is None else query.scope_pattern.lower()
    search = like(query.search) if query.search else None
    return await POLICIES.fetch(
        connection,
        (tenant_id, pattern, query.status, search, query.policy_id, list(scope_filter) or None),
        sort=query.sort_by,
        descending=query.descending,
        after=after,
        limit=limit,
        convert=_owned_policy,
    )


def _owned_policy(row: Row) -> tuple[str, Policy]:
    return row["tenant_id"], policy_of(row)
