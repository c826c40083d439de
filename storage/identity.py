"""Tenants, projects and API keys. The one writer of `tenant`, `project` and `api_key`, but for what `storage.budget` writes
with its own tables in one statement: a tenant's row and name, and the revocation of the keys of a closed tenant.

Simple reads and writes of one row go through Tortoise on the caller's connection; locks, pages and lists are SQL. Locks
are taken in the order tenant, key: whoever locks a tenant may lock its keys after it, never the other way round.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from domain.credentials import Credential
from domain.tenancy import ApiKey, Project, Tenant
from storage import tables
from storage.database import AnyConnection, Row, affected
from storage.paging import Page, Position, fetch_page, newest_first
from storage.tables import on

TENANT_DELETED: Final = "tenant_deleted"
"""Why the keys of a deleted tenant were revoked."""

Columns: TypeAlias = Mapping[str, Any] | Row


# -- tenants -----------------------------------------------------------------------------------------------------------


async def get_tenant(connection: AnyConnection, tenant_id: str) -> Tenant | None:
    """Deleted ones too."""
    return (await get_tenants(connection, [tenant_id])).get(tenant_id)


async def get_tenants(connection: AnyConnection, tenant_ids: Iterable[str]) -> dict[str, Tenant]:
    """Those of the named tenants that there are, by id."""
    rows = await tables.Tenant.filter(tenant_id__in=list(tenant_ids)).using_db(on(connection)).values()
    return {row["tenant_id"]: _tenant_of(row) for row in rows}


async def get_root_tenant(connection: AnyConnection) -> Tenant | None:
    """None only before the first start."""
    rows = await tables.Tenant.filter(is_root=True).using_db(on(connection)).values()
    return _tenant_of(rows[0]) if rows else None


_PAGE_TENANTS: Final = newest_first("from tenant where ($4 or deleted_at is null)", "tenant_id")


async def page_tenants(
    connection: AnyConnection, *, first: int, after: Position | None, include_deleted: bool
) -> Page[Tenant]:
    return await fetch_page(
        connection,
        _PAGE_TENANTS,
        include_deleted,
        id_column="tenant_id",
        convert=_tenant_of,
        first=first,
        after=after,
    )


_CLOSING: Final = """
select * from tenant
where deleted_at is not null and closed_at is null and tenant_id > $1 order by tenant_id limit $2
"""


async def read_closing_tenants(connection: AnyConnection, *, after: str, limit: int) -> list[Tenant]:
    """Deleted tenants that some capacity reservation may not have let go of, by id, after an id."""
    return [_tenant_of(row) for row in await connection.fetch(_CLOSING, after, limit)]


_LOCK_TENANT: Final = "select * from tenant where tenant_id = $1 for update"


async def lock_tenant(connection: AnyConnection, tenant_id: str) -> Tenant | None:
    """Keep everybody else from making anything for the tenant until the end of the transaction."""
    row = await connection.fetchrow(_LOCK_TENANT, tenant_id)
    return _tenant_of(row) if row else None


_SHARE_TENANTS: Final = "select * from tenant where tenant_id = any ($1) order by tenant_id for key share"


async def lock_tenants_shared(connection: AnyConnection, tenant_ids: Iterable[str]) -> dict[str, Tenant]:
    """Keep these tenants from being deleted until the end of the transaction; many may do so at once (R53).

    Waits for a deletion under way and then shows the tenant as deleted.
    """
    rows = await connection.fetch(_SHARE_TENANTS, sorted(tenant_ids))
    return {row["tenant_id"]: _tenant_of(row) for row in rows}


async def flush_tenant(connection: AnyConnection, tenant: Tenant) -> None:
    """Raises a unique violation when the id is taken."""
    await tables.Tenant.create(
        using_db=on(connection),
        tenant_id=tenant.tenant_id,
        name=tenant.name,
        is_root=tenant.is_root,
        created_at=tenant.created_at,
    )


async def flush_tenant_deleted(connection: AnyConnection, tenant_id: str, *, deleted_at: int) -> None:
    """Mark the tenant and revoke its keys. The caller holds `lock_tenant`."""
    live = tables.Tenant.filter(tenant_id=tenant_id, deleted_at=None).using_db(on(connection))
    await live.update(deleted_at=deleted_at)
    keys = tables.ApiKey.filter(tenant_id=tenant_id, revoked_at=None).using_db(on(connection))
    await keys.update(revoked_at=deleted_at, revoked_reason=TENANT_DELETED)


async def flush_tenant_closed(connection: AnyConnection, tenant_id: str, *, closed_at: int) -> None:
    """Every capacity reservation has let go. Whoever says so first is heard."""
    closing = tables.Tenant.filter(tenant_id=tenant_id, deleted_at__not_isnull=True, closed_at=None)
    await closing.using_db(on(connection)).update(closed_at=closed_at)


_MAKE_ROOT: Final = """
insert into tenant (tenant_id, name, is_root, created_at) values ($1, $2, true, $3) on conflict do nothing
"""


async def flush_root_tenant(connection: AnyConnection, tenant_id: str, *, name: str, created_at: int) -> None:
    """Make the root tenant unless there is one. Of two nodes at their first start the second waits for the first."""
    await connection.execute(_MAKE_ROOT, tenant_id, name, created_at)


# -- projects ----------------------------------------------------------------------------------------------------------


async def get_project(connection: AnyConnection, project_id: str) -> Project | None:
    """Deleted ones too: their grants may live (D30)."""
    return (await get_projects(connection, [project_id])).get(project_id)


async def get_projects(connection: AnyConnection, project_ids: Iterable[str]) -> dict[str, Project]:
    """Those of the named projects that there are, by id."""
    rows = await tables.Project.filter(project_id__in=list(project_ids)).using_db(on(connection)).values()
    return {row["project_id"]: _project_of(row) for row in rows}


_PAGE_PROJECTS: Final = newest_first("from project where tenant_id = $4 and ($5 or deleted_at is null)", "project_id")


async def page_projects(
    connection: AnyConnection, tenant_id: str, *, first: int, after: Position | None, include_deleted: bool
) -> Page[Project]:
    return await fetch_page(
        connection,
        _PAGE_PROJECTS,
        tenant_id,
        include_deleted,
        id_column="project_id",
        convert=_project_of,
        first=first,
        after=after,
    )


_LOCK_PROJECT: Final = "select * from project where project_id = $1 for update"


async def lock_project(connection: AnyConnection, project_id: str) -> Project | None:
    row = await connection.fetchrow(_LOCK_PROJECT, project_id)
    return _project_of(row) if row else None


async def flush_project(connection: AnyConnection, project: Project) -> None:
    """The caller holds `lock_tenants_shared` on its tenant."""
    await tables.Project.create(
        using_db=on(connection),
        project_id=project.project_id,
        tenant_id=project.tenant_id,
        name=project.name,
        created_at=project.created_at,
    )


async def flush_project_deleted(connection: AnyConnection, project_id: str, *, deleted_at: int) -> None:
    live = tables.Project.filter(project_id=project_id, deleted_at=None)
    await live.using_db(on(connection)).update(deleted_at=deleted_at)


# -- keys --------------------------------------------------------------------------------------------------------------


async def get_api_key(connection: AnyConnection, key_id: str) -> ApiKey | None:
    """Revoked and expired ones too."""
    rows = await tables.ApiKey.filter(key_id=key_id).using_db(on(connection)).values()
    return api_key_of(rows[0]) if rows else None


_PAGE_KEYS: Final = newest_first("from api_key where tenant_id = $4 and ($5 or revoked_at is null)", "key_id")


async def page_api_keys(
    connection: AnyConnection, tenant_id: str, *, first: int, after: Position | None, include_revoked: bool
) -> Page[ApiKey]:
    return await fetch_page(
        connection,
        _PAGE_KEYS,
        tenant_id,
        include_revoked,
        id_column="key_id",
        convert=api_key_of,
        first=first,
        after=after,
    )


_LOCK_KEY: Final = "select * from api_key where key_id = $1 for update"


async def lock_api_key(connection: AnyConnection, key_id: str) -> ApiKey | None:
    row = await connection.fetchrow(_LOCK_KEY, key_id)
    return api_key_of(row) if row else None


async def flush_api_key(connection: AnyConnection, key: ApiKey, *, digest: bytes) -> None:
    """The caller holds `lock_tenants_shared` on its tenant. Raises a unique violation when the prefix is taken."""
    await tables.ApiKey.create(
        using_db=on(connection),
        key_id=key.key_id,
        tenant_id=key.tenant_id,
        name=key.name,
        prefix=key.prefix,
        secret_hash=digest,
        permissions=list(key.permissions),
        created_at=key.created_at,
        expires_at=key.expires_at,
        scope_filter=list(key.scope_filter),
        description=key.description,
        metadata=dict(key.metadata) if key.metadata is not None else None,
    )


async def flush_api_key_changed(connection: AnyConnection, key: ApiKey) -> None:
    """What may change of a key: all but whose it is, its secret and its ends. The caller holds `lock_api_key`."""
    row = tables.ApiKey.filter(key_id=key.key_id).using_db(on(connection))
    await row.update(
        name=key.name,
        permissions=list(key.permissions),
        scope_filter=list(key.scope_filter),
        description=key.description,
        metadata=dict(key.metadata) if key.metadata is not None else None,
    )


async def flush_api_key_revoked(
    connection: AnyConnection, key_id: str, *, revoked_at: int, reason: str | None = None
) -> None:
    live = tables.ApiKey.filter(key_id=key_id, revoked_at=None)
    await live.using_db(on(connection)).update(revoked_at=revoked_at, revoked_reason=reason)


_LIVE_KEYS: Final = "select key_id, name from api_key where tenant_id = $1 and revoked_at is null order by key_id"


async def read_live_keys(connection: AnyConnection, tenant_id: str) -> list[tuple[str, str]]:
    """(id, name) of the keys that are not revoked. Nobody makes another one while the caller holds `lock_tenant`."""
    return [(row["key_id"], row["name"]) for row in await connection.fetch(_LIVE_KEYS, tenant_id)]


_IS_CLOSED: Final = "select exists (select 1 from budget_tenant where tenant_id = $1 and status = 'CLOSED')"


async def is_closed_for_budgets(connection: AnyConnection, tenant_id: str) -> bool:
    """Whether the tenant's budgets were closed for good, which took its keys with them (section 7 of the budget rules).

    The caller holds `lock_tenants_shared`, which closing waits for.
    """
    found: bool = await connection.fetchval(_IS_CLOSED, tenant_id)
    return found


# -- authentication ----------------------------------------------------------------------------------------------------

_CREDENTIALS: Final = """
select k.key_id, k.tenant_id, k.secret_hash, k.permissions, k.scope_filter, k.expires_at, k.revoked_at, k.name, t.is_root,
    t.deleted_at as tenant_deleted_at, floor(extract(epoch from clock_timestamp()) * 1000)::bigint as now_ms
