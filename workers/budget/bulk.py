"""Bulk actions: one lifecycle change for every tenant, or one funding for every budget, that a filter finds (section 11).

A row that says no does not stop the others. What is to be changed is written down before anything is, and each row has
an idempotency key of its own: a client that asks again, whatever happened meanwhile, changes nothing twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

import msgspec

from domain.amounts import Amount, Unit
from domain.budget.commands import Fund, UpdateTenant
from domain.budget.events import AuditEntry
from domain.budget.queries import BudgetQuery, TenantQuery
from domain.budget.records import FundingOperation, TenantStatus
from domain.budget.refusals import IdempotencyMismatch, TenantClosed
from domain.budget.replay import fingerprint
from domain.budget.shapes import REASON_MAX, check_amount, check_length, invalid
from domain.outcomes import InvalidInput, InvalidState, Refusal
from domain.terms import MINUTE_MS
from storage.budget.audit_log import flush_entry
from storage.budget.bulk import BulkRun, begin_run, finish_run, get_run
from storage.budget.operators import count_tenants, page_tenants
from storage.budget.pages import count_budgets, page_budgets
from storage.database import AnyConnection
from workers.budget.asking import BudgetAsker
from workers.budget.audit_log import ADMIN_TENANT
from workers.budget.listing import refuse_query
from workers.budget.rights import RIGHTS, origin_of, refuse
from workers.budget.texts import is_kept
from workers.budget.turn import NO_TENANT
from workers.request import Caller

log = logging.getLogger("earmark.bulk")

ROWS_MAX: Final = 500
"""Rows of one action: what a request can wait for."""
AT_ONCE: Final = 50
"""Rows that are asked at once: their turns batch them."""
REMEMBERED_MS: Final = 15 * MINUTE_MS
"""How long a key means the same action."""
KEY_MAX: Final = 128

TENANTS: Final = "bulkActionTenants"
BUDGETS: Final = "bulkActionBudgets"


class TenantAction(StrEnum):
    SUSPEND = "SUSPEND"
    REACTIVATE = "REACTIVATE"
    CLOSE = "CLOSE"


TARGETS: Final = {
    TenantAction.SUSPEND: TenantStatus.SUSPENDED,
    TenantAction.REACTIVATE: TenantStatus.ACTIVE,
    TenantAction.CLOSE: TenantStatus.CLOSED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRow:
    """`code`: of the refusal; None: it went wrong on our side."""

    id: str
    code: str | None
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkAnswer:
    """What came of each row, in the order of their ids or scopes. `skipped`: it was so already."""

    total_matched: int
    succeeded: tuple[str, ...]
    failed: tuple[FailedRow, ...]
    skipped: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TooManyMatches:
    total_matched: int


@dataclass(frozen=True, slots=True)
class CountMismatch:
    """Not as many as the caller expected: nothing was done."""

    total_matched: int


BulkOutcome = BulkAnswer | TooManyMatches | CountMismatch | Refusal
Found = tuple[int, list[Any]]
"""How many there are, and the rows if they are not too many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Action:
    """One bulk action, whatever it is about. `told`: what the audit entry says of it."""

    operation: str
    key: str
    content: dict[str, Any]
    expected_count: int | None
    tenant_id: str
    resource_type: str
    reason: str | None
    told: dict[str, Any]


