"""Webhooks as they are shown: who is told of events by HTTP, and what became of it."""

from __future__ import annotations

from typing import Annotated

import strawberry

from domain.webhooks import deliveries, refusals, subscriptions
from domain.webhooks.deliveries import DeliveryStatus
from domain.webhooks.queries import DeliveryQuery
from domain.webhooks.subscriptions import Status
from schema.budget.answers import listed
from schema.context import operation
from schema.paging import AFTER, FIRST, Connection, take
from schema.scalars import Int64, JSONObject, Millis, int64, json_object, millis, optional_id
from workers.webhooks.desk import CreatedWebhook as Created
from workers.webhooks.probing import WebhookTest as Tested
from workers.webhooks.replaying import Replay

strawberry.enum(
    Status,
    name="WebhookStatus",
    description="PAUSED and DISABLED: nothing is delivered, and what happens meanwhile is not queued. DISABLED comes by "
    "itself, after too many failures or with the closing of the tenant.",
)
strawberry.enum(
    DeliveryStatus,
    name="WebhookDeliveryStatus",
    description="PENDING: not attempted yet. RETRYING: attempted in vain, to be tried again. FAILED: given up.",
)


@strawberry.type
class WebhookRetryPolicy:
    """The pause before retry n is initialDelayMs * multiplier^(n-1), at most maxDelayMs."""

    max_retries: int
    initial_delay_ms: Int64
    backoff_millionths: int = strawberry.field(description="The multiplier, in millionths: 2000000 doubles each pause.")
    max_delay_ms: Int64


@strawberry.type
class WebhookDelivery:
    """One event on its way to one receiver, with all its attempts."""

    id: strawberry.ID
    webhook_id: strawberry.ID
    event_id: strawberry.ID
    event_type: str
    status: DeliveryStatus
    attempts: int
    queued_at: Millis
    attempted_at: Millis | None = strawberry.field(description="The last attempt.")
    completed_at: Millis | None
    next_attempt_at: Millis | None
    response_status: int | None = strawberry.field(description="The HTTP status of the last attempt, if there was one.")
    response_time_ms: Int64 | None
    error: str | None = strawberry.field(description="Why the last attempt was no success. For people.")
    replay_id: strawberry.ID | None
    trace_id: str

    @classmethod
    def of(cls, delivery: deliveries.Delivery) -> WebhookDelivery:
        return cls(
            id=strawberry.ID(delivery.delivery_id),
            webhook_id=strawberry.ID(delivery.subscription_id),
            event_id=strawberry.ID(delivery.event_id),
            event_type=delivery.event_type,
            status=delivery.status,
            attempts=delivery.attempts,
            queued_at=Millis(delivery.created_at),
            attempted_at=millis(delivery.attempted_at),
            completed_at=millis(delivery.completed_at),
            next_attempt_at=millis(delivery.next_attempt_at),
            response_status=delivery.response_status,
            response_time_ms=int64(delivery.response_time_ms),
            error=delivery.error,
            replay_id=optional_id(delivery.replay_id),
            trace_id=delivery.trace.trace_id,
        )


async def deliveries_of(
    webhook_id: str, *, status: DeliveryStatus | None, first: int | None, after: str | None
) -> Connection[WebhookDelivery] | None:
    """Of one webhook; None where there is none for the caller."""
    current = operation()
    found = await current.runtime.webhook_reads.deliveries(
        current.caller, webhook_id=webhook_id, query=DeliveryQuery(status=status), limit=take(first), cursor=after
    )
    return None if found is refusals.NO_WEBHOOK else listed(found, WebhookDelivery.of, after=after)


