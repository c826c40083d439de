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
from server.rest.cycles.exchange import Access, Handle, Operation, Resource
from server.rest.cycles.failures import Plane
from workers.budget import rights
from workers.budget.event_log import READ_EVENTS
from workers.budget.rights import RIGHTS, Right
from workers.key_desk import OPERATORS_WORDS


def _operation(
    handle: Handle, right: Right | None, *, plane: Plane, access: Access, has_body: bool = False
) -> Operation:
    own = (right.own,) if right is not None and right.own is not None else ()
    admin = (right.admin,) if right is not None and right.admin is not None else ()
    return Operation(handle, access, plane, own=own, admin=admin, has_body=has_body)


def _runtime(handle: Handle, right: Right, *, access: Access = Access.TENANT, has_body: bool = True) -> Operation:
    return _operation(handle, right, plane=Plane.RUNTIME, access=access, has_body=has_body)


def _admin(handle: Handle, right: Right | None, *, access: Access = Access.ADMIN, has_body: bool = False) -> Operation:
    return _operation(handle, right, plane=Plane.ADMIN, access=access, has_body=has_body)


_LOOK_AT_ONE: Final = Operation(
    listings.get_reservation, Access.EITHER, Plane.RUNTIME, own=RESERVATIONS, admin=(Permission.ADMIN_READ,)
)
"""Any word about reservations will do."""

_READ_KEYS, _WRITE_KEYS = ((word, OPERATORS_WORDS[word]) for word in OPERATORS_WORDS)
"""Keys are the registry's, which has permissions of its own; the protocol's will do as well."""


def _keys(handle: Handle, words: tuple[Permission, ...], *, has_body: bool = False) -> Operation:
    return Operation(handle, Access.ADMIN, Plane.ADMIN, admin=words, has_body=has_body)


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
        "GET": _admin(event_log.list_own, READ_EVENTS, access=Access.TENANT),
    },
    "/v1/balances": {"GET": _runtime(get_balances, rights.READ_BALANCES, has_body=False)},
    "/v1/auth/introspect": {"GET": _admin(introspection.introspect, None, access=Access.EITHER)},
    "/v1/auth/validate": {"POST": _keys(validate, _READ_KEYS, has_body=True)},
    "/v1/admin/tenants": {
        "POST": _admin(tenants.create, RIGHTS[commands.CreateTenant], has_body=True),
        "GET": _admin(tenants.list_, rights.READ_TENANTS),
    },
    "/v1/admin/tenants/{tenant_id}": {
        "GET": _admin(tenants.get, rights.READ_TENANTS),
        "PATCH": _admin(tenants.update, RIGHTS[commands.UpdateTenant], has_body=True),
    },
    "/v1/admin/api-keys": {
        "POST": _keys(keys.create, _WRITE_KEYS, has_body=True),
        "GET": _keys(key_lists.list_, _READ_KEYS),
    },
    "/v1/admin/api-keys/{key_id}": {
        "PATCH": _keys(keys.update, _WRITE_KEYS, has_body=True),
        "DELETE": _keys(keys.revoke, _WRITE_KEYS),
    },
    "/v1/admin/budgets": {
        "POST": _admin(budgets.create, RIGHTS[commands.CreateBudget], access=Access.EITHER, has_body=True),
        "GET": _admin(budgets.list_, rights.READ_BUDGETS, access=Access.EITHER),
        "PATCH": _admin(budgets.update, RIGHTS[commands.UpdateBudget], has_body=True),
    },
    "/v1/admin/budgets/lookup": {"GET": _admin(budgets.look_up, rights.READ_BUDGETS, access=Access.EITHER)},
    "/v1/admin/budgets/fund": {
        "POST": _admin(budgets.fund, RIGHTS[commands.Fund], access=Access.EITHER, has_body=True)
    },
    "/v1/admin/budgets/freeze": {"POST": _admin(budgets.freeze, RIGHTS[commands.FreezeBudget], has_body=True)},
    "/v1/admin/budgets/unfreeze": {"POST": _admin(budgets.unfreeze, RIGHTS[commands.UnfreezeBudget], has_body=True)},
    "/v1/admin/policies": {
        "POST": _admin(policies.create, RIGHTS[commands.CreatePolicy], access=Access.EITHER, has_body=True),
        "GET": _admin(policies.list_, rights.READ_POLICIES, access=Access.EITHER),
    },
    "/v1/admin/policies/{policy_id}": {
        "PATCH": _admin(policies.update, RIGHTS[commands.UpdatePolicy], access=Access.EITHER, has_body=True)
    },
    "/v1/admin/audit/logs": {"GET": _admin(audit.list_, rights.READ_AUDIT)},
    "/v1/admin/events": {"GET": _admin(event_log.list_all, READ_EVENTS)},
    "/v1/admin/events/{event_id}": {"GET": _admin(event_log.get, READ_EVENTS)},
    "/v1/admin/overview": {"GET": _admin(overview.get, rights.READ_OVERVIEW)},
    "/actuator/health": {"GET": _admin(health.healthy, None, access=Access.NOBODY)},
    "/actuator/health/liveness": {"GET": _admin(health.healthy, None, access=Access.NOBODY)},
    "/actuator/health/readiness": {"GET": _admin(health.ready, None, access=Access.NOBODY)},
}
"""Path to method to operation."""

ROUTES: Final[list[BaseRoute]] = [
    *(Route(path, Resource(operations)) for path, operations in RESOURCES.items()),
    # Whatever else is asked for under this wire's own prefix is answered in its own words.
    Route("/v1", Resource({})),
    Route("/v1/{rest:path}", Resource({})),
]
"""What the application mounts."""
