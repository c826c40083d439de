"""Reading webhooks and what became of their deliveries."""

from __future__ import annotations

from typing import Annotated, Final

import strawberry

from domain.webhooks import refusals
from domain.webhooks.deliveries import DeliveryStatus
from domain.webhooks.queries import WebhookQuery as WebhookChoice
from domain.webhooks.subscriptions import Status
from schema.budget.answers import listed, read
from schema.context import operation
from schema.inputs import ALL, ID, own_tenant
from schema.paging import AFTER, FIRST, Connection, take
from schema.webhooks.things import Webhook, WebhookDelivery, deliveries_of

OF_TYPE: Final = strawberry.argument(description="Only those that name this event type.")
SEARCH: Final = strawberry.argument(description="Part of an id or a URL, in any case.")


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
        return await deliveries_of(webhook_id, status=status, first=first, after=after)
