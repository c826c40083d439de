"""Provider accounts, pools and offers. The one writer of `provider_account`, `pool` and `pool_offer`.

Locks are taken in the order tenant, pool; whoever also locks capacity reservations locks those before a pool.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from tortoise.expressions import Q

from domain.registry import EVERYBODY, Pool, PoolOffer, ProviderAccount
from storage import tables
from storage.database import AnyConnection, Row
from storage.paging import Page, Position, fetch_page, newest_first
from storage.tables import on

Columns: TypeAlias = Mapping[str, Any] | Row


# -- provider accounts -------------------------------------------------------------------------------------------------


async def get_account(connection: AnyConnection, account_id: str) -> ProviderAccount | None:
    """Deleted ones too."""
    return (await get_accounts(connection, [account_id])).get(account_id)


async def get_accounts(connection: AnyConnection, account_ids: Iterable[str]) -> dict[str, ProviderAccount]:
    """Those of the named accounts that there are, by id."""
    rows = await tables.ProviderAccount.filter(account_id__in=list(account_ids)).using_db(on(connection)).values()
    return {row["account_id"]: _account_of(row) for row in rows}


_PAGE_ACCOUNTS: Final = newest_first("from provider_account where ($4 or deleted_at is null)", "account_id")


async def page_accounts(
    connection: AnyConnection, *, first: int, after: Position | None, include_deleted: bool
) -> Page[ProviderAccount]:
    return await fetch_page(
        connection,
        _PAGE_ACCOUNTS,
        include_deleted,
        id_column="account_id",
        convert=_account_of,
        first=first,
        after=after,
    )


_LOCK_ACCOUNT: Final = "select * from provider_account where account_id = $1 for update"


async def lock_account(connection: AnyConnection, account_id: str) -> ProviderAccount | None:
    """Keep reservations from joining the account until the end of the transaction."""
    row = await connection.fetchrow(_LOCK_ACCOUNT, account_id)
    return _account_of(row) if row else None


async def flush_account(connection: AnyConnection, account: ProviderAccount) -> None:
    await tables.ProviderAccount.create(
        using_db=on(connection),
        account_id=account.account_id,
        tenant_id=account.tenant_id,
        name=account.name,
        provider=account.provider,
        kind=account.kind,
        settings=dict(account.settings),
        created_at=account.created_at,
    )


async def flush_account_deleted(connection: AnyConnection, account_id: str, *, deleted_at: int) -> None:
    """The caller holds `lock_account`. One that is deleted already keeps its instant."""
    live = tables.ProviderAccount.filter(account_id=account_id, deleted_at=None)
    await live.using_db(on(connection)).update(deleted_at=deleted_at)


async def flush_account_scanned(
    connection: AnyConnection, account_id: str, *, scanned_at: int, complete: bool, problems: Sequence[str]
) -> None:
    """How the latest scan went. One that is behind the latest changes nothing."""
    is_older = Q(scanned_at=None) | Q(scanned_at__lte=scanned_at)
    older = tables.ProviderAccount.filter(is_older, account_id=account_id).using_db(on(connection))
    await older.update(scanned_at=scanned_at, scan_complete=complete, scan_problems=list(problems))


# -- pools -------------------------------------------------------------------------------------------------------------


async def get_pool(connection: AnyConnection, pool_id: str) -> Pool | None:
    return (await get_pools(connection, [pool_id])).get(pool_id)


async def get_pools(connection: AnyConnection, pool_ids: Iterable[str]) -> dict[str, Pool]:
    """Those of the named pools that there are, by id."""
    rows = await tables.Pool.filter(pool_id__in=list(pool_ids)).using_db(on(connection)).values()
    return {row["pool_id"]: _pool_of(row) for row in rows}


_PAGE_POOLS: Final = newest_first(
    """from pool where ($4::text is null or exists (
    select 1 from pool_offer o where o.pool_id = pool.pool_id and o.tenant_id in ($4, '*')
))""",
    "pool_id",
)


async def page_pools(
    connection: AnyConnection, *, offered_to: str | None, first: int, after: Position | None
) -> Page[Pool]:
    """All pools, or those offered to one tenant."""
    return await fetch_page(
        connection, _PAGE_POOLS, offered_to, id_column="pool_id", convert=_pool_of, first=first, after=after
    )


_LOCK_POOL: Final = "select * from pool where pool_id = $1 for update"


async def lock_pool(connection: AnyConnection, pool_id: str) -> Pool | None:
    """Keep reservations from being bound to the pool, and offers from being made, until the end of the transaction."""
    row = await connection.fetchrow(_LOCK_POOL, pool_id)
    return _pool_of(row) if row else None


_SHARE_POOL: Final = "select * from pool where pool_id = $1 for key share"


async def lock_pool_shared(connection: AnyConnection, pool_id: str) -> Pool | None:
    """Keep offers of the pool from being withdrawn until the end of the transaction; many may do so at once."""
    row = await connection.fetchrow(_SHARE_POOL, pool_id)
    return _pool_of(row) if row else None


async def flush_pool(connection: AnyConnection, pool: Pool) -> None:
    """Raises a unique violation when the id is taken."""
    await tables.Pool.create(using_db=on(connection), pool_id=pool.pool_id, name=pool.name, created_at=pool.created_at)


# -- offers ------------------------------------------------------------------------------------------------------------


async def get_offer(connection: AnyConnection, pool_id: str, tenant_id: str) -> PoolOffer | None:
    """The offer to just this tenant, or to `EVERYBODY`."""
    found = tables.PoolOffer.filter(pool_id=pool_id, tenant_id=tenant_id)
    rows = await found.using_db(on(connection)).values()
    return _offer_of(rows[0]) if rows else None


async def offered_tenants(connection: AnyConnection, pool_id: str) -> set[str]:
    """Whom the pool is offered to; `EVERYBODY` among them when it is offered to all."""
    offers = tables.PoolOffer.filter(pool_id=pool_id).using_db(on(connection))
    return {row["tenant_id"] for row in await offers.values("tenant_id")}


async def is_offered(connection: AnyConnection, pool_id: str, tenant_id: str) -> bool:
    """Whether the tenant, or everybody, has the pool's offer."""
    offers = tables.PoolOffer.filter(pool_id=pool_id, tenant_id__in=[tenant_id, EVERYBODY])
    return await offers.using_db(on(connection)).exists()


