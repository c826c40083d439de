"""From the mirror stream to the queues of subscriptions, and from the queues to the node that delivers.

Whoever hands out holds the row of `webhook_cursor`; whoever delivers for a subscription has its lease. A node that dies
holds the row no longer at once, and its leases run out by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from domain.events import MIRROR, EventRecord
from storage.database import AnyConnection
from storage.events import event_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Selecting:
    """What it takes to tell whether an event is a subscription's."""

    subscription_id: str
    owner: str
    types: frozenset[str]
    categories: frozenset[str]
    scope_filter: str | None
    active_from_at: int
    active_from_place: int
    thresholds: Mapping[str, Any] | None = None


_CURSOR: Final = "select place from webhook_cursor where stream = $1 for update skip locked"


async def lock_cursor(connection: AnyConnection) -> int | None:
    """The place up to which events have been handed out; None while another node is at it."""
    place: int | None = await connection.fetchval(_CURSOR, MIRROR)
    return place


_ADVANCE: Final = "update webhook_cursor set place = $2 where stream = $1"


async def flush_cursor(connection: AnyConnection, place: int) -> None:
    await connection.execute(_ADVANCE, MIRROR, place)


_ANYBODY: Final = """
select exists (
    select 1 from webhook_head h join webhook_subscription s on s.subscription_id = h.subscription_id
    where h.status <> 'DISABLED' and s.deleted_at is null
)
"""


async def is_anybody_there(connection: AnyConnection) -> bool:
    """Whether any subscription could want anything, or would have to learn that its tenant was closed."""
    found: bool = await connection.fetchval(_ANYBODY)
    return found


_SELECTING: Final = """
select s.subscription_id, s.tenant_id, s.event_types, s.event_categories, s.scope_filter, s.thresholds,
    h.active_from_at, h.active_from_place
from webhook_subscription s join webhook_head h on h.subscription_id = s.subscription_id
where s.tenant_id = any ($1) and s.deleted_at is null and h.status = 'ACTIVE'
order by s.subscription_id
"""


async def read_selecting(connection: AnyConnection, owners: Iterable[str]) -> list[Selecting]:
    """The active subscriptions of these owners."""
    rows = await connection.fetch(_SELECTING, list(owners))
    return [
        Selecting(
            subscription_id=row["subscription_id"],
            owner=row["tenant_id"],
            types=frozenset(row["event_types"]),
            categories=frozenset(row["event_categories"]),
            scope_filter=row["scope_filter"],
            active_from_at=row["active_from_at"],
            active_from_place=row["active_from_place"],
            thresholds=row["thresholds"],
        )
        for row in rows
    ]


_AT: Final = "select * from event where tenant_id = $1 and seq = any ($2)"


async def read_events_at(connection: AnyConnection, places: Sequence[int]) -> dict[int, EventRecord]:
    """Events of the mirror by their place; those that are no longer kept are left out."""
    rows = await connection.fetch(_AT, MIRROR, list(places))
    return {row["seq"]: event_of(row) for row in rows}


_WINDOW: Final = """
select * from event where tenant_id = $1 and occurred_at >= $2 and occurred_at <= $3
order by occurred_at, event_id collate "C" limit $4
"""
_PLACES: Final = "select event_id, seq from event where tenant_id = $1 and event_id = any ($2)"


async def read_window(
    connection: AnyConnection, stream: str, *, since: int, until: int, limit: int
) -> list[EventRecord]:
    """Events of a stream by when they happened, both ends included."""
    return [event_of(row) for row in await connection.fetch(_WINDOW, stream, since, until, limit)]


async def read_places(connection: AnyConnection, event_ids: Sequence[str]) -> dict[str, int]:
    """Where events are in the mirror."""
    rows = await connection.fetch(_PLACES, MIRROR, list(event_ids))
    return {row["event_id"]: row["seq"] for row in rows}


# -- leases ------------------------------------------------------------------------------------------------------------

_CLAIM: Final = """
with due as (
    select h.subscription_id
    from webhook_head h join webhook_subscription s on s.subscription_id = h.subscription_id
    where h.due_at <= $1 and h.leased_until <= $1 and h.is_failing = $2 and s.sealed_with = any ($3) and h.host <> all ($7)
    order by h.due_at limit $4 for no key update of h skip locked
)
update webhook_head h set lease = $5, leased_until = $6 from due d where h.subscription_id = d.subscription_id
returning h.subscription_id, h.host
"""


async def claim(
    connection: AnyConnection,
    *,
    now: int,
    is_failing: bool,
    key_ids: Sequence[str],
    limit: int,
    lease: str,
    leased_until: int,
    but_not_of: Iterable[str],
) -> list[tuple[str, str]]:
    """Take the lease of up to `limit` subscriptions that have something due and whose secrets this node can open, except
    those of some hosts. Each with its host."""
    rows = await connection.fetch(_CLAIM, now, is_failing, key_ids, limit, lease, leased_until, list(but_not_of))
    return [(row["subscription_id"], row["host"]) for row in rows]


_PROLONG: Final = """
update webhook_head set leased_until = $3 where subscription_id = any ($1) and lease = $2 returning subscription_id
"""


async def prolong(
    connection: AnyConnection, subscription_ids: Iterable[str], *, lease: str, leased_until: int
) -> set[str]:
    """Those whose lease still is ours, and goes on."""
    rows = await connection.fetch(_PROLONG, list(subscription_ids), lease, leased_until)
    return {row["subscription_id"] for row in rows}


_RELEASE: Final = """
update webhook_head h set lease = null, leased_until = 0, due_at = case
    when h.status <> 'ACTIVE' then null
    when exists (select 1 from webhook_delivery d where d.subscription_id = $1 and d.status = 'PENDING') then $3
    else (select min(d.next_attempt_at) from webhook_delivery d where d.subscription_id = $1 and d.status = 'RETRYING')
end
where h.subscription_id = $1 and h.lease = $2
"""


async def release(connection: AnyConnection, subscription_id: str, *, lease: str, now: int) -> None:
    """Give the lease back, and say when there will be something to do again.

    The caller holds the head, by an earlier statement: what was queued up to then is seen, and whatever is queued later
    waits for the head and says so itself.
    """
    await connection.execute(_RELEASE, subscription_id, lease, now)


_NEXT: Final = """
select min(h.at) from (select greatest(due_at, leased_until) as at from webhook_head where due_at is not null) h
where h.at > $1
"""


async def read_next_due(connection: AnyConnection, *, after: int) -> int | None:
    """When, later than an instant, the next subscription can be claimed by anybody."""
    at: int | None = await connection.fetchval(_NEXT, after)
    return at
