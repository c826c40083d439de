"""Budgets as operators and tenants govern them (11.3, 11.4): open, look up, list, change, freeze, fund."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from domain.amounts import Amount, Unit
from domain.budget.answers import FundAnswer
from domain.budget.records import Budget, BudgetStatus, FundingOperation, RolloverPolicy
from domain.budget.repeats import BudgetOutcome
from domain.budget.values import OveragePolicy
from domain.instants import show_instant
from domain.outcomes import InvalidInput, Refusal
from domain.shapes import Shape
from server.rest.cycles.admin.reading import (
    instant_in_body,
    lenient_list_of,
    named_budget,
    search_of,
    tenant_in_body,
    tenant_in_query,
    tenant_of_budget,
    unknown_tenant,
)
from server.rest.cycles.answers import Document, show_amount
from server.rest.cycles.exchange import Answer, Exchange, Reply
from server.rest.cycles.listings import empty, is_unknown_tenant, page
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
        idempotency_key=exchange.key_in_header,
    )
    if isinstance(outcome, Refusal):
        return unknown_tenant(outcome)
    return _told(exchange, outcome, tenant_id, status=201)


async def update(exchange: Exchange) -> Answer:
    named, tenant_id = await _named(exchange)
    body = await exchange.body(UpdateBody)
    outcome = await exchange.runtime.budgets.update_budget(
        exchange.caller,
        tenant_id=tenant_id,
        **named,
        overdraft_limit=_amount(body.overdraft_limit),
        commit_overage_policy=body.commit_overage_policy,
        metadata=body.metadata,
        idempotency_key=exchange.key_in_header,
    )
    return _told(exchange, outcome, tenant_id)


async def freeze(exchange: Exchange) -> Answer:
    return await _set_status(exchange, exchange.runtime.budgets.freeze_budget)


async def unfreeze(exchange: Exchange) -> Answer:
    return await _set_status(exchange, exchange.runtime.budgets.unfreeze_budget)


async def fund(exchange: Exchange) -> Answer:
    """Without a key of the client's own every call is a new one (11.4)."""
    query = exchange.query()
    named, tenant_id = named_budget(query), tenant_in_query(exchange, query)
    body = await exchange.body(FundBody)
    outcome = await exchange.runtime.budgets.fund(
        exchange.caller,
        tenant_id=tenant_id,
        **named,
        kind=body.operation,
        amount=body.amount.value(),
        spent=_amount(body.spent),
        reason=body.reason,
        idempotency_key=body.idempotency_key,
        metadata=body.metadata,
    )
    return told(outcome, show_funding)


async def look_up(exchange: Exchange) -> Answer:
    named, tenant_id = await _named(exchange)
    found = await exchange.runtime.budget_reads.budget(exchange.caller, **named, tenant_id=tenant_id)
    if isinstance(found, Refusal):
        return found
    return Reply(show_budget(found.tenant_id, found.budget), owner=found.tenant_id)


async def list_(exchange: Exchange) -> Answer:
    """A tenant sees its own whatever it asks for; an operator those of one tenant, or of all (11.3)."""
    query = exchange.query()
    tenant_id = query.text("tenant_id") if exchange.is_admin else None
    found = await exchange.runtime.budget_reads.budgets(
        exchange.caller,
        query=_budget_query(query),
        tenant_id=tenant_id,
        all_tenants=exchange.is_admin and tenant_id is None,
        **lenient_list_of(query),
    )
    if isinstance(found, Refusal):
        return empty("ledgers") if is_unknown_tenant(found) else found
    rows = [show_budget(seen.tenant_id, seen.budget) for seen in found.items]
    return Reply(page("ledgers", rows, found), owner=tenant_id)


def show_budget(tenant_id: str, budget: Budget) -> Document:
    """A ledger: what the wire calls a budget with its balances."""
    unit = budget.unit
    shown: Document = {
        "ledger_id": budget.budget_id,
        "tenant_id": tenant_id,
        "scope": budget.scope_path,
        "scope_path": budget.scope_path,
        "unit": unit.value,
        "allocated": show_amount(unit, budget.allocated),
        "remaining": show_amount(unit, budget.remaining),
        "reserved": show_amount(unit, budget.reserved),
        "spent": show_amount(unit, budget.spent),
        "debt": show_amount(unit, budget.debt),
        "overdraft_limit": show_amount(unit, budget.overdraft_limit),
        "is_over_limit": budget.is_over_limit,
        "status": budget.status.value,
        "rollover_policy": budget.rollover_policy.value,
        "created_at": show_instant(budget.created_at),
    }
    if budget.commit_overage_policy is not None:
        shown["commit_overage_policy"] = budget.commit_overage_policy.value
    for name, at in (
        ("period_start", budget.period_start_at),
        ("period_end", budget.period_end_at),
        ("updated_at", budget.updated_at),
    ):
        if at is not None:
            shown[name] = show_instant(at)
    return shown


def show_funding(answer: FundAnswer) -> Document:
    unit = answer.after.unit
    shown: Document = {"operation": answer.operation.value, "timestamp": show_instant(answer.decided_at)}
    for name in ("allocated", "remaining", "debt", "spent"):
        shown[f"previous_{name}"] = show_amount(unit, getattr(answer.before, name))
        shown[f"new_{name}"] = show_amount(unit, getattr(answer.after, name))
    return shown


async def _named(exchange: Exchange) -> tuple[dict[str, Any], str | None]:
    """The scope and unit of the budget, and its tenant where an operator asks. Raises `Shape`, `RefusedError`."""
    query = exchange.query()
    named = named_budget(query)
    return named, await tenant_of_budget(exchange, query, named["scope"])


async def _set_status(exchange: Exchange, change: Callable[..., Awaitable[BudgetOutcome[Budget]]]) -> Answer:
    named, tenant_id = await _named(exchange)
    body = await exchange.body(StatusBody, optional=True)
    outcome = await change(
        exchange.caller,
        tenant_id=tenant_id,
        **named,
        reason=body.reason,
        metadata=body.metadata,
        idempotency_key=exchange.key_in_header,
    )
    return _told(exchange, outcome, tenant_id)


def _told(exchange: Exchange, outcome: BudgetOutcome[Budget], tenant_id: str | None, *, status: int = 200) -> Answer:
    if isinstance(outcome, Refusal):
        return outcome
    owner = tenant_id or exchange.caller.principal.tenant_id
    return Reply(show_budget(owner, outcome.answer), status, owner=owner)


def _amount(body: AmountBody | None) -> Amount | None:
    return None if body is None else body.value()


def _budget_query(query: Query) -> BudgetQuery:
    least, most = query.millionths("utilization_min"), query.millionths("utilization_max")
    if least is not None and most is not None and least > most:
        raise Shape(InvalidInput(field="utilization_min", reason="range", message="utilization_min is above _max"))
    return BudgetQuery(
        scope_prefix=query.text("scope_prefix"),
        unit=query.choice("unit", Unit),
        status=query.choice("status", BudgetStatus),
        over_limit=query.boolean("over_limit"),
        has_debt=query.boolean("has_debt"),
        utilization_least_millionths=least,
        utilization_most_millionths=most,
        search=search_of(query),
        sort_by=query.choice("sort_by", BudgetSort, folds=True) or BudgetSort.SCOPE,
        descending=query.is_descending(default=query.text("sort_by") is not None),
    )
