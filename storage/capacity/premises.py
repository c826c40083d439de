"""What decisions made from memory rest on, and the one statement that checks it in the database and writes them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from domain.replay import RequestKey
from storage.capacity.books import Flush
from storage.database import AnyConnection
from storage.replay import request_columns


class Verdict(StrEnum):
    """What the database said about decisions that were made without it. All but the first: nothing was written."""

    SETTLED = "settled"
    MOVED = "moved"
    """A head is at another version, or somebody else holds it."""
    SET_BACK = "set back"
    """The clock shows less than it was believed to."""
    LATE = "late"
    """So much time has passed that something may have fallen due."""
    CHANGED = "changed"
    """A tenant, a project, an account or an offer is gone."""
    ANSWERED = "answered"
    """A refused request was answered before, by another node or long ago."""


@dataclass(slots=True, kw_only=True)
class Premises:
    """Everything that must still hold when the decisions are written."""

    clock_ms: int
    """What the database's clock was believed to show when they were made."""
    valid_ms: int
    """How much later they could have been made just the same: nothing falls due before."""
    versions: Mapping[str, int]
    """Of every head that was looked at, as it was before."""
    tenants: Collection[str] = ()
    projects: Mapping[str, str] = field(default_factory=dict)
    """project id -> tenant id."""
    accounts: Mapping[str, str] = field(default_factory=dict)
    """account id -> provider."""
    offers: Collection[tuple[str, str]] = ()
    """(pool id, tenant id or *)."""
    unanswered: Collection[RequestKey] = ()
    """Requests that must not have been answered before, beside those that the flush remembers."""


_SETTLE: Final = """
select * from capacity_settle(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24
)
"""


async def settle_books(connection: AnyConnection, premises: Premises, flush: Flush) -> tuple[Verdict, int]:
    """Write the turn if its premises hold: one statement, a transaction of its own. The verdict, and the clock.

    Raises a unique violation when a request that the flush remembers was answered before.
    """
    written = [head["key"] for head in flush.heads]
    seen = sorted(premises.versions.keys() - set(written))
    row = await connection.fetchrow(
        _SETTLE,
        premises.clock_ms,
        premises.valid_ms,
        written,
        [premises.versions[key] for key in written],
        seen,
        [premises.versions[key] for key in seen],
        list(premises.tenants),
        list(premises.projects),
        list(premises.projects.values()),
        list(premises.accounts),
        list(premises.accounts.values()),
        [pool_id for pool_id, _ in premises.offers],
        [tenant_id for _, tenant_id in premises.offers],
        *request_columns(premises.unanswered),
        flush.heads,
        *flush.changes(),
    )
    assert row is not None, "the function gives one row"
    return Verdict(row["verdict"]), row["now_ms"]
