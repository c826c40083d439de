"""Reads of `usage_record`: pages of one tenant's records, and totals. The meter's job is the one writer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from domain.capacity.usage import UsageGroup, UsageRecord, UsageTotal
from domain.terms import DAY_MS
from storage.database import AnyConnection, Row
from storage.paging import Page, Position, fetch_page, newest_first


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageFilter:
    """Records of hours that start in [since, until). What is None is not asked about.

    `tenant_id` None is every tenant there ever was, for totals only.
    """

    tenant_id: str | None
    meters: Sequence[str] | None = None
    since: int | None = None
    until: int | None = None
    project_id: str | None = None
    grant_id: str | None = None


_PAGE: Final = newest_first(
    """
from (select *, hour_start as created_at from usage_record) u
where tenant_id = $4 and ($5::text[] is null or meter = any ($5))
    and ($6::bigint is null or hour_start >= $6) and ($7::bigint is null or hour_start < $7)
    and ($8::text is null or project_id = $8)
""",
    "source_key",
)
_PAGE_OF_GRANT: Final = newest_first(
    """
from (select *, hour_start as created_at from usage_record) u
where tenant_id = $4 and ($5::text[] is null or meter = any ($5))
    and ($6::bigint is null or hour_start >= $6) and ($7::bigint is null or hour_start < $7)
    and ($8::text is null or project_id = $8) and grant_id = $9
""",
    "source_key",
)


async def page_usage(
    connection: AnyConnection, chosen: UsageFilter, *, first: int, after: Position | None
) -> Page[UsageRecord]:
    """Records of one tenant, the newest hour first. A position is (hour_start, source_key)."""
    assert chosen.tenant_id is not None, "records are read tenant by tenant"
    arguments = [chosen.tenant_id, chosen.meters, chosen.since, chosen.until, chosen.project_id]
    statement = _PAGE
    if chosen.grant_id is not None:
        statement = _PAGE_OF_GRANT
        arguments.append(chosen.grant_id)
    return await fetch_page(
        connection,
        statement,
        *arguments,
        id_column="source_key",
        convert=_record_of,
        first=first,
        after=after,
    )


_GROUPS: Final[Mapping[UsageGroup, tuple[str, str]]] = {
    UsageGroup.HOUR: ("hour_start", "u.hour_start"),
    UsageGroup.DAY: ("day_start", f"u.hour_start - u.hour_start % {DAY_MS}"),
    UsageGroup.TENANT: ("tenant_id", "u.tenant_id"),
    UsageGroup.PROJECT: ("project_id", "u.project_id"),
    UsageGroup.GRANT: ("grant_id", "u.grant_id"),
}
"""Group to (column of the answer, expression)."""

_OF_ONE: Final = "from usage_record u where u.tenant_id = $1"
# Tenants are never removed, so this is everybody; the index that begins with the tenant finds each one's records.
_OF_ALL: Final = "from tenant t join usage_record u on u.tenant_id = t.tenant_id where $1::text is null"
_TOTALS: Final = """
select u.meter{columns}, sum(u.quantity_ms)::bigint as quantity_ms, count(*) as records
{source} and ($2::text[] is null or u.meter = any ($2))
    and ($3::bigint is null or u.hour_start >= $3) and ($4::bigint is null or u.hour_start < $4)
    and ($5::text is null or u.project_id = $5) and ($6::text is null or u.grant_id = $6)
group by u.meter{groups}
order by {order} limit $7
"""


async def sum_usage(
    connection: AnyConnection, chosen: UsageFilter, *, groups: Sequence[UsageGroup], limit: int
) -> list[UsageTotal]:
    """Totals per meter and `groups`, by hour or day (newest first), then tenant, project, grant, meter."""
    wanted = [group for group in UsageGroup if group in groups]
    rows = await connection.fetch(
        _totals(wanted, of_all=chosen.tenant_id is None),
        chosen.tenant_id,
        chosen.meters,
        chosen.since,
        chosen.until,
        chosen.project_id,
        chosen.grant_id,
        limit,
    )
    names = [_GROUPS[group][0] for group in wanted]
    return [
        UsageTotal(
            meter=row["meter"],
            quantity_ms=row["quantity_ms"],
            records=row["records"],
            **{name: row[name] for name in names},
        )
        for row in rows
    ]


def _totals(groups: Sequence[UsageGroup], *, of_all: bool) -> str:
    columns = [_GROUPS[group] for group in groups]
    order = [
        f"{name} desc" if name.endswith("_start") else f'{expression} collate "C" nulls first'
        for name, expression in columns
    ]
    return _TOTALS.format(
        columns="".join(f", {expression} as {name}" for name, expression in columns),
        source=_OF_ALL if of_all else _OF_ONE,
        groups="".join(f", {expression}" for _, expression in columns),
        order=", ".join([*order, 'u.meter collate "C"']),
    )


def _record_of(row: Row) -> UsageRecord:
    return UsageRecord(
        tenant_id=row["tenant_id"],
        source_key=row["source_key"],
        project_id=row["project_id"],
        meter=row["meter"],
        hour_start=row["hour_start"],
        quantity_ms=row["quantity_ms"],
        grant_id=row["grant_id"],
        instance_id=row["instance_id"],
        tags=row["tags"],
        written_at=row["written_at"],
    )
