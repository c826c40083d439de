"""What a secret is worth, said to an operator (`POST /v1/auth/validate`) (11.2)."""

from __future__ import annotations

from domain.budget.records import TenantStatus
from domain.credentials import Credential, present
from domain.instants import show_instant
from domain.outcomes import Refusal
from server.rest.cycles.admin.introspection import known_words
from server.rest.cycles.admin.keys import NEVER
from server.rest.cycles.answers import Document
from server.rest.cycles.exchange import Answer, Exchange, Reply
from server.rest.cycles.requests import Closed
from storage.identity import get_credential


class ValidateBody(Closed, frozen=True):
    key_secret: str


async def validate(exchange: Exchange) -> Answer:
    """Always a 200: that a secret is worth nothing is an answer."""
    body = await exchange.body(ValidateBody)
    presented = present(body.key_secret)
    if presented is None:
        return _worthless("INVALID_KEY")
    async with exchange.runtime.database.acquire() as connection:
        kept = await get_credential(connection, presented.prefix)
    if kept is None or not kept[0].matches(presented):
        return _worthless("KEY_NOT_FOUND")
    credential, now = kept[0], exchange.runtime.clock.instant(kept[1])
    reason = _reason(credential, now) or await _reason_of_tenant(exchange, credential.tenant_id)
    if reason is not None:
        return _worthless(reason, tenant_id=credential.tenant_id, key_id=credential.key_id)
    shown: Document = {
        "valid": True,
        "tenant_id": credential.tenant_id,
        "key_id": credential.key_id,
        "permissions": known_words(credential.permissions),
        "expires_at": NEVER if credential.expires_at is None else show_instant(credential.expires_at),
    }
    if credential.scope_filter:
        shown["scope_filter"] = list(credential.scope_filter)
    return Reply(shown, owner=credential.tenant_id)


def _reason(credential: Credential, now: int) -> str | None:
    if credential.revoked_at is not None:
        return "KEY_REVOKED"
    if credential.tenant_deleted_at is not None:
        return "TENANT_CLOSED"
    return None if credential.is_valid_at(now) else "KEY_EXPIRED"


async def _reason_of_tenant(exchange: Exchange, tenant_id: str) -> str | None:
    """A tenant that budgets do not know yet stops nobody."""
    found = await exchange.runtime.budget_reads.tenant(exchange.caller, tenant_id=tenant_id)
    if isinstance(found, Refusal) or found.tenant.status is TenantStatus.ACTIVE:
        return None
    return "TENANT_SUSPENDED" if found.tenant.status is TenantStatus.SUSPENDED else "TENANT_CLOSED"


def _worthless(reason: str, *, tenant_id: str = "", key_id: str | None = None) -> Reply:
    """The document wants a tenant even where there is none to name."""
    shown: Document = {"valid": False, "tenant_id": tenant_id, "reason": reason}
    if key_id is not None:
        shown["key_id"] = key_id
    return Reply(shown)
