"""The paths of this wire: which operation, whose key it takes, and what that key must be allowed (1, 7, 11).

What is served is exactly what stands here. Webhooks are not, yet: their paths are unknown.
"""

from __future__ import annotations

from typing import Final

from starlette.routing import BaseRoute, Route

from domain.authority import RESERVATIONS, Permission
from domain.budget import commands
from server.rest.cycles import health, listings, runtime
from server.rest.cycles.admin import (
    audit,
    budgets,
    bulk,
    event_log,
    introspection,
    key_lists,
    keys,
    overview,
    policies,
    tenants,
)
from server.rest.cycles.admin.validation import validate
from server.rest.cycles.balances import get_balances
from server.rest.cycles.exchange import Access, Handle, Operation
from server.rest.cycles.failures import Plane
from server.rest.cycles.resource import Resource
from workers.budget import rights
from workers.budget.event_log import READ_EVENTS
from workers.budget.rights import RIGHTS, Right
from workers.key_desk import OPERATORS_WORDS


def _runtime(handle: Handle, right: Right, *, access: Access = Access.TENANT, has_body: bool = True) -> Operation:
    own, admin = _words(right)
    return Operation(handle, access, Plane.RUNTIME, own=own, admin=admin, has_body=has_body)


def _admin(
    name: str, handle: Handle, right: Right | None, *, access: Access = Access.ADMIN, has_body: bool = False
) -> Operation:
    """`name`: the protocol's own, as the audit log has it."""
    own, admin = _words(right)
    return Operation(handle, access, Plane.ADMIN, own=own, admin=admin, has_body=has_body, name=name)


def _words(right: Right | None) -> tuple[tuple[Permission, ...], tuple[Permission, ...]]:
    """What it takes in the caller's own tenant, and as an operator."""
    own = (right.own,) if right is not None and right.own is not None else ()
    admin = (right.admin,) if right is not None and right.admin is not None else ()
    return own, admin


def _health(handle: Handle) -> Operation:
    return Operation(handle, Access.NOBODY, Plane.ADMIN)


_LOOK_AT_ONE: Final = Operation(
    listings.get_reservation, Access.EITHER, Plane.RUNTIME, own=RESERVATIONS, admin=(Permission.ADMIN_READ,)
)
"""Any word about reservations will do."""

_READ_KEYS, _WRITE_KEYS = ((word, OPERATORS_WORDS[word]) for word in OPERATORS_WORDS)
"""Keys are the registry's, which has permissions of its own; the protocol's will do as well."""


def _keys(name: str, handle: Handle, words: tuple[Permission, ...], *, has_body: bool = False) -> Operation:
    return Operation(handle, Access.ADMIN, Plane.ADMIN, admin=words, has_body=has_body, name=name)


