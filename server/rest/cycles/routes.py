"""The paths of this wire: which operation, whose key it takes, and what that key must be allowed (1, 7, 11).

What is served is exactly what stands here, and in `webhooks.routes`.
"""

from __future__ import annotations

from typing import Final

from starlette.routing import BaseRoute, Route

from domain.authority import RESERVATIONS, Permission
from domain.budget import commands
from server.rest.cycles import evidence, health, listings, runtime
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
from server.rest.cycles.operations import admin_operation, runtime_operation
from server.rest.cycles.resource import Resource
from server.rest.cycles.webhooks.routes import WEBHOOKS
from workers.budget import rights
from workers.budget.event_log import READ_EVENTS
from workers.budget.evidence import Artifact
from workers.budget.rights import RIGHTS
from workers.key_desk import OPERATORS_WORDS


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


_ONE_TENANT: Final = {
    "GET": admin_operation("getTenant", tenants.get, rights.READ_TENANTS),
    "PATCH": admin_operation("updateTenant", tenants.update, RIGHTS[commands.UpdateTenant], has_body=True),
}

NAMESAKES: Final = {"/v1/admin/tenants/bulk-action": {"tenant_id": "bulk-action"}}
"""Paths that are also those of a thing that a client called so. Every other id beside a fixed word is made by us."""

RESOURCES: Final = {
    "/v1/decide": {"POST": runtime_operation(runtime.decide, RIGHTS[commands.Evaluate], artifact=Artifact.DECIDE)},
    "/v1/reservations": {
        "POST": runtime_operation(runtime.reserve, RIGHTS[commands.Reserve], artifact=Artifact.RESERVE),
        "GET": runtime_operation(
            listings.list_reservations, rights.LIST_RESERVATIONS, access=Access.EITHER, has_body=False
        ),
    },
    "/v1/reservations/{reservation_id}": {"GET": _LOOK_AT_ONE},
    "/v1/reservations/{reservation_id}/commit": {
        "POST": runtime_operation(runtime.commit, RIGHTS[commands.Commit], artifact=Artifact.COMMIT)
    },
    "/v1/reservations/{reservation_id}/release": {
        "POST": runtime_operation(
            runtime.release, RIGHTS[commands.Release], access=Access.EITHER, artifact=Artifact.RELEASE
        )
    },
    "/v1/reservations/{reservation_id}/extend": {"POST": runtime_operation(runtime.extend, RIGHTS[commands.Extend])},
    "/v1/events": {
        "POST": runtime_operation(runtime.create_event, RIGHTS[commands.Debit]),
        "GET": admin_operation("listTenantEvents", event_log.list_own, READ_EVENTS, access=Access.TENANT),
    },
    "/v1/balances": {"GET": runtime_operation(get_balances, rights.READ_BALANCES, has_body=False)},
    "/v1/auth/introspect": {
        "GET": admin_operation("introspectAuth", introspection.introspect, None, access=Access.EITHER)
    },
    "/v1/evidence/{evidence_id}": {"GET": Operation(evidence.get_evidence, Access.NOBODY, Plane.RUNTIME)},
    "/v1/.well-known/cycles-jwks.json": {"GET": Operation(evidence.get_jwks, Access.NOBODY, Plane.RUNTIME)},
    "/v1/auth/validate": {"POST": _keys("validateApiKey", validate, _READ_KEYS, has_body=True)},
    "/v1/admin/tenants": {
        "POST": admin_operation("createTenant", tenants.create, RIGHTS[commands.CreateTenant], has_body=True),
        "GET": admin_operation("listTenants", tenants.list_, rights.READ_TENANTS),
    },
    "/v1/admin/tenants/bulk-action": {
        "POST": admin_operation("bulkActionTenants", bulk.act_on_tenants, RIGHTS[commands.UpdateTenant], has_body=True),
        **_ONE_TENANT,
    },
    "/v1/admin/tenants/{tenant_id}": _ONE_TENANT,
    "/v1/admin/api-keys": {
        "POST": _keys("createApiKey", keys.create, _WRITE_KEYS, has_body=True),
        "GET": _keys("listApiKeys", key_lists.list_, _READ_KEYS),
    },
    "/v1/admin/api-keys/{key_id}": {
        "PATCH": _keys("updateApiKey", keys.update, _WRITE_KEYS, has_body=True),
        "DELETE": _keys("revokeApiKey", keys.revoke, _WRITE_KEYS),
    },
    "/v1/admin/budgets": {
        "POST": admin_operation(
            "createBudget", budgets.create, RIGHTS[commands.CreateBudget], access=Access.EITHER, has_body=True
        ),
        "GET": admin_operation("listBudgets", budgets.list_, rights.READ_BUDGETS, access=Access.EITHER),
        "PATCH": admin_operation("updateBudget", budgets.update, RIGHTS[commands.UpdateBudget], has_body=True),
    },
    "/v1/admin/budgets/lookup": {
        "GET": admin_operation("lookupBudget", budgets.look_up, rights.READ_BUDGETS, access=Access.EITHER)
    },
    "/v1/admin/budgets/fund": {
        "POST": admin_operation("fundBudget", budgets.fund, RIGHTS[commands.Fund], access=Access.EITHER, has_body=True)
    },
    "/v1/admin/budgets/freeze": {
        "POST": admin_operation("freezeBudget", budgets.freeze, RIGHTS[commands.FreezeBudget], has_body=True)
    },
    "/v1/admin/budgets/unfreeze": {
        "POST": admin_operation("unfreezeBudget", budgets.unfreeze, RIGHTS[commands.UnfreezeBudget], has_body=True)
    },
    "/v1/admin/budgets/bulk-action": {
        "POST": admin_operation("bulkActionBudgets", bulk.act_on_budgets, RIGHTS[commands.Fund], has_body=True)
    },
    "/v1/admin/policies": {
        "POST": admin_operation(
            "createPolicy", policies.create, RIGHTS[commands.CreatePolicy], access=Access.EITHER, has_body=True
        ),
        "GET": admin_operation("listPolicies", policies.list_, rights.READ_POLICIES, access=Access.EITHER),
    },
    "/v1/admin/policies/{policy_id}": {
        "PATCH": admin_operation(
            "updatePolicy", policies.update, RIGHTS[commands.UpdatePolicy], access=Access.EITHER, has_body=True
        )
    },
    "/v1/admin/audit/logs": {"GET": admin_operation("listAuditLogs", audit.list_, rights.READ_AUDIT)},
    "/v1/admin/events": {"GET": admin_operation("listEvents", event_log.list_all, READ_EVENTS)},
    "/v1/admin/events/{event_id}": {"GET": admin_operation("getEvent", event_log.get, READ_EVENTS)},
    "/v1/admin/overview": {"GET": admin_operation("getAdminOverview", overview.get, rights.READ_OVERVIEW)},
    **WEBHOOKS,
    "/actuator/health": {"GET": _health(health.healthy)},
    "/actuator/health/liveness": {"GET": _health(health.healthy)},
    "/actuator/health/readiness": {"GET": _health(health.ready)},
}
"""Path to method to operation."""

ROUTES: Final[list[BaseRoute]] = [
    *(Route(path, Resource(operations, NAMESAKES.get(path, {}))) for path, operations in RESOURCES.items()),
    # Whatever else is asked for under this wire's own prefix is answered in its own words.
    Route("/v1", Resource({})),
    Route("/v1/{rest:path}", Resource({})),
]
"""What the application mounts."""
