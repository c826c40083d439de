"""What failed, on record: requests of the governing plane that were refused or went wrong (section 11.7).

What was done is written together with the change; this is what comes after an answer is known, and never stands in its way.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from domain.budget.events import AuditEntry
from domain.budget.values import ActorType, Origin
from domain.terms import MINUTE_MS
from storage.budget.audit_log import flush_entry
from storage.database import Database, read_clock
from workers import measures
from workers.clock import Clock
from workers.ids import IdSource
from workers.request import Caller

log = logging.getLogger("earmark.audit")

ADMIN_TENANT: Final = "__admin__"
UNKNOWN_TENANT: Final = "__unauth__"
"""Whose requests are in the log under no tenant: operators', and those of whoever had no valid key. No tenant is called so."""
UNKNOWN_A_MINUTE: Final = 60
"""Requests without a valid key that one node records in a minute: enough to see an attack, too little to be one."""
TEXT_MAX: Final = 1_024
"""Characters of anything in an entry that a client may have written."""


_WORDS: Final[Mapping[str, tuple[int, str]]] = {
    "INVALID_INPUT": (400, "INVALID_REQUEST"),
    "UNIT_MISMATCH": (400, "UNIT_MISMATCH"),
    "WEBHOOK_URL_INVALID": (400, "WEBHOOK_URL_INVALID"),
    "ACCESS_DENIED": (403, "FORBIDDEN"),
    "TENANT_SUSPENDED": (403, "TENANT_SUSPENDED"),
    "NOT_FOUND": (404, "NOT_FOUND"),
    "BUDGET_NOT_FOUND": (404, "BUDGET_NOT_FOUND"),
    "INVALID_STATE": (409, "INVALID_REQUEST"),
    "CONFLICT": (409, "IDEMPOTENCY_MISMATCH"),
}
"""What the log has for a refusal that did not come over the wire: its status there and its word, so that one filter finds
both. What is not here is a conflict by its own name."""


def words_of(code: str) -> tuple[int, str]:
    return _WORDS.get(code, (409, code))


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRequest:
    """A request and what it was answered. `caller` None: it had no valid key. `as_admin`: with the operator's key."""

    operation: str
    status: int
    error_code: str
    message: str
    caller: Caller | None
    as_admin: bool
    request_id: str | None
    trace_id: str | None
    source_ip: str | None
    user_agent: str | None
    resource_type: str | None = None
    resource_id: str | None = None
    metadata: Mapping[str, str]


class AuditLog:
    """One object a node."""

    def __init__(self, database: Database, ids: IdSource, clock: Clock) -> None:
        self._database = database
        self._ids = ids
        self._clock = clock
        self._minute = -1
        self._unknown = 0

    async def add_failed(self, failed: FailedRequest) -> None:
        """Write it down, unless too many strangers knock. Raises nothing: the answer goes out whatever comes of this."""
        if failed.caller is None and not self._is_welcome():
            measures.AUDIT_DROPPED.labels(reason="unauthenticated").inc()
            return
        try:
            async with self._database.acquire() as connection:
                now = self._clock.instant(await read_clock(connection))
                await flush_entry(connection, _tenant_of(failed), self._ids.new("aud"), _entry(failed, now))
        except Exception:  # the log must not decide about the answer
            log.exception("a failed request could not be put on record", extra={"operation": failed.operation})
            measures.AUDIT_DROPPED.labels(reason="failed").inc()

    def _is_welcome(self) -> bool:
        minute = self._clock.local_ms() // MINUTE_MS
        if minute != self._minute:
            self._minute, self._unknown = minute, 0
        self._unknown += 1
        return self._unknown <= UNKNOWN_A_MINUTE


def _tenant_of(failed: FailedRequest) -> str:
    if failed.caller is None:
        return UNKNOWN_TENANT
    return ADMIN_TENANT if failed.as_admin else failed.caller.principal.tenant_id


def _entry(failed: FailedRequest, now: int) -> AuditEntry:
    return AuditEntry(
        operation=failed.operation,
        recorded_at=now,
        resource_type=failed.resource_type,
        resource_id=_line(failed.resource_id),
        origin=_origin(failed),
        status=failed.status,
        error_code=failed.error_code,
        reason=_line(failed.message),
        metadata={name: _line(text) for name, text in failed.metadata.items()},
    )


def _origin(failed: FailedRequest) -> Origin:
    known = ActorType.ADMIN if failed.as_admin else ActorType.API_KEY
    return Origin(
        actor_type=ActorType.NOBODY if failed.caller is None else known,
        key_id=None if failed.caller is None else failed.caller.principal.key_id,
        source_ip=failed.source_ip,
        request_id=failed.request_id,
        trace_id=failed.trace_id,
        user_agent=_line(failed.user_agent),
    )


def _line(text: str | None) -> str | None:
    """One line that can be kept, whatever was sent."""
    if text is None:
        return None
    return " ".join(text.replace("\0", "?").split())[:TEXT_MAX].encode(errors="replace").decode()
