"""Webhooks: who is told of events by HTTP, and what became of it."""

from __future__ import annotations

from typing import Annotated, Any, Final

import strawberry

from domain.outcomes import Outcome, Replayed
from domain.webhooks import deliveries, refusals, subscriptions
from domain.webhooks.deliveries import DeliveryStatus
from domain.webhooks.queries import DeliveryQuery
from domain.webhooks.queries import WebhookQuery as WebhookChoice
from domain.webhooks.subscriptions import DEFAULT_FAILURES, DEFAULT_RETRIES, Status
from schema.budget.answers import listed, read, told
from schema.context import operation
from schema.governing import governs
from schema.inputs import ALL, ID, INPUT, own_tenant
from schema.paging import AFTER, FIRST, Connection, take
from schema.refusals import Refusal, RefusalCode, result, shows
from schema.scalars import Int64, JSONObject, Millis, int64, json_object, millis, optional_id
from workers.webhooks.desk import CreatedWebhook as Created
from workers.webhooks.desk import WebhookChanges
from workers.webhooks.probing import WebhookTest as Tested
from workers.webhooks.replaying import EVENTS_DEFAULT, Replay

OF_TYPE: Final = strawberry.argument(description="Only those that name this event type.")
SEARCH: Final = strawberry.argument(description="Part of an id or a URL, in any case.")

# -- types -------------------------------------------------------------------------------------------------------------

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


async def _deliveries(
    webhook_id: str, *, status: DeliveryStatus | None, first: int | None, after: str | None
) -> Connection[WebhookDelivery] | None:
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
        return await _deliveries(self.id, status=status, first=first, after=after)

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


# -- refusals ----------------------------------------------------------------------------------------------------------


@strawberry.type
class WebhookUrlInvalid(Refusal):
    """Nothing may be delivered to this URL."""

    field: str
    reason: str = strawberry.field(description="A stable word, such as scheme or blocked.")


@strawberry.type
class ReplayInProgress(Refusal):
    """An earlier replay of this webhook has not arrived yet."""

    replay_id: strawberry.ID


@shows(refusals.WebhookUrlInvalid)
def _url_invalid(refusal: refusals.WebhookUrlInvalid) -> Refusal:
    return WebhookUrlInvalid(
        code=RefusalCode.WEBHOOK_URL_INVALID, message=refusal.message, field=refusal.field, reason=refusal.reason
    )


@shows(refusals.ReplayInProgress)
def _replay_in_progress(refusal: refusals.ReplayInProgress) -> Refusal:
    return ReplayInProgress(
        code=RefusalCode.REPLAY_IN_PROGRESS, message=refusal.message, replay_id=strawberry.ID(refusal.replay_id)
    )


# -- inputs ------------------------------------------------------------------------------------------------------------


@strawberry.input
class WebhookHeaderInput:
    """A header that goes with every delivery."""

    name: str
    value: str


@strawberry.input
class WebhookRetryPolicyInput:
    """What is not given is as usual: five retries after 1, 2, 4, 8 and 16 seconds."""

    max_retries: int = DEFAULT_RETRIES.max_retries
    initial_delay_ms: Int64 = Int64(DEFAULT_RETRIES.initial_delay_ms)
    backoff_millionths: int = DEFAULT_RETRIES.backoff_millionths
    max_delay_ms: Int64 = Int64(DEFAULT_RETRIES.max_delay_ms)

    def value(self) -> subscriptions.RetryPolicy:
        return subscriptions.RetryPolicy(
            max_retries=self.max_retries,
            initial_delay_ms=self.initial_delay_ms,
            backoff_millionths=self.backoff_millionths,
            max_delay_ms=self.max_delay_ms,
        )


@strawberry.input
class CreateWebhookInput:
    """Subscribes a URL for a tenant, by default the caller's own. Root names another one, or __system__ for all."""

    tenant_id: strawberry.ID | None = None
    url: str
    event_types: list[str]
    event_categories: list[str] | None = None
    name: str | None = None
    description: str | None = None
    scope_filter: str | None = None
    signing_secret: str | None = strawberry.field(default=None, description="Without one a secret is made.")
    headers: list[WebhookHeaderInput] | None = None
    thresholds: JSONObject | None = None
    retry_policy: WebhookRetryPolicyInput | None = None
    disable_after_failures: int = DEFAULT_FAILURES
    metadata: JSONObject | None = None
    idempotency_key: str | None = None


