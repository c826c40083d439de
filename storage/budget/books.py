"""The books of tenants' budgets as a turn uses them: lock, read, flush.

The one writer of `budget_tenant`, `budget`, `budget_reservation`, `budget_debit`, `budget_funding`, `budget_policy`,
`budget_rate_window`, `budget_answer` and, on the adding side, of `budget_outbox` and `budget_audit`; retention removes
old answers. Of the registry it writes with them, in the same statement: a tenant's row and name, and the revocation of the
keys of a tenant that is closed. Locks are taken here only, on heads, in the order of the tenants' ids; whoever needs
the registry's row as well locks it after the head.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from domain.budget.events import AuditEntry, BudgetEvent
from domain.budget.records import Budget, BudgetReservation, Policy, RateWindow, Tenant
from domain.budget.replay import RememberedAnswer
from domain.budget.state import Changes
from domain.budget.tenants import CASCADE_REASON
from domain.replay import RequestKey
from storage.budget.answers import answer_of, answer_row
from storage.budget.audit_log import audit_row
from storage.budget.rows import (
    balances_row,
    budget_of,
    budget_row,
    debit_row,
    funding_row,
    hold_row,
    moved_head_row,
    policy_of,
    policy_row,
    reservation_of,
    reservation_row,
    tenant_of,
    tenant_row,
    window_of,
    window_row,
)
from storage.database import AnyConnection
from storage.replay import request_columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What a tenant's head row says."""

    tenant: Tenant
    outbox_seq: int
    next_expiry_at: int | None
    """No active reservation is over before it; None: there is none."""
    updated_at: int | None
    is_new: bool = False
    """The registry does not have the tenant yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Locked:
    """What holds under the locks: the database's clock, the heads there are, and what is remembered."""

    now_ms: int
    heads: Mapping[str, Head]
    remembered: Mapping[RequestKey, RememberedAnswer]


_LOCK: Final = "select budget_lock($1, $2, $3, $4)"


async def lock_tenants(connection: AnyConnection, tenant_ids: Sequence[str], keys: Iterable[RequestKey]) -> Locked:
    """Lock the heads in the order of their ids, and look up what was answered under `keys`.

    The caller is inside a transaction and gives `tenant_ids` sorted. A tenant that there is gets its head here at the
    latest.
    """
    found = await connection.fetchval(_LOCK, tenant_ids, *request_columns(list(keys)))
    heads = (head_of(row["head"], row["name"]) for row in found["heads"] or ())
    return Locked(
        now_ms=found["now_ms"],
        heads={head.tenant.tenant_id: head for head in heads},
        remembered=dict(answer_of(row) for row in found["answers"] or ()),
    )


def head_of(row: Mapping[str, Any], name: str) -> Head:
    return Head(
        tenant=tenant_of(row, name),
        outbox_seq=row["outbox_seq"],
        next_expiry_at=row["next_expiry_at"],
        updated_at=row["updated_at"],
    )


_POLICIES: Final = "select * from budget_policy where tenant_id = any ($1)"
_WINDOWS: Final = "select * from budget_rate_window where tenant_id = any ($1)"


async def read_policies(
    connection: AnyConnection, tenant_ids: Sequence[str]
) -> tuple[dict[str, list[Policy]], dict[str, list[RateWindow]]]:
    """Policies and their rate windows, by tenant."""
    policies: dict[str, list[Policy]] = defaultdict(list)
    windows: dict[str, list[RateWindow]] = defaultdict(list)
    for row in await connection.fetch(_POLICIES, tenant_ids):
        policies[row["tenant_id"]].append(policy_of(row))
    for row in await connection.fetch(_WINDOWS, list(policies)) if policies else ():
        windows[row["tenant_id"]].append(window_of(row))
    return policies, windows


# Each pair is looked up by the primary key, whatever the statistics of a young table say: hence the lateral.
_BUDGETS: Final = """
select b.* from unnest($1::text[], $2::text[]) k (tenant_id, scope_path),
    lateral (
        select * from budget r
        where r.tenant_id = any ($1) and r.tenant_id = k.tenant_id and r.scope_path = k.scope_path offset 0
    ) b
"""
_SOME_BUDGETS: Final = "select * from budget where tenant_id = $1 limit $2"


