"""Tenants with budgets to hold and spend, alike for every variant, and whether their books are right afterwards."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any, Final

WORKSPACES: Final = 5
LEVELS: Final = ("workspace", "app", "workflow", "agent", "toolset")
ALLOCATED: Final = 1 << 50
ESTIMATE: Final = 50
ACTUAL: Final = 40

_TENANT: Final = "insert into tenant (tenant_id, name, created_at) values ($1, $1, 0)"
_HEAD: Final = """
insert into budget_tenant (tenant_id, status, expiry_policy, denies_on_any_debt, clock_at, version, outbox_seq)
values ($1, 'ACTIVE', 'AUTO_RELEASE', false, 0, 0, 0)
"""
_BUDGET: Final = """
insert into budget (
    tenant_id, scope_path, unit, budget_id, allocated, reserved, spent, debt, overdraft_limit, capped, status,
    rollover_policy, created_at
)
values ($1, $2, 'TOKENS', $3, $4, 0, 0, 0, 0, false, 'ACTIVE', 'NONE', 0)
"""


@dataclass(slots=True)
class Told:
    """What the replies of all windows promised."""

    reserved: set[str] = field(default_factory=set)
    committed: set[str] = field(default_factory=set)


def tenant_of(number: int) -> str:
    return f"spender-{number}"


def scopes_of(tenant_id: str, workspace: int) -> list[str]:
    """The six scopes that one request takes part in, the widest first."""
    names = (f"workspace:w{workspace}", *(f"{level}:x" for level in LEVELS[1:]))
    return list(itertools.accumulate((f"tenant:{tenant_id}", *names), lambda path, name: f"{path}/{name}"))


async def lay_out(connection: Any, tenants: int) -> None:
    """So many tenants, each with a budget for every scope that is asked about."""
    for number in range(tenants):
        tenant_id = tenant_of(number)
        await connection.execute(_TENANT, tenant_id)
        await connection.execute(_HEAD, tenant_id)
        paths = sorted({path for workspace in range(WORKSPACES) for path in scopes_of(tenant_id, workspace)})
        rows = [(tenant_id, path, f"bud_{at:026}", ALLOCATED) for at, path in enumerate(paths)]
        await connection.executemany(_BUDGET, rows)
    await connection.execute("analyze budget, budget_tenant, tenant")


_WRONG: Final = """
select b.scope_path, b.reserved, b.spent, coalesce(sum(r.estimate) filter (where r.status = 'ACTIVE'), 0) as held,
    coalesce(sum(r.charged), 0) as charged
from budget b left join budget_reservation r on r.tenant_id = b.tenant_id and b.scope_path = any (r.budgeted_scopes)
group by b.tenant_id, b.scope_path, b.reserved, b.spent
having b.reserved <> coalesce(sum(r.estimate) filter (where r.status = 'ACTIVE'), 0)
    or b.spent <> coalesce(sum(r.charged), 0)
"""
_HOLDS: Final = "select reservation_id, status from budget_reservation"
_ANSWERS: Final = "select count(*) from budget_answer"


async def check_ledgers(connection: Any, told: Told) -> list[str]:
    """Every budget says what its reservations sum up to; reservations and answers are those of the replies."""
    wrong = [f"{row['scope_path']} does not add up: {dict(row)}" for row in await connection.fetch(_WRONG)]
    holds = {row["reservation_id"]: row["status"] for row in await connection.fetch(_HOLDS)}
    if holds.keys() != told.reserved:
        wrong.append(f"{len(told.reserved)} holds were promised, {len(holds)} are there")
    if {each for each, status in holds.items() if status == "COMMITTED"} != told.committed:
        wrong.append(f"{len(told.committed)} commits were promised, others are there")
    answers, expected = await connection.fetchval(_ANSWERS), len(told.reserved) + len(told.committed)
    if answers != expected:
        wrong.append(f"{answers} answers are remembered for {expected} replies")
    return wrong
