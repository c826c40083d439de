"""Budgets as operators and tenants govern them (11.3, 11.4): open, look up, list, change, freeze, fund."""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

from domain.budget.answers import FundAnswer
from domain.budget.records import Budget, BudgetStatus, FundingOperation, RolloverPolicy
from domain.budget.values import OveragePolicy
from domain.amounts import Unit
from domain.outcomes import InvalidInput, Refusal
from server.rest.cycles.admin.reading import (
    instant_in_body,
    list_of,
    named_budget,
    search_of,
    tenant_in_body,
    tenant_in_query,
    tenant_of_scope,
)
from server.rest.cycles.answers import Document, show_amount
from server.rest.cycles.exchange import Answer, Exchange, Reply
from server.rest.cycles.instants import show_instant
from server.rest.cycles.listings import page
from server.rest.cycles.query import Query
from server.rest.cycles.requests import AmountBody, Closed
from server.rest.cycles.runtime import told
from workers.budget.reads import BudgetQuery, BudgetSort


class CreateBody(Closed, frozen=True):
    scope: str
    unit: Unit
    allocated: AmountBody
    tenant_id: str | None = None
    overdraft_limit: AmountBody | None = None
    commit_overage_policy: OveragePolicy | None = None
    rollover_policy: RolloverPolicy | None = None
    period_start: str | None = None
    period_end: str | None = None
    metadata: dict[str, Any] | None = None


class UpdateBody(Closed, frozen=True):
    overdraft_limit: AmountBody | None = None
    commit_overage_policy: OveragePolicy | None = None
    metadata: dict[str, Any] | None = None


class StatusBody(Closed, frozen=True):
    reason: str | None = None
    metadata: dict[str, Any] | None = None


class FundBody(Closed, frozen=True):
    operation: FundingOperation
    amount: AmountBody
    spent: AmountBody | None = None
    reason: str | None = None
    idempotency_key: str | None = None
    metadata: dict[str, Any] | None = None


class SortWord(Enum):
    """What a list of budgets can be ordered by, as the wire calls it."""

    TENANT_ID = "tenant_id"
    SCOPE = "scope"
    UNIT = "unit"
    STATUS = "status"
    COMMIT_OVERAGE_POLICY = "commit_overage_policy"
    UTILIZATION = "utilization"
    DEBT = "debt"


async def create(exchange: Exchange) -> Answer:
    body = await exchange.body(CreateBody)
    tenant_id = tenant_in_body(exchange, body.tenant_id)
    outcome = await exchange.runtime.budgets.create_budget(
        exchange.caller,
        tenant_id=tenant_id,
        scope=body.scope,
        unit=body.unit,
        allocated=body.allocated.value(),
        overdraft_limit=_amount(body.overdraft_limit),
        commit_overage_policy=body.commit_overage_policy,
        rollover_policy=body.rollover_policy or RolloverPolicy.NONE,
        period_start_at=instant_in_body(body.period_start, "period_start"),
        period_end_at=instant_in_body(body.period_end, "period_end"),
        metadata=body.metadata,
    )
    return _told(exchange, outcome, tenant_id, status=201)
