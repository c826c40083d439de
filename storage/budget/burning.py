"""How fast budgets are used up (`budget_burn`), by windows: what was charged since the last one, and what is kept of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from domain.amounts import Unit
from domain.budget.burning import Burned, Burning
from storage.database import AnyConnection, Row

FIRST: Final = ("", "")
"""Before every budget."""

_PAGE: Final = """
select b.tenant_id, b.budget_id, b.scope_path, b.unit, b.spent, b.debt, b.remaining,
    w.window_ends_at, w.spent as spent_before, w.debt as debt_before, w.burned, w.ratio,
    exists (
        select 1 from budget_funding f
        where f.tenant_id = b.tenant_id and f.budget_id = b.budget_id and f.operation = 'RESET_SPENT'
            and f.created_at > w.window_ends_at
    ) as was_reset
from budget b
    left join budget_burn w on w.tenant_id = b.tenant_id and w.window_ms = $1 and w.budget_id = b.budget_id
where (b.tenant_id, b.budget_id) > ($2, $3)
    and (b.spent <> coalesce(w.spent, 0) or b.debt <> coalesce(w.debt, 0))
    and (w.window_ends_at is null or w.window_ends_at < $4)
    and ($5::text[] is null or b.tenant_id = any ($5))
order by b.tenant_id, b.budget_id limit $6
"""


async def page_burned(
    connection: AnyConnection,
    *,
    window_ms: int,
    window_ends_at: int,
    tenant_ids: Sequence[str] | None,
    after: tuple[str, str],
    limit: int,
) -> list[Burned]:
    """Budgets that were charged since their last window, in the order of tenant and id."""
    rows = await connection.fetch(_PAGE, window_ms, *after, window_ends_at, tenant_ids, limit)
    return [_burned(row) for row in rows]


_KEEP: Final = """
insert into budget_burn as w (tenant_id, window_ms, budget_id, spent, debt, window_ends_at, burned, ratio)
select d.tenant_id, $2, d.budget_id, d.spent, d.debt, d.window_ends_at, d.burned, d.ratio
from json_populate_recordset(null::budget_burn, $1) d
on conflict (tenant_id, window_ms, budget_id) do update
set spent = excluded.spent, debt = excluded.debt, window_ends_at = excluded.window_ends_at, burned = excluded.burned,
    ratio = excluded.ratio
where w.window_ends_at < excluded.window_ends_at
returning tenant_id, budget_id
"""


async def flush_burning(
    connection: AnyConnection, kept: Sequence[tuple[Burned, Burning]], *, window_ms: int
) -> set[tuple[str, str]]:
    """Those that were written: another node may have been there before."""
    rows = [_row(budget, burning) for budget, burning in kept]
    return {(row["tenant_id"], row["budget_id"]) for row in await connection.fetch(_KEEP, rows, window_ms)}


def _row(budget: Burned, burning: Burning) -> dict[str, Any]:
    return {
        "tenant_id": budget.tenant_id,
        "budget_id": budget.budget_id,
        "spent": burning.spent,
        "debt": burning.debt,
        "window_ends_at": burning.window_ends_at,
        "burned": list(burning.burned),
        "ratio": burning.ratio_millionths,
    }


def _burned(row: Row) -> Burned:
    before = None
    if row["window_ends_at"] is not None:
        before = Burning(
            spent=row["spent_before"],
            debt=row["debt_before"],
            window_ends_at=row["window_ends_at"],
            burned=tuple(int(each) for each in row["burned"]),
            ratio_millionths=row["ratio"],
        )
    return Burned(
        tenant_id=row["tenant_id"],
        budget_id=row["budget_id"],
        scope=row["scope_path"],
        unit=Unit(row["unit"]),
        spent=row["spent"],
        debt=row["debt"],
        remaining=row["remaining"],
        was_reset=row["was_reset"],
        before=before,
    )
