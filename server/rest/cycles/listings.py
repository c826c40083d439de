"""Budget reservations, looked at one by one and in lists (1.7, 6.1); and what all lists of this wire share."""

from __future__ import annotations

from typing import Any, Final

from domain.budget.records import ReservationStatus
from domain.budget.values import LEVELS, Subject
from domain.outcomes import AccessDenied, InvalidInput, NotFound, Refusal
from server.rest.cycles.answers import EVIDENCE, Document, show_reservation
from server.rest.cycles.evidence import evidence_of
from server.rest.cycles.exchange import Answer, Exchange, Reply
from server.rest.cycles.failures import TENANT_FIELDS
from server.rest.cycles.query import Query
from workers.budget.reads import ReservationQuery, ReservationSort, Window

PAGE_DEFAULT: Final = 50
PAGE_MAX: Final = 200

ADMIN_NEEDS_TENANT: Final = "tenant query parameter is required when using admin key authentication"


async def get_reservation(exchange: Exchange) -> Answer:
    found = await exchange.runtime.budget_reads.reservation(
        exchange.caller, reservation_id=exchange.path("reservation_id"), as_admin=exchange.is_admin
    )
    if isinstance(found, Refusal):
        return found
    held = found.reservation
    evidence = await evidence_of(exchange, found.tenant_id, [held.reservation_id])
    shown = show_reservation(held, found.status, evidence=evidence.get(held.reservation_id))
    return Reply(shown, owner=found.tenant_id)


async def list_reservations(exchange: Exchange) -> Answer:
    """A tenant sees its own; an operator names the tenant whose are wanted (6.1)."""
    query = exchange.query()
    tenant_id = query.text("tenant")
    if exchange.is_admin and tenant_id is None:
        return InvalidInput(field="tenant", reason="missing", message=ADMIN_NEEDS_TENANT)
    if (refused := refuse_other_tenant(exchange, tenant_id)) is not None:
        return refused
    include = query.words("include")
    found = await exchange.runtime.budget_reads.reservations(
        exchange.caller, query=_reservation_query(query), tenant_id=tenant_id, **page_of(query, most=PAGE_MAX)
    )
    if isinstance(found, Refusal):
        return empty("reservations") if is_unknown_tenant(found) else found
    evidence: dict[str, Document] = {}
    if EVIDENCE in include and found.items:
        ids = [seen.reservation.reservation_id for seen in found.items]
        evidence = await evidence_of(exchange, found.items[0].tenant_id, ids)
    rows = [
        show_reservation(
            seen.reservation,
            seen.status,
            include=include,
            evidence=evidence.get(seen.reservation.reservation_id),
        )
        for seen in found.items
    ]
    return Reply(page("reservations", rows, found), owner=tenant_id)


def refuse_other_tenant(exchange: Exchange, tenant_id: str | None) -> AccessDenied | None:
    """For a tenant's key the parameter only confirms whose it is."""
    if exchange.is_admin or tenant_id is None or tenant_id == exchange.tenant_id:
        return None
    return AccessDenied(message="the tenant asked for is not the tenant of the key")


def page_of(query: Query, *, most: int) -> dict[str, Any]:
    limit = query.integer("limit", least=1, most=most)
    return {"limit": PAGE_DEFAULT if limit is None else limit, "cursor": query.text("cursor")}


def is_unknown_tenant(found: object) -> bool:
    """A list of a tenant that there is not is empty: to an operator the tenant is a filter (6.1)."""
    return isinstance(found, NotFound) and found.field in TENANT_FIELDS


def empty(name: str) -> Reply:
    return Reply({name: [], "has_more": False})


def page(name: str, rows: list[Document], listing: Any) -> Document:
    """The last page has no cursor."""
    shown: Document = {name: rows, "has_more": listing.has_more}
    if listing.has_more and listing.next_cursor is not None:
        shown["next_cursor"] = listing.next_cursor
    return shown


def _reservation_query(query: Query) -> ReservationQuery:
    created = Window(*query.window("from", "to"))
    expires = Window(*query.window("expires_from", "expires_to"))
    finalized = Window(*query.window("finalized_from", "finalized_to"))
    return ReservationQuery(
        idempotency_key=query.text("idempotency_key", most=256),
        status=query.choice("status", ReservationStatus),
        subject=subject_of(query, levels=LEVELS[1:]),
        created=created,
        expires=expires,
        finalized=finalized,
        sort_by=query.choice("sort_by", ReservationSort, folds=True) or ReservationSort.CREATED_AT,
        descending=query.is_descending(),
    )


def subject_of(query: Query, *, levels: tuple[str, ...]) -> Subject:
    named: dict[str, Any] = {level: query.text(level) for level in levels}
    return Subject(**named)
