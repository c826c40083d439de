"""The books of capacity reservations as a turn uses them: lock, read, flush.

The one writer of `capacity_reservation`, `capacity_grant`, `capacity_instance`, `capacity_segment`, `capacity_locator`
and, on the adding side, of `capacity_outbox`; but for what the meter keeps for itself under the same lock: its marks,
and the floor of the clock that it moves past a written hour (`storage.capacity.metering`). Locks are taken here only,
on heads, in the order of their keys (R12).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from domain.capacity.commands import Surroundings
from domain.capacity.state import CapacityEvent, CapacityState, Changes, Grant, Instance, Reservation
from domain.events import TRACE_FLAGS
from domain.replay import Remembered, RequestKey
from domain.terms import START_TOLERANCE_MS
from storage.capacity.rows import (
    grant_of,
    grant_row,
    instance_of,
    instance_row,
    moved_head_row,
    reservation_of,
    reservation_row,
    segment_of,
    segment_row,
)
from storage.database import AnyConnection, Row, affected
from storage.replay import request_columns

_LOCK: Final = "select now_ms, heads from capacity_lock($1, '{}', '{}', '{}', '{}', '{}', '{}', '{}')"


async def lock_reservations(connection: AnyConnection, keys: Sequence[str]) -> tuple[int, dict[str, Reservation]]:
    """Lock the heads in the order of their keys. The database's clock after the last lock, and the heads there are.

    The caller is inside a transaction and gives `keys` sorted.
    """
    row = await connection.fetchrow(_LOCK, keys)
    assert row is not None, "the function gives one row"
    return row["now_ms"], _heads_of(row)


_HEADS: Final = "select * from capacity_reservation where key = any ($1)"


async def read_heads(connection: AnyConnection, keys: Iterable[str]) -> dict[str, Reservation]:
    """Heads without a lock, for reads."""
    rows = await connection.fetch(_HEADS, list(keys))
    return {row["key"]: reservation_of(row) for row in rows}


# What can still matter: everything that is not over, and what ended so late that a term may still start before its end.
_GRANTS: Final = """
select g.* from capacity_grant g join unnest($1::text[], $2::bigint[]) k (key, since) on g.key = k.key
where g.key = any ($1) and g.cancelled_at is null and (g.ends_at > k.since or not g.ended_applied)
"""
_INSTANCES: Final = "select * from capacity_instance where key = any ($1) and run_state <> 'deleted'"
_SEGMENTS: Final = "select * from capacity_segment where key = any ($1) and to_at is null"


PORTION: Final = 1_000
"""Rows between two looks at what else there is to do: a few milliseconds. A reservation may have tens of thousands."""


async def in_portions(rows: Iterable[Row]) -> AsyncIterator[Row]:
    """The same rows; everybody else has a turn after each portion."""
    for number, row in enumerate(rows, start=1):
        yield row
        if number % PORTION == 0:
            await asyncio.sleep(0)


async def read_states(connection: AnyConnection, heads: Mapping[str, Reservation]) -> dict[str, CapacityState]:
    """The books of these reservations, from three statements whatever their number."""
    if not heads:
        return {}
    keys = sorted(heads)
    since = [heads[key].clock_at - START_TOLERANCE_MS for key in keys]
    grants: dict[str, list[Grant]] = defaultdict(list)
    async for row in in_portions(await connection.fetch(_GRANTS, keys, since)):
        grants[row["key"]].append(grant_of(row))
    segments = {
        row["instance_id"]: segment_of(row) async for row in in_portions(await connection.fetch(_SEGMENTS, keys))
    }
    instances: dict[str, list[Instance]] = defaultdict(list)
    async for row in in_portions(await connection.fetch(_INSTANCES, keys)):
        instances[row["key"]].append(instance_of(row, segments.get(row["instance_id"])))
    return {key: CapacityState(heads[key], grants[key], instances[key]) for key in keys}


# One round trip, since the locks are held meanwhile.
_NEWER: Final = """
with moved as (
    select i.* from capacity_instance i join unnest($1::text[], $2::bigint[]) k (key, version) on i.key = k.key
    where i.key = any ($1) and (i.turn > k.version or i.turn is null)
)
select
    (select json_agg(g) from capacity_grant g join unnest($1::text[], $2::bigint[]) k (key, version) on g.key = k.key
        where g.key = any ($1) and (g.turn > k.version or g.turn is null)) as grants,
    (select json_agg(m) from moved m) as instances,
    (select json_agg(s) from capacity_segment s join moved m on m.key = s.key and m.instance_id = s.instance_id
        where s.key = any ($1) and s.to_at is null) as segments
