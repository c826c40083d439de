"""Making webhooks, changing them, trying them out, and what is refused of it."""

from __future__ import annotations

from typing import Annotated, Any

import strawberry

from domain.outcomes import Outcome, Replayed
from domain.webhooks import refusals, subscriptions
from domain.webhooks.subscriptions import DEFAULT_FAILURES, DEFAULT_RETRIES, Status
from schema.budget.answers import told
from schema.context import operation
from schema.governing import governs
from schema.inputs import INPUT
from schema.refusals import Refusal, RefusalCode, result, shows
from schema.scalars import Int64, JSONObject, Millis
from schema.webhooks.things import CreatedWebhook, Webhook, WebhookReplay, WebhookTest
from workers.webhooks.desk import WebhookChanges
from workers.webhooks.replaying import EVENTS_DEFAULT

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
