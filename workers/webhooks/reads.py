"""Reads of webhooks and of their deliveries; for operators, figures over all of them."""

from __future__ import annotations

from typing import Any, Final

from domain.budget.queries import LIMIT_DEFAULT
from domain.identity import WEBHOOK_ID
from domain.outcomes import AccessDenied, Refusal
from domain.shapes import Shape, check_text
from domain.webhooks.deliveries import Delivery
from domain.webhooks.queries import DeliveryQuery, WebhookQuery
from domain.webhooks.refusals import NO_WEBHOOK
from domain.webhooks.subscriptions import Subscription
from storage.database import AnyConnection
from storage.webhooks.deliveries import DELIVERIES, page_deliveries
from storage.webhooks.figures import WebhookFigures, read_figures
from storage.webhooks.subscriptions import WEBHOOKS, page_subscriptions, read_subscription
from workers.budget.listing import Listing, ListingReads, listing
from workers.budget.rights import refuse, scope_filter_of
from workers.request import Caller
from workers.webhooks import rights

ALL: Final = None
"""In place of an owner: everybody's."""


class WebhookReads(ListingReads):
    """One object a node."""

    async def webhook(self, caller: Caller, *, webhook_id: Any) -> Subscription | Refusal:
        """Refuses in this order: ACCESS_DENIED, INVALID_INPUT, NOT_FOUND (another tenant's too)."""
        async with self._asker.database.acquire() as connection:
            return await self._find(connection, caller, webhook_id)

    async def webhooks(
        self,
        caller: Caller,
        *,
        query: WebhookQuery,
        tenant_id: str | None,
        limit: int = LIMIT_DEFAULT,
        cursor: str | None = None,
    ) -> Listing[Subscription] | Refusal:
        """Of one owner, or for operators of everybody (None). Refuses in this order: ACCESS_DENIED, INVALID_INPUT."""
        found = self._begin(
            caller,
            rights.READ,
            name="webhooks",
            tenant=tenant_id,
            query=query,
            limit=limit,
            cursor=cursor,
            columns=WEBHOOKS.columns,
        )
        if isinstance(found, Refusal):
            return found
        mark, after = found
        confined_to = () if tenant_id is None else scope_filter_of(caller, tenant_id)
        async with self._snapshot() as (connection, _):
            page = await page_subscriptions(
                connection, query, tenant_id=tenant_id, scope_filter=confined_to, after=after, limit=limit
            )
        return listing(page, mark, lambda subscription: subscription)

    async def deliveries(
        self,
        caller: Caller,
        *,
        webhook_id: Any,
        query: DeliveryQuery,
        limit: int = LIMIT_DEFAULT,
        cursor: str | None = None,
    ) -> Listing[Delivery] | Refusal:
        """Of one subscription, newest first. Refuses in this order: ACCESS_DENIED, INVALID_INPUT, NOT_FOUND."""
        async with self._snapshot() as (connection, _):
            subscription = await self._find(connection, caller, webhook_id)
            if isinstance(subscription, Refusal):
                return subscription
            found = self._begin(
                caller,
                rights.READ,
                name=f"deliveries of {webhook_id}",
                tenant=subscription.tenant_id,
                query=query,
                limit=limit,
                cursor=cursor,
                columns=DELIVERIES.columns,
            )
            if isinstance(found, Refusal):
                return found
            mark, after = found
            page = await page_deliveries(connection, subscription.subscription_id, query, after=after, limit=limit)
        return listing(page, mark, lambda delivery: delivery)

    async def figures(self, caller: Caller) -> WebhookFigures | AccessDenied:
        """Root: how many there are, and which fail most. Refuses ACCESS_DENIED."""
        if denied := refuse(caller, rights.LOOK, caller.principal.tenant_id, as_admin=True):
            return denied
        async with self._snapshot() as (connection, _):
            return await read_figures(connection)

    async def _find(self, connection: AnyConnection, caller: Caller, webhook_id: Any) -> Subscription | Refusal:
        if denied := rights.refuse_at_all(caller, rights.READ):
            return denied
        try:
            wanted = check_text(webhook_id, "webhook_id", WEBHOOK_ID)
        except Shape as shape:
            return shape.refusal
        kept = await read_subscription(connection, wanted)
        subscription = None if kept is None else kept.subscription
        refusal = rights.refuse_one(caller, rights.READ, subscription)
        if refusal is not None or subscription is None:
            return refusal or NO_WEBHOOK
        return subscription
