"""Deliveries (`webhook_delivery`): queued by whoever hands events out or replays them, settled by the lease's holder.

Every change of a delivery happens under its subscription's head, so a node that has lost its lease without noticing
cannot settle what another one has settled meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from domain.budget.queries import Place
from domain.webhooks.deliveries import Delivery, DeliveryStatus
from domain.webhooks.messages import Trace
from domain.webhooks.queries import DeliveryQuery, DeliverySort
from domain.webhooks.subscriptions import Health
from storage.budget.keyset import NUMBER, Column, Listing, Page
from storage.database import AnyConnection, Row, affected

_INSERT: Final = """
insert into webhook_delivery select * from json_populate_recordset(null::webhook_delivery, $1) on conflict do nothing
"""
_TOUCH: Final = """
update webhook_head set due_at = least(due_at, $2::bigint)
where subscription_id = any ($1) and status = 'ACTIVE'
"""


async def flush_queued(connection: AnyConnection, deliveries: Sequence[Delivery], *, now: int) -> None:
    """Queue them, and let their subscriptions be claimed. The caller holds the heads."""
    await connection.execute(_INSERT, [_row(delivery) for delivery in deliveries])
    await connection.execute(_TOUCH, sorted({delivery.subscription_id for delivery in deliveries}), now)


async def flush_test(connection: AnyConnection, delivery: Delivery) -> None:
    """A test that is over: only a record."""
    await connection.execute(_INSERT, [_row(delivery)])


_PENDING: Final = """
select * from webhook_delivery where subscription_id = $1 and status = 'PENDING'
order by place, delivery_id limit $2
"""
_RETRYING: Final = """
select * from webhook_delivery where subscription_id = $1 and status = 'RETRYING' and next_attempt_at <= $2
order by next_attempt_at, delivery_id limit $3
"""


async def read_pending(connection: AnyConnection, subscription_id: str, *, limit: int) -> list[Delivery]:
    """First attempts, in the order of their events."""
    return [_delivery(row) for row in await connection.fetch(_PENDING, subscription_id, limit)]


async def read_retrying(connection: AnyConnection, subscription_id: str, *, now: int, limit: int) -> list[Delivery]:
    """Those whose pause is over."""
    return [_delivery(row) for row in await connection.fetch(_RETRYING, subscription_id, now, limit)]


_SETTLE: Final = """
update webhook_delivery d set status = r.status, attempts = r.attempts, attempted_at = r.attempted_at,
    completed_at = r.completed_at, next_attempt_at = r.next_attempt_at, response_status = r.response_status,
    response_time_ms = r.response_time_ms, error = r.error
from json_populate_recordset(null::webhook_delivery, $1) r
where d.subscription_id = any ($2) and d.subscription_id = r.subscription_id and d.delivery_id = r.delivery_id
    and d.status in ('PENDING', 'RETRYING') and d.attempts <= r.attempts
returning d.delivery_id
"""


async def flush_settled(connection: AnyConnection, deliveries: Sequence[Delivery]) -> set[str]:
    """The ids of those that were still open: whoever settled the others was faster. The caller holds the heads."""
    subscriptions = sorted({delivery.subscription_id for delivery in deliveries})
    rows = await connection.fetch(_SETTLE, [_row(delivery) for delivery in deliveries], subscriptions)
    return {row["delivery_id"] for row in rows}


_HEALTH: Final = """
update webhook_head h set consecutive_failures = r.consecutive_failures, is_failing = r.is_failing,
    last_triggered_at = r.last_triggered_at, last_success_at = r.last_success_at, last_failure_at = r.last_failure_at
from json_populate_recordset(null::webhook_head, $1) r
where h.subscription_id = any ($2) and h.subscription_id = r.subscription_id
"""


async def flush_health(connection: AnyConnection, learned: Mapping[str, Health]) -> None:
    """What subscriptions have learned. The caller holds the heads."""
    rows = [{"subscription_id": name, **asdict(health)} for name, health in learned.items()]
    await connection.execute(_HEALTH, rows, list(learned))


_CANCEL: Final = """
update webhook_delivery set status = 'FAILED', completed_at = $2, next_attempt_at = null, error = $3
where subscription_id = any ($1) and status in ('PENDING', 'RETRYING')
"""


async def flush_cancelled(connection: AnyConnection, subscription_ids: Iterable[str], *, error: str, now: int) -> None:
    """Nothing of what waits will be sent. The caller holds the heads."""
    await connection.execute(_CANCEL, list(subscription_ids), now, error)


_OVERDUE: Final = """
update webhook_delivery set status = 'FAILED', completed_at = $2, next_attempt_at = null, error = $3
where (subscription_id, delivery_id) in (
    select subscription_id, delivery_id from webhook_delivery
    where status in ('PENDING', 'RETRYING') and created_at < $1 order by created_at limit $4 for update skip locked
)
"""


async def flush_overdue(connection: AnyConnection, *, before: int, now: int, error: str, limit: int) -> int:
    """Give up what was queued before an instant, whatever keeps it from being sent. How many there were."""
    return affected(await connection.execute(_OVERDUE, before, now, error, limit))


# -- replays -----------------------------------------------------------------------------------------------------------

_RUNNING: Final = """
select replay_id from webhook_delivery
where subscription_id = $1 and replay_id is not null and status in ('PENDING', 'RETRYING') limit 1
"""


async def read_running_replay(connection: AnyConnection, subscription_id: str) -> str | None:
    """The replay that still has something to send. The caller holds the head."""
    running: str | None = await connection.fetchval(_RUNNING, subscription_id)
    return running


_COUNT: Final = "select count(*) from webhook_delivery where subscription_id = $1 and replay_id = $2"


async def count_replayed(connection: AnyConnection, subscription_id: str, replay_id: str) -> int:
    number: int = await connection.fetchval(_COUNT, subscription_id, replay_id)
    return number


# -- lists -------------------------------------------------------------------------------------------------------------

DELIVERIES: Final = Listing(
    """
