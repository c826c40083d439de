"""What a soaked server has to hold: a thousand capacity reservations with a hundred grants each, a thousand tenants with a
hundred budgets each, and keys for all of them. Put into the tables directly; the server reads it when it is asked."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

from domain.authority import EVERYTHING
from domain.capacity.scan import ReportedReservation, ScanReport
from domain.credentials import present
from domain.tenancy import ApiKey
from storage.database import connect
from storage.identity import flush_api_key
from tests.bench import earmark
from tests.bench.demand import FLAVOR, HOUR_MS, POOL, PROVIDER, REGION, ROOT, SEEDED_BY
from workers.authority import new_secret
from workers.runtime import Runtime

TOTAL: Final = 1_000
"""Slots of each reservation."""
ALLOCATED: Final = 1 << 50
AFTER_MS: Final = 30 * 24 * HOUR_MS
"""When the grants that were there before end: after every soak."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    reservations: int = 1_000
    grants_each: int = 100
    tenants: int = 1_000
    budgets_each: int = 100

    @property
    def grants(self) -> int:
        return self.reservations * self.grants_each

    @property
    def budgets(self) -> int:
        return self.tenants * self.budgets_each


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    size: Size
    account_id: str
    secrets: tuple[str, ...]
    """Of each tenant's key."""


def tenant_of(number: int) -> str:
    return f"soaked-{number}"


def reservation_of(number: int) -> str:
    return f"reservation-{number}"


async def lay_out(url: str, size: Size) -> World:
    async with earmark.quiet_node(url) as runtime:
        await earmark.furnish(runtime)
        account_id = await _reservations(runtime, size)
    connection = await connect(url)
    try:
        await connection.execute(_TENANTS, size.tenants, timeout=120)
        await connection.execute(_BUDGETS, size.tenants, size.budgets_each, ALLOCATED, timeout=300)
        now = time.time_ns() // 1_000_000
        terms = (now - HOUR_MS, now + AFTER_MS)
        place = (SEEDED_BY, POOL, REGION, PROVIDER)
        await connection.execute(_GRANTS, size.grants_each, size.tenants, *terms, *place, timeout=300)
        await connection.execute(_AS_IT_STANDS, timeout=120)
        secrets = await _keys(connection, size, now=now)
        await connection.execute("analyze", timeout=120)
    finally:
        await connection.close()
    return World(size=size, account_id=account_id, secrets=secrets)


async def _reservations(runtime: Runtime, size: Size) -> str:
    caller = earmark.root_caller()
    made: Any = await runtime.accounts.create_provider_account(caller, name="soak", provider=PROVIDER, kind="push")
    account_id: str = made.answer.account_id
    names = [reservation_of(number) for number in range(size.reservations)]
    reported = tuple(
        ReportedReservation(reservation_id=name, flavor=FLAVOR, region=REGION, total=TOTAL) for name in names
    )
    await runtime.reservations.take_report(account_id, PROVIDER, ScanReport(reservations=reported, complete=True))
    for name in names:
        place = {"tenant_id": ROOT, "account_id": account_id, "reservation_id": name}
        bound: Any = await runtime.reservations.bind(caller, **place, pool_id=POOL)
        assert bound.answer, bound
    async with runtime.database.acquire() as connection:
        await earmark.settle(connection)
    return account_id


_TENANTS: Final = """
with made as (
    insert into tenant (tenant_id, name, created_at) select 'soaked-' || n, 'soaked', 0 from generate_series(0, $1 - 1) n
    returning tenant_id
)
insert into budget_tenant (tenant_id, status, expiry_policy, denies_on_any_debt, clock_at, version, outbox_seq)
select tenant_id, 'ACTIVE', 'AUTO_RELEASE', false, 0, 0, 0 from made
"""
_BUDGETS: Final = """
insert into budget (
    tenant_id, scope_path, unit, budget_id, allocated, reserved, spent, debt, overdraft_limit, capped, status,
    rollover_policy, created_at
)
select 'soaked-' || t, 'tenant:soaked-' || t || case when b = 0 then '' else '/agent:a' || b end, 'TOKENS',
    'bud_' || lpad(b::text, 26, '0'), $3, 0, 0, 0, 0, false, 'ACTIVE', 'NONE', 0
from generate_series(0, $1 - 1) t, generate_series(0, $2 - 1) b
"""
# Ends differ, as they do in life: every grant is a step of its own on the timeline that a decision looks at.
_GRANTS: Final = """
insert into capacity_grant (
    key, grant_id, tenant_id, slots, starts_at, ends_at, created_at, created_by, pool_id, region, provider,
    started_applied, ended_applied, version
)
select r.key, 'rgrant_' || lpad((row_number() over ())::text, 26, '0'), 'soaked-' || (n % $2), 1, $3::bigint,
    $4::bigint + n, 0, $5, $6, $7, $8, true, false, 1
from capacity_reservation r, generate_series(1, $1) n
"""
_AS_IT_STANDS: Final = """
update capacity_reservation r set version = r.version + 1, next_boundary_at = g.ends_at
from (select key, min(ends_at) as ends_at from capacity_grant group by key) g where g.key = r.key
"""


async def _keys(connection: Any, size: Size, *, now: int) -> tuple[str, ...]:
    secrets = tuple(new_secret() for _ in range(size.tenants))
    async with connection.transaction():
        for number, secret in enumerate(secrets):
            presented = present(secret)
            assert presented is not None, "our own secrets are well-formed"
            key = ApiKey(
                key_id=f"key_{number:026}",
                tenant_id=tenant_of(number),
                name="soak",
                prefix=presented.prefix,
                permissions=(EVERYTHING,),
                created_at=now,
            )
            await flush_api_key(connection, key, digest=presented.digest)
    return secrets
