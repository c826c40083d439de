"""`POST /v1/admin/webhooks/bulk-action` (11.9)."""

from __future__ import annotations

from domain.outcomes import Accepted, Conflict, InvalidInput
from domain.shapes import Shape, check_known
from domain.webhooks.queries import WebhookQuery
from domain.webhooks.selectors import KNOWN_TYPES
from server.rest.cycles.answers import Document
from server.rest.cycles.exchange import Answer, Exchange, Reply
from server.rest.cycles.failures import ErrorCode, Failure
from server.rest.cycles.webhooks.bodies import BulkBody, BulkFilter
from server.rest.cycles.webhooks.telling import in_our_words
from workers.webhooks.bulk import COUNT_MISMATCH, TOO_MANY, BulkAction, BulkDone


async def act(exchange: Exchange) -> Answer:
    """An empty filter is refused: nobody should sweep everything by leaving something out."""
    body = await exchange.body(BulkBody)
    chosen = body.filter
    if chosen == BulkFilter():
        raise Shape(InvalidInput(field="filter", reason="missing", message="the filter needs at least one property"))
    if chosen.event_type is not None:
        check_known((chosen.event_type,), "filter.event_type", sorted(KNOWN_TYPES))
    outcome = await exchange.runtime.webhook_bulk.act(
        exchange.caller,
        action=BulkAction(body.action),
        query=WebhookQuery(status=chosen.status, event_type=chosen.event_type, search=chosen.search or None),
        tenant_id=chosen.tenant_id,
        idempotency_key=body.idempotency_key,
        expected_count=body.expected_count,
    )
    if isinstance(outcome, Conflict) and outcome.reason == COUNT_MISMATCH:
        return Failure(status=409, error=ErrorCode.COUNT_MISMATCH, message=outcome.message)
    if isinstance(outcome, InvalidInput) and outcome.reason == TOO_MANY:
        return Failure(status=400, error=ErrorCode.LIMIT_EXCEEDED, message=outcome.message)
    if not isinstance(outcome, Accepted):
        return in_our_words(outcome)
    return Reply(_shown(body, outcome.answer), owner=chosen.tenant_id)


def _shown(body: BulkBody, done: BulkDone) -> Document:
    return {
        "action": body.action,
        "total_matched": done.total_matched,
        "succeeded": [{"id": name} for name in done.succeeded],
        "failed": [{"id": name, "error_code": code, "message": message} for name, code, message in done.failed],
        "skipped": [{"id": name, "reason": reason} for name, reason in done.skipped],
        "idempotency_key": body.idempotency_key,
    }
