"""Which tenants may have budget reservations to give back, and when the next one may. Reads only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from storage.database import AnyConnection


@dataclass(frozen=True, slots=True)
class DueTenant:
    tenant_id: str
    due_at: int
    """No reservation of it is over before this instant."""


FIRST: Final = DueTenant("", -1)
"""Before all of them."""

_DUE: Final = """
select tenant_id, next_expiry_at from budget_tenant
where next_expiry_at <= $1 and (next_expiry_at, tenant_id) > ($2::bigint, $3::text)
order by next_expiry_at, tenant_id limit $4
"""


async def due_tenants(connection: AnyConnection, *, now: int, after: DueTenant, limit: int) -> list[DueTenant]:
    """Tenants that may have something overdue at `now`, the longest due first, after one of them."""
    rows = await connection.fetch(_DUE, now, after.due_at, after.tenant_id, limit)
    return [DueTenant(row["tenant_id"], row["next_expiry_at"]) for row in rows]


_NEXT: Final = "select min(next_expiry_at) from budget_tenant where next_expiry_at > $1"


async def next_due_at(connection: AnyConnection, *, after: int) -> int | None:
    """The earliest instant after this one at which something may be due; None when there is none."""
    due_at: int | None = await connection.fetchval(_NEXT, after)
    return due_at
