"""The audit log (11.7): what was changed, by whom, on which request, and what failed."""

from __future__ import annotations

from typing import Final

from domain.amounts import INT64_MAX, INT64_MIN
from domain.budget.queries import WORDS_MAX
from domain.instants import show_instant
from domain.outcomes import InvalidInput, Refusal
from domain.shapes import Shape
from server.rest.cycles.admin.reading import lenient_list_of, search_of, trace_id_of
from server.rest.cycles.answers import Document, show_amount
from server.rest.cycles.exchange import Answer, Exchange, Reply
from server.rest.cycles.listings import page
from server.rest.cycles.query import Query
from workers.budget.reads import AuditQuery, AuditSort, SeenAuditEntry, Window

LEAST_STATUS, MOST_STATUS = 100, 599
_OPTIONAL: Final = (
    "error_code",
    "resource_type",
    "resource_id",
    "key_id",
    "source_ip",
    "user_agent",
    "request_id",
    "trace_id",
    "subject",
    "action",
)


async def list_(exchange: Exchange) -> Answer:
    query = exchange.query()
    found = await exchange.runtime.budget_reads.audit_log(
        exchange.caller, query=_audit_query(query), **lenient_list_of(query)
    )
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
        "status": entry.status,
    }
    for name in _OPTIONAL:
        if (value := getattr(entry, name)) is not None:
            shown[name] = value
    if entry.unit is not None and entry.amount is not None:
        shown["amount"] = show_amount(entry.unit, entry.amount)
    told = {
        "actor_type": entry.actor_type,
        "scope": entry.scope,
        "reason" if entry.error_code is None else "error_message": entry.reason,
        "correlation_id": entry.correlation_id,
    }
    shown["metadata"] = {
        **(entry.metadata or {}),
        **{name: value for name, value in told.items() if value is not None},
    }
    return shown


def _audit_query(query: Query) -> AuditQuery:
    least, most = _statuses(query)
    return AuditQuery(
        tenant_id=query.text("tenant_id"),
        key_id=query.text("key_id"),
        operations=query.words("operation", most=WORDS_MAX) or None,
        resource_types=query.words("resource_type", most=WORDS_MAX) or None,
        resource_id=query.text("resource_id"),
        request_id=query.text("request_id"),
        trace_id=trace_id_of(query),
        error_codes=query.words("error_code", most=WORDS_MAX) or None,
        error_codes_excluded=query.words("error_code_exclude", most=WORDS_MAX),
        status_least=least,
        status_most=most,
        recorded=Window(*query.window("from", "to")),
        search=search_of(query),
        sort_by=query.choice("sort_by", AuditSort, folds=True) or AuditSort.RECORDED_AT,
        descending=query.is_descending(),
    )


def _statuses(query: Query) -> tuple[int | None, int | None]:
    """The range of statuses. Raises `Shape`."""
    exact = query.integer("status", least=INT64_MIN, most=INT64_MAX)
    least = query.integer("status_min", least=LEAST_STATUS, most=MOST_STATUS)
    most = query.integer("status_max", least=LEAST_STATUS, most=MOST_STATUS)
    if exact is not None and (least is not None or most is not None):
        raise _refused("status", "status cannot be combined with status_min or status_max")
    if least is not None and most is not None and least > most:
        raise _refused("status_min", "status_min is above status_max")
    if exact is not None:
        bounded = max(LEAST_STATUS - 1, min(exact, MOST_STATUS + 1))  # outside of them there is no entry anyway
        return bounded, bounded
    return least, most


def _refused(field: str, message: str) -> Shape:
    return Shape(InvalidInput(field=field, reason="range", message=message))
