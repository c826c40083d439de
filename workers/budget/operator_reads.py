"""What operators read across tenants: the tenants, the audit log, an overview."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from domain.authority import Permission
from domain.budget.queries import LIMIT_DEFAULT, AuditQuery, KeyQuery, TenantQuery
from domain.budget.shapes import invalid
from domain.outcomes import AccessDenied, Refusal
from domain.terms import HOUR_MS
from storage.budget.audit_log import AUDIT, SeenAuditEntry, page_audit
from storage.budget.keys import KEYS, SeenKey, page_keys
from storage.budget.operators import TENANTS, Overview, SeenTenant, namesakes, page_tenants, read_overview
from workers.budget import rights
from workers.budget.listing import Listing, ListingReads, listing
from workers.budget.texts import is_kept
from workers.budget.turn import NO_TENANT
from workers.request import Caller

OVERVIEW_MS: Final = HOUR_MS
"""How far back an overview counts events: what an operator calls now."""


class OperatorReads(ListingReads):
    async def tenant(self, caller: Caller, *, tenant_id: str) -> SeenTenant | Refusal:
        """Root: any tenant, as budgets have it. Refuses in this order: ACCESS_DENIED, NOT_FOUND."""
        if (denied := rights.refuse(caller, rights.READ_TENANTS, tenant_id)) is not None:
            return denied
        if not is_kept(tenant_id):
            return NO_TENANT
        async with self._snapshot() as (connection, _):
            page = await page_tenants(connection, TenantQuery(), after=None, limit=1, tenant_ids=[tenant_id])
        return page.items[0] if page.items else NO_TENANT

    async def tenant_of_scope(self, caller: Caller, *, name: str) -> str | Refusal:
        """Root: whose budgets lie under `tenant:<name>`. Scopes are lower-case and tenants are not, so of several that are
        called so it is the one in this very case, or the lower-case one, or the only one; of none, the lower-case one.

        Refuses in this order: ACCESS_DENIED, INVALID_INPUT (several, and none of them for certain).
        """
        if not caller.principal.is_root:
            return AccessDenied(message="only operators look for a tenant by its scope")
        if not is_kept(name):
            return invalid("scope", "no budget can be called so", reason="charset")
        async with self._snapshot() as (connection, _):
            found = await namesakes(connection, name)
        if len(found) <= 1:
            return found[0] if found else name.lower()
        for certain in (name, name.lower()):
            if certain in found:
                return certain
        return invalid(
            "tenant_id", f"several tenants are called so: name one of {', '.join(found)}", reason="ambiguous"
        )

    async def load_tenants(self, tenant_ids: Sequence[str]) -> Mapping[str, SeenTenant]:
        """Tenants that the caller has been shown already, as budgets have them, by id."""
        async with self._snapshot() as (connection, _):
            page = await page_tenants(
                connection, TenantQuery(), after=None, limit=len(tenant_ids), tenant_ids=tenant_ids
            )
        return {seen.tenant.tenant_id: seen for seen in page.items}

    async def tenants(
        self, caller: Caller, *, query: TenantQuery, limit: int = LIMIT_DEFAULT, cursor: str | None = None
    ) -> Listing[SeenTenant] | Refusal:
        """Root: all tenants. Refuses in this order: ACCESS_DENIED, INVALID_INPUT."""
        found = self._begin(
            caller,
            rights.READ_TENANTS,
            name="tenants",
            tenant=None,
            query=query,
            limit=limit,
            cursor=cursor,
            columns=TENANTS.columns,
        )
        if isinstance(found, Refusal):
            return found
        mark, after = found
        async with self._snapshot() as (connection, _):
            page = await page_tenants(connection, query, after=after, limit=limit)
        return listing(page, mark, lambda seen: seen)

    async def keys(
        self, caller: Caller, *, query: KeyQuery, limit: int = LIMIT_DEFAULT, cursor: str | None = None
    ) -> Listing[SeenKey] | Refusal:
        """Root: API keys of all tenants or of one. Refuses in this order: ACCESS_DENIED, INVALID_INPUT."""
        found = self._begin(
            caller,
            rights.READ_KEYS if caller.principal.may(Permission.ADMIN_KEYS_READ) else rights.READ_TENANCY,
            name="keys",
            tenant=None,
            query=query,
            limit=limit,
            cursor=cursor,
            columns=KEYS.columns,
        )
        if isinstance(found, Refusal):
            return found
        mark, after = found
        async with self._snapshot() as (connection, now):
            page = await page_keys(connection, query, now=now, after=after, limit=limit)
        return listing(page, mark, lambda seen: seen)

    async def audit_log(
        self, caller: Caller, *, query: AuditQuery, limit: int = LIMIT_DEFAULT, cursor: str | None = None
    ) -> Listing[SeenAuditEntry] | Refusal:
        """Root: what was changed, by whom. Refuses in this order: ACCESS_DENIED, INVALID_INPUT."""
        found = self._begin(
            caller,
            rights.READ_AUDIT,
            name="audit",
            tenant=None,
            query=query,
            limit=limit,
            cursor=cursor,
            columns=AUDIT.columns,
        )
        if isinstance(found, Refusal):
            return found
        mark, after = found
        async with self._snapshot() as (connection, _):
            page = await page_audit(connection, query, after=after, limit=limit)
        return listing(page, mark, lambda seen: seen)

    async def overview(self, caller: Caller) -> Overview | Refusal:
        """Root: figures over everything, and the events of the last hour. Refuses ACCESS_DENIED."""
        own = caller.principal.tenant_id
        if (denied := rights.refuse(caller, rights.READ_OVERVIEW, own, as_admin=True)) is not None:
            return denied
        async with self._snapshot() as (connection, now):
            return await read_overview(connection, since=now - OVERVIEW_MS)