RESOURCES: Final = {
    "/v1/decide": {"POST": _runtime(runtime.decide, RIGHTS[commands.Evaluate])},
    "/v1/reservations": {
        "POST": _runtime(runtime.reserve, RIGHTS[commands.Reserve]),
        "GET": _runtime(listings.list_reservations, rights.LIST_RESERVATIONS, access=Access.EITHER, has_body=False),
    },
    "/v1/reservations/{reservation_id}": {"GET": _LOOK_AT_ONE},
    "/v1/reservations/{reservation_id}/commit": {"POST": _runtime(runtime.commit, RIGHTS[commands.Commit])},
    "/v1/reservations/{reservation_id}/release": {
        "POST": _runtime(runtime.release, RIGHTS[commands.Release], access=Access.EITHER)
    },
    "/v1/reservations/{reservation_id}/extend": {"POST": _runtime(runtime.extend, RIGHTS[commands.Extend])},
    "/v1/events": {
        "POST": _runtime(runtime.create_event, RIGHTS[commands.Debit]),
        "GET": _admin("listTenantEvents", event_log.list_own, READ_EVENTS, access=Access.TENANT),
    },
    "/v1/balances": {"GET": _runtime(get_balances, rights.READ_BALANCES, has_body=False)},
    "/v1/auth/introspect": {"GET": _admin("introspectAuth", introspection.introspect, None, access=Access.EITHER)},
    "/v1/auth/validate": {"POST": _keys("validateApiKey", validate, _READ_KEYS, has_body=True)},
    "/v1/admin/tenants": {
        "POST": _admin("createTenant", tenants.create, RIGHTS[commands.CreateTenant], has_body=True),
        "GET": _admin("listTenants", tenants.list_, rights.READ_TENANTS),
    },
    "/v1/admin/tenants/bulk-action": {
        "POST": _admin("bulkActionTenants", bulk.act_on_tenants, RIGHTS[commands.UpdateTenant], has_body=True)
    },
    "/v1/admin/tenants/{tenant_id}": {
        "GET": _admin("getTenant", tenants.get, rights.READ_TENANTS),
        "PATCH": _admin("updateTenant", tenants.update, RIGHTS[commands.UpdateTenant], has_body=True),
    },
    "/v1/admin/api-keys": {
        "POST": _keys("createApiKey", keys.create, _WRITE_KEYS, has_body=True),
        "GET": _keys("listApiKeys", key_lists.list_, _READ_KEYS),
    },
    "/v1/admin/api-keys/{key_id}": {
        "PATCH": _keys("updateApiKey", keys.update, _WRITE_KEYS, has_body=True),
        "DELETE": _keys("revokeApiKey", keys.revoke, _WRITE_KEYS),
    },
    "/v1/admin/budgets": {
        "POST": _admin(
            "createBudget", budgets.create, RIGHTS[commands.CreateBudget], access=Access.EITHER, has_body=True
        ),
        "GET": _admin("listBudgets", budgets.list_, rights.READ_BUDGETS, access=Access.EITHER),
        "PATCH": _admin("updateBudget", budgets.update, RIGHTS[commands.UpdateBudget], has_body=True),
    },
    "/v1/admin/budgets/lookup": {
        "GET": _admin("lookupBudget", budgets.look_up, rights.READ_BUDGETS, access=Access.EITHER)
    },
    "/v1/admin/budgets/fund": {
        "POST": _admin("fundBudget", budgets.fund, RIGHTS[commands.Fund], access=Access.EITHER, has_body=True)
    },
    "/v1/admin/budgets/freeze": {
        "POST": _admin("freezeBudget", budgets.freeze, RIGHTS[commands.FreezeBudget], has_body=True)
    },
    "/v1/admin/budgets/unfreeze": {
        "POST": _admin("unfreezeBudget", budgets.unfreeze, RIGHTS[commands.UnfreezeBudget], has_body=True)
    },
    "/v1/admin/budgets/bulk-action": {
        "POST": _admin("bulkActionBudgets", bulk.act_on_budgets, RIGHTS[commands.Fund], has_body=True)
    },
    "/v1/admin/policies": {
        "POST": _admin(
            "createPolicy", policies.create, RIGHTS[commands.CreatePolicy], access=Access.EITHER, has_body=True
        ),
        "GET": _admin("listPolicies", policies.list_, rights.READ_POLICIES, access=Access.EITHER),
    },
    "/v1/admin/policies/{policy_id}": {
        "PATCH": _admin(
            "updatePolicy", policies.update, RIGHTS[commands.UpdatePolicy], access=Access.EITHER, has_body=True
        )
    },
    "/v1/admin/audit/logs": {"GET": _admin("listAuditLogs", audit.list_, rights.READ_AUDIT)},
    "/v1/admin/events": {"GET": _admin("listEvents", event_log.list_all, READ_EVENTS)},
    "/v1/admin/events/{event_id}": {"GET": _admin("getEvent", event_log.get, READ_EVENTS)},
    "/v1/admin/overview": {"GET": _admin("getAdminOverview", overview.get, rights.READ_OVERVIEW)},
    "/actuator/health": {"GET": _health(health.healthy)},
    "/actuator/health/liveness": {"GET": _health(health.healthy)},
    "/actuator/health/readiness": {"GET": _health(health.ready)},
}
"""Path to method to operation."""

ROUTES: Final[list[BaseRoute]] = [
    *(Route(path, Resource(operations)) for path, operations in RESOURCES.items()),
    # Whatever else is asked for under this wire's own prefix is answered in its own words.
    Route("/v1", Resource({})),
    Route("/v1/{rest:path}", Resource({})),
]
"""What the application mounts."""