from webhook_delivery
where subscription_id = $1
    and ($2::text is null or status = $2)
    and ($3::bigint is null or coalesce(attempted_at, created_at) >= $3)
    and ($4::bigint is null or coalesce(attempted_at, created_at) <= $4)
""",
    arguments=4,
    columns={DeliverySort.CREATED_AT: Column("created_at", NUMBER)},
    id_column="delivery_id",
)


async def page_deliveries(
    connection: AnyConnection, subscription_id: str, query: DeliveryQuery, *, after: Place | None, limit: int
) -> Page[Delivery]:
    return await DELIVERIES.fetch(
        connection,
        (subscription_id, query.status, *query.attempted),
        sort=query.sort_by,
        descending=query.descending,
        after=after,
        limit=limit,
        convert=_delivery,
    )


# -- retention ---------------------------------------------------------------------------------------------------------

_EXPIRE: Final = """
delete from webhook_delivery where (subscription_id, delivery_id) in (
    select subscription_id, delivery_id from webhook_delivery
    where status in ('SUCCESS', 'FAILED') and created_at < $1 order by created_at limit $2
)
"""


async def expire_deliveries(connection: AnyConnection, *, before: int, limit: int) -> int:
    """Remove up to `limit` of those that are over and were queued before an instant."""
    return affected(await connection.execute(_EXPIRE, before, limit))


_OF_DELETED: Final = """
delete from webhook_delivery where (subscription_id, delivery_id) in (
    select d.subscription_id, d.delivery_id
    from webhook_subscription s join webhook_delivery d on d.subscription_id = s.subscription_id
    where s.deleted_at is not null limit $1
)
"""
_DELETED: Final = """
with bare as (
    select s.subscription_id from webhook_subscription s
    where s.deleted_at is not null
        and not exists (select 1 from webhook_delivery d where d.subscription_id = s.subscription_id)
    limit $1
), heads as (
    delete from webhook_head h using bare b where h.subscription_id = b.subscription_id returning h.subscription_id
)
select subscription_id from heads
"""
_DELETED_ROWS: Final = "delete from webhook_subscription where subscription_id = any ($1)"


async def expire_deleted(connection: AnyConnection, *, limit: int) -> int:
    """Remove what is left of deleted subscriptions, their deliveries first. How many rows that took."""
    removed = affected(await connection.execute(_OF_DELETED, limit))
    if removed == limit:
        return removed
    bare = [row["subscription_id"] for row in await connection.fetch(_DELETED, limit)]
    await connection.execute(_DELETED_ROWS, bare)
    return removed + len(bare)


# -- rows --------------------------------------------------------------------------------------------------------------


def _row(delivery: Delivery) -> dict[str, Any]:
    return {
        "subscription_id": delivery.subscription_id,
        "delivery_id": delivery.delivery_id,
        "place": delivery.place,
        "event_id": delivery.event_id,
        "event_type": delivery.event_type,
        "status": delivery.status,
        "attempts": delivery.attempts,
        "created_at": delivery.created_at,
        "attempted_at": delivery.attempted_at,
        "completed_at": delivery.completed_at,
        "next_attempt_at": delivery.next_attempt_at,
        "response_status": delivery.response_status,
        "response_time_ms": delivery.response_time_ms,
        "error": delivery.error,
        "replay_id": delivery.replay_id,
        "trace_id": delivery.trace.trace_id,
        "trace_flags": delivery.trace.flags,
        "trace_was_given": delivery.trace.was_given,
    }


_PLAIN: Final = (
    *("subscription_id", "delivery_id", "place", "event_id", "event_type", "attempts", "created_at", "attempted_at"),
    *("completed_at", "next_attempt_at", "response_status", "response_time_ms", "error", "replay_id"),
)


def _delivery(row: Row) -> Delivery:
    return Delivery(
        **{name: row[name] for name in _PLAIN},
        status=DeliveryStatus(row["status"]),
        trace=Trace(trace_id=row["trace_id"], flags=row["trace_flags"], was_given=row["trace_was_given"]),
    )
