"""Lists of API keys (11.2): an operator's, of one tenant or of all.

The registry pages through one tenant's keys, newest first. The other orders and filters of this wire are applied here,
to all keys in question: there are few of them.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import AsyncIterator
from enum import Enum
from typing import Any, Final

from domain.outcomes import Accepted, InvalidInput, NotFound, Refusal
from domain.shapes import Shape
from domain.tenancy import ApiKey
from server.rest.cycles.admin.keys import ACTIVE, EXPIRED, REVOKED, show_key, status_of
from server.rest.cycles.admin.reading import list_of, search_of
from server.rest.cycles.answers import Document
from server.rest.cycles.exchange import Answer, Exchange, RefusedError, Reply

KEYS_MAX: Final = 1_000
"""Keys that one list looks through. Where there are more, the client has to name a tenant."""
_LARGEST: Final = 2**63


class Status(Enum):
    ACTIVE = ACTIVE
    REVOKED = REVOKED
    EXPIRED = EXPIRED


class Order(Enum):
    KEY_ID = "key_id"
    NAME = "name"
    TENANT_ID = "tenant_id"
    STATUS = "status"
    CREATED_AT = "created_at"
    EXPIRES_AT = "expires_at"


async def list_(exchange: Exchange) -> Answer:
    query = exchange.query()
    tenant_id, now = query.text("tenant_id"), exchange.runtime.clock.local_ms()
    status, search = query.choice("status", Status), (search_of(query) or "").lower()
    order, descending = query.choice("sort_by", Order, folds=True) or Order.CREATED_AT, query.is_descending()
    paging = list_of(query)
    keys = [
        key
        async for key in _all_keys(exchange, tenant_id)
        if (status is None or status_of(key, now=now) == status.value)
        and (search in key.key_id.lower() or search in key.name.lower())
    ]
    keys.sort(key=lambda key: key.key_id)  # equals stay in this order, whichever way the list goes
    keys.sort(key=lambda key: _place(key, order, now), reverse=descending)
    bound = _digest([tenant_id, status and status.value, search, order.value, descending])
    start = _start(keys, paging["cursor"], bound)
    rows, rest = keys[start : start + paging["limit"]], keys[start + paging["limit"] :]
    shown: Document = {"keys": [show_key(key, now=now) for key in rows], "has_more": bool(rest)}
    if rest:
        shown["next_cursor"] = _cursor(bound, rows[-1].key_id)
    return Reply(shown, owner=tenant_id)


async def _all_keys(exchange: Exchange, tenant_id: str | None) -> AsyncIterator[ApiKey]:
    """Of one tenant, or of all. Raises `Shape` when they are too many for one list."""
    count = 0
    for owner in [tenant_id] if tenant_id is not None else await _tenants(exchange):
        after = None
        while True:
            outcome = await exchange.runtime.keys.page_api_keys(
                exchange.caller, tenant_id=owner, first=KEYS_MAX, after=after, include_revoked=True
            )
            if isinstance(outcome, NotFound):
                break
            for key in _of(outcome).items:
                count += 1
                if count > KEYS_MAX:
                    raise _too_many()
                yield key
            if not _of(outcome).has_more:
                break
            after = _of(outcome).positions[-1]


async def _tenants(exchange: Exchange) -> list[str]:
    outcome = await exchange.runtime.tenancy.page_tenants(exchange.caller, first=KEYS_MAX, include_deleted=True)
    page = _of(outcome)
    if page.has_more:
        raise _too_many()
    return [tenant.tenant_id for tenant in page.items]


def _of(outcome: Any) -> Any:
    if isinstance(outcome, Accepted):
        return outcome.answer
    assert isinstance(outcome, Refusal), "reads are not remembered"
    raise RefusedError(outcome)


def _place(key: ApiKey, order: Order, now: int) -> Any:
    if order is Order.STATUS:
        return status_of(key, now=now)
    value = getattr(key, order.value)
    return _LARGEST if value is None else value


# -- cursors: the key after which to go on, bound to the list that it was given for ------------------------------------


def _digest(bound: list[Any]) -> str:
    return hashlib.sha256(json.dumps(bound).encode()).hexdigest()[:16]


def _cursor(bound: str, key_id: str) -> str:
    return base64.urlsafe_b64encode(f"{bound}/{key_id}".encode()).decode().rstrip("=")


def _start(keys: list[ApiKey], cursor: str | None, bound: str) -> int:
    """Where the page begins. Raises `Shape` for a cursor of another list."""
    if cursor is None:
        return 0
    for number, key in enumerate(keys):
        if _cursor(bound, key.key_id) == cursor:
            return number + 1
    raise Shape(InvalidInput(field="cursor", reason="bad-cursor", message="cursor is not one of this list"))


def _too_many() -> Shape:
    message = f"there are more than {KEYS_MAX} keys: name a tenant_id"
    return Shape(InvalidInput(field="tenant_id", reason="too-many", message=message))