@strawberry.input
class UpdateWebhookInput:
    """What is not given stays as it is; lists and the retry policy are replaced as a whole. An empty name, description or
    scope filter takes it away."""

    webhook_id: strawberry.ID
    url: str | None = None
    event_types: list[str] | None = None
    event_categories: list[str] | None = None
    name: str | None = None
    description: str | None = None
    scope_filter: str | None = None
    signing_secret: str | None = None
    headers: list[WebhookHeaderInput] | None = None
    thresholds: JSONObject | None = None
    retry_policy: WebhookRetryPolicyInput | None = None
    disable_after_failures: int | None = None
    metadata: JSONObject | None = None
    idempotency_key: str | None = None


@strawberry.input
class PauseWebhookInput:
    """What happens until it is resumed will not be delivered; what waits already, waits."""

    webhook_id: strawberry.ID
    idempotency_key: str | None = None


@strawberry.input
class ResumeWebhookInput:
    """Also for one that was disabled after too many failures: they are forgotten."""

    webhook_id: strawberry.ID
    idempotency_key: str | None = None


@strawberry.input
class DeleteWebhookInput:
    """For good. What waits is not sent any more."""

    webhook_id: strawberry.ID
    idempotency_key: str | None = None


@strawberry.input
class TestWebhookInput:
    """Names the webhook to test, whatever its status."""

    webhook_id: strawberry.ID


@strawberry.input
class ReplayWebhookInput:
    """A window of the past, both ends included, and which of its events."""

    webhook_id: strawberry.ID
    since: Millis | None = strawberry.field(default=None, name="from")
    until: Millis | None = strawberry.field(default=None, name="to")
    event_types: list[str] | None = None
    max_events: int = strawberry.field(
        default=EVENTS_DEFAULT, description="More of them in the window are refused; at most 1000."
    )
    idempotency_key: str | None = None


# -- results -----------------------------------------------------------------------------------------------------------

CreateWebhookResult = result("CreateWebhookResult", CreatedWebhook, WebhookUrlInvalid)
UpdateWebhookResult = result("UpdateWebhookResult", Webhook, WebhookUrlInvalid)
PauseWebhookResult = result("PauseWebhookResult", Webhook)
ResumeWebhookResult = result("ResumeWebhookResult", Webhook)
DeleteWebhookResult = result("DeleteWebhookResult", Webhook)
TestWebhookResult = result("TestWebhookResult", WebhookTest)
ReplayWebhookResult = result("ReplayWebhookResult", WebhookReplay, ReplayInProgress)


def _told(outcome: Outcome[Any], show: Any) -> Any:
    assert not isinstance(outcome, Replayed), "a desk answers with the thing, also when it was asked before"
    return told(outcome, show)


def _words(given: list[str] | None) -> tuple[str, ...] | None:
    return None if given is None else tuple(given)


def _headers(given: list[WebhookHeaderInput] | None) -> dict[str, str] | None:
    return None if given is None else {header.name: header.value for header in given}


# -- query -------------------------------------------------------------------------------------------------------------


@strawberry.type
class WebhookQuery:
    @strawberry.field
    async def webhook(self, webhook_id: Annotated[strawberry.ID, ID]) -> Webhook | None:
        """A webhook of the caller's tenant; for root, any. The key needs webhooks:read."""
        current = operation()
        found = await current.runtime.webhook_reads.webhook(current.caller, webhook_id=webhook_id)
        return None if found is refusals.NO_WEBHOOK else Webhook.of(read(found, webhook_id="id"))

    @strawberry.field
    async def webhooks(
        self,
        *,
        tenant_id: strawberry.ID | None = None,
        all_tenants: Annotated[bool, ALL] = False,
        status: Status | None = None,
        event_type: Annotated[str | None, OF_TYPE] = None,
        search: Annotated[str | None, SEARCH] = None,
        first: Annotated[int | None, FIRST] = None,
        after: Annotated[str | None, AFTER] = None,
    ) -> Connection[Webhook] | None:
        """The tenant's webhooks, newest first. The key needs webhooks:read."""
        current = operation()
        found = await current.runtime.webhook_reads.webhooks(
            current.caller,
            query=WebhookChoice(status=status, event_type=event_type, search=search),
            tenant_id=None if all_tenants else own_tenant(tenant_id),
            limit=take(first),
            cursor=after,
        )
        return listed(found, Webhook.of, after=after)

    @strawberry.field
    async def webhook_deliveries(
        self,
        webhook_id: strawberry.ID,
        *,
        status: DeliveryStatus | None = None,
        first: Annotated[int | None, FIRST] = None,
        after: Annotated[str | None, AFTER] = None,
    ) -> Connection[WebhookDelivery] | None:
        """What one webhook was sent, and is to be, newest first. Null for one that cannot be seen."""
        return await _deliveries(webhook_id, status=status, first=first, after=after)


