"""The desks of the registry on a database, for tests: callers, and short ways to ask and to look at the outcome."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from domain.authority import EVERYTHING, TENANT_DEFAULT, Principal
from domain.outcomes import Accepted, Outcome, Refusal
from storage import identity
from storage.database import Database
from tests.waiting import POLL_SECONDS
from workers.authority import ensure_root
from workers.capacity.providers.registry import Registry
from workers.clock import ManualClock
from workers.ids import IdSource
from workers.key_desk import KeyDesk
from workers.provider_desk import ProviderDesk
from workers.registry import Registrar
from workers.request import Caller
from workers.tenancy_desk import TenancyDesk

T = 1_800_000_000_000
NOBODYS_PROJECT = f"prj_{0:026}"
NOBODYS_KEY = f"key_{0:026}"
NOBODYS_ACCOUNT = f"pacct_{0:026}"


@dataclass
class Desks:
    """One node's desks, and what the capacity side was asked to close."""

    database: Database
    clock: ManualClock
    closed: list[str] = field(default_factory=list)
    close_fails_with: Exception | None = None

    def __post_init__(self) -> None:
        registrar = Registrar(self.database, self.clock)
        ids = IdSource(self.clock)
        self.tenancy = TenancyDesk(registrar, ids, close_tenant=self.close_tenant)
        self.keys = KeyDesk(registrar, ids)
        self.providers = ProviderDesk(registrar, ids, validate_settings=Registry().validate_settings)

    async def close_tenant(self, tenant_id: str) -> None:
        """What stands in for the capacity reservations: it sees the tenant as every other transaction does."""
        async with self.database.acquire() as connection:
            tenant = await identity.get_tenant(connection, tenant_id)
        assert tenant is not None
        assert tenant.deleted_at is not None, "closed before it was marked"
        if self.close_fails_with is not None:
            raise self.close_fails_with
        self.closed.append(tenant_id)


@asynccontextmanager
async def open_desks(url: str) -> AsyncIterator[Desks]:
    """On a migrated database, which gets its root tenant here."""
    database = await Database.open(url)
    try:
        clock = ManualClock(T)
        await ensure_root(database, clock=clock)
        yield Desks(database, clock)
    finally:
        await database.close()


def caller(tenant_id: str, *permissions: str, is_root: bool = False, key_id: str = NOBODYS_KEY) -> Caller:
    principal = Principal(key_id=key_id, tenant_id=tenant_id, is_root=is_root, permissions=frozenset(permissions))
    return Caller(principal=principal)


ROOT = caller("root", EVERYTHING, is_root=True)
A = caller("a", *TENANT_DEFAULT)
B = caller("b", *TENANT_DEFAULT)


async def accepted(asked: Awaitable[Outcome[Any]]) -> Any:
    outcome = await asked
    assert isinstance(outcome, Accepted), outcome
    return outcome.answer


async def refused(asked: Awaitable[Outcome[Any]]) -> Refusal:
    outcome = await asked
    assert isinstance(outcome, Refusal), outcome
    return outcome


async def make_tenants(desks: Desks, *names: str) -> None:
    for name in names:
        await accepted(desks.tenancy.create_tenant(ROOT, tenant_id=name, name=name.upper()))


WAITING = """
select exists (
    select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
)
"""


async def lock_waiter(database: Database) -> None:
    """Until some session waits for a lock. Asked outside of a transaction: inside one the answer never changes."""
    async with asyncio.timeout(60), database.acquire() as connection:
        while not await connection.fetchval(WAITING):  # noqa: ASYNC110 - it happens in PostgreSQL
            await asyncio.sleep(POLL_SECONDS)
