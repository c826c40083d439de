"""The audit log (11.7): what was changed, by whom, on which request."""

from __future__ import annotations

from enum import Enum
from typing import Final

from domain.budget.events import EventType
from domain.budget.queries import WORDS_MAX
from domain.instants import show_instant
from domain.outcomes import InvalidInput, Refusal
from domain.shapes import Shape
from server.rest.cycles.admin.reading import lenient_list_of, search_of
from server.rest.cycles.answers import Document, show_amount
from server.rest.cycles.exchange import Answer, Exchange, Reply
from server.rest.cycles.listings import page
from server.rest.cycles.query import Query
from workers.budget.reads import AuditQuery, AuditSort, SeenAuditEntry, Window

LEAST_STATUS, MOST_STATUS = 100, 599
CREATED, DONE = 201, 200

STATUSES: Final = {
    **dict.fromkeys(("createTenant", "createBudget", "createPolicy"), CREATED),
    **dict.fromkeys(
        (
            "updateTenant",
            "updateBudget",
            "freezeBudget",
            "unfreezeBudget",
            "closeBudget",
            "fundBudget",
            "updatePolicy",
            "releaseReservation",
            EventType.BUDGET_CLOSED_VIA_CASCADE.value,
            EventType.RESERVATION_RELEASED_VIA_CASCADE.value,
            EventType.API_KEY_REVOKED_VIA_CASCADE.value,
        ),
        DONE,
    ),
}
"""Operation to the status that it was answered with. Only what was accepted is on record."""


class Order(Enum):
    """`status` says nothing more than `operation` does: equals stay in the order of time."""

    TIMESTAMP = "timestamp"
    OPERATION = "operation"
    RESOURCE_TYPE = "resource_type"
    TENANT_ID = "tenant_id"
    KEY_ID = "key_id"
    STATUS = "status"


async def list_(exchange: Exchange) -> Answer:
    """No entry has an error code, so asking for one finds nothing and excluding some hides nothing."""
    query = exchange.query()
    wanted, paging = _audit_query(query), lenient_list_of(query)
    query.words("error_code_exclude", most=WORDS_MAX)
    if query.words("error_code", most=WORDS_MAX) or wanted.operations == ():
        return Reply({"logs": [], "has_more": False})
    found = await exchange.runtime.budget_reads.audit_log(exchange.caller, query=wanted, **paging)
    if isinstance(found, Refusal):
        return found
    return Reply(page("logs", [show_entry(entry) for entry in found.items], found))


def show_entry(entry: SeenAuditEntry) -> Document:
    """The document has no field for the actor's kind, the reason and the cascade: they are told as metadata (1.3)."""
    shown: Document = {
        "log_id": entry.entry_id,
        "timestamp": show_instant(entry.recorded_at),
        "tenant_id": entry.tenant_id,
        "operation": entry.operation,
        "status": status_of(entry.operation),
        "resource_type": entry.resource_type,
        "resource_id": entry.resource_id,
    }
    for name in ("key_id", "source_ip", "request_id", "trace_id"):
        if (value := getattr(entry, name)) is not None:
            shown[name] = value
    if entry.unit is not None and entry.amount is not None:
        shown["amount"] = show_amount(entry.unit, entry.amount)
    told = {
        "actor_type": entry.actor_type,
        "scope": entry.scope,
        "reason": entry.reason,
        "correlation_id": entry.correlation_id,
    }
    shown["metadata"] = {
        **(entry.metadata or {}),
        **{name: value for name, value in told.items() if value is not None},
    }
    return shown


def status_of(operation: str) -> int:
    return STATUSES.get(operation, DONE)


def _audit_query(query: Query) -> AuditQuery:
    order = query.choice("sort_by", Order, folds=True) or Order.TIMESTAMP
    return AuditQuery(
        tenant_id=query.text("tenant_id"),
        key_id=query.text("key_id"),
        operations=_operations(query),
        resource_types=query.words("resource_type", most=WORDS_MAX) or None,
        resource_id=query.text("resource_id"),
        request_id=query.text("request_id"),
        trace_id=query.text("trace_id"),
        recorded=Window(*query.window("from", "to")),
        search=search_of(query),
        sort_by=AuditSort.RECORDED_AT if order is Order.STATUS else AuditSort(order.value),
        descending=query.is_descending(),
    )


def _operations(query: Query) -> tuple[str, ...] | None:
    """Those that are asked for, by name and by status; None is any, and nothing at all is none. Raises `Shape`."""
    named, least, most = query.words("operation", most=WORDS_MAX), *_statuses(query)
    if least <= DONE < CREATED <= most:
        return named or None
    return tuple(name for name in named or STATUSES if least <= status_of(name) <= most)


def _statuses(query: Query) -> tuple[int, int]:
    """The range of statuses. Raises `Shape`."""
    exact = query.integer("status", least=0, most=MOST_STATUS)
    least = query.integer("status_min", least=LEAST_STATUS, most=MOST_STATUS)
    most = query.integer("status_max", least=LEAST_STATUS, most=MOST_STATUS)
    if exact is not None and (least is not None or most is not None):
        raise _refused("status", "status cannot be combined with status_min or status_max")
    if least is not None and most is not None and least > most:
        raise _refused("status_min", "status_min is above status_max")
    if exact is not None:
        return exact, exact
    return LEAST_STATUS if least is None else least, MOST_STATUS if most is None else most


def _refused(field: str, message: str) -> Shape:
    return Shape(InvalidInput(field=field, reason="range", message=message))
