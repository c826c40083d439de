"""Who may ask what of budgets (section 7): answered before any look-up, and before the shape of a request.

A tenant's member acts in its own tenant with the plain permission; a member of the root tenant in any other one with the
operator's. Subjects and scope filters are held against the books by the decisions themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from domain.authority import RESERVATIONS, Permission
from domain.budget import commands as c
from domain.budget.values import ActorType, Origin
from domain.outcomes import AccessDenied
from workers.request import Caller


class Right(NamedTuple):
    """What it takes to ask: `own` in the caller's tenant, `admin` in another one. None: it cannot be asked there."""

    own: Permission | None
    admin: Permission | None


_BUDGETS: Final = Right(Permission.BUDGETS_WRITE, Permission.ADMIN_BUDGETS_WRITE)
_POLICIES: Final = Right(Permission.POLICIES_WRITE, Permission.ADMIN_POLICIES_WRITE)
_TENANTS: Final = Right(None, Permission.ADMIN_TENANTS_WRITE)

RIGHTS: Final[Mapping[type[c.Command], Right]] = {
    c.Reserve: Right(Permission.RESERVATIONS_CREATE, None),
    c.Evaluate: Right(Permission.RESERVATIONS_CREATE, None),
    c.Commit: Right(Permission.RESERVATIONS_COMMIT, None),
    c.Release: Right(Permission.RESERVATIONS_RELEASE, Permission.ADMIN_WRITE),
    c.Extend: Right(Permission.RESERVATIONS_EXTEND, None),
    # Clients tell of a spending whose hold was lost with the key that would have committed it.
    c.Debit: Right(Permission.RESERVATIONS_COMMIT, None),
    c.Fund: _BUDGETS,
    c.CreateBudget: _BUDGETS,
    c.UpdateBudget: _BUDGETS,
    c.FreezeBudget: _BUDGETS,
    c.UnfreezeBudget: _BUDGETS,
    c.CloseBudget: _BUDGETS,
    c.CreatePolicy: _POLICIES,
    c.UpdatePolicy: _POLICIES,
    c.CreateTenant: _TENANTS,
    c.UpdateTenant: _TENANTS,
}
"""Total over what can be asked; what only jobs ask is not here (a test compares)."""

READ_BUDGETS: Final = Right(Permission.BUDGETS_READ, Permission.ADMIN_BUDGETS_READ)
READ_BALANCES: Final = Right(Permission.BALANCES_READ, Permission.ADMIN_BUDGETS_READ)
READ_POLICIES: Final = Right(Permission.POLICIES_READ, Permission.ADMIN_POLICIES_READ)
READ_TENANTS: Final = Right(None, Permission.ADMIN_TENANTS_READ)
READ_KEYS: Final = Right(None, Permission.ADMIN_KEYS_READ)
READ_TENANCY: Final = Right(None, Permission.TENANCY_READ)
"""Keys are the registry's, whose own word for reading them does as well."""
READ_AUDIT: Final = Right(None, Permission.ADMIN_AUDIT_READ)
READ_OVERVIEW: Final = Right(None, Permission.ADMIN_READ)
LIST_RESERVATIONS: Final = Right(Permission.RESERVATIONS_LIST, Permission.ADMIN_READ)


def refuse(caller: Caller, right: Right, tenant_id: str, *, as_admin: bool = False) -> AccessDenied | None:
    """None if the caller may act so in the tenant. `as_admin`: as an operator, whoever's tenant it is."""
    principal = caller.principal
    if right.own is not None and not as_admin and principal.tenant_id == tenant_id:
        return principal.refuse(right.own, tenant_id=tenant_id)
    if right.admin is None:
        return AccessDenied(message="the caller is not a member of this tenant")
    return principal.refuse_as_root(right.admin, tenant_id=principal.tenant_id)


def refuse_looking(caller: Caller) -> AccessDenied | None:
    """None if the caller may look at a single reservation of its tenant: any word about reservations will do."""
    if any(caller.principal.may(word) for word in RESERVATIONS):
        return None
    return AccessDenied(message="the key has no permission for reservations")


ON_BEHALF: Final = frozenset({c.CreateBudget, c.Fund, c.CreatePolicy, c.UpdatePolicy})
"""What a tenant does for itself: an operator who asks it does so in the tenant's place, and is told so (section 11)."""


def origin_of(caller: Caller, tenant_id: str, *, kind: type[c.Command] | None = None, as_admin: bool = False) -> Origin:
    """Who asks a command of this kind, as events and audit entries tell it."""
    if as_admin or (kind in ON_BEHALF and caller.principal.tenant_id != tenant_id):
        actor_type = ActorType.ADMIN_ON_BEHALF_OF
    else:
        actor_type = ActorType.API_KEY if caller.principal.tenant_id == tenant_id else ActorType.ADMIN
    return Origin(
        actor_type=actor_type,
        key_id=caller.principal.key_id,
        source_ip=caller.source_ip,
        request_id=caller.request_id,
        trace_id=caller.trace_id,
        trace_flags=caller.trace_flags,
        user_agent=caller.user_agent,
    )


def scope_filter_of(caller: Caller, tenant_id: str) -> tuple[str, ...]:
    """The scopes that the caller is confined to in its own tenant; an operator is not confined in another one."""
    return caller.principal.scope_filter if caller.principal.tenant_id == tenant_id else ()