async def read_budgets(connection: AnyConnection, scopes: Iterable[tuple[str, str]]) -> list[tuple[str, Budget]]:
    """(tenant, budget) for each of these (tenant, scope path), in every unit."""
    wanted = list(scopes)
    rows = await connection.fetch(_BUDGETS, [tenant for tenant, _ in wanted], [scope for _, scope in wanted])
    return [(row["tenant_id"], budget_of(row)) for row in rows]


async def read_some_budgets(connection: AnyConnection, tenant_id: str, *, limit: int | None) -> list[Budget]:
    """Up to `limit` budgets of a tenant; None: all of them."""
    return [budget_of(row) for row in await connection.fetch(_SOME_BUDGETS, tenant_id, limit)]


_RESERVATIONS: Final = """
select b.* from unnest($1::text[], $2::text[]) k (tenant_id, reservation_id),
    lateral (
        select * from budget_reservation r
        where r.tenant_id = any ($1) and r.tenant_id = k.tenant_id and r.reservation_id = k.reservation_id offset 0
    ) b
"""
_OVERDUE: Final = """
select * from budget_reservation
where tenant_id = $1 and status = 'ACTIVE' and settles_until < $2 order by settles_until, reservation_id limit $3
"""
_NEXT_DUE: Final = """
select settles_until from budget_reservation
where tenant_id = $1 and status = 'ACTIVE' and settles_until >= $2 order by settles_until limit 1
"""
_ACTIVE: Final = "select * from budget_reservation where tenant_id = $1 and status = 'ACTIVE'"


async def read_reservations(
    connection: AnyConnection, ids: Iterable[tuple[str, str]]
) -> list[tuple[str, BudgetReservation]]:
    """(tenant, reservation) for each of these (tenant, reservation id) that there is."""
    wanted = list(ids)
    rows = await connection.fetch(_RESERVATIONS, [tenant for tenant, _ in wanted], [each for _, each in wanted])
    return [(row["tenant_id"], reservation_of(row)) for row in rows]


async def read_active(connection: AnyConnection, tenant_id: str) -> list[BudgetReservation]:
    """All active reservations of a tenant."""
    return [reservation_of(row) for row in await connection.fetch(_ACTIVE, tenant_id)]


async def read_overdue(
    connection: AnyConnection, tenant_id: str, *, now: int, limit: int
) -> tuple[list[BudgetReservation], int | None]:
    """Up to `limit` active reservations whose grace is over, the longest overdue first; and when the next one is."""
    overdue = [reservation_of(row) for row in await connection.fetch(_OVERDUE, tenant_id, now, limit)]
    if len(overdue) == limit:
        return overdue, overdue[-1].settles_until + 1
    next_due: int | None = await connection.fetchval(_NEXT_DUE, tenant_id, now)
    return overdue, None if next_due is None else next_due + 1


_OWNERS: Final = "select reservation_id, tenant_id from budget_reservation where reservation_id = any ($1)"


async def read_owners(connection: AnyConnection, reservation_ids: Iterable[str]) -> dict[str, str]:
    """Whose these reservations are, as far as there are such. Asked rarely: for what a tenant does not have."""
    rows = await connection.fetch(_OWNERS, list(reservation_ids))
    return {row["reservation_id"]: row["tenant_id"] for row in rows}


# -- writing -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NumberedEvent:
    """An event with its place in the outbox of its tenant."""

    seq: int
    event_id: str
    event: BudgetEvent
    payload: Mapping[str, Any]


