"""The audit log (`budget_audit`): an entry a request that somebody may have to account for (section 11.7).

Entries are added, never changed: those of budgets, policies and tenants by the turn, with the change itself; those of the
registry in its transactions; those of requests that failed by whoever answered them. Retention removes old ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from domain.amounts import Unit
from domain.budget.events import AuditEntry
from domain.budget.queries import AuditQuery, AuditSort, Place
from storage.budget.keyset import NUMBER, Column, Listing, Page
from storage.database import AnyConnection, Row, affected
from storage.paging import like


def audit_row(tenant_id: str, entry_id: str, entry: AuditEntry) -> dict[str, Any]:
    """The row as a flush takes it. `tenant_id`: whose things it was about, or a word for everybody's."""
    origin = entry.origin
    return {
        "tenant_id": tenant_id,
        "entry_id": entry_id,
        "recorded_at": entry.recorded_at,
        "operation": entry.operation,
        "status": entry.status,
        "error_code": entry.error_code,
        "resource_type": entry.resource_type,
        "resource_id": entry.resource_id,
        "actor_type": origin.actor_type,
        "key_id": origin.key_id,
        "source_ip": origin.source_ip,
        "user_agent": origin.user_agent,
        "request_id": origin.request_id,
        "trace_id": origin.trace_id,
        "scope": entry.scope,
        "unit": entry.unit,
        "amount": entry.amount,
        "reason": entry.reason,
        "correlation_id": entry.correlation_id,
        "subject": None if entry.subject is None else entry.subject.content(),
        "action": None if entry.action is None else _stated(entry.action.content()),
        "metadata": entry.metadata,
    }


def _stated(content: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in content.items() if value}


_ADD: Final = "insert into budget_audit select * from json_populate_record(null::budget_audit, $1)"


async def flush_entry(connection: AnyConnection, tenant_id: str, entry_id: str, entry: AuditEntry) -> None:
    """Add one entry."""
    await connection.execute(_ADD, audit_row(tenant_id, entry_id, entry))


_EXPIRE: Final = """
delete from budget_audit where (tenant_id, entry_id) in (
    select tenant_id, entry_id from budget_audit
    where recorded_at < $1 and ($2::text is null or tenant_id = $2) order by recorded_at limit $3
)
"""


async def expire_entries(connection: AnyConnection, *, before: int, limit: int, tenant_id: str | None = None) -> int:
    """Remove up to `limit` entries from before an instant, of one tenant or of all. How many."""
    return affected(await connection.execute(_EXPIRE, before, tenant_id, limit))


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenAuditEntry:
    """One entry, as it was written. `error_code` None: it was done."""

    tenant_id: str
    entry_id: str
    recorded_at: int
    operation: str
    status: int
    error_code: str | None
    resource_type: str | None
    resource_id: str | None
    actor_type: str
    key_id: str | None
    source_ip: str | None
    user_agent: str | None
    request_id: str | None
    trace_id: str | None
    scope: str | None
    unit: Unit | None
    amount: int | None
    reason: str | None
    correlation_id: str | None
    subject: Mapping[str, Any] | None
    action: Mapping[str, Any] | None
    metadata: Mapping[str, Any] | None


AUDIT: Final = Listing(
    """
from budget_audit
where ($1::text is null or tenant_id = $1)
    and ($2::text is null or key_id = $2)
    and ($3::text[] is null or operation = any ($3))
    and ($4::text[] is null or resource_type = any ($4))
    and ($5::text is null or resource_id = $5)
    and ($6::text is null or request_id = $6)
    and ($7::text is null or trace_id = $7)
    and ($8::text[] is null or error_code = any ($8)) and (error_code is null or error_code <> all ($9::text[]))
    and ($10::integer is null or status >= $10) and ($11::integer is null or status <= $11)
    and ($12::bigint is null or recorded_at >= $12) and ($13::bigint is null or recorded_at <= $13)
    and (
        $14::text is null or resource_id ilike $14 or entry_id ilike $14 or error_code ilike $14 or operation ilike $14
    )
""",
    arguments=14,
    columns={
        AuditSort.RECORDED_AT: Column("recorded_at", NUMBER),
        AuditSort.OPERATION: Column("operation"),
        AuditSort.RESOURCE_TYPE: Column("coalesce(resource_type, '')"),
        AuditSort.TENANT_ID: Column("tenant_id"),
        AuditSort.KEY_ID: Column("coalesce(key_id, '')"),
        AuditSort.STATUS: Column("status", NUMBER),
    },
    id_column="entry_id",
)


async def page_audit(
    connection: AnyConnection, query: AuditQuery, *, after: Place | None, limit: int
) -> Page[SeenAuditEntry]:
    arguments = (
        query.tenant_id,
        query.key_id,
        _listed(query.operations),
        _listed(query.resource_types),
        query.resource_id,
        query.request_id,
        query.trace_id,
        _listed(query.error_codes),
        list(query.error_codes_excluded),
        query.status_least,
        query.status_most,
        *query.recorded,
        like(query.search) if query.search else None,
    )
    return await AUDIT.fetch(
        connection,
        arguments,
        sort=query.sort_by,
        descending=query.descending,
        after=after,
        limit=limit,
        convert=_seen_entry,
    )


def _listed(words: tuple[str, ...] | None) -> list[str] | None:
    return None if words is None else list(words)


def _seen_entry(row: Row) -> SeenAuditEntry:
    names = [name for name in SeenAuditEntry.__dataclass_fields__ if name != "unit"]
    unit = None if row["unit"] is None else Unit(row["unit"])
    return SeenAuditEntry(**{name: row[name] for name in names}, unit=unit)