# -- mutation ----------------------------------------------------------------------------------------------------------


@strawberry.type
class WebhookMutation:
    @governs(CreateWebhookResult, "webhook", name="createWebhookSubscription")
    async def create_webhook(self, wanted: Annotated[CreateWebhookInput, INPUT]) -> Any:
        """The key needs webhooks:write. A tenant's webhook gets that tenant's events only, and none of the operators'."""
        current = operation()
        outcome = await current.runtime.webhooks.create(
            current.caller,
            tenant_id=wanted.tenant_id,
            url=wanted.url,
            event_types=wanted.event_types,
            event_categories=wanted.event_categories or (),
            name=wanted.name,
            description=wanted.description,
            scope_filter=wanted.scope_filter,
            signing_secret=wanted.signing_secret,
            headers=_headers(wanted.headers),
            thresholds=wanted.thresholds,
            retry_policy=DEFAULT_RETRIES if wanted.retry_policy is None else wanted.retry_policy.value(),
            disable_after_failures=wanted.disable_after_failures,
            metadata=wanted.metadata,
            idempotency_key=wanted.idempotency_key,
        )
        return _told(outcome, CreatedWebhook.of)

    @governs(UpdateWebhookResult, "webhook", name="updateWebhookSubscription")
    async def update_webhook(self, wanted: Annotated[UpdateWebhookInput, INPUT]) -> Any:
        """Changes a webhook. A new signing secret takes the place of the old one at once."""
        changes = WebhookChanges(
            url=wanted.url,
            event_types=_words(wanted.event_types),
            event_categories=_words(wanted.event_categories),
            name=wanted.name,
            description=wanted.description,
            scope_filter=wanted.scope_filter,
            signing_secret=wanted.signing_secret,
            headers=_headers(wanted.headers),
            thresholds=wanted.thresholds,
            retry_policy=None if wanted.retry_policy is None else wanted.retry_policy.value(),
            disable_after_failures=wanted.disable_after_failures,
            metadata=wanted.metadata,
        )
        return await _update(wanted.webhook_id, changes, wanted.idempotency_key)

    @governs(PauseWebhookResult, "webhook", name="updateWebhookSubscription")
    async def pause_webhook(self, wanted: Annotated[PauseWebhookInput, INPUT]) -> Any:
        """Stops deliveries. Pausing twice is no error."""
        return await _update(wanted.webhook_id, WebhookChanges(status=Status.PAUSED), wanted.idempotency_key)

    @governs(ResumeWebhookResult, "webhook", name="updateWebhookSubscription")
    async def resume_webhook(self, wanted: Annotated[ResumeWebhookInput, INPUT]) -> Any:
        """Goes on with deliveries. Resuming twice is no error."""
        return await _update(wanted.webhook_id, WebhookChanges(status=Status.ACTIVE), wanted.idempotency_key)

    @governs(DeleteWebhookResult, "webhook", name="deleteWebhookSubscription")
    async def delete_webhook(self, wanted: Annotated[DeleteWebhookInput, INPUT]) -> Any:
        """Answers with the webhook as it was."""
        current = operation()
        outcome = await current.runtime.webhooks.delete(
            current.caller, webhook_id=wanted.webhook_id, idempotency_key=wanted.idempotency_key
        )
        return _told(outcome, Webhook.of)

    @governs(TestWebhookResult, "webhook", name="testWebhookSubscription")
    async def test_webhook(self, wanted: Annotated[TestWebhookInput, INPUT]) -> Any:
        """Sends a signed system.webhook_test and waits for the answer. It counts for nothing."""
        current = operation()
        outcome = await current.runtime.webhook_probes.test(current.caller, webhook_id=wanted.webhook_id)
        return _told(outcome, WebhookTest.of)

    @governs(ReplayWebhookResult, "webhook", name="replayEvents")
    async def replay_webhook(self, wanted: Annotated[ReplayWebhookInput, INPUT]) -> Any:
        """Root only. Delivers all events of a window again, or refuses: never a part of them."""
        current = operation()
        outcome = await current.runtime.webhook_replays.replay(
            current.caller,
            webhook_id=wanted.webhook_id,
            since=wanted.since,
            until=wanted.until,
            event_types=wanted.event_types,
            max_events=wanted.max_events,
            idempotency_key=wanted.idempotency_key,
        )
        return _told(outcome, WebhookReplay.of)


async def _update(webhook_id: str, changes: WebhookChanges, idempotency_key: str | None) -> Any:
    current = operation()
    outcome = await current.runtime.webhooks.update(
        current.caller, webhook_id=webhook_id, changes=changes, idempotency_key=idempotency_key
    )
    return _told(outcome, Webhook.of)
