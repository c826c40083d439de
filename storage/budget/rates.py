"""What rates are counted from: the events that were published, the reservations that were made, and the keys that requests
were sent with, by window. Reads only, but for the marks of the last windows that were counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from domain.budget.rates import Activity
from domain.events import MIRROR
from storage.attempts import read_attempts
from storage.database import AnyConnection

_BEGIN: Final = "insert into job_run (name, last_run_at) values ($1, $2) on conflict (name) do nothing"
_LOCK: Final = "select last_run_at from job_run where name = $1 for no key update"
_MOVE: Final = "update job_run set last_run_at = greatest(last_run_at, $2) where name = $1"


async def lock_counted_until(connection: AnyConnection, mark: str, *, first: int) -> int:
    """The end of the last window that was counted, locked until the caller commits. `first`: where counting begins."""
    await connection.execute(_BEGIN, mark, first)
    counted: int = await connection.fetchval(_LOCK, mark)
    return counted


async def flush_counted_until(connection: AnyConnection, mark: str, until: int) -> None:
    await connection.execute(_MOVE, mark, until)


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
        and ($4::text[] is null or e.subject = any ($4))
    group by e.subject
) t
"""
_NOTHING: Final = (0, 0, 0)


async def read_activity(
    connection: AnyConnection, *, window_ends_at: int, window_ms: int, tenant_ids: Sequence[str] | None = None
) -> dict[str, Activity]:
    """By tenant, of those who were denied, let something expire or sent a key that was not valid in the window (its end
    included, its start not)."""
    rows = await connection.fetch(_ACTIVITY, MIRROR, window_ends_at, window_ms, tenant_ids)
    asked = {row["tenant_id"]: (row["created"], row["denied"], row["expired"]) for row in rows}
    keys = await read_attempts(
        connection, since=window_ends_at - window_ms, until=window_ends_at, tenant_ids=tenant_ids
    )
    activity = {}
    for tenant_id in {*asked, *keys}:
        created, denied, expired = asked.get(tenant_id, _NOTHING)
        known, refused = keys.get(tenant_id, (0, 0))
        activity[tenant_id] = Activity(created=created, denied=denied, expired=expired, known=known, refused=refused)
    return activity