class BulkDesk:
    """Root's only. One object a node."""

    def __init__(self, asker: BudgetAsker) -> None:
        self._asker = asker

    async def act_on_tenants(
        self,
        caller: Caller,
        *,
        idempotency_key: str,
        query: TenantQuery,
        action: TenantAction,
        expected_count: int | None = None,
    ) -> BulkOutcome:
        """Suspend, reactivate or close every tenant that the query finds.

        Refuses in this order: ACCESS_DENIED, INVALID_INPUT, IDEMPOTENCY_MISMATCH; then too many, then another number.
        """
        denied = refuse(caller, RIGHTS[UpdateTenant], caller.principal.tenant_id)
        if (refused := denied or _check_key(idempotency_key) or refuse_query(query, None, 1)) is not None:
            return refused

        async def find(connection: AnyConnection) -> Found:
            if (total := await count_tenants(connection, query)) > ROWS_MAX:
                return total, []
            page = await page_tenants(connection, query, after=None, limit=ROWS_MAX)
            return total, sorted(seen.tenant.tenant_id for seen in page.items)

        async def change(tenant_id: str, run: BulkRun) -> bool | FailedRow:
            bulk = f"tenant_bulk_action:{action.lower()}:{caller.request_id or run.run_id}"
            if tenant_id == caller.principal.tenant_id:
                return _failed(tenant_id, InvalidState(state="root", message="the root tenant stays as it is"))
            origin = origin_of(caller, tenant_id, as_admin=True)
            command = UpdateTenant(
                tenant_id=tenant_id,
                origin=origin,
                status=TARGETS[action],
                idempotency_key=f"{run.run_id}/{tenant_id}",
                bulk=bulk,
            )
            outcome = await self._asker.ask(command)
            return _failed(tenant_id, outcome) if isinstance(outcome, Refusal) else bool(outcome.answer.changed_fields)

        asked = _Action(
            operation=TENANTS,
            key=idempotency_key,
            content={"action": action, "filter": asdict(query)},
            expected_count=expected_count,
            tenant_id=ADMIN_TENANT,
            resource_type="tenant",
            reason=None,
            told={"action": action.value, "filter": _stated(query)},
        )
        return await self._run(caller, asked, find, change, name=str)

    async def act_on_budgets(
        self,
        caller: Caller,
        *,
        idempotency_key: str,
        tenant_id: str,
        query: BudgetQuery,
        kind: FundingOperation,
        amount: Amount,
        spent: Amount | None = None,
        reason: str | None = None,
        expected_count: int | None = None,
    ) -> BulkOutcome:
        """Fund every budget of one tenant that the query finds. `spent` counts for RESET_SPENT only.

        Refuses in this order: ACCESS_DENIED, INVALID_INPUT, NOT_FOUND (`tenant_id`), IDEMPOTENCY_MISMATCH, TENANT_CLOSED;
        then too many, then another number.
        """
        denied = refuse(caller, RIGHTS[Fund], caller.principal.tenant_id, as_admin=True)
        shape = _check_key(idempotency_key) or refuse_query(query, tenant_id, 1) or _check(amount, spent, reason)
        if (refused := denied or shape) is not None:
            return refused

        async def find(connection: AnyConnection) -> Found | Refusal:
            owner = await page_tenants(connection, TenantQuery(), after=None, limit=1, tenant_ids=[tenant_id])
            if not owner.items:
                return NO_TENANT
            if owner.items[0].tenant.status is TenantStatus.CLOSED:
                return TenantClosed(tenant_id=tenant_id)
            if (total := await count_budgets(connection, tenant_id, query)) > ROWS_MAX:
                return total, []
            page = await page_budgets(connection, tenant_id, query, scope_filter=(), after=None, limit=ROWS_MAX)
            rows = [[budget.budget_id, budget.scope_path, budget.unit.value] for _, budget in page.items]
            return total, sorted(rows, key=lambda row: row[1:])

        async def change(row: list[str], run: BulkRun) -> bool | FailedRow:
            budget_id, scope, unit = row
            if unit != amount.unit or (spent is not None and spent.unit != amount.unit):
                return _failed(budget_id, invalid("amount.unit", f"the budget is in {unit}", reason="unit"))
            command = Fund(
                tenant_id=tenant_id,
                origin=origin_of(caller, tenant_id, kind=Fund),
                funding_id=self._asker.ids.new("fnd"),
                scope=scope,
                unit=Unit(unit),
                kind=kind,
                amount=amount,
                spent=spent,
                reason=reason,
                idempotency_key=f"{run.run_id}/{budget_id}",
                bulk=f"budget_bulk_action:{kind.lower()}:{caller.request_id or run.run_id}",
            )
            outcome = await self._asker.ask(command)
            if isinstance(outcome, Refusal):
                return _failed(budget_id, outcome)
            return bool(outcome.answer.before != outcome.answer.after)

        asked = _Action(
            operation=BUDGETS,
            key=idempotency_key,
            content={
                "action": kind,
                "tenant_id": tenant_id,
                "filter": asdict(query),
                "amount": amount,
                "spent": spent,
                "reason": reason,
            },
            expected_count=expected_count,
            tenant_id=tenant_id,
            resource_type="budget",
            reason=reason,
            told={"action": kind.value, "filter": {"tenant_id": tenant_id, **_stated(query)}, "amount": amount.amount},
        )
        return await self._run(caller, asked, find, change, name=lambda row: str(row[0]))

    # -- one action ------------------------------------------------------------------------------------------------

    async def _run(
        self,
        caller: Caller,
        action: _Action,
        find: Callable[[AnyConnection], Awaitable[Found | Refusal]],
        change: Callable[[Any, BulkRun], Awaitable[bool | FailedRow]],
        *,
        name: Callable[[Any], str],
    ) -> BulkOutcome:
        run = await self._begin(action, find)
        if not isinstance(run, BulkRun):
            return run
        if run.answer is not None:
            return msgspec.convert(run.answer, BulkAnswer)
        outcomes: list[tuple[str, bool | FailedRow]] = []
        for start in range(0, len(run.matched), AT_ONCE):
            rows = run.matched[start : start + AT_ONCE]
            done = await asyncio.gather(*(change(row, run) for row in rows), return_exceptions=True)
            outcomes.extend((name(row), _told(name(row), each)) for row, each in zip(rows, done, strict=True))
        answer = BulkAnswer(
            total_matched=len(run.matched),
            succeeded=tuple(row for row, each in outcomes if each is True),
            failed=tuple(each for _, each in outcomes if isinstance(each, FailedRow)),
            skipped=tuple(row for row, each in outcomes if each is False),
        )
        return await self._finish(caller, action, run, answer)

    async def _begin(
        self, action: _Action, find: Callable[[AnyConnection], Awaitable[Found | Refusal]]
    ) -> BulkRun | TooManyMatches | CountMismatch | Refusal:
        """The run under this key, the first one's or a new one."""
        mark = fingerprint(action.content)
        async with self._asker.database.transaction() as connection:
            now = await self._asker.now(connection)
            after = now - REMEMBERED_MS
            run = await get_run(connection, action.operation, action.key, after=after)
            if run is None:
                found = await find(connection)
                if isinstance(found, Refusal):
                    return found
                total, rows = found
                if total > ROWS_MAX:
                    return TooManyMatches(total)
                if action.expected_count is not None and action.expected_count != total:
                    return CountMismatch(total)
                new = BulkRun(run_id=self._asker.ids.new("bulk"), fingerprint=mark, matched=rows)
                run = await begin_run(connection, action.operation, action.key, new, now=now, after=after)
        return run if run.fingerprint == mark else IdempotencyMismatch(idempotency_key=action.key)

    async def _finish(self, caller: Caller, action: _Action, run: BulkRun, answer: BulkAnswer) -> BulkAnswer:
        """Remember the answer and put the action on record, both once. Whoever comes second gets the first one's."""
        async with self._asker.database.transaction() as connection:
            now = await self._asker.now(connection)
            told = msgspec.to_builtins(answer)
            if await finish_run(connection, action.operation, action.key, run.run_id, told):
                entry = _entry(caller, action, told, now)
                await flush_entry(connection, action.tenant_id, self._asker.ids.new("aud"), entry)
                return answer
            first = await get_run(connection, action.operation, action.key, after=0)
        return answer if first is None or first.answer is None else msgspec.convert(first.answer, BulkAnswer)