@dataclass(slots=True)
class Flush:
    """Everything that one turn writes."""

    tenant_ids: list[str] = field(default_factory=list)
    heads: list[dict[str, Any]] = field(default_factory=list)
    moved_heads: list[dict[str, Any]] = field(default_factory=list)
    budgets: list[dict[str, Any]] = field(default_factory=list)
    balances: list[dict[str, Any]] = field(default_factory=list)
    new_holds: list[dict[str, Any]] = field(default_factory=list)
    holds: list[dict[str, Any]] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)
    outbox: list[dict[str, Any]] = field(default_factory=list)
    debits: list[dict[str, Any]] = field(default_factory=list)
    fundings: list[dict[str, Any]] = field(default_factory=list)
    policies: list[dict[str, Any]] = field(default_factory=list)
    windows: list[dict[str, Any]] = field(default_factory=list)
    audit: list[dict[str, Any]] = field(default_factory=list)
    registry: list[dict[str, Any]] = field(default_factory=list)
    revoked: list[dict[str, Any]] = field(default_factory=list)

    def changes(self) -> list[list[dict[str, Any]] | None]:
        """The rows, in the order that the functions take them."""
        held = (self.heads, self.moved_heads, self.budgets, self.balances, self.new_holds, self.holds)
        added = (self.answers, self.outbox, self.debits, self.fundings)
        governing = (self.policies, self.windows, self.audit, self.registry, self.revoked)
        return [rows or None for rows in (*held, *added, *governing)]

    def add_changes(
        self,
        head: Head,
        changes: Changes,
        *,
        events: Iterable[NumberedEvent],
        audit: Iterable[tuple[str, AuditEntry]],
        now: int,
    ) -> None:
        """Take in what changed in the books of one tenant. Its head carries the version that it becomes."""
        tenant_id = head.tenant.tenant_id
        self.tenant_ids.append(tenant_id)
        self._add_head(head, is_whole=changes.tenant or head.is_new)
        for key, budget in changes.budgets.items():
            if key in changes.whole_budgets:
                self.budgets.append(budget_row(tenant_id, budget))
            else:
                self.balances.append(balances_row(tenant_id, budget))
        for reservation_id, held in changes.reservations.items():
            if reservation_id in changes.new_reservations:
                self.new_holds.append(reservation_row(tenant_id, held))
            else:
                self.holds.append(hold_row(tenant_id, held))
        self.answers.extend(answer_row(key, remembered) for key, remembered in changes.remembered.items())
        self.outbox.extend(_outbox_row(tenant_id, numbered, now) for numbered in events)
        self.debits.extend(debit_row(tenant_id, debit) for debit in changes.debits)
        self.fundings.extend(funding_row(tenant_id, funding) for funding in changes.fundings)
        self.policies.extend(policy_row(tenant_id, policy) for policy in changes.policies.values())
        self.windows.extend(window_row(tenant_id, window) for window in changes.rate_windows.values())
        self.audit.extend(audit_row(tenant_id, entry_id, entry) for entry_id, entry in audit)
        if changes.tenant:
            made_at = now if head.is_new else None
            self.registry.append({"tenant_id": tenant_id, "name": head.tenant.name, "created_at": made_at})
        self.revoked.extend({"key_id": key.key_id, "revoked_at": now} for key in changes.revoked_keys)

    def _add_head(self, head: Head, *, is_whole: bool) -> None:
        if not is_whole:
            moved = moved_head_row(head.tenant, next_expiry_at=head.next_expiry_at, outbox_seq=head.outbox_seq)
            self.moved_heads.append(moved)
            return
        self.heads.append(
            tenant_row(
                head.tenant,
                next_expiry_at=head.next_expiry_at,
                outbox_seq=head.outbox_seq,
                updated_at=head.updated_at,
            )
        )


_FLUSH: Final = """
select budget_flush($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
"""
# A tenant is closed once, so this may cost a round trip of its own.
_WHY_REVOKED: Final = """
update api_key set revoked_reason = $3 where tenant_id = any ($1) and key_id = any ($2) and revoked_reason is null
"""


async def flush_books(connection: AnyConnection, flush: Flush) -> None:
    """Write the turn in one statement, and in another why keys went with their tenant.

    Raises a serialization failure when a head has moved on since it was read."""
    await connection.execute(_FLUSH, flush.tenant_ids[0], flush.tenant_ids, *flush.changes())
    if flush.revoked:
        keys = [row["key_id"] for row in flush.revoked]
        await connection.execute(_WHY_REVOKED, flush.tenant_ids, keys, CASCADE_REASON)


def _outbox_row(tenant_id: str, numbered: NumberedEvent, now: int) -> dict[str, Any]:
    origin = numbered.event.origin
    return {
        "key": tenant_id,
        "seq": numbered.seq,
        "event_id": numbered.event_id,
        "tenant_id": tenant_id,
        "type": numbered.event.type,
        "occurred_at": numbered.event.occurred_at,
        "recorded_at": now,
        "payload": numbered.payload,
        "request_id": None if origin is None else origin.request_id,
        "trace_id": None if origin is None else origin.trace_id,
    }
