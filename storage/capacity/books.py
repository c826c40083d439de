"""The books of capacity reservations as a turn uses them: lock, read, flush.

The one writer of `capacity_reservation`, `capacity_grant`, `capacity_instance`, `capacity_segment`, `capacity_locator`
and, on the adding side, of `capacity_outbox`; but for what the meter keeps for itself under the same lock: its
watermarks, and the floor of the clock that it moves past a written hour (`storage.capacity.metering`). Locks are taken here only, on heads, in the order of their keys (R12).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from domain.capacity.commands import Surroundings
from domain.capacity.state import CapacityEvent, CapacityState, Changes, Grant, Instance, Reservation
from domain.terms import START_TOLERANCE_MS
from storage.capacity.rows import (
    grant_of,
    grant_row,
    instance_of,
    instance_row,
    reservation_of,
    reservation_row,
    segment_of,
    segment_row,
)
from storage.database import AnyConnection

_LOCK: Final = "select * from capacity_lock($1)"


async def lock_reservations(connection: AnyConnection, keys: Sequence[str]) -> tuple[int, dict[str, Reservation]]:
    """Lock the heads in the order of their keys. The database's clock after the last lock, and the heads there are.

    The caller is inside a transaction and gives `keys` sorted.
    """
    rows = await connection.fetch(_LOCK, keys)
    heads = [reservation_of(row["head"]) for row in rows if row["head"] is not None and row["head"]["key"] is not None]
    return max(row["now_ms"] for row in rows), {head.key: head for head in heads}


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


async def read_states(connection: AnyConnection, heads: Mapping[str, Reservation]) -> dict[str, CapacityState]:
    """The books of these reservations, from three statements whatever their number."""
    if not heads:
        return {}
    keys = sorted(heads)
    since = [heads[key].clock_at - START_TOLERANCE_MS for key in keys]
    grants: dict[str, list[Grant]] = defaultdict(list)
    for row in await connection.fetch(_GRANTS, keys, since):
        grants[row["key"]].append(grant_of(row))
    segments = {row["instance_id"]: segment_of(row) for row in await connection.fetch(_SEGMENTS, keys)}
    instances: dict[str, list[Instance]] = defaultdict(list)
    for row in await connection.fetch(_INSTANCES, keys):
        instances[row["key"]].append(instance_of(row, segments.get(row["instance_id"])))
    return {key: CapacityState(heads[key], grants[key], instances[key]) for key in keys}


_PAST_GRANTS: Final = "select * from capacity_grant where key = any ($1) and grant_id = any ($2)"
_PAST_INSTANCES: Final = "select * from capacity_instance where key = any ($1) and instance_id = any ($2)"


async def read_past(
    connection: AnyConnection, keys: Sequence[str], *, grant_ids: Sequence[str], instance_ids: Sequence[str]
) -> tuple[dict[str, Grant], dict[str, Instance]]:
    """Things that are over and that a command names all the same."""
    grants = await connection.fetch(_PAST_GRANTS, keys, grant_ids) if grant_ids else []
    instances = await connection.fetch(_PAST_INSTANCES, keys, instance_ids) if instance_ids else []
    return (
        {row["grant_id"]: grant_of(row) for row in grants},
        {row["instance_id"]: instance_of(row) for row in instances},
    )


@dataclass(slots=True)
class Wanted:
    """What the commands of a batch need to know about other things."""

    tenant_ids: set[str] = field(default_factory=set)
    project_ids: set[str] = field(default_factory=set)
    account_ids: set[str] = field(default_factory=set)
    pool_ids: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.tenant_ids or self.project_ids or self.account_ids or self.pool_ids)


# Registries are small and change rarely; one statement reads what the whole batch needs of them.
_SURROUNDINGS: Final = """
select
    (select tenant_id from tenant where is_root) as platform,
    (select array_agg(tenant_id) from tenant where tenant_id = any ($1) and deleted_at is null) as tenants,
    (select json_object_agg(project_id, tenant_id) from project where project_id = any ($2) and deleted_at is null)
        as projects,
    (select json_object_agg(account_id, provider) from provider_account
        where account_id = any ($3) and deleted_at is null) as accounts,
    (select array_agg(pool_id) from pool where pool_id = any ($4)) as pools,
    (select json_agg(json_build_array(pool_id, tenant_id)) from pool_offer
        where pool_id = any ($4) and (tenant_id = '*' or tenant_id = any ($1))) as offers
"""


async def read_surroundings(connection: AnyConnection, wanted: Wanted) -> Surroundings:
    """Read after the locks, so that whoever withdraws an offer or deletes an account waits for the same heads."""
    columns = (wanted.tenant_ids, wanted.project_ids, wanted.account_ids, wanted.pool_ids)
    row = await connection.fetchrow(_SURROUNDINGS, *(list(column) for column in columns))
    assert row is not None, "a select of constants gives one row"
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


@dataclass(frozen=True, slots=True)
class NumberedEvent:
    """An event with its place in the outbox of its reservation."""

    key: str
    seq: int
    event_id: str
    tenant_id: str
    recorded_at: int
    event: CapacityEvent
    request_id: str | None = None
    trace_id: str | None = None


@dataclass(slots=True)
class Flush:
    """Everything that one turn writes."""

    heads: list[dict[str, Any]] = field(default_factory=list)
    grants: list[dict[str, Any]] = field(default_factory=list)
    instances: list[dict[str, Any]] = field(default_factory=list)
    segments: list[dict[str, Any]] = field(default_factory=list)
    outbox: list[dict[str, Any]] = field(default_factory=list)
    locators: list[dict[str, Any]] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)

    def add_changes(self, state: CapacityState, changes: Changes, events: Iterable[NumberedEvent]) -> None:
        """Take in what changed in one reservation. Its head carries the version that it becomes."""
        key = state.reservation.key
        self.heads.append(reservation_row(state))
        self.grants.extend(grant_row(key, grant) for grant in changes.grants.values())
        self.instances.extend(instance_row(key, instance) for instance in changes.instances.values())
        for (instance_id, _), segment in changes.segments.items():
            self.segments.append(segment_row(key, instance_id, segment))
        new_ids = (*changes.new_grants, *changes.new_instances)
        self.locators.extend({"id": new_id, "key": key} for new_id in new_ids)
        self.outbox.extend(_outbox_row(event) for event in events)


_FLUSH: Final = "select capacity_flush($1, $2, $3, $4, $5, $6, $7, $8, $9)"


async def flush_books(connection: AnyConnection, flush: Flush) -> None:
    """Write the turn in one statement. Raises a serialization failure when a head has moved on since it was read."""
    keys = [head["key"] for head in flush.heads]
    optional = (flush.grants, flush.instances, flush.segments, flush.outbox, flush.locators, flush.answers)
    rows = [column or None for column in optional]
    await connection.execute(_FLUSH, keys[0] if keys else "", keys, flush.heads, *rows)


def _outbox_row(numbered: NumberedEvent) -> dict[str, Any]:
    return {
        "key": numbered.key,
        "seq": numbered.seq,
        "event_id": numbered.event_id,
        "tenant_id": numbered.tenant_id,
        "type": numbered.event.type,
        "occurred_at": numbered.event.occurred_at,
        "recorded_at": numbered.recorded_at,
        "payload": dict(numbered.event.payload),
        "request_id": numbered.request_id,
        "trace_id": numbered.trace_id,
    }
