"""Tenants, their projects and API keys: what they are, and what the registry allows to be done with them.

Decisions take the thing as it stands under its lock (None: there is none) and the instant. What a key's secret looks
like is `domain.credentials`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from domain.authority import EVERYTHING, TENANT_DEFAULT, Permission, Principal
from domain.identity import RESERVED_TENANT_IDS, TENANT_ID
from domain.outcomes import Accepted, AccessDenied, Conflict, InvalidInput, InvalidState, NotFound, Outcome, Refusal
from domain.shapes import Shape, check_text, quoted

PERMISSIONS_MAX: Final = 64
"""Permissions of one key: far above the number there are, so that a list is always a short row."""

SCOPE_FILTER_MAX: Final = 64
"""Entries of one key's scope filter: every request of the key is held against all of them."""

_SCOPE_ENTRY: Final = re.compile(
    r"(tenant|workspace|app|workflow|agent|toolset):(\*|[A-Za-z0-9_.-]{1,128})|tenant:[A-Za-z0-9_.:-]{1,128}",
    re.IGNORECASE,
)

ENVIRONMENT_KEY_NAME: Final = "EARMARK_ROOT_KEY"
"""The name of the root key whose secret comes from that environment variable. No other key may be called so."""

FIRST_KEY_NAME: Final = "first root key"
"""The name of the key that the first start makes when the environment names none."""

NO_TENANT: Final = NotFound(field="tenantId", message="no such tenant")
NO_PROJECT: Final = NotFound(field="projectId", message="no such project")
NO_KEY: Final = NotFound(field="keyId", message="no such API key")
KEY_REVOKED: Final = InvalidState(state="revoked", message="the key has been revoked")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """`deleted_at`: it may do nothing from then on. `closed_at`: every capacity reservation has let go of it (R53)."""

    tenant_id: str
    name: str
    is_root: bool
    created_at: int
    deleted_at: int | None = None
    closed_at: int | None = None

    @property
    def is_closing(self) -> bool:
        """Marked deleted, and not yet let go of everywhere."""
        return self.deleted_at is not None and self.closed_at is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    project_id: str
    tenant_id: str
    name: str
    created_at: int
    deleted_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """What may be shown of a key: `prefix` is the public part of its secret. Valid until it expires or is revoked."""

    key_id: str
    tenant_id: str
    name: str
    prefix: str
    permissions: tuple[str, ...]
    created_at: int
    expires_at: int | None = None
    revoked_at: int | None = None
    revoked_reason: str | None = None
    last_used_at: int | None = None
    scope_filter: tuple[str, ...] = ()
    """The budgets that it is confined to; empty is all of its tenant's."""
    description: str | None = None
    metadata: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedKey:
    """A new key. `secret` is told this once and kept nowhere; None when the request is a retry (R5)."""

    key: ApiKey
    secret: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewer:
    """Who the caller is."""

    tenant: Tenant
    key: ApiKey


# -- tenants -----------------------------------------------------------------------------------------------------------


def check_new_tenant_id(value: Any, field: str) -> str:
    """Raises `Shape`, also for the words that stand for no tenant (`RESERVED_TENANT_IDS`)."""
    tenant_id = check_text(value, field, TENANT_ID)
    if tenant_id in RESERVED_TENANT_IDS:
        raise Shape(InvalidInput(field=field, reason="reserved", message=f"{field} is a reserved word"))
    return tenant_id


def refuse_new_tenant(taken_by: Tenant | None) -> Refusal | None:
    """An id is used once and for all, by deleted tenants too: their usage and events go on bearing it (R46)."""
    if taken_by is not None:
        return Conflict(reason="tenant-exists", message="the tenant id is taken")
    return None


def decide_delete_tenant(tenant: Tenant | None, *, now: int) -> Outcome[Tenant]:
    """The tenant, marked; one that is marked already stays as it is. Refuses NOT_FOUND, INVALID_STATE (root)."""
    if tenant is None:
        return NO_TENANT
    if tenant.is_root:
        return InvalidState(state="root", message="the root tenant cannot be deleted")
    return Accepted(tenant if tenant.deleted_at is not None else replace(tenant, deleted_at=now))


def refuse_tenant(tenant: Tenant | None) -> Refusal | None:
    """None if something new may be made for the tenant. Refuses NOT_FOUND, INVALID_STATE (deleted)."""
    if tenant is None:
        return NO_TENANT
    if tenant.deleted_at is not None:
        return InvalidState(state="deleted", message="the tenant has been deleted")
    return None


def is_visible(principal: Principal, tenant_id: str) -> bool:
    """Root sees every tenant and what is theirs, a tenant itself. What is not visible does not exist (R60)."""
    return principal.is_root or principal.tenant_id == tenant_id


# -- projects ----------------------------------------------------------------------------------------------------------