"""


@dataclass(slots=True)
class Newer:
    """What was written of one reservation since some version of it."""

    grants: list[Grant] = field(default_factory=list)
    instances: list[Instance] = field(default_factory=list)


async def read_newer(connection: AnyConnection, versions: Mapping[str, int]) -> dict[str, Newer]:
    """What was written since these versions of these reservations, things that are over included."""
    newer = {key: Newer() for key in versions}
    row = await connection.fetchrow(_NEWER, list(versions), list(versions.values()))
    assert row is not None, "there is one row, whatever is newer"
    for grant in row["grants"] or ():
        newer[grant["key"]].grants.append(grant_of(grant))
    segments = {(each["key"], each["instance_id"]): segment_of(each) for each in row["segments"] or ()}
    for instance in row["instances"] or ():
        segment = segments.get((instance["key"], instance["instance_id"]))
        newer[instance["key"]].instances.append(instance_of(instance, segment))
    return newer


_PAST_GRANTS: Final = "select * from capacity_grant where key = any ($1) and grant_id = any ($2)"
_PAST_INSTANCES: Final = "select * from capacity_instance where key = any ($1) and instance_id = any ($2)"


async def read_past(
    connection: AnyConnection, keys: Sequence[str], *, grant_ids: Sequence[str], instance_ids: Sequence[str]
) -> tuple[dict[str, Grant], dict[tuple[str, str], Instance]]:
    """Things that are over and that a command names all the same."""
    grants = await connection.fetch(_PAST_GRANTS, keys, grant_ids) if grant_ids else []
    instances = await connection.fetch(_PAST_INSTANCES, keys, instance_ids) if instance_ids else []
    return (
        {row["grant_id"]: grant_of(row) for row in grants},
        {(row["key"], row["instance_id"]): instance_of(row) for row in instances},
    )


@dataclass(slots=True)
class Wanted:
    """What the commands of a batch need to know about other things."""

    tenant_ids: set[str] = field(default_factory=set)
    project_ids: set[str] = field(default_factory=set)
    account_ids: set[str] = field(default_factory=set)
    pool_ids: set[str] = field(default_factory=set)

    def copy(self) -> Wanted:
        return Wanted(set(self.tenant_ids), set(self.project_ids), set(self.account_ids), set(self.pool_ids))

    def covers(self, other: Wanted) -> bool:
        return (
            self.tenant_ids >= other.tenant_ids
            and self.project_ids >= other.project_ids
            and self.account_ids >= other.account_ids
            and self.pool_ids >= other.pool_ids
        )


@dataclass(frozen=True, slots=True)
class LockedBooks:
    """What holds under the locks of a turn."""

    now_ms: int
    heads: dict[str, Reservation]
    remembered: dict[RequestKey, Remembered]
    around: Surroundings
    known: Wanted
    """What `around` tells about."""


_LOCK_BOOKS: Final = "select * from capacity_lock($1, $2, $3, $4, $5, $6, $7, $8)"


async def lock_books(
    connection: AnyConnection, keys: Sequence[str], *, request_keys: Iterable[RequestKey], wanted: Wanted
) -> LockedBooks:
    """The same as `lock_reservations`, with the answers remembered under `request_keys` and what is `wanted` to be known.

    The offers of the pools that the heads are bound to come by themselves.
    """
    columns = request_columns(list(request_keys))
    row = await connection.fetchrow(_LOCK_BOOKS, keys, *columns, *_columns_of(wanted))
    assert row is not None, "the function gives one row"
    heads = _heads_of(row)
    pool_ids = {head.pool_id for head in heads.values() if head.pool_id is not None}
    return LockedBooks(
        now_ms=row["now_ms"],
        heads=heads,
        remembered=_answers_of(row["answers"] or ()),
        around=_surroundings_of(row),
        known=replace(wanted, pool_ids=wanted.pool_ids | pool_ids),
    )


_RELOCATE: Final = "update capacity_locator set key = $3 where id = $1 and key = $2"


async def relocate(connection: AnyConnection, thing_id: str, *, origin: str, target: str) -> None:
    """An instance is found at another reservation from now on. The caller holds the locks of both."""
    moved = affected(await connection.execute(_RELOCATE, thing_id, origin, target))
    assert moved == 1, f"{thing_id} was not at {origin}"


_SURROUNDINGS: Final = """
select platform, tenants, projects, accounts, pools, offers
from capacity_lock('{}', '{}', '{}', '{}', $1, $2, $3, $4)
"""


async def read_surroundings(connection: AnyConnection, wanted: Wanted) -> Surroundings:
    """Read after the locks, so that whoever withdraws an offer or deletes an account waits for the same heads."""
    row = await connection.fetchrow(_SURROUNDINGS, *_columns_of(wanted))
    assert row is not None, "the function gives one row"
    return _surroundings_of(row)


def _columns_of(wanted: Wanted) -> tuple[list[str], ...]:
    return list(wanted.tenant_ids), list(wanted.project_ids), list(wanted.account_ids), list(wanted.pool_ids)


def _heads_of(row: Row) -> dict[str, Reservation]:
    return {head["key"]: reservation_of(head) for head in row["heads"]}


def _answers_of(rows: Iterable[Row]) -> dict[RequestKey, Remembered]:
    return {
        RequestKey(row["owner"], row["operation"], row["idempotency_key"]): Remembered(
            row["fingerprint"], row["subject_id"]
        )
        for row in rows
    }


def _surroundings_of(row: Row) -> Surroundings:
    return Surroundings(
        platform_tenant_id=row["platform"] or "",
        tenants=frozenset(row["tenants"] or ()),
        projects=row["projects"] or {},
        offers=frozenset((pool_id, tenant_id) for pool_id, tenant_id in row["offers"] or ()),
        accounts=row["accounts"] or {},
        pools=frozenset(row["pools"] or ()),
    )


_SHARE_POOLS: Final = "select 1 from pool where pool_id = any ($1) order by pool_id for share"


async def lock_pools(connection: AnyConnection, pool_ids: Iterable[str]) -> None:
    """Keep the offers of these pools from being withdrawn until the end of the transaction. Taken after the heads."""
    await connection.execute(_SHARE_POOLS, sorted(pool_ids))


_SHARE_ACCOUNTS: Final = "select 1 from provider_account where account_id = any ($1) order by account_id for share"


async def lock_accounts(connection: AnyConnection, account_ids: Iterable[str]) -> None:
    """Keep these accounts from being deleted until the end of the transaction. Taken after the heads."""
    await connection.execute(_SHARE_ACCOUNTS, sorted(account_ids))


@dataclass(slots=True)
class Flush:
    """Everything that one turn writes."""

    heads: list[dict[str, Any]] = field(default_factory=list)
    moved_heads: list[dict[str, Any]] = field(default_factory=list)
    new_grants: list[dict[str, Any]] = field(default_factory=list)
    grants: list[dict[str, Any]] = field(default_factory=list)
    instances: list[dict[str, Any]] = field(default_factory=list)
    segments: list[dict[str, Any]] = field(default_factory=list)
    outbox: list[dict[str, Any]] = field(default_factory=list)
    locators: list[dict[str, Any]] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.heads or self.moved_heads or self.answers)

    @property
    def keys(self) -> list[str]:
        """Of the heads."""
        return [head["key"] for head in (*self.heads, *self.moved_heads)]

    def changes(self) -> list[list[dict[str, Any]] | None]:
        """The rows, in the order that the functions take them."""
        changed = (self.heads, self.moved_heads, self.new_grants, self.grants, self.instances, self.segments)
        return [rows or None for rows in (*changed, self.outbox, self.locators, self.answers)]

    def add_changes(self, state: CapacityState, changes: Changes) -> None:
        """Take in what changed in one reservation, but for its events. Its head carries the version that it becomes."""
        key, turn = state.reservation.key, state.reservation.version
        if changes.head:
            self.heads.append(reservation_row(state))
        else:
            self.moved_heads.append(moved_head_row(state))
        for grant_id, grant in changes.grants.items():
            rows = self.new_grants if grant_id in changes.new_grants else self.grants
            rows.append(grant_row(key, grant, turn=turn))
        self.instances.extend(instance_row(key, instance, turn=turn) for instance in changes.instances.values())
        for (instance_id, _), segment in changes.segments.items():
            self.segments.append(segment_row(key, instance_id, segment))
        new_ids = (*changes.new_grants, *changes.new_instances)
        self.locators.extend({"id": new_id, "key": key} for new_id in new_ids)

    def add_event(
        self,
        key: str,
        event: CapacityEvent,
        *,
        seq: int,
        event_id: str,
        tenant_id: str,
        recorded_at: int,
        request_id: str | None,
        trace_id: str | None,
        trace_flags: str | None = None,
    ) -> None:
        """Take in one event with its number in the outbox of its reservation."""
        payload = dict(event.payload)
        if trace_flags is not None:
            payload[TRACE_FLAGS] = trace_flags
        self.outbox.append(
            {
                "key": key,
                "seq": seq,
                "event_id": event_id,
                "tenant_id": tenant_id,
                "type": event.type,
                "occurred_at": event.occurred_at,
                "recorded_at": recorded_at,
                "payload": payload,
                "request_id": request_id,
                "trace_id": trace_id,
            }
        )


_FLUSH: Final = "select capacity_flush($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"


async def flush_books(connection: AnyConnection, flush: Flush) -> None:
    """Write the turn in one statement. Raises a serialization failure when a head has moved on since it was read."""
    keys = flush.keys
    await connection.execute(_FLUSH, keys[0] if keys else "", keys, *flush.changes())
