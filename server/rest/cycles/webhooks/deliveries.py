"""What became of events on their way to a receiver; tests and replays (8.3 to 8.5)."""

from __future__ import annotations

from typing import Final

from domain.budget.queries import Window
from domain.outcomes import Accepted, Refusal
from domain.webhooks.deliveries import DeliveryStatus
from domain.webhooks.queries import DeliveryQuery
from server.rest.cycles.admin.reading import instant_in_body, list_of
from server.rest.cycles.answers import Document
from server.rest.cycles.exchange import Answer, Exchange, Reply
from server.rest.cycles.listings import page
from server.rest.cycles.webhooks.bodies import ReplayBody
from server.rest.cycles.webhooks.telling import in_our_words, show_delivery
from workers.webhooks.probing import WebhookTest
from workers.webhooks.replaying import EVENTS_DEFAULT, Replay

ACCEPTED: Final = 202
SECOND_MS: Final = 1_000


async def list_(exchange: Exchange) -> Answer:
    query = exchange.query()
    wanted = DeliveryQuery(status=query.choice("status", DeliveryStatus), attempted=Window(*query.window("from", "to")))
    found = await exchange.runtime.webhook_reads.deliveries(
        exchange.caller, webhook_id=exchange.path("subscription_id"), query=wanted, **list_of(query)
    )
    if isinstance(found, Refusal):
        return in_our_words(found)
    return Reply(page("deliveries", [show_delivery(each) for each in found.items], found))


async def test(exchange: Exchange) -> Answer:
    """A receiver that does not answer, or not well, is an answer."""
    outcome = await exchange.runtime.webhook_probes.test(exchange.caller, webhook_id=exchange.path("subscription_id"))
    if not isinstance(outcome, Accepted):
        return in_our_words(outcome)
    tested: WebhookTest = outcome.answer
    attempt = tested.attempt
    shown: Document = {
        "success": attempt.succeeded,
        "response_status": attempt.response_status,
        "response_time_ms": attempt.response_time_ms,
        "error_message": attempt.error,
        "event_id": tested.event_id,
    }
    return Reply({name: value for name, value in shown.items() if value is not None})


async def replay(exchange: Exchange) -> Answer:
    body = await exchange.body(ReplayBody)
    outcome = await exchange.runtime.webhook_replays.replay(
        exchange.caller,
        webhook_id=exchange.path("subscription_id"),
        since=instant_in_body(body.since, "from"),
        until=instant_in_body(body.until, "to"),
        event_types=body.event_types,
        max_events=EVENTS_DEFAULT if body.max_events is None else body.max_events,
    )
    if not isinstance(outcome, Accepted):
        return in_our_words(outcome)
    queued: Replay = outcome.answer
    shown = {
        "replay_id": queued.replay_id,
        "events_queued": queued.events_queued,
        "estimated_completion_seconds": -(-queued.estimated_ms // SECOND_MS),
    }
    return Reply(shown, ACCEPTED)