def _entry(caller: Caller, action: _Action, told: dict[str, Any], now: int) -> AuditEntry:
    return AuditEntry(
        operation=action.operation,
        recorded_at=now,
        resource_type=action.resource_type,
        resource_id=None,
        origin=origin_of(caller, action.tenant_id, as_admin=True),
        reason=None if action.reason is None else " ".join(action.reason.splitlines()),
        metadata={**action.told, "idempotency_key": action.key, **told},
    )


def _told(row: str, outcome: bool | FailedRow | BaseException) -> bool | FailedRow:
    """An error is told as one: the others' outcome must not be lost with it."""
    if not isinstance(outcome, BaseException):
        return outcome
    if not isinstance(outcome, Exception):
        raise outcome
    log.error("a row of a bulk action failed", exc_info=outcome, extra={"row": row})
    return FailedRow(id=row, code=None, message="something went wrong on our side")


def _failed(row: str, refusal: Refusal) -> FailedRow:
    return FailedRow(id=row, code=refusal.code, message=refusal.message)


def _stated(query: Any) -> dict[str, Any]:
    """The filters that are set, as they are told."""
    default = type(query)()
    return {name: value for name, value in asdict(query).items() if value != getattr(default, name)}


def _check_key(key: str) -> InvalidInput | None:
    if not is_kept(key):
        return invalid("idempotency_key", "no key can be called so", reason="charset")
    return check_length(key, field="idempotency_key", least=1, most=KEY_MAX)


def _check(amount: Amount, spent: Amount | None, reason: str | None) -> InvalidInput | None:
    if reason is not None and not is_kept(reason):
        return invalid("reason", "reason holds text that cannot be kept", reason="charset")
    return (
        check_amount(amount, field="amount")
        or check_amount(spent, field="spent", unit=amount.unit)
        or check_length(reason, field="reason", most=REASON_MAX)
    )
