"""The desk for tests of a webhook: one made-up event to its own receiver, at once, beside all queues (8.3)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from domain.identity import WEBHOOK_ID
from domain.outcomes import Accepted, Outcome, Refusal
from domain.shapes import Shape, check_text
from domain.webhooks.deliveries import Attempt, Delivery, DeliveryStatus
from domain.webhooks.messages import SAMPLED, TEST_TYPE, Trace, headers_of, probe
from domain.webhooks.refusals import WebhookUrlInvalid
from domain.webhooks.targets import Security, parse_url
from storage.webhooks.deliveries import flush_test
from storage.webhooks.subscriptions import Kept, read_subscription
from workers.request import Caller
from workers.webhooks import rights
from workers.webhooks.secrets import Secrets, unseal
from workers.webhooks.sender import AGENT, Sender
from workers.webhooks.vault import VaultError
from workers.webhooks.writing import NO_KEY, OTHER_KEY, Tools, refuse_closed

SPAN_BYTES: Final = 8
TRACE_BYTES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookTest:
    """How a test went."""

    attempt: Attempt
    event_id: str
    delivery_id: str


class ProbeDesk:
    def __init__(self, tools: Tools, sender: Sender) -> None:
        self._tools = tools
        self._sender = sender

    async def test(self, caller: Caller, *, webhook_id: Any) -> Outcome[WebhookTest]:
        """Send a test, whatever the status; it counts for nothing and changes nothing but the list of deliveries.

        Refuses in this order: ACCESS_DENIED, INVALID_INPUT, NOT_FOUND, INVALID_STATE (`closed`, `no-secret-key`,
        `other-secret-key`).
        """
        if denied := rights.refuse_at_all(caller, rights.WRITE):
            return denied
        try:
            wanted = check_text(webhook_id, "webhook_id", WEBHOOK_ID)
        except Shape as shape:
            return shape.refusal
        found = await self._read(caller, wanted)
        if isinstance(found, Refusal):
            return found
        kept, secrets, security, now = found
        trace = Trace(trace_id=caller.trace_id or os.urandom(TRACE_BYTES).hex(), flags=caller.trace_flags or SAMPLED)
        event_id = self._tools.ids.new("evt")
        attempt = await self._send(caller, kept, secrets, security, trace=trace, event_id=event_id, now=now)
        delivery = Delivery(
            subscription_id=wanted,
            delivery_id=self._tools.ids.new("whdel"),
            place=None,
            event_id=event_id,
            event_type=TEST_TYPE,
            status=DeliveryStatus.SUCCESS if attempt.succeeded else DeliveryStatus.FAILED,
            attempts=1,
            created_at=now,
            attempted_at=now,
            completed_at=now,
            response_status=attempt.response_status,
            response_time_ms=attempt.response_time_ms,
            error=attempt.error,
            trace=trace,
        )
        async with self._tools.registrar.writing() as turn:
            await flush_test(turn.connection, delivery)
        return Accepted(WebhookTest(attempt=attempt, event_id=event_id, delivery_id=delivery.delivery_id))

    async def _read(self, caller: Caller, webhook_id: str) -> tuple[Kept, Secrets, Security, int] | Refusal:
        async with self._tools.registrar.reading() as turn:
            kept = await read_subscription(turn.connection, webhook_id)
            subscription = None if kept is None else kept.subscription
            if (refusal := rights.refuse_one(caller, rights.WRITE, subscription)) is not None:
                return refusal
            assert kept is not None, "what is not there was refused"
            if (closed := await refuse_closed(turn.connection, kept.subscription.tenant_id)) is not None:
                return closed
            if self._tools.vault is None:
                return NO_KEY
            try:
                secrets = unseal(self._tools.vault, kept)
            except VaultError:
                return OTHER_KEY
            return kept, secrets, await self._tools.guard.security(turn.connection), await turn.now()

    async def _send(
        self,
        caller: Caller,
        kept: Kept,
        secrets: Secrets,
        security: Security,
        *,
        trace: Trace,
        event_id: str,
        now: int,
    ) -> Attempt:
        target = parse_url(kept.subscription.url)
        assert not isinstance(target, WebhookUrlInvalid), "it was checked before it was kept"
        message = probe(
            event_id=event_id,
            subscription_id=kept.subscription.subscription_id,
            tenant_id=kept.subscription.tenant_id,
            trace_id=trace.trace_id,
            request_id=caller.request_id,
            at=now,
        )
        body = msgspec.json.encode(message)
        headers = headers_of(
            event_id=event_id,
            kind=TEST_TYPE,
            body=body,
            secret=secrets.signing_secret,
            trace=trace,
            span_id=os.urandom(SPAN_BYTES).hex(),
            agent=AGENT,
            request_id=caller.request_id,
            own=secrets.headers,
        )
        return await self._sender.send(target, headers, body, security=security)
