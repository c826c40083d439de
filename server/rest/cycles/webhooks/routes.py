"""The paths about webhooks. What the tenant's plane takes from an operator's key, it does in the tenant's place."""

from __future__ import annotations

from typing import Final

from server.rest.cycles.exchange import Access
from server.rest.cycles.operations import admin_operation
from server.rest.cycles.webhooks import bulk, deliveries, security, subscriptions
from workers.webhooks.rights import LOOK, OPERATE, READ, WRITE

WEBHOOKS: Final = {
    "/v1/webhooks": {
        "POST": admin_operation(
            "createTenantWebhook", subscriptions.create_own, WRITE, access=Access.TENANT, has_body=True
        ),
        "GET": admin_operation("listTenantWebhooks", subscriptions.list_own, READ, access=Access.EITHER),
    },
    "/v1/webhooks/{subscription_id}": {
        "GET": admin_operation("getTenantWebhook", subscriptions.get, READ, access=Access.EITHER),
        "PATCH": admin_operation(
            "updateTenantWebhook", subscriptions.update, WRITE, access=Access.EITHER, has_body=True
        ),
        "DELETE": admin_operation("deleteTenantWebhook", subscriptions.delete, WRITE, access=Access.EITHER),
    },
    "/v1/webhooks/{subscription_id}/test": {
        "POST": admin_operation("testTenantWebhook", deliveries.test, WRITE, access=Access.EITHER)
    },
    "/v1/webhooks/{subscription_id}/deliveries": {
        "GET": admin_operation("listTenantWebhookDeliveries", deliveries.list_, READ, access=Access.EITHER)
    },
    "/v1/admin/webhooks": {
        "POST": admin_operation("createWebhookSubscription", subscriptions.create_any, OPERATE, has_body=True),
        "GET": admin_operation("listWebhookSubscriptions", subscriptions.list_all, LOOK),
    },
    "/v1/admin/webhooks/bulk-action": {"POST": admin_operation("bulkActionWebhooks", bulk.act, OPERATE, has_body=True)},
    "/v1/admin/webhooks/{subscription_id}": {
        "GET": admin_operation("getWebhookSubscription", subscriptions.get, LOOK),
        "PATCH": admin_operation("updateWebhookSubscription", subscriptions.update, OPERATE, has_body=True),
        "DELETE": admin_operation("deleteWebhookSubscription", subscriptions.delete, OPERATE),
    },
    "/v1/admin/webhooks/{subscription_id}/test": {
        "POST": admin_operation("testWebhookSubscription", deliveries.test, OPERATE)
    },
    "/v1/admin/webhooks/{subscription_id}/deliveries": {
        "GET": admin_operation("listWebhookDeliveries", deliveries.list_, LOOK)
    },
    "/v1/admin/webhooks/{subscription_id}/replay": {
        "POST": admin_operation("replayEvents", deliveries.replay, OPERATE, has_body=True)
    },
    "/v1/admin/config/webhook-security": {
        "GET": admin_operation("getWebhookSecurityConfig", security.get, LOOK),
        "PUT": admin_operation("updateWebhookSecurityConfig", security.put, OPERATE, has_body=True),
    },
}
"""Path to method to operation."""
