"""Bulk actions that are remembered (`bulk_run`): written by the bulk desk, removed by retention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from storage.database import AnyConnection, Row, affected


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkRun:
    """`matched`: what it is to change, as it was found when it began. `answer` None: it may be under way."""

    run_id: str
    fingerprint: bytes
    matched: list[Any]
    answer: Any = None


_READ: Final = "select * from bulk_run where operation = $1 and idempotency_key = $2 and started_at > $3"
# One that is older than it is remembered gives way; of two that begin at once the second finds the first.
_BEGIN: Final = """
insert into bulk_run as b (operation, idempotency_key, run_id, fingerprint, matched, started_at)
values ($1, $2, $3, $4, $5, $6)
on conflict (operation, idempotency_key) do update
set run_id = excluded.run_id, fingerprint = excluded.fingerprint, matched = excluded.matched,
    started_at = excluded.started_at, answer = null
where b.started_at <= $7
"""


async def get_run(connection: AnyConnection, operation: str, key: str, *, after: int) -> BulkRun | None:
    """The run under a key that began after an instant."""
    row = await connection.fetchrow(_READ, operation, key, after)
    return None if row is None else _run_of(row)


async def begin_run(
    connection: AnyConnection, operation: str, key: str, run: BulkRun, *, now: int, after: int
) -> BulkRun:
    """Write down a run; one that began after that instant under the same key is there already, and is returned."""
    given = (operation, key, run.run_id, run.fingerprint, run.matched, now, after)
    await connection.execute(_BEGIN, *given)
    found = await get_run(connection, operation, key, after=after)
    assert found is not None, "one or the other"
    return found


_FINISH: Final = """
update bulk_run set answer = $4 where operation = $1 and idempotency_key = $2 and run_id = $3 and answer is null
"""


async def finish_run(connection: AnyConnection, operation: str, key: str, run_id: str, answer: Any) -> bool:
    """Remember what came of it, unless somebody has done so; whether this was the first to say so."""
    return affected(await connection.execute(_FINISH, operation, key, run_id, answer)) == 1


_FORGET: Final = """
delete from bulk_run where (operation, idempotency_key) in (
    select operation, idempotency_key from bulk_run where started_at <= $1 order by started_at limit $2
)
"""


async def forget_runs(connection: AnyConnection, *, before: int, limit: int) -> int:
    return affected(await connection.execute(_FORGET, before, limit))


def _run_of(row: Row) -> BulkRun:
    return BulkRun(run_id=row["run_id"], fingerprint=row["fingerprint"], matched=row["matched"], answer=row["answer"])
