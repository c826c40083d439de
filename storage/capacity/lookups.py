"""Single things by id, and the candidates for a placement: what a desk looks up before it asks an actor."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from domain.capacity.state import Instance, ReservationStatus
from storage.capacity.rows import PlacedGrant, instance_of, placed_grant_of, segment_of
from storage.database import AnyConnection

_KEY: Final = "select key from capacity_locator where id = $1"


async def get_key(connection: AnyConnection, thing_id: str) -> str | None:
    """The key of the reservation that a grant or an instance belongs to."""
    key: str | None = await connection.fetchval(_KEY, thing_id)
    return key


_GRANT: Final = """
select g.*, r.clock_at from capacity_grant g join capacity_reservation r on r.key = g.key
where g.key = $1 and r.key = $1 and g.grant_id = $2
"""


async def get_grant(connection: AnyConnection, grant_id: str) -> PlacedGrant | None:
    key = await get_key(connection, grant_id)
    row = await connection.fetchrow(_GRANT, key, grant_id) if key else None
    return placed_grant_of(row) if row else None


_INSTANCE: Final = """
select i.*, r.flavor from capacity_instance i join capacity_reservation r on r.key = i.key
where i.key = $1 and r.key = $1 and i.instance_id = $2
"""
_SEGMENT: Final = "select * from capacity_segment where key = $1 and instance_id = $2 and to_at is null"


async def get_instance(connection: AnyConnection, instance_id: str) -> tuple[str, Instance, str] | None:
    """(key, instance with its open segment, flavor)."""
    key = await get_key(connection, instance_id)
    row = await connection.fetchrow(_INSTANCE, key, instance_id) if key else None
    while row is not None and row["moved_to"] is not None:  # it moved on between the two looks
        row = await connection.fetchrow(_INSTANCE, row["moved_to"], instance_id)
    if row is None:
        return None
    segment = await connection.fetchrow(_SEGMENT, row["key"], instance_id)
    return row["key"], instance_of(row, segment_of(segment) if segment else None), row["flavor"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A reservation on which a tenant's instance of some flavor may run."""

    key: str
    status: ReservationStatus
    has_own_grant: bool


_CANDIDATES: Final = """
select r.key, r.status,
    exists (
        select 1 from capacity_grant g
        where g.key = r.key and g.tenant_id = $1 and g.cancelled_at is null and not g.ended_applied
    ) as has_own_grant
from capacity_reservation r
where r.flavor = $2 and ($3::text is null or r.pool_id = $3)
    and exists (select 1 from pool_offer o where o.pool_id = r.pool_id and o.tenant_id in ($1, '*'))
order by r.reservation_id collate "C", r.key collate "C"
"""


async def find_candidates(
    connection: AnyConnection, *, tenant_id: str, flavor: str, pool_id: str | None
) -> list[Candidate]:
    """Reservations of the flavor in pools offered to the tenant, by reservation id (D32). A hint: turns decide."""
    rows = await connection.fetch(_CANDIDATES, tenant_id, flavor, pool_id)
    return [Candidate(row["key"], ReservationStatus(row["status"]), row["has_own_grant"]) for row in rows]


_OF_ACCOUNT: Final = "select key, status from capacity_reservation where account_id = $1 order by key"


async def keys_of_account(connection: AnyConnection, account_id: str) -> dict[str, ReservationStatus]:
    """Every reservation that was ever reported on the account."""
    rows = await connection.fetch(_OF_ACCOUNT, account_id)
    return {row["key"]: ReservationStatus(row["status"]) for row in rows}


_OF_POOL: Final = "select key from capacity_reservation where pool_id = $1 order by key"


async def keys_of_pool(connection: AnyConnection, pool_id: str) -> list[str]:
    return [row["key"] for row in await connection.fetch(_OF_POOL, pool_id)]


_OF_TENANT: Final = """
select key from capacity_grant where tenant_id = $1 and cancelled_at is null and not ended_applied
union
select r.key from capacity_reservation r join pool_offer o on o.pool_id = r.pool_id and o.tenant_id in ($1, '*')
order by key
"""


async def keys_of_tenant(connection: AnyConnection, tenant_id: str) -> list[str]:
    """Reservations on which the tenant has grants that are not over, or could be given one at this moment."""
    return [row["key"] for row in await connection.fetch(_OF_TENANT, tenant_id)]


_UNMETERED: Final = """
select grant_id from capacity_grant
where key = any ($1) and cancelled_at is null and metered_through < ends_at and ends_at > starts_at
order by grant_id collate "C"
"""


async def unmetered_grants(connection: AnyConnection, keys: Iterable[str]) -> list[str]:
    """Grants with committed hours that the meter has not written yet (R52)."""
    return [row["grant_id"] for row in await connection.fetch(_UNMETERED, list(keys))]


_FORGET_GRANTS: Final = """
with gone as (delete from capacity_grant where key = any ($1) returning grant_id),
    unlocated as (delete from capacity_locator where id in (select grant_id from gone))
delete from answer where operation = $2 and subject_id in (select grant_id from gone)
"""


async def forget_grants(connection: AnyConnection, keys: Iterable[str], *, operation: str) -> None:
    """Remove every grant of these reservations and free the idempotency keys they were made under (D19, R52)."""
    await connection.execute(_FORGET_GRANTS, list(keys), operation)
