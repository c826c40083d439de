"""What rates are counted from: the events that were published and the reservations that were made, by window. Reads only,
but for the mark of the last window that was counted."""

from __future__ import annotations

from typing import Final

from domain.budget.rates import Activity
from domain.events import MIRROR
from storage.database import AnyConnection

_MARK: Final = "budget.rates.window"

_BEGIN: Final = "insert into job_run (name, last_run_at) values ($1, $2) on conflict (name) do nothing"
_LOCK: Final = "select last_run_at from job_run where name = $1 for no key update"
_MOVE: Final = "update job_run set last_run_at = $2 where name = $1"


async def lock_counted_until(connection: AnyConnection, *, first: int) -> int:
    """The end of the last window that was counted, locked until the caller commits. `first`: where counting begins."""
    await connection.execute(_BEGIN, _MARK, first)
    counted: int = await connection.fetchval(_LOCK, _MARK)
    return counted


async def flush_counted_until(connection: AnyConnection, until: int) -> None:
    await connection.execute(_MOVE, _MARK, until)


# A tenant without a denial or an expiry has no rate to speak of, so its reservations need not be counted.
_ACTIVITY: Final = """
select t.subject as tenant_id, t.denied, t.expired, (
    select count(*) from budget_reservation r
    where r.tenant_id = t.subject and r.created_at > $2::bigint - $3::bigint and r.created_at <= $2::bigint
) as created
from (
    select e.subject, count(*) filter (where e.type = 'reservation.denied') as denied,
        count(*) filter (where e.type = 'reservation.expired') as expired
    from event e
    where e.tenant_id = $1 and e.type = any (array['reservation.denied', 'reservation.expired'])
        and e.occurred_at > $2::bigint - $3::bigint and e.occurred_at <= $2::bigint
    group by e.subject
) t
"""


async def read_activity(connection: AnyConnection, *, window_ends_at: int, window_ms: int) -> dict[str, Activity]:
    """By tenant, of those who were denied or let something expire in the window (its end included, its start not)."""
    rows = await connection.fetch(_ACTIVITY, MIRROR, window_ends_at, window_ms)
    return {
        row["tenant_id"]: Activity(created=row["created"], denied=row["denied"], expired=row["expired"]) for row in rows
    }