def decide_delete_project(project: Project | None, *, now: int) -> Outcome[Project]:
    """The project, marked; one that is marked already stays as it is. Its grants stay and bill (D30)."""
    if project is None:
        return NO_PROJECT
    return Accepted(project if project.deleted_at is not None else replace(project, deleted_at=now))


# -- keys --------------------------------------------------------------------------------------------------------------


def check_permissions(value: Any, field: str) -> tuple[str, ...]:
    """What a new key shall be allowed: known words, each once, in the order given; None stands for the default.

    An empty list is a key that may only ask who it is. Raises `Shape`.
    """
    if value is None:
        return tuple(permission.value for permission in TENANT_DEFAULT)
    if not isinstance(value, list | tuple) or not all(isinstance(word, str) for word in value):
        raise Shape(InvalidInput(field=field, reason="wrong-type", message=f"{field} must be a list of strings"))
    if len(value) > PERMISSIONS_MAX:
        message = f"{field} may have at most {PERMISSIONS_MAX} entries"
        raise Shape(InvalidInput(field=field, reason="out-of-range", message=message))
    known = {EVERYTHING, *Permission}
    if unknown := [word for word in value if word not in known]:
        message = f"{field}: {quoted(unknown[0])} is not a permission"
        raise Shape(InvalidInput(field=field, reason="unknown-permission", message=message))
    return tuple(dict.fromkeys(value))


def check_scope_filter(value: Any, field: str) -> tuple[str, ...]:
    """`level:id` or `level:*` entries in lower case, each once; None stands for no filter. Raises `Shape`."""
    if value is None:
        return ()
    if not isinstance(value, list | tuple) or not all(isinstance(entry, str) for entry in value):
        raise Shape(InvalidInput(field=field, reason="wrong-type", message=f"{field} must be a list of strings"))
    if len(value) > SCOPE_FILTER_MAX or not all(_SCOPE_ENTRY.fullmatch(entry) for entry in value):
        message = f"{field} may have at most {SCOPE_FILTER_MAX} entries of the form level:id or level:*"
        raise Shape(InvalidInput(field=field, reason="malformed", message=message))
    return tuple(dict.fromkeys(entry.lower() for entry in value))


def check_key_name(name: str, field: str) -> str:
    """Raises `Shape` for the one name that says where a key comes from."""
    if name == ENVIRONMENT_KEY_NAME:
        message = f"{field} is reserved for the key from the environment"
        raise Shape(InvalidInput(field=field, reason="reserved", message=message))
    return name


def refuse_permissions(
    principal: Principal, permissions: Iterable[str], *, tenant_id: str, scope_filter: tuple[str, ...] = ()
) -> AccessDenied | None:
    """Nobody hands out what they lack themselves, or managing keys would be every permission, in another tenant too.

    Nor does a confined key make one that reaches farther in its own tenant.
    """
    if lacking := [word for word in permissions if not _holds(principal, word)]:
        return AccessDenied(message=f"the caller lacks the permission {lacking[0]} that the key would have")
    if (
        principal.tenant_id == tenant_id
        and principal.scope_filter
        and not (scope_filter and set(scope_filter) <= set(principal.scope_filter))
    ):
        return AccessDenied(message="the key would reach farther than the scope filter of the caller's key")
    return None


def refuse_expiry(expires_at: int | None, *, now: int) -> InvalidInput | None:
    """A key that is over when it is made is a mistake."""
    if expires_at is not None and expires_at <= now:
        return InvalidInput(field="expiresAt", reason="in-the-past", message="expiresAt must be in the future")
    return None


def decide_update_key(principal: Principal, key: ApiKey, changed: ApiKey, *, now: int) -> Outcome[ApiKey]:
    """The key as it is to be. Nobody gives it what they lack, nor touches one that reaches farther than they do.

    Refuses in this order: ACCESS_DENIED, INVALID_STATE (revoked, or over).
    """
    for each in (key, changed):
        scope_filter = each.scope_filter
        refusal = refuse_permissions(principal, each.permissions, tenant_id=key.tenant_id, scope_filter=scope_filter)
        if refusal is not None:
            return refusal
    if key.revoked_at is not None:
        return KEY_REVOKED
    if key.expires_at is not None and key.expires_at <= now:
        return InvalidState(state="expired", message="the key has expired")
    return Accepted(changed)


def decide_revoke_key(key: ApiKey | None, *, now: int, reason: str | None = None) -> Outcome[ApiKey]:
    """The key, revoked; one that is revoked already stays as it is."""
    if key is None:
        return NO_KEY
    return Accepted(key if key.revoked_at is not None else replace(key, revoked_at=now, revoked_reason=reason))


def _holds(principal: Principal, word: str) -> bool:
    return EVERYTHING in principal.permissions or (word != EVERYTHING and principal.may(Permission(word)))
