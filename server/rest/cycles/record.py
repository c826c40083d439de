"""Failures of the governing plane on their way into the audit log (11.7): what this wire knows of a request."""

from __future__ import annotations

from typing import Final

from server.rest.cycles.exchange import Exchange
from server.rest.cycles.failures import Failure
from workers.budget.audit_log import FailedRequest

RESOURCE_TYPES: Final = {
    "tenants": "tenant",
    "api-keys": "api_key",
    "budgets": "budget",
    "policies": "policy",
    "webhooks": "webhook",
    "config": "config",
}
"""What a path is about, by its segment, in the log's own words."""


async def put_on_record(exchange: Exchange, operation: str, failure: Failure) -> None:
    """Raises nothing."""
    path: str = exchange.scope["path"]
    named = [RESOURCE_TYPES[segment] for segment in path.split("/") if segment in RESOURCE_TYPES]
    await exchange.runtime.audit_log.add_failed(
        FailedRequest(
            operation=operation,
            status=failure.status,
            error_code=failure.error.value,
            message=failure.message,
            caller=exchange.known_caller,
            as_admin=exchange.is_admin,
            request_id=exchange.correlation.request_id,
            trace_id=exchange.correlation.trace_id,
            source_ip=exchange.source_ip,
            user_agent=exchange.headers.get("user-agent"),
            resource_type=named[0] if named else None,
            resource_id=next(iter(exchange.scope["path_params"].values()), None),
            metadata={"method": exchange.scope["method"], "path": path},
        )
    )
