"""`GET /v1/balances`: two planes define this path, and the parameters tell which of them is meant (6.2, 6.3)."""

from __future__ import annotations

from typing import Final

from domain.amounts import Unit
from domain.budget.values import LEVELS
from domain.outcomes import InvalidInput, Refusal
from server.rest.cycles.admin.budgets import show_budget
from server.rest.cycles.admin.reading import list_of
from server.rest.cycles.answers import show_balance
from server.rest.cycles.exchange import Answer, Exchange, Reply
from server.rest.cycles.listings import PAGE_MAX, page, page_of, refuse_other_tenant, subject_of
from server.rest.cycles.query import Query
from workers.budget.reads import BudgetQuery
from workers.budget.rights import READ_BALANCES

ADMIN_PARAMETERS: Final = ("tenant_id", "scope_prefix", "unit")


async def get_balances(exchange: Exchange) -> Answer:
    """A level of the subject asks for balances, a parameter of the admin plane for ledgers; one of them has to be there."""
    query = exchange.query()
    if any(query.text(level) is not None for level in LEVELS):
        return await _balances(exchange, query)
    if any(query.text(name) is not None for name in ADMIN_PARAMETERS):
        return await _ledgers(exchange, query)
    message = "at least one of tenant, workspace, app, workflow, agent, toolset is required"
    return InvalidInput(field="tenant", reason="missing", message=message)


async def _balances(exchange: Exchange, query: Query) -> Answer:
    subject = subject_of(query, levels=LEVELS)
    if (refused := refuse_other_tenant(exchange, subject.tenant)) is not None:
        return refused
    found = await exchange.runtime.budget_reads.balances(
        exchange.caller,
        subject=subject,
        exact=query.boolean("include_children") is False,
        **page_of(query, most=PAGE_MAX),
    )
    if isinstance(found, Refusal):
        return found
    return Reply(page("balances", [show_balance(balance) for balance in found.items], found))


async def _ledgers(exchange: Exchange, query: Query) -> Answer:
    if (refused := refuse_other_tenant(exchange, query.text("tenant_id"))) is not None:
        return refused
    wanted = BudgetQuery(scope_prefix=query.text("scope_prefix"), unit=query.choice("unit", Unit))
    found = await exchange.runtime.budget_reads.budgets(
        exchange.caller, query=wanted, right=READ_BALANCES, **list_of(query)
    )
    if isinstance(found, Refusal):
        return found
    return Reply(page("balances", [show_budget(seen.tenant_id, seen.budget) for seen in found.items], found))