_PAGE_OFFERS: Final = newest_first(
    "from pool_offer where pool_id = $4 and ($5::text is null or tenant_id in ($5, '*'))", "tenant_id"
)


async def page_offers(
    connection: AnyConnection, pool_id: str, *, offered_to: str | None, first: int, after: Position | None
) -> Page[PoolOffer]:
    """All offers of a pool, or those that reach one tenant."""
    return await fetch_page(
        connection,
        _PAGE_OFFERS,
        pool_id,
        offered_to,
        id_column="tenant_id",
        convert=_offer_of,
        first=first,
        after=after,
    )


_OFFER: Final = """
insert into pool_offer (pool_id, tenant_id, created_at) values ($1, $2, $3) on conflict (pool_id, tenant_id) do nothing
"""


async def flush_offer(connection: AnyConnection, offer: PoolOffer) -> PoolOffer:
    """The offer that stands afterwards: one that stood before keeps its instant.

    The caller holds the shared locks of the tenant and of the pool.
    """
    await connection.execute(_OFFER, offer.pool_id, offer.tenant_id, offer.created_at)
    return await get_offer(connection, offer.pool_id, offer.tenant_id) or offer


async def flush_offer_withdrawn(connection: AnyConnection, pool_id: str, tenant_id: str) -> bool:
    """Whether there was one. The caller holds `lock_pool`."""
    offer = tables.PoolOffer.filter(pool_id=pool_id, tenant_id=tenant_id)
    return bool(await offer.using_db(on(connection)).delete())


# -- rows --------------------------------------------------------------------------------------------------------------


def _account_of(row: Columns) -> ProviderAccount:
    return ProviderAccount(
        account_id=row["account_id"],
        tenant_id=row["tenant_id"],
        name=row["name"],
        provider=row["provider"],
        kind=row["kind"],
        settings=row["settings"],
        created_at=row["created_at"],
        deleted_at=row["deleted_at"],
        scanned_at=row["scanned_at"],
        scan_complete=row["scan_complete"],
        scan_problems=tuple(row["scan_problems"] or ()),
    )


def _pool_of(row: Columns) -> Pool:
    return Pool(pool_id=row["pool_id"], name=row["name"], created_at=row["created_at"])


def _offer_of(row: Columns) -> PoolOffer:
    return PoolOffer(pool_id=row["pool_id"], tenant_id=row["tenant_id"], created_at=row["created_at"])
