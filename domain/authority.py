"""Who asks, and what they may: principals, permissions, and the two questions every desk asks first (R4, R60)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from domain.outcomes import AccessDenied


class Permission(StrEnum):
    """What an API key can be allowed. The seed names the first two, the Cycles protocol those below `tenancy:manage`."""

    PROVIDERS_MANAGE = "compute:providers:manage"
    """Root: accounts, pools, reservations, and the grants made on them."""
    QUOTAS_READ = "compute:quotas:read"
    """Grants, usage and events of the tenant."""
    INSTANCES_READ = "compute:instances:read"
    INSTANCES_MANAGE = "compute:instances:manage"
    TENANCY_READ = "tenancy:read"
    """The tenant itself, its projects and keys."""
    TENANCY_MANAGE = "tenancy:manage"
    """Projects and keys of the tenant; for root, tenants too."""
    RESERVATIONS_CREATE = "reservations:create"
    RESERVATIONS_COMMIT = "reservations:commit"
    RESERVATIONS_RELEASE = "reservations:release"
    RESERVATIONS_EXTEND = "reservations:extend"
    RESERVATIONS_LIST = "reservations:list"
    BALANCES_READ = "balances:read"
    BUDGETS_READ = "budgets:read"
    BUDGETS_WRITE = "budgets:write"
    POLICIES_READ = "policies:read"
    POLICIES_WRITE = "policies:write"
    WEBHOOKS_READ = "webhooks:read"
    WEBHOOKS_WRITE = "webhooks:write"
    EVENTS_READ = "events:read"
    ADMIN_READ = "admin:read"
    """Stands for every other reading word of the protocol, as the next one does for the writing ones."""
    ADMIN_WRITE = "admin:write"
    ADMIN_TENANTS_READ = "admin:tenants:read"
    ADMIN_TENANTS_WRITE = "admin:tenants:write"
    ADMIN_BUDGETS_READ = "admin:budgets:read"
    ADMIN_BUDGETS_WRITE = "admin:budgets:write"
    ADMIN_POLICIES_READ = "admin:policies:read"
    ADMIN_POLICIES_WRITE = "admin:policies:write"
    ADMIN_KEYS_READ = "admin:apikeys:read"
    ADMIN_KEYS_WRITE = "admin:apikeys:write"
    ADMIN_WEBHOOKS_READ = "admin:webhooks:read"
    ADMIN_WEBHOOKS_WRITE = "admin:webhooks:write"
    ADMIN_EVENTS_READ = "admin:events:read"
    ADMIN_AUDIT_READ = "admin:audit:read"


EVERYTHING: Final = "*"
"""Stands for every permission, those of later versions included. The first root key has it."""

PURPOSES: Final[Mapping[str, str]] = {
    EVERYTHING: "everything, of later versions too",
    Permission.PROVIDERS_MANAGE: "root: accounts, pools, reservations and the grants on them",
    Permission.QUOTAS_READ: "read grants, usage and events of the tenant",
    Permission.INSTANCES_READ: "read instances",
    Permission.INSTANCES_MANAGE: "make, start, stop, attach and delete instances",
    Permission.TENANCY_READ: "read the tenant, its projects and keys",
    Permission.TENANCY_MANAGE: "make and remove projects and keys; root: tenants, too",
    Permission.RESERVATIONS_CREATE: "reserve, decide and debit",
    Permission.RESERVATIONS_COMMIT: "commit what is reserved",
    Permission.RESERVATIONS_RELEASE: "release what is reserved",
    Permission.RESERVATIONS_EXTEND: "prolong what is reserved",
    Permission.RESERVATIONS_LIST: "list budget reservations",
    Permission.BALANCES_READ: "read balances",
    Permission.BUDGETS_READ: "read budgets",
    Permission.BUDGETS_WRITE: "create, update and fund budgets",
    Permission.POLICIES_READ: "read policies",
    Permission.POLICIES_WRITE: "create and update policies",
    Permission.WEBHOOKS_READ: "read webhooks and their deliveries",
    Permission.WEBHOOKS_WRITE: "make, change, test and delete webhooks",
    Permission.EVENTS_READ: "read the tenant's events of the Cycles wire",
    Permission.ADMIN_READ: "operators: every reading word from reservations:create on",
    Permission.ADMIN_WRITE: "operators: every writing one of them",
    Permission.ADMIN_TENANTS_READ: "operators: read tenants",
    Permission.ADMIN_TENANTS_WRITE: "operators: make, change and close tenants",
    Permission.ADMIN_BUDGETS_READ: "operators: read every tenant's budgets",
    Permission.ADMIN_BUDGETS_WRITE: "operators: budgets of every tenant, freezing, bulk actions",
    Permission.ADMIN_POLICIES_READ: "operators: read every tenant's policies",
    Permission.ADMIN_POLICIES_WRITE: "operators: policies of every tenant",
    Permission.ADMIN_KEYS_READ: "operators: read every tenant's keys",
    Permission.ADMIN_KEYS_WRITE: "operators: keys of every tenant",
    Permission.ADMIN_WEBHOOKS_READ: "operators: read every tenant's webhooks",
    Permission.ADMIN_WEBHOOKS_WRITE: "operators: webhooks of every tenant, and what they may reach",
    Permission.ADMIN_EVENTS_READ: "operators: read everybody's events",
    Permission.ADMIN_AUDIT_READ: "operators: read the audit log",
}
"""Each word and what it is for, for people. `docs/permissions.md` has the same."""

RESERVATIONS: Final = tuple(word for word in Permission if word.value.startswith("reservations:"))
"""The words about budget reservations. Whoever holds one of them may look at a single reservation."""

BUDGET_DEFAULT: Final = (
    *RESERVATIONS,
    Permission.BALANCES_READ,
    Permission.BUDGETS_READ,
    Permission.BUDGETS_WRITE,
    Permission.POLICIES_READ,
    Permission.POLICIES_WRITE,
)
"""What the protocol gives a key that is made without a list: webhooks and events must be asked for (section 7)."""

TENANT_DEFAULT: Final = (
    Permission.QUOTAS_READ,
    Permission.INSTANCES_READ,
    Permission.INSTANCES_MANAGE,
    Permission.TENANCY_READ,
    Permission.TENANCY_MANAGE,
    *BUDGET_DEFAULT,
)
"""What a tenant's key gets when it is made without a list."""


