"""Subscriptions, on both planes: who asks decides whose they are (8.3, 11.9)."""

from __future__ import annotations

from typing import Any, Final

from domain.identity import SYSTEM
from domain.outcomes import Accepted, InvalidInput, Refusal
from domain.webhooks.queries import WebhookQuery, WebhookSort
from domain.webhooks.selectors import KNOWN_TYPES
from domain.webhooks.subscriptions import Status, Subscription
from server.rest.cycles.admin.reading import list_of, search_of
from server.rest.cycles.exchange import Answer, Exchange, Reply
from server.rest.cycles.listings import ADMIN_NEEDS_TENANT, page, refuse_other_tenant
from server.rest.cycles.query import Query
from server.rest.cycles.webhooks.bodies import CreateBody, UpdateBody
from server.rest.cycles.webhooks.telling import in_our_words, show_subscription
from workers.webhooks.desk import CreatedWebhook

NO_CONTENT: Final = 204


async def create_own(exchange: Exchange) -> Answer:
    """For the tenant of the key."""
    body = await exchange.body(CreateBody)
    return _created(await exchange.runtime.webhooks.create(exchange.caller, **body.given()))


async def create_any(exchange: Exchange) -> Answer:
    """For a tenant that the query names, or for the system."""
    tenant_id = exchange.query().text("tenant_id") or SYSTEM
    body = await exchange.body(CreateBody)
    return _created(await exchange.runtime.webhooks.create(exchange.caller, tenant_id=tenant_id, **body.given()))


def _created(outcome: Any) -> Answer:
    """The one answer that ever holds the secret."""
    if not isinstance(outcome, Accepted):
        return in_our_words(outcome)
    made: CreatedWebhook = outcome.answer
    document = {"subscription": show_subscription(made.subscription), "signing_secret": made.signing_secret}
    return Reply(document, 201, owner=made.subscription.tenant_id)


async def list_own(exchange: Exchange) -> Answer:
    """A tenant sees its own; an operator names the tenant whose are wanted."""
    query = exchange.query()
    tenant_id = query.text("tenant")
    if exchange.is_admin and tenant_id is None:
        return InvalidInput(field="tenant", reason="missing", message=ADMIN_NEEDS_TENANT)
    if (refused := refuse_other_tenant(exchange, tenant_id)) is not None:
        return refused
    wanted = WebhookQuery(status=query.choice("status", Status))
    return await _list(exchange, query, wanted, tenant_id=tenant_id or exchange.tenant_id)


async def list_all(exchange: Exchange) -> Answer:
    """Everybody's, or those of the tenant that the query names."""
    query = exchange.query()
    wanted = WebhookQuery(
        status=query.choice("status", Status),
        event_type=query.word("event_type", KNOWN_TYPES),
        search=search_of(query),
        sort_by=query.choice("sort_by", WebhookSort, folds=True) or WebhookSort.CREATED_AT,
        descending=query.is_descending(),
    )
    return await _list(exchange, query, wanted, tenant_id=query.text("tenant_id"))


async def _list(exchange: Exchange, query: Query, wanted: WebhookQuery, *, tenant_id: str | None) -> Answer:
    found = await exchange.runtime.webhook_reads.webhooks(
        exchange.caller, query=wanted, tenant_id=tenant_id, **list_of(query)
    )
    if isinstance(found, Refusal):
        return in_our_words(found)
    return Reply(page("subscriptions", [show_subscription(each) for each in found.items], found), owner=tenant_id)


async def get(exchange: Exchange) -> Answer:
    found = await exchange.runtime.webhook_reads.webhook(exchange.caller, webhook_id=exchange.path("subscription_id"))
    if isinstance(found, Refusal):
        return in_our_words(found)
    return Reply(show_subscription(found), owner=found.tenant_id)


async def update(exchange: Exchange) -> Answer:
    body = await exchange.body(UpdateBody)
    outcome = await exchange.runtime.webhooks.update(
        exchange.caller,
        webhook_id=exchange.path("subscription_id"),
        changes=body.changes(),
        on_behalf=is_on_behalf(exchange),
    )
    if not isinstance(outcome, Accepted):
        return in_our_words(outcome)
    webhook: Subscription = outcome.answer
    return Reply(show_subscription(webhook), owner=webhook.tenant_id)


async def delete(exchange: Exchange) -> Answer:
    outcome = await exchange.runtime.webhooks.delete(
        exchange.caller, webhook_id=exchange.path("subscription_id"), on_behalf=is_on_behalf(exchange)
    )
    if not isinstance(outcome, Accepted):
        return in_our_words(outcome)
    return Reply(None, NO_CONTENT, owner=outcome.answer.tenant_id)


def is_on_behalf(exchange: Exchange) -> bool:
    """Whether an operator acts on the tenant's plane."""
    path: str = exchange.scope["path"]
    return exchange.is_admin and not path.startswith("/v1/admin/")
