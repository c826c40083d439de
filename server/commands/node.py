"""A node without an edge, for commands that use the desks themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from domain.authority import EVERYTHING, Principal
from server.options import options_of
from server.settings import Settings
from storage.database import Database, read_clock
from storage.identity import flush_root_tenant, get_root_tenant
from workers.authority import RootKeyError, ensure_root
from workers.request import Caller
from workers.runtime import Runtime


@asynccontextmanager
async def quiet_node(settings: Settings, url: str) -> AsyncIterator[Runtime]:
    """A started node that runs no jobs by itself. Makes the root tenant and, if one is set, the root key.

    Raises `RootKeyError` when the database's root tenant is another one.
    """
    database = await Database.open(url)
    try:
        await _ensure_root(database, settings)
        node = Runtime(database, options=replace(options_of(settings), runs_jobs=False))
        node.start()
        try:
            yield node
        finally:
            await node.stop()
    finally:
        await database.close()


async def _ensure_root(database: Database, settings: Settings) -> None:
    """Without a root key in the settings no key is made: the first `earmark serve` is to make it, and show it."""
    if settings.root_key is not None:
        await ensure_root(database, root_tenant_id=settings.root_tenant, root_key=settings.root_key)
        return
    async with database.transaction() as connection:
        now = await read_clock(connection)
        await flush_root_tenant(connection, settings.root_tenant, name="Platform", created_at=now)
        root = await get_root_tenant(connection)
    if root is None or root.tenant_id != settings.root_tenant:
        known = "another tenant has that id" if root is None else f"it is {root.tenant_id}"
        raise RootKeyError(f"{settings.root_tenant} is not the root tenant of this database: {known}")


def operator(settings: Settings) -> Caller:
    """Whoever can run commands beside the database may everything."""
    principal = Principal(
        key_id="command-line", tenant_id=settings.root_tenant, is_root=True, permissions=frozenset({EVERYTHING})
    )
    return Caller(principal=principal)
