"""The event log: what happened, as events tell it (8.1). The debit that is called an event is in `runtime`."""

from __future__ import annotations

from typing import Any

from domain.budget.envelopes import CATEGORIES, PUBLISHED_TYPES, envelope
from domain.budget.queries import EventQuery, EventSort, Window
from domain.outcomes import InvalidInput, NotFound, Refusal
from domain.shapes import Shape
from server.rest.cycles.admin.reading import list_of, search_of, trace_id_of
from server.rest.cycles.exchange import Answer, Exchange, Reply
from server.rest.cycles.failures import ErrorCode, Failure
from server.rest.cycles.listings import page
from server.rest.cycles.query import Query


async def list_own(exchange: Exchange) -> Answer:
    """A tenant's own events, of the types that tenants may see. It knows fewer filters than the operator's list."""
    query = exchange.query()
    wanted = EventQuery(**_common(query))
    return await _list(exchange, wanted, query, tenant_id=exchange.tenant_id)


async def list_all(exchange: Exchange) -> Answer:
    query = exchange.query()
    wanted = EventQuery(
        **_common(query),
        tenant_id=query.text("tenant_id"),
        trace_id=trace_id_of(query),
        request_id=query.text("request_id"),
        search=search_of(query),
        sort_by=query.choice("sort_by", EventSort, folds=True) or EventSort.TIMESTAMP,
        descending=query.is_descending(),
    )
    return await _list(exchange, wanted, query, tenant_id=None)


async def get(exchange: Exchange) -> Answer:
    found = await exchange.runtime.budget_reads.event(exchange.caller, event_id=exchange.path("event_id"))
    if isinstance(found, NotFound):
        return Failure(status=404, error=ErrorCode.EVENT_NOT_FOUND, message=found.message)
    return found if isinstance(found, Refusal) else Reply(envelope(found))


async def _list(exchange: Exchange, wanted: EventQuery, query: Query, *, tenant_id: str | None) -> Answer:
    found = await exchange.runtime.budget_reads.event_log(
        exchange.caller, query=wanted, tenant_id=tenant_id, **list_of(query)
    )
    if isinstance(found, Refusal):
        return found
    return Reply(page("events", [envelope(event) for event in found.items], found), owner=tenant_id)


def _common(query: Query) -> dict[str, Any]:
    """The filters of both lists. Raises `Shape`."""
    scope = query.text("scope")
    return {
        "event_type": query.word("event_type", PUBLISHED_TYPES),
        "category": query.word("category", CATEGORIES),
        "scope": None if scope is None else scope.lower(),
        "correlation_id": query.text("correlation_id"),
        "occurred": Window(*query.window("from", "to")),
    }


def _refused(field: str, message: str) -> Shape:
    return Shape(InvalidInput(field=field, reason="malformed", message=message))
