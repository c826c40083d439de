"""A turn of budgets that was decided from memory: one statement checks what it rests on, and writes it."""

from __future__ import annotations

from typing import Final

from storage.budget.books import Flush
from storage.database import AnyConnection
from storage.premises import Premises, Verdict
from storage.replay import request_columns

_SETTLE: Final = """
select * from budget_settle(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21,
    $22, $23, $24
)
"""


async def settle_books(connection: AnyConnection, premises: Premises, flush: Flush) -> tuple[Verdict, int]:
    """Write the turn if its premises hold: one statement, a transaction of its own. The verdict, and the clock.

    Raises a unique violation when a request that the flush remembers was answered before.
    """
    assert not flush.revoked, "closing a tenant takes its lock"
    asked = request_columns(premises.unanswered)
    row = await connection.fetchrow(_SETTLE, *premises.columns(flush.tenant_ids), *asked, *flush.changes())
    assert row is not None, "the function gives one row"
    return Verdict(row["verdict"]), row["now_ms"]