from api_key k join tenant t on t.tenant_id = k.tenant_id
"""
_BY_PREFIX: Final = f"{_CREDENTIALS} where k.prefix = $1"
_BY_ID: Final = f"{_CREDENTIALS} where k.key_id = any ($1)"


async def get_credential(connection: AnyConnection, prefix: str) -> tuple[Credential, int] | None:
    """(the key with this public prefix, whatever its state, and the database's clock)."""
    row = await connection.fetchrow(_BY_PREFIX, prefix)
    return (_credential_of(row), row["now_ms"]) if row else None


async def read_credentials(connection: AnyConnection, key_ids: Iterable[str]) -> list[tuple[Credential, int]]:
    """The same for many keys, by id."""
    rows = await connection.fetch(_BY_ID, list(key_ids))
    return [(_credential_of(row), row["now_ms"]) for row in rows]


# A row that somebody else is writing is left alone: the mark is coarse, and nobody shall wait for it.
_USED: Final = """
update api_key k set last_used_at = d.used_at
from unnest($1::text[], $2::bigint[]) d (key_id, used_at)
where k.key_id = d.key_id and k.key_id in (
    select a.key_id from api_key a join unnest($1::text[], $2::bigint[]) u (key_id, used_at) on u.key_id = a.key_id
    where a.last_used_at is null or a.last_used_at <= u.used_at - $3 for no key update of a skip locked
)
"""


async def flush_last_used(connection: AnyConnection, used_at: Mapping[str, int], *, coarse_ms: int) -> int:
    """When keys were last used, by id; one whose mark is younger than `coarse_ms` keeps it. How many were written."""
    return affected(await connection.execute(_USED, list(used_at), list(used_at.values()), coarse_ms))


# -- the root key ------------------------------------------------------------------------------------------------------

_HAS_KEYS: Final = "select exists (select 1 from api_key where tenant_id = $1)"


async def has_api_keys(connection: AnyConnection, tenant_id: str) -> bool:
    """Whether the tenant ever had a key."""
    found: bool = await connection.fetchval(_HAS_KEYS, tenant_id)
    return found


async def flush_root_key_restored(
    connection: AnyConnection, key_id: str, *, name: str, permissions: Iterable[str]
) -> None:
    """The environment names this key: whatever was done to it, it is the root key again."""
    key = tables.ApiKey.filter(key_id=key_id).using_db(on(connection))
    await key.update(name=name, permissions=list(permissions), revoked_at=None, revoked_reason=None, expires_at=None)


async def flush_others_revoked(
    connection: AnyConnection, tenant_id: str, *, name: str, keep: str, revoked_at: int
) -> int:
    """Revoke the tenant's keys of this name, but for one id. How many there were."""
    others = tables.ApiKey.filter(tenant_id=tenant_id, name=name, revoked_at=None).exclude(key_id=keep)
    return await others.using_db(on(connection)).update(revoked_at=revoked_at)


# -- rows --------------------------------------------------------------------------------------------------------------


def _tenant_of(row: Columns) -> Tenant:
    return Tenant(
        tenant_id=row["tenant_id"],
        name=row["name"],
        is_root=row["is_root"],
        created_at=row["created_at"],
        deleted_at=row["deleted_at"],
        closed_at=row["closed_at"],
    )


def _project_of(row: Columns) -> Project:
    return Project(
        project_id=row["project_id"],
        tenant_id=row["tenant_id"],
        name=row["name"],
        created_at=row["created_at"],
        deleted_at=row["deleted_at"],
    )


def api_key_of(row: Columns) -> ApiKey:
    """From a row of `api_key`, whoever reads it."""
    return ApiKey(
        key_id=row["key_id"],
        tenant_id=row["tenant_id"],
        name=row["name"],
        prefix=row["prefix"],
        permissions=tuple(row["permissions"]),
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        revoked_at=row["revoked_at"],
        revoked_reason=row["revoked_reason"],
        last_used_at=row["last_used_at"],
        scope_filter=tuple(row["scope_filter"]),
        description=row["description"],
        metadata=row["metadata"],
    )


def _credential_of(row: Row) -> Credential:
    return Credential(
        key_id=row["key_id"],
        tenant_id=row["tenant_id"],
        digest=row["secret_hash"],
        permissions=frozenset(row["permissions"]),
        is_root=row["is_root"],
        expires_at=row["expires_at"],
        revoked_at=row["revoked_at"],
        tenant_deleted_at=row["tenant_deleted_at"],
        key_name=row["name"],
        scope_filter=tuple(row["scope_filter"]),
    )
