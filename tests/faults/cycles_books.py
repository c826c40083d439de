"""What clients of the budget wire were told, and whether the tables say the same: by arithmetic that shares no code with
the product. The tables' own history is looked into besides (`storage.budget.audit`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from storage.budget.audit import find_breaches
from storage.database import Connection
from tests.capacity_world import eventually

Scoped = tuple[str, str]
"""Tenant and scope."""


@dataclass(frozen=True, slots=True)
class Ended:
    status: str
    charged: int | None = None


@dataclass(slots=True, kw_only=True)
class TellingHold:
    tenant_id: str
    key: str
    amount: int
    scopes: list[str]
    expires_at: int
    end: Ended | None = None
    """As somebody was told; None: nobody asked, so it must have expired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldDebit:
    tenant_id: str
    key: str
    charged: int
    scopes: list[str]


class CyclesBooks:
    def __init__(self) -> None:
        self.holds: dict[str, TellingHold] = {}
        self.debits: dict[str, ToldDebit] = {}
        self.accepted: set[tuple[str, str, str]] = set()
        """(tenant, operation, key)."""
        self.refused: set[tuple[str, str, str]] = set()
        self.allocated: Counter[Scoped] = Counter()
        self.wrong: list[str] = []

    # -- what was told -------------------------------------------------------------------------------------------

    def note_accepted(self, tenant_id: str, operation: str, key: str) -> None:
        self.accepted.add((tenant_id, operation, key))

    def note_refused(self, tenant_id: str, operation: str, key: str) -> None:
        self.refused.add((tenant_id, operation, key))

    def note_held(
        self, tenant_id: str, hold: str, *, key: str, amount: int, scopes: list[str], expires_at: int
    ) -> None:
        if hold in self.holds:
            self.wrong.append(f"{hold} was told to two requests")
        self.holds[hold] = TellingHold(
            tenant_id=tenant_id, key=key, amount=amount, scopes=scopes, expires_at=expires_at
        )

    def note_extended(self, hold: str, expires_at: int) -> None:
        told = self.holds[hold]
        if expires_at <= told.expires_at:
            self.wrong.append(f"{hold} was prolonged from {told.expires_at} to {expires_at}")
        told.expires_at = expires_at

    def note_ended(self, hold: str, end: Ended) -> None:
        told = self.holds[hold]
        if told.end is not None and told.end != end:
            self.wrong.append(f"{hold} is told to be {end} after {told.end}")
        told.end = end

    def note_debited(self, tenant_id: str, debit: str, *, key: str, charged: int, scopes: list[str]) -> None:
        if debit in self.debits:
            self.wrong.append(f"{debit} was told to two requests")
        self.debits[debit] = ToldDebit(tenant_id=tenant_id, key=key, charged=charged, scopes=scopes)

    def note_credited(self, tenant_id: str, scope: str, body: Mapping[str, Any]) -> None:
        self.allocated[tenant_id, scope] += body["amount"]["amount"]

    # -- what there is -------------------------------------------------------------------------------------------

    async def check(self, connection: Connection) -> None:
        """Once every hold that was left is over and everything is told: each reply is true, and nothing is there besides."""
        tenants = sorted({tenant_id for tenant_id, _ in self.allocated})
        await eventually(lambda: _is_quiet(connection, tenants), timeout_ms=60_000)
        wrong = [*self.wrong]
        wrong += self._check_holds(await connection.fetch(_HOLDS, tenants))
        wrong += self._check_debits(await connection.fetch(_DEBITS, tenants))
        wrong += self._check_answers(await connection.fetch(_ANSWERS, tenants))
        wrong += self._check_budgets(await connection.fetch(_BUDGETS, tenants))
        wrong += self._check_expiries(await connection.fetch(_EXPIRIES, tenants))
        async with connection.transaction(isolation="repeatable_read"):
            wrong += [f"{each.rule}: {each.what}" for each in await find_breaches(connection, tenants)]
        assert wrong == [], wrong[:20]

    def _check_holds(self, rows: Sequence[Any]) -> list[str]:
        found = {row["reservation_id"]: row for row in rows}
        wrong = [f"{hold} is there and was never told" for hold in sorted(found.keys() - self.holds.keys())]
        for hold, told in self.holds.items():
            row, end = found.get(hold), told.end or Ended("EXPIRED")
            if row is None:
                wrong.append(f"{hold} was told and is not there")
                continue
            expected = (told.key, told.amount, told.scopes, told.expires_at, end.status, end.charged)
            names = ("idempotency_key", "estimate", "budgeted_scopes", "expires_at", "status", "charged")
            if (kept := tuple(row[name] for name in names)) != expected:
                wrong.append(f"{hold} is {kept}, told {expected}")
            if row["finalized_at"] is not None and row["finalized_at"] > row["settles_until"]:
                wrong.append(f"{hold} was settled {row['finalized_at'] - row['settles_until']} ms after its grace")
        return wrong

    def _check_debits(self, rows: Sequence[Any]) -> list[str]:
        kept = {
            row["debit_id"]: ToldDebit(
                tenant_id=row["tenant_id"],
                key=row["idempotency_key"],
                charged=row["charged"],
                scopes=row["budgeted_scopes"],
            )
            for row in rows
        }
        return (
            [] if kept == self.debits else [f"debits: {len(kept)} are there, {len(self.debits)} were told, or others"]
        )

    def _check_answers(self, rows: Sequence[Any]) -> list[str]:
        kept = {(row["tenant_id"], row["operation"], row["idempotency_key"]) for row in rows}
        wrong = [f"{each} was accepted and is not remembered" for each in sorted(self.accepted - kept)]
        return wrong + [f"{each} was refused and had an effect" for each in sorted(self.refused & kept)]

    def _check_budgets(self, rows: Sequence[Any]) -> list[str]:
        charged: Counter[Scoped] = Counter()
        for hold in self.holds.values():
            for scope in hold.scopes if hold.end is not None else ():
                charged[hold.tenant_id, scope] += (hold.end and hold.end.charged) or 0
        for debit in self.debits.values():
            for scope in debit.scopes:
                charged[debit.tenant_id, scope] += debit.charged
        wrong = []
        for row in rows:
            scope = (row["tenant_id"], row["scope_path"])
            expected = (self.allocated[scope], 0, charged[scope])
            if (kept := (row["allocated"], row["reserved"], row["spent"] + row["debt"])) != expected:
                wrong.append(f"{scope}: (allocated, reserved, spent and debt) {kept}, told {expected}")
            if row["remaining"] < -row["overdraft_limit"] or row["debt"] > row["overdraft_limit"]:
                wrong.append(f"{scope}: {row['remaining']} remain with {row['debt']} of {row['overdraft_limit']} owed")
        return wrong

    def _check_expiries(self, rows: Sequence[Any]) -> list[str]:
        """Each expired hold is told of once, no other at all."""
        told = Counter(row["reservation_id"] for row in rows)
        expired = [hold for hold, each in self.holds.items() if each.end is None or each.end.status == "EXPIRED"]
        differing = sorted((told - Counter(expired)) + (Counter(expired) - told))
        return [f"{hold} expired, or it did not, and events tell otherwise" for hold in differing]


async def _is_quiet(connection: Connection, tenants: list[str]) -> bool:
    return not await connection.fetchval(_BUSY, tenants)


_BUSY = """
select exists (select 1 from budget_reservation where tenant_id = any ($1) and status = 'ACTIVE')
    or exists (select 1 from budget_outbox)
"""
_HOLDS = "select * from budget_reservation where tenant_id = any ($1)"
_DEBITS = "select * from budget_debit where tenant_id = any ($1)"
_ANSWERS = "select tenant_id, operation, idempotency_key from budget_answer where tenant_id = any ($1)"
_BUDGETS = "select * from budget where tenant_id = any ($1)"
_EXPIRIES = """
select payload -> 'data' ->> 'reservation_id' as reservation_id from event
where tenant_id = any ($1) and type = 'reservation.expired'
"""