def _given_by(permission: Permission) -> frozenset[str]:
    """The words that each give a permission. Reading never gives writing, nor the other way round (section 7)."""
    context, _, right = permission.value.partition(":")
    if context in ("compute", "tenancy"):
        return frozenset({permission.value})
    is_reading = right in ("read", "list") or right.endswith(":read")
    wide = Permission.ADMIN_READ if is_reading else Permission.ADMIN_WRITE
    admin = f"admin:{permission.value}"
    return frozenset({permission.value, wide.value, *(word for word in (admin,) if word in {*Permission})})


GIVEN_BY: Final[Mapping[Permission, frozenset[str]]] = {
    permission: _given_by(permission) | {EVERYTHING} for permission in Permission
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """The holder of a valid API key: a member of exactly one tenant."""

    key_id: str
    tenant_id: str
    is_root: bool
    permissions: frozenset[str]
    scope_filter: tuple[str, ...] = ()
    """The scopes that the key is confined to, as `level:id` or `level:*`; empty is all of its tenant's (section 7)."""

    def may(self, permission: Permission) -> bool:
        return not self.permissions.isdisjoint(GIVEN_BY[permission])

    def refuse(self, permission: Permission, *, tenant_id: str) -> AccessDenied | None:
        """None if the caller is a member of the tenant it acts in and holds the permission there."""
        if self.tenant_id != tenant_id:
            return AccessDenied(message="the caller is not a member of this tenant")
        return self._refuse_missing(permission)

    def refuse_as_root(self, permission: Permission, *, tenant_id: str) -> AccessDenied | None:
        """None if the caller acts in the root tenant as its member and holds the permission (R4).

        Answered before any look-up, so that a stranger learns nothing about what exists.
        """
        if not self.is_root or self.tenant_id != tenant_id:
            return AccessDenied(message="only a member of the root tenant, acting in it, may do this")
        return self._refuse_missing(permission)

    def refuse_for(self, permission: Permission, *, tenant_id: str) -> AccessDenied | None:
        """None if the caller is a member of the tenant, or of the root tenant, and holds the permission."""
        if self.is_root:
            return self._refuse_missing(permission)
        return self.refuse(permission, tenant_id=tenant_id)

    def _refuse_missing(self, permission: Permission) -> AccessDenied | None:
        return (
            None if self.may(permission) else AccessDenied(message=f"the key lacks the permission {permission.value}")
        )
