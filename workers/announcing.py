"""Events of what the registry does: who asked is put on them, and they are written in the mutation's own transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from domain.budget.burning import ANOMALY
from domain.budget.rates import EVENT_OF, Metric
from domain.events import TRACE_FLAGS, NewEvent
from domain.tenancy import ApiKey
from storage.database import AnyConnection
from storage.events import append_events
from workers.ids import IdSource
from workers.request import Caller

API_KEY_CREATED: Final = "api_key.created"
API_KEY_REVOKED: Final = "api_key.revoked"
API_KEY_PERMISSIONS_CHANGED: Final = "api_key.permissions_changed"
API_KEY_EXPIRED: Final = "api_key.expired"
TENANT_CREATED: Final = "tenant.created"
TENANT_CLOSED: Final = "tenant.closed"

_SPIKES: Final = (EVENT_OF[Metric.DENIAL_RATE], EVENT_OF[Metric.EXPIRY_RATE])
FOR_TENANTS: Final = frozenset({TENANT_CLOSED, ANOMALY, *_SPIKES})
"""A tenant's own stream begins with what it does itself: nobody could have listened when it was made, and how its keys
come and go is for operators (8.2)."""

ACTIVE, REVOKED, EXPIRED, CLOSED = "ACTIVE", "REVOKED", "EXPIRED", "CLOSED"


@dataclass(frozen=True, slots=True)
class Announcer:
    """One object a node."""

    ids: IdSource

    async def tell(
        self,
        connection: AnyConnection,
        kind: str,
        *,
        tenant_id: str,
        data: Mapping[str, Any],
        now: int,
        caller: Caller | None,
        correlation_id: str | None = None,
        scope: str | None = None,
        level_millionths: int | None = None,
    ) -> None:
        """Append one event, in the envelope of section 8.1. The last thing that a transaction does: the streams stay
        locked until its end. The caller None: a job. `level_millionths`: the threshold that it is about, where the event
        itself does not say it."""
        event = NewEvent(
            event_id=self.ids.new("evt"),
            tenant_id=tenant_id,
            type=kind,
            occurred_at=now,
            payload=payload_of(
                kind,
                data,
                actor={"type": "scheduler"} if caller is None else actor_of(caller, tenant_id),
                trace_flags=None if caller is None else caller.trace_flags,
                correlation_id=correlation_id,
                scope=scope,
                level_millionths=level_millionths,
            ),
            request_id=None if caller is None else caller.request_id,
            trace_id=None if caller is None else caller.trace_id,
            is_for_operators=kind not in FOR_TENANTS,
        )
        await append_events(connection, [event], recorded_at=now)


def payload_of(
    kind: str, data: Mapping[str, Any], *, actor: Mapping[str, Any], trace_flags: str | None = None, **told: Any
) -> dict[str, Any]:
    """What is kept of the envelope of section 8.1 beside the columns of an event; what is None is not in it."""
    held = {"category": kind.partition(".")[0], "source": "request", "data": dict(data), "actor": present(actor)}
    return held | present({TRACE_FLAGS: trace_flags, **told})


def actor_of(caller: Caller, tenant_id: str) -> dict[str, str]:
    """Who it was: a key of the tenant itself, or an operator's."""
    kind = "api_key" if caller.principal.tenant_id == tenant_id else "admin"
    return present({"type": kind, "key_id": caller.principal.key_id, "source_ip": caller.source_ip})


def present(values: Mapping[str, Any]) -> dict[str, Any]:
    """Those that are there."""
    return {name: value for name, value in values.items() if value is not None}


def key_facts(key: ApiKey, *, new_status: str, previous_status: str | None = None) -> dict[str, Any]:
    """What an event about an API key says."""
    facts: dict[str, Any] = {"key_id": key.key_id, "key_name": key.name, "new_status": new_status}
    if previous_status is not None:
        facts["previous_status"] = previous_status
    facts["permissions"] = list(key.permissions)
    return facts
