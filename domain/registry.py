"""Provider accounts, pools and offers: what they are, and what the registry allows to be done with them.

Whether grants stand in the way of deleting an account or withdrawing an offer (R51, R52, D29) is decided where the
reservations are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from domain.authority import Permission, Principal
from domain.identity import grammar
from domain.outcomes import AccessDenied, Conflict, InvalidInput, NotFound, Refusal
from domain.shapes import Shape

EVERYBODY: Final = "*"
"""In an offer's place of a tenant: the pool is offered to all, those of later included. No tenant id can be this."""

PROVIDER: Final = grammar(r"[A-Za-z0-9._:-]{1,64}", "1 to 64 letters, digits and signs of . : _ -")
"""What grants and usage are tagged with, such as gcp."""
KIND: Final = grammar(r"[a-z0-9_-]{1,32}", "1 to 32 lower-case letters, digits and signs of _ -")
"""How an account is scanned, such as file, push, gce. Which kinds there are is the providers' to say."""

SETTINGS_BYTES_MAX: Final = 65_536
"""Settings of one account as JSON: they are read whole at each scan."""

_NUL: Final = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
"""The NUL character in JSON text, which PostgreSQL's jsonb does not take; a backslash before it would make it text."""

NO_ACCOUNT: Final = NotFound(field="accountId", message="no such provider account")
NO_POOL: Final = NotFound(field="poolId", message="no such pool")
NO_OFFER: Final = NotFound(field="tenantId", message="the pool is not offered to this tenant")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderAccount:
    """An account at a provider, owned by the root tenant. The last three say how its latest scan went."""

    account_id: str
    tenant_id: str
    name: str
    provider: str
    kind: str
    settings: Mapping[str, Any] = field(repr=False)
    created_at: int
    deleted_at: int | None = None
    scanned_at: int | None = None
    scan_complete: bool | None = None
    scan_problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    pool_id: str
    name: str
    created_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOffer:
    """Grants on the pool's reservations may be made to the tenant, or to all: `EVERYBODY`."""

    pool_id: str
    tenant_id: str
    created_at: int


def check_settings(value: Any, field: str) -> dict[str, Any]:
    """A JSON object that the database can hold; None is an empty one. What is in it is the provider's to check.

    Raises `Shape`.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise Shape(InvalidInput(field=field, reason="wrong-type", message=f"{field} must be an object"))
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError):
        size = 0
    if size == 0 or _NUL.search(text):
        message = f"{field} must be plain JSON without broken text or NUL characters"
        raise Shape(InvalidInput(field=field, reason="malformed", message=message))
    if size > SETTINGS_BYTES_MAX:
        message = f"{field} may have at most {SETTINGS_BYTES_MAX} bytes"
        raise Shape(InvalidInput(field=field, reason="out-of-range", message=message))
    return dict(value)


def refuse_new_pool(taken_by: Pool | None) -> Refusal | None:
    if taken_by is not None:
        return Conflict(reason="pool-exists", message="the pool id is taken")
    return None


def refuse_pool_reader(principal: Principal) -> AccessDenied | None:
    """Pools are for whoever may read grants, and for root's members that manage them."""
    if principal.is_root and principal.may(Permission.PROVIDERS_MANAGE):
        return None
    return principal.refuse(Permission.QUOTAS_READ, tenant_id=principal.tenant_id)
