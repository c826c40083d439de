"""A turn of capacity that was decided from memory: one statement checks what it rests on, and writes it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from storage.capacity.books import Flush
from storage.database import AnyConnection
from storage.premises import Premises, Verdict
from storage.replay import request_columns


@dataclass(slots=True, kw_only=True)
class CapacityPremises(Premises):
    """With the registries."""

    tenants: Collection[str] = ()
    projects: Mapping[str, str] = field(default_factory=dict)
    """project id -> tenant id."""
    accounts: Mapping[str, str] = field(default_factory=dict)
    """account id -> provider."""
    offers: Collection[tuple[str, str]] = ()
    """(pool id, tenant id or *)."""


_SETTLE: Final = """
select * from capacity_settle(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24,
    $25
)
"""


async def settle_books(connection: AnyConnection, premises: CapacityPremises, flush: Flush) -> tuple[Verdict, int]:
    """Write the turn if its premises hold: one statement, a transaction of its own. The verdict, and the clock.

    Raises a unique violation when a request that the flush remembers was answered before.
    """
    row = await connection.fetchrow(
        _SETTLE,
        *premises.columns(flush.keys),
        list(premises.tenants),
        list(premises.projects),
        list(premises.projects.values()),
        list(premises.accounts),
        list(premises.accounts.values()),
        [pool_id for pool_id, _ in premises.offers],
        [tenant_id for _, tenant_id in premises.offers],
        *request_columns(premises.unanswered),
        *flush.changes(),
    )
    assert row is not None, "the function gives one row"
    return Verdict(row["verdict"]), row["now_ms"]
