"""What was done to the registry, on record: an entry of the audit log in the transaction of the change itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from domain.budget.events import DONE, AuditEntry
from storage.budget.audit_log import flush_entry
from workers.budget.rights import origin_of
from workers.ids import IdSource
from workers.registry import Turn
from workers.request import Caller


async def record(
    turn: Turn,
    ids: IdSource,
    caller: Caller,
    *,
    operation: str,
    tenant_id: str,
    resource: tuple[str, str],
    now: int,
    status: int = DONE,
    reason: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """`tenant_id`: whose it is. `resource`: its type and id."""
    entry = AuditEntry(
        operation=operation,
        recorded_at=now,
        resource_type=resource[0],
        resource_id=resource[1],
        origin=origin_of(caller, tenant_id),
        status=status,
        reason=None if reason is None else " ".join(reason.splitlines()),
        metadata=metadata,
    )
    await flush_entry(turn.connection, tenant_id, ids.new("aud"), entry)
