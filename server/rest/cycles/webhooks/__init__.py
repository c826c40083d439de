"""Webhooks on this wire: the tenant's plane under /v1/webhooks, the operator's under /v1/admin."""
