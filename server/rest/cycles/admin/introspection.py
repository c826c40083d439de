"""What a key may do, said to its holder (`introspect`) and to an operator (`validate`) (7)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from domain.authority import EVERYTHING, Permission
from server.rest.cycles.answers import Document
from server.rest.cycles.exchange import Answer, Exchange, Reply

_RESERVATION_CHANGES: Final = (
    "reservations:create",
    "reservations:commit",
    "reservations:release",
    "reservations:extend",
)

CAPABILITIES: Final[Mapping[str, tuple[str, ...]]] = {
    "view_budgets": ("budgets:read", "admin:read", "admin:budgets:read"),
    "view_policies": ("policies:read", "admin:read", "admin:policies:read"),
    "view_webhooks": ("webhooks:read", "admin:read", "admin:webhooks:read"),
    "view_events": ("events:read", "admin:read", "admin:events:read"),
    "view_reservations": ("reservations:list", *_RESERVATION_CHANGES, "admin:read"),
    "manage_budgets": ("budgets:write", "admin:write", "admin:budgets:write"),
    "manage_policies": ("policies:write", "admin:write", "admin:policies:write"),
    "manage_webhooks": ("webhooks:write", "admin:write", "admin:webhooks:write"),
    "manage_reservations": (*_RESERVATION_CHANGES, "admin:write"),
}
"""Capability to the permissions any of which gives it: the published table, word by word."""

OPERATORS_ONLY: Final[Mapping[str, tuple[Permission, ...]]] = {
    "view_overview": (Permission.ADMIN_READ,),
    "view_audit": (Permission.ADMIN_AUDIT_READ,),
    "view_tenants": (Permission.ADMIN_TENANTS_READ,),
    "view_api_keys": (Permission.ADMIN_KEYS_READ, Permission.TENANCY_READ),
    "manage_tenants": (Permission.ADMIN_TENANTS_WRITE,),
    "manage_api_keys": (Permission.ADMIN_KEYS_WRITE, Permission.TENANCY_MANAGE),
}
"""Never a tenant's, whatever its key carries. An operator's key has what it takes to ask, as `*` always has."""

WORDS: Final = tuple(word.value for word in Permission if word.value.partition(":")[0] not in ("compute", "tenancy"))
"""The permissions that this wire has names for. A key may have others, which it does not know."""


async def introspect(exchange: Exchange) -> Answer:
    principal = exchange.caller.principal
    words = known_words(principal.permissions)
    shown: Document = {"authenticated": True, "auth_type": "admin" if exchange.is_admin else "tenant"}
    if exchange.is_admin:
        operators = {name: any(map(principal.may, words)) for name, words in OPERATORS_ONLY.items()}
        shown["permissions"] = [EVERYTHING] if EVERYTHING in principal.permissions else words
        shown["capabilities"] = capabilities_of(words) | operators
        return Reply(shown)
    shown["permissions"] = words
    shown["capabilities"] = capabilities_of(words)
    shown["tenant_id"] = principal.tenant_id
    if principal.scope_filter:
        shown["scope_filter"] = list(principal.scope_filter)
    return Reply(shown)


def known_words(permissions: Iterable[str]) -> list[str]:
    """Those of a key's permissions that this wire knows, in its order. `*` stands for all of them."""
    held = frozenset(permissions)
    return [word for word in WORDS if word in held or EVERYTHING in held]


def capabilities_of(words: Iterable[str]) -> dict[str, bool]:
    """A tenant's: exactly by the table, and false besides."""
    held = frozenset(words)
    derived = {name: not held.isdisjoint(givers) for name, givers in CAPABILITIES.items()}
    return {**derived, **dict.fromkeys(OPERATORS_ONLY, False)}
