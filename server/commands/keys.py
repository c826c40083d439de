"""`earmark keys`: make, list and revoke API keys, straight in the database."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from domain.authority import EVERYTHING
from domain.outcomes import Accepted, Outcome, Refusal
from domain.tenancy import ApiKey
from server.commands.common import settings_of, show
from server.commands.node import operator, quiet_node
from server.process import migrated_database, missing_home
from server.settings import Settings
from storage.paging import PAGE_MAX, Page, Position
from workers.request import Caller
from workers.runtime import Runtime

Item = TypeVar("Item")


def run(given: argparse.Namespace) -> int:
    settings = settings_of(given)
    begins = given.action == "create" and given.tenant == settings.root_tenant
    if (home := missing_home(settings)) is not None and not begins:  # likely a typo: there is nobody in a new one
        print(f"earmark: there is no database in {home} (--data-dir): the first start makes one", file=sys.stderr)
        return 1
    with migrated_database(settings) as url:
        return asyncio.run(_run(given, settings, url))


async def _run(given: argparse.Namespace, settings: Settings, url: str) -> int:
    actions = {"create": _create, "list": _list, "revoke": _revoke}
    async with quiet_node(settings, url) as node:
        refusal = await actions[given.action](given, settings, node)
    if refusal is None:
        return 0
    if given.json:
        print(json.dumps({"error": {"code": refusal.code, "message": refusal.message}}, ensure_ascii=False))
    print(f"earmark: {refusal.message} ({refusal.code})", file=sys.stderr)
    return 1


async def _create(given: argparse.Namespace, settings: Settings, node: Runtime) -> Refusal | None:
    outcome = await node.keys.create_api_key(
        operator(settings),
        tenant_id=given.tenant,
        name=given.name,
        permissions=given.permission or _usual_permissions(given, settings),
        expires_at=given.expires_at,
    )
    if isinstance(outcome, Refusal):
        return outcome
    assert isinstance(outcome, Accepted)
    issued = outcome.answer
    show(given, {**_json(issued.key), "secret": issued.secret}, lambda: f"{issued.key.key_id}\n{issued.secret}")
    return None


def _usual_permissions(given: argparse.Namespace, settings: Settings) -> list[str] | None:
    """Root's key is for managing everything; None: what a tenant's key usually may."""
    return [EVERYTHING] if given.tenant == settings.root_tenant else None


async def _list(given: argparse.Namespace, settings: Settings, node: Runtime) -> Refusal | None:
    caller, keys = operator(settings), list[ApiKey]()
    tenants = _all_tenants(node, caller) if given.tenant is None else _only(given.tenant)
    async for tenant_id in tenants:
        pages = partial(node.keys.page_api_keys, caller, tenant_id=tenant_id, include_revoked=given.revoked)
        outcome = await _every(pages)
        if isinstance(outcome, Refusal):
            return outcome
        keys.extend(outcome)
    show(given, [_json(key) for key in keys], lambda: "\n".join(map(_line, keys)) or "no keys")
    return None


async def _only(tenant_id: str) -> AsyncIterator[str]:
    yield tenant_id


async def _all_tenants(node: Runtime, caller: Caller) -> AsyncIterator[str]:
    """Deleted ones too: their keys were revoked, and may be asked for."""
    tenants = await _every(partial(node.tenancy.page_tenants, caller, include_deleted=True))
    assert not isinstance(tenants, Refusal), "the operator may everything"
    for tenant in tenants:
        yield tenant.tenant_id


async def _every(page: Callable[..., Awaitable[Outcome[Page[Item]]]]) -> list[Item] | Refusal:
    """All items of a list that is read page by page."""
    items: list[Item] = []
    after: Position | None = None
    while True:
        outcome = await page(first=PAGE_MAX, after=after)
        if isinstance(outcome, Refusal):
            return outcome
        assert isinstance(outcome, Accepted)
        items.extend(outcome.answer.items)
        if not outcome.answer.has_more:
            return items
        after = outcome.answer.positions[-1]


async def _revoke(given: argparse.Namespace, settings: Settings, node: Runtime) -> Refusal | None:
    outcome = await node.keys.revoke_api_key(operator(settings), key_id=given.key_id)
    if isinstance(outcome, Refusal):
        return outcome
    assert isinstance(outcome, Accepted)
    key = outcome.answer
    show(given, _json(key), lambda: f"revoked {key.key_id}")
    return None


def _json(key: ApiKey) -> dict[str, Any]:
    return {
        "keyId": key.key_id,
        "tenantId": key.tenant_id,
        "name": key.name,
        "prefix": key.prefix,
        "permissions": list(key.permissions),
        "createdAt": key.created_at,
        "expiresAt": key.expires_at,
        "revokedAt": key.revoked_at,
        "lastUsedAt": key.last_used_at,
    }


def _line(key: ApiKey) -> str:
    made = datetime.fromtimestamp(key.created_at / 1000, UTC).strftime("%Y-%m-%d")
    return f"{key.key_id}  {key.prefix}…  {key.tenant_id:20} {_state(key):8} {made}  {key.name}"


def _state(key: ApiKey) -> str:
    """For the eye only: whether a key is accepted is decided by the database's clock."""
    if key.revoked_at is not None:
        return "revoked"
    is_over = key.expires_at is not None and key.expires_at <= time.time() * 1000
    return "expired" if is_over else "valid"
