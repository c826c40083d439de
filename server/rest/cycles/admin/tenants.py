"""Tenants as an operator manages them (11.1). Closing one takes all that it holds with it (7)."""

from __future__ import annotations

import re
from typing import Annotated, Final

import msgspec

from domain.budget.records import (
    DEFAULT_EXTENSIONS_MAX,
    DEFAULT_TTL_MAX_MS,
    DEFAULT_TTL_MS,
    ExpiryPolicy,
    Tenant,
    TenantStatus,
)
from domain.budget.tenancy import MalformedTenantError
from domain.budget.values import OveragePolicy
from domain.instants import show_instant
from domain.outcomes import NotFound, Refusal
from server.rest.cycles.admin.reading import list_of, search_of
from server.rest.cycles.answers import Document
from server.rest.cycles.exchange import Answer, Exchange, RefusedError, Reply
from server.rest.cycles.listings import page
from server.rest.cycles.requests import Closed
from workers.budget.reads import SeenTenant, TenantQuery, TenantSort

TenantId = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9-]+\Z", min_length=3, max_length=64)]
"""Narrower than Earmark's own grammar: what is made on this wire has names that all its tools take."""
_NAMEABLE: Final = re.compile(r"[a-z0-9-]{3,64}")
"""Tenants that were made elsewhere under other ids are not among this wire's tenants; all else of theirs is."""
Labels = Annotated[dict[str, str], msgspec.Meta(max_length=32)]


class CreateBody(Closed, frozen=True):
    tenant_id: TenantId
    name: str
    parent_tenant_id: str | None = None
    metadata: Labels | None = None
    default_commit_overage_policy: OveragePolicy | None = None
    default_reservation_ttl_ms: int | None = None
    max_reservation_ttl_ms: int | None = None
    max_reservation_extensions: int | None = None
    reservation_expiry_policy: ExpiryPolicy | None = None


class UpdateBody(Closed, frozen=True):
    name: str | None = None
    status: TenantStatus | None = None
    metadata: Labels | None = None
    default_commit_overage_policy: OveragePolicy | None = None
    default_reservation_ttl_ms: int | None = None
    max_reservation_ttl_ms: int | None = None
    max_reservation_extensions: int | None = None


async def create(exchange: Exchange) -> Answer:
    """201; for a tenant that is there under this very name 200, and the tenant as it is, whatever else was asked for."""
    body = await exchange.body(CreateBody)
    outcome = await exchange.runtime.budgets.create_tenant(
        exchange.caller,
        tenant_id=body.tenant_id,
        name=body.name,
        parent_tenant_id=body.parent_tenant_id,
        metadata=body.metadata,
        default_overage_policy=body.default_commit_overage_policy,
        default_ttl_ms=body.default_reservation_ttl_ms,
        max_ttl_ms=body.max_reservation_ttl_ms,
        max_extensions=body.max_reservation_extensions,
        expiry_policy=body.reservation_expiry_policy or ExpiryPolicy.AUTO_RELEASE,
        idempotency_key=exchange.key_in_header,
    )
    if isinstance(outcome, Refusal):
        return outcome
    return await _shown(exchange, body.tenant_id, status=201 if outcome.answer.created else 200)


async def update(exchange: Exchange) -> Answer:
    tenant_id = _named(exchange)
    body = await exchange.body(UpdateBody)
    outcome = await exchange.runtime.budgets.update_tenant(
        exchange.caller,
        tenant_id=tenant_id,
        name=body.name,
        status=body.status,
        metadata=body.metadata,
        default_overage_policy=body.default_commit_overage_policy,
        default_ttl_ms=body.default_reservation_ttl_ms,
        max_ttl_ms=body.max_reservation_ttl_ms,
        max_extensions=body.max_reservation_extensions,
        idempotency_key=exchange.key_in_header,
    )
    return outcome if isinstance(outcome, Refusal) else await _shown(exchange, tenant_id)


async def get(exchange: Exchange) -> Answer:
    return await _shown(exchange, _named(exchange))


async def list_(exchange: Exchange) -> Answer:
    query = exchange.query()
    status, search = query.choice("status", TenantStatus), search_of(query)
    sort_by = query.choice("sort_by", TenantSort, folds=True) or TenantSort.CREATED_AT
    wanted = TenantQuery(
        status=status,
        parent_tenant_id=query.text("parent_tenant_id"),
        nameable=True,
        search=search,
        sort_by=sort_by,
        descending=query.is_descending(),
    )
    found = await exchange.runtime.budget_reads.tenants(exchange.caller, query=wanted, **list_of(query))
    if isinstance(found, Refusal):
        return found
    return Reply(page("tenants", [show_tenant(seen) for seen in found.items], found))


def _named(exchange: Exchange) -> str:
    """The tenant in the path. Raises `RefusedError` for one that this wire has no name for."""
    tenant_id = exchange.path("tenant_id")
    if not _NAMEABLE.fullmatch(tenant_id):
        raise RefusedError(NotFound(field="tenant_id", message="no such tenant"))
    return tenant_id


async def _shown(exchange: Exchange, tenant_id: str, *, status: int = 200) -> Answer:
    """The tenant as it is now: what it was made at is not in the answers of its commands."""
    found = await exchange.runtime.budget_reads.tenant(exchange.caller, tenant_id=tenant_id)
    return found if isinstance(found, Refusal) else Reply(show_tenant(found), status, owner=tenant_id)


def show_tenant(seen: SeenTenant) -> Document:
    """With the defaults that hold for it, its own or the general ones: the document states those as its own (11.1)."""
    tenant = seen.tenant
    shown: Document = {
        "tenant_id": tenant.tenant_id,
        "name": tenant.name,
        "status": _status_of(tenant),
        "default_commit_overage_policy": (tenant.default_overage_policy or OveragePolicy.ALLOW_IF_AVAILABLE).value,
        "reservation_expiry_policy": tenant.expiry_policy.value,
        "created_at": show_instant(seen.created_at),
    }
    for name, own, general in (
        ("default_reservation_ttl_ms", tenant.default_ttl_ms, DEFAULT_TTL_MS),
        ("max_reservation_ttl_ms", tenant.max_ttl_ms, DEFAULT_TTL_MAX_MS),
        ("max_reservation_extensions", tenant.max_extensions, DEFAULT_EXTENSIONS_MAX),
    ):
        shown[name] = general if own is None else own
    if tenant.parent_tenant_id is not None:
        shown["parent_tenant_id"] = tenant.parent_tenant_id
    if tenant.metadata is not None:
        shown["metadata"] = dict(tenant.metadata)
    for name, at in (
        ("updated_at", seen.updated_at),
        ("suspended_at", tenant.suspended_at),
        ("closed_at", tenant.closed_at),
    ):
        if at is not None:
            shown[name] = show_instant(at)
    return shown


def _status_of(tenant: Tenant) -> str:
    if tenant.status is None:
        raise MalformedTenantError(tenant.tenant_id)
    return tenant.status.value
