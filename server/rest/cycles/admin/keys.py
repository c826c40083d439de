"""API keys as an operator manages them (11.2). Their lists are in `key_lists`, what a secret is worth in `validation`."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Final

from domain.authority import BUDGET_DEFAULT
from domain.instants import show_instant
from domain.outcomes import Accepted, InvalidInput, InvalidState, NotFound, Refusal
from domain.shapes import Shape, quoted
from domain.tenancy import ApiKey
from domain.terms import DAY_MS
from server.rest.cycles.admin.introspection import WORDS, known_words
from server.rest.cycles.admin.reading import instant_in_body, unknown_tenant
from server.rest.cycles.answers import Document
from server.rest.cycles.exchange import Answer, Exchange, Reply
from server.rest.cycles.failures import ErrorCode, Failure
from server.rest.cycles.requests import Closed
from workers.budget.reads import KeyStatus
from workers.key_desk import REASON_MAX

EXPIRES_AFTER_MS: Final = 90 * DAY_MS
"""A key that is made without an end gets this one, as in the reference (11.2)."""
NEVER: Final = "9999-12-31T23:59:59.000Z"
"""The wire has no key without an end; those that were made elsewhere may have none."""

_CAPITAL: Final = re.compile("[A-Z]")

STATES: Final = {
    "closed": ErrorCode.TENANT_CLOSED,
    "deleted": ErrorCode.TENANT_CLOSED,
    "revoked": ErrorCode.KEY_REVOKED,
    "expired": ErrorCode.KEY_EXPIRED,
}
"""The state that forbids a change, as the wire calls it."""


class CreateBody(Closed, frozen=True):
    tenant_id: str
    name: str
    description: str | None = None
    permissions: list[str] | None = None
    scope_filter: list[str] | None = None
    expires_at: str | None = None
    metadata: dict[str, Any] | None = None


class UpdateBody(Closed, frozen=True):
    name: str | None = None
    description: str | None = None
    permissions: list[str] | None = None
    scope_filter: list[str] | None = None
    metadata: dict[str, Any] | None = None


async def create(exchange: Exchange) -> Answer:
    """The one answer that ever holds the secret."""
    body = await exchange.body(CreateBody)
    expires_at = instant_in_body(body.expires_at, "expires_at")
    outcome = await exchange.runtime.keys.create_api_key(
        exchange.caller,
        tenant_id=body.tenant_id,
        name=body.name,
        description=body.description,
        permissions=_permissions([*BUDGET_DEFAULT] if body.permissions is None else body.permissions),
        scope_filter=body.scope_filter,
        expires_at=exchange.runtime.clock.local_ms() + EXPIRES_AFTER_MS if expires_at is None else expires_at,
        metadata=body.metadata,
    )
    if not isinstance(outcome, Accepted):
        return unknown_tenant(_named(outcome))
    issued = outcome.answer
    assert issued.secret is not None, "asked for without an idempotency key, it is new"
    shown = show_key(issued.key, KeyStatus.ACTIVE)
    names = ("key_id", "key_prefix", "tenant_id", "permissions", "created_at", "expires_at")
    document = {"key_secret": issued.secret, **{name: shown[name] for name in names}}
    return Reply(document, 201, owner=body.tenant_id)


async def update(exchange: Exchange) -> Answer:
    body = await exchange.body(UpdateBody)
    outcome = await exchange.runtime.keys.update_api_key(
        exchange.caller,
        key_id=exchange.path("key_id"),
        name=body.name,
        description=body.description,
        permissions=_permissions(body.permissions),
        scope_filter=body.scope_filter,
        metadata=body.metadata,
    )
    return _told(exchange, outcome)


async def revoke(exchange: Exchange) -> Answer:
    """A key is revoked once; for whoever asks a second time it is too late to say why."""
    reason = exchange.query().text("reason", most=REASON_MAX)
    outcome = await exchange.runtime.keys.revoke_api_key(
        exchange.caller, key_id=exchange.path("key_id"), reason=reason, once=True
    )
    return _told(exchange, outcome)


def show_key(key: ApiKey, status: KeyStatus) -> Document:
    shown: Document = {
        "key_id": key.key_id,
        "tenant_id": key.tenant_id,
        "key_prefix": key.prefix,
        "name": key.name,
        "permissions": known_words(key.permissions),
        "status": status.value,
        "created_at": show_instant(key.created_at),
        "expires_at": NEVER if key.expires_at is None else show_instant(key.expires_at),
    }
    if key.description is not None:
        shown["description"] = key.description
    if key.scope_filter:
        shown["scope_filter"] = list(key.scope_filter)
    if key.metadata is not None:
        shown["metadata"] = dict(key.metadata)
    for name, at in (("last_used_at", key.last_used_at), ("revoked_at", key.revoked_at)):
        if at is not None:
            shown[name] = show_instant(at)
    if key.revoked_reason is not None:
        shown["revoked_reason"] = key.revoked_reason
    return shown


def status_of(key: ApiKey, *, now: int) -> KeyStatus:
    if key.revoked_at is not None:
        return KeyStatus.REVOKED
    return KeyStatus.EXPIRED if key.expires_at is not None and now >= key.expires_at else KeyStatus.ACTIVE


def _permissions(words: list[str] | None) -> list[str] | None:
    """Only those that this wire has names for. Raises `Shape`."""
    for word in words or ():
        if word not in WORDS:
            message = f"{quoted(word)} is not a permission"
            raise Shape(InvalidInput(field="permissions", reason="unknown-permission", message=message))
    return words


def _told(exchange: Exchange, outcome: Any) -> Answer:
    if isinstance(outcome, Accepted):
        key: ApiKey = outcome.answer
        return Reply(show_key(key, status_of(key, now=exchange.runtime.clock.local_ms())), owner=key.tenant_id)
    return _named(outcome)


def _named(outcome: Any) -> Refusal | Failure:
    """A refusal of the registry in the words of this wire."""
    assert isinstance(outcome, Refusal), "nothing is remembered without an idempotency key"
    if isinstance(outcome, InvalidState) and outcome.state in STATES:
        return Failure(status=409, error=STATES[outcome.state], message=outcome.message)
    if isinstance(outcome, InvalidInput) and outcome.field == "keyId":
        return NotFound(message="no such API key")
    if isinstance(outcome, InvalidInput):
        field = _CAPITAL.sub(lambda letter: f"_{letter[0].lower()}", outcome.field)
        return replace(outcome, field=field, message=outcome.message.replace(outcome.field, field))
    return outcome
