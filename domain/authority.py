"""Who asks, and what they may: principals, permissions, and the two questions every desk asks first (R4, R60)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from domain.outcomes import AccessDenied


class Permission(StrEnum):
    """What an API key can be allowed. The seed names the first two; the others follow its grammar."""

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


EVERYTHING: Final = "*"
"""Stands for every permission, those of later versions included. The first root key has it."""

TENANT_DEFAULT: Final = (
    Permission.QUOTAS_READ,
    Permission.INSTANCES_READ,
    Permission.INSTANCES_MANAGE,
    Permission.TENANCY_READ,
    Permission.TENANCY_MANAGE,
)
"""What a tenant's key gets when it is made without a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """The holder of a valid API key: a member of exactly one tenant."""

    key_id: str
    tenant_id: str
    is_root: bool
    permissions: frozenset[str]

    def may(self, permission: Permission) -> bool:
        return EVERYTHING in self.permissions or permission.value in self.permissions

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