@strawberry.type
class Webhook:
    """A URL that gets events, by type and category, narrowed by scope. Its secrets are never shown again."""

    id: strawberry.ID
    tenant_id: strawberry.ID = strawberry.field(description="The owner; __system__ gets the events of every tenant.")
    url: str
    event_types: list[str] = strawberry.field(
        description="Named as under /v1; those about grants begin with custom., such as custom.reservation-grant.ended."
    )
    event_categories: list[str] = strawberry.field(description="All events of these, beside the types.")
    name: str | None
    description: str | None
    scope_filter: str | None = strawberry.field(description="A scope, or the beginning of one with * at its end.")
    header_names: list[str] = strawberry.field(description="Headers that go with every delivery. Values are not shown.")
    thresholds: JSONObject | None
    retry_policy: WebhookRetryPolicy
    disable_after_failures: int
    metadata: JSONObject | None
    status: Status
    consecutive_failures: int = strawberry.field(description="Deliveries in a row that were given up.")
    is_failing: bool = strawberry.field(description="The last attempt failed.")
    last_triggered_at: Millis | None
    last_success_at: Millis | None
    last_failure_at: Millis | None
    created_at: Millis
    updated_at: Millis | None

    @strawberry.field
    async def deliveries(
        self,
        *,
        status: DeliveryStatus | None = None,
        first: Annotated[int | None, FIRST] = None,
        after: Annotated[str | None, AFTER] = None,
    ) -> Connection[WebhookDelivery] | None:
        """What was sent, and is to be, newest first."""
        return await deliveries_of(self.id, status=status, first=first, after=after)

    @classmethod
    def of(cls, webhook: subscriptions.Subscription) -> Webhook:
        policy, health = webhook.retry_policy, webhook.health
        return cls(
            id=strawberry.ID(webhook.subscription_id),
            tenant_id=strawberry.ID(webhook.tenant_id),
            url=webhook.url,
            event_types=list(webhook.event_types),
            event_categories=list(webhook.event_categories),
            name=webhook.name,
            description=webhook.description,
            scope_filter=webhook.scope_filter,
            header_names=list(webhook.header_names),
            thresholds=json_object(webhook.thresholds),
            retry_policy=WebhookRetryPolicy(
                max_retries=policy.max_retries,
                initial_delay_ms=Int64(policy.initial_delay_ms),
                backoff_millionths=policy.backoff_millionths,
                max_delay_ms=Int64(policy.max_delay_ms),
            ),
            disable_after_failures=webhook.disable_after_failures,
            metadata=json_object(webhook.metadata),
            status=webhook.status,
            consecutive_failures=health.consecutive_failures,
            is_failing=health.is_failing,
            last_triggered_at=millis(health.last_triggered_at),
            last_success_at=millis(health.last_success_at),
            last_failure_at=millis(health.last_failure_at),
            created_at=Millis(webhook.created_at),
            updated_at=millis(webhook.updated_at),
        )


@strawberry.type
class CreatedWebhook:
    """A new webhook with the secret that its deliveries are signed with, which is told this once."""

    webhook: Webhook
    signing_secret: str | None = strawberry.field(description="Null when the request is a retry.")

    @classmethod
    def of(cls, created: Created) -> CreatedWebhook:
        return cls(webhook=Webhook.of(created.subscription), signing_secret=created.signing_secret)


@strawberry.type
class WebhookTest:
    """How the receiver took a test."""

    succeeded: bool
    response_status: int | None
    response_time_ms: Int64
    error: str | None
    event_id: strawberry.ID
    delivery_id: strawberry.ID

    @classmethod
    def of(cls, tested: Tested) -> WebhookTest:
        attempt = tested.attempt
        return cls(
            succeeded=attempt.succeeded,
            response_status=attempt.response_status,
            response_time_ms=Int64(attempt.response_time_ms),
            error=attempt.error,
            event_id=strawberry.ID(tested.event_id),
            delivery_id=strawberry.ID(tested.delivery_id),
        )


@strawberry.type
class WebhookReplay:
    """Events of the past that are on their way again, each as a new delivery."""

    id: strawberry.ID
    events_queued: int
    estimated_ms: Int64

    @classmethod
    def of(cls, replay: Replay) -> WebhookReplay:
        return cls(
            id=strawberry.ID(replay.replay_id),
            events_queued=replay.events_queued,
            estimated_ms=Int64(replay.estimated_ms),
        )
