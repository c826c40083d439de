"""Where webhooks may go, as an operator sets it (8.6)."""

from __future__ import annotations

from domain.outcomes import Refusal
from domain.webhooks.targets import STRICT, Security
from server.rest.cycles.answers import Document
from server.rest.cycles.exchange import Answer, Exchange, Reply
from server.rest.cycles.webhooks.bodies import SecurityBody


async def get(exchange: Exchange) -> Answer:
    return _told(await exchange.runtime.webhook_guard.current(exchange.caller))


async def put(exchange: Exchange) -> Answer:
    """All of it is replaced: what is left out is as it is by default."""
    body = await exchange.body(SecurityBody)
    ranges, patterns = body.blocked_cidr_ranges, body.allowed_url_patterns
    security = Security(
        blocked_cidr_ranges=STRICT.blocked_cidr_ranges if ranges is None else tuple(ranges),
        allowed_url_patterns=() if patterns is None else tuple(patterns),
        allow_http=bool(body.allow_http),
    )
    return _told(await exchange.runtime.webhook_guard.replace(exchange.caller, security))


def _told(found: Security | Refusal) -> Answer:
    if isinstance(found, Refusal):
        return found
    shown: Document = {
        "blocked_cidr_ranges": list(found.blocked_cidr_ranges),
        "allowed_url_patterns": list(found.allowed_url_patterns),
        "allow_http": found.allow_http,
    }
    return Reply(shown)
