"""Bulk actions of operators (11.1, 11.3): one change for everything that a filter finds, row by row."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Final

import msgspec

from domain.amounts import Unit
from domain.budget.queries import SEARCH_MAX, BudgetQuery, TenantQuery
from domain.budget.records import BudgetStatus, FundingOperation, TenantStatus
from domain.budget.refusals import BudgetExceeded
from domain.outcomes import InvalidInput, NotFound, Refusal
from domain.shapes import Shape
from server.rest.cycles.answers import Document
from server.rest.cycles.exchange import Answer, Exchange, Reply
from server.rest.cycles.failures import ErrorCode, Failure
from server.rest.cycles.requests import AmountBody, Closed
from workers.budget.bulk import (
    ROWS_MAX,
    BulkAnswer,
    BulkOutcome,
    CountMismatch,
    FailedRow,
    TenantAction,
    TooManyMatches,
)

Count = Annotated[int, msgspec.Meta(ge=0)]
Search = Annotated[str, msgspec.Meta(max_length=SEARCH_MAX)]
Fraction = Annotated[float, msgspec.Meta(ge=0, le=1)]

MILLION: Final = 1_000_000
ALREADY: Final = "ALREADY_IN_TARGET_STATE"
ROW_CODES: Final = {BudgetExceeded.code: "BUDGET_EXCEEDED", NotFound.code: "NOT_FOUND", None: "INTERNAL_ERROR"}
"""What a row failed with, in this wire's own words; whatever else was refused could not be done to it as it is."""
NOT_SO: Final = "INVALID_TRANSITION"


class TenantFilter(Closed, frozen=True):
    """`observe_mode` is of a later protocol: taken, and passed over."""

    status: TenantStatus | None = None
    parent_tenant_id: str | None = None
    observe_mode: str | None = None
    search: Search | None = None


class BudgetFilter(Closed, frozen=True):
    tenant_id: str
    scope_prefix: str | None = None
    unit: Unit | None = None
    status: BudgetStatus | None = None
    over_limit: bool | None = None
    has_debt: bool | None = None
    utilization_min: Fraction | None = None
    utilization_max: Fraction | None = None
    search: Search | None = None


class TenantsBody(Closed, frozen=True):
    filter: TenantFilter
    action: TenantAction
    idempotency_key: str
    expected_count: Count | None = None


class BudgetsBody(Closed, frozen=True):
    filter: BudgetFilter
    action: FundingOperation
    amount: AmountBody
    idempotency_key: str
    spent: AmountBody | None = None
    reason: str | None = None
    expected_count: Count | None = None


async def act_on_tenants(exchange: Exchange) -> Answer:
    body = await exchange.body(TenantsBody)
    wanted = body.filter
    if not (wanted.status or wanted.parent_tenant_id or wanted.search):
        raise _refused("filter", "a filter that finds every tenant is not taken")
    outcome = await exchange.runtime.bulk.act_on_tenants(
        exchange.caller,
        idempotency_key=body.idempotency_key,
        query=TenantQuery(
            status=wanted.status,
            parent_tenant_id=wanted.parent_tenant_id or None,
            nameable=True,
            search=wanted.search or None,
        ),
        action=body.action,
        expected_count=body.expected_count,
    )
    return _told(outcome, action=body.action, key=body.idempotency_key)


async def act_on_budgets(exchange: Exchange) -> Answer:
    body = await exchange.body(BudgetsBody)
    outcome = await exchange.runtime.bulk.act_on_budgets(
        exchange.caller,
        idempotency_key=body.idempotency_key,
        tenant_id=body.filter.tenant_id,
        query=_budget_query(body.filter),
        kind=body.action,
        amount=body.amount.value(),
        spent=body.spent.value() if body.spent is not None else None,
        reason=body.reason,
        expected_count=body.expected_count,
    )
    return _told(outcome, action=body.action, key=body.idempotency_key)


def _budget_query(wanted: BudgetFilter) -> BudgetQuery:
    least, most = _millionths(wanted.utilization_min), _millionths(wanted.utilization_max)
    if least is not None and most is not None and least > most:
        raise _refused("filter.utilization_min", "utilization_min is above utilization_max")
    return BudgetQuery(
        scope_prefix=wanted.scope_prefix or None,
        unit=wanted.unit,
        status=wanted.status,
        over_limit=wanted.over_limit,
        has_debt=wanted.has_debt,
        utilization_least_millionths=least,
        utilization_most_millionths=most,
        search=wanted.search or None,
    )


def _millionths(fraction: float | None) -> int | None:
    """As it was written: 0.1 is a tenth. Finer digits are dropped."""
    return None if fraction is None else int(Decimal(repr(fraction)) * MILLION)


def _told(outcome: BulkOutcome, *, action: str, key: str) -> Answer:
    if isinstance(outcome, Refusal):
        return outcome
    if isinstance(outcome, TooManyMatches):
        message = f"{outcome.total_matched} match, at most {ROWS_MAX} can be changed at once"
        return _mismatch(400, ErrorCode.LIMIT_EXCEEDED, message, outcome.total_matched)
    if isinstance(outcome, CountMismatch):
        message = f"{outcome.total_matched} match, which is not the number that was expected"
        return _mismatch(409, ErrorCode.COUNT_MISMATCH, message, outcome.total_matched)
    return Reply({"action": str(action), "idempotency_key": key, **show_outcome(outcome)})


def show_outcome(outcome: BulkAnswer) -> Document:
    return {
        "total_matched": outcome.total_matched,
        "succeeded": [{"id": row} for row in outcome.succeeded],
        "failed": [_show_failed(row) for row in outcome.failed],
        "skipped": [{"id": row, "reason": ALREADY} for row in outcome.skipped],
    }


def _show_failed(row: FailedRow) -> Document:
    return {"id": row.id, "error_code": ROW_CODES.get(row.code, NOT_SO), "message": row.message}


def _mismatch(status: int, error: ErrorCode, message: str, total: int) -> Failure:
    return Failure(status=status, error=error, message=message, details={"total_matched": total})


def _refused(field: str, message: str) -> Shape:
    return Shape(InvalidInput(field=field, reason="range", message=message))
