"""The seed's wire: `POST /api/compute/reservationGrants/{create,get,list,end}`, names exactly as the seed gives them."""

from __future__ import annotations

from typing import Any, Final

from starlette.routing import Route

from domain.capacity.views import GrantView
from domain.outcomes import Accepted, Refusal
from domain.shapes import Shape, check_fields
from server.rest.wire import Endpoint
from workers.request import Caller
from workers.runtime import Runtime

PATH: Final = "/api/compute/reservationGrants"

FIELDS: Final[dict[str, tuple[frozenset[str], frozenset[str]]]] = {
    "create": (
        frozenset(
            {
                "tenantId",
                "accountId",
                "reservationId",
                "grantTenantId",
                "slots",
                "startsAt",
                "endsAt",
                "idempotencyKey",
            }
        ),
        frozenset({"projectId"}),
    ),
    "get": (frozenset({"tenantId", "grantId"}), frozenset()),
    "list": (frozenset({"tenantId"}), frozenset({"all"})),
    "end": (frozenset({"tenantId", "accountId", "grantId"}), frozenset()),
}
"""Method to (required, optional) fields; anything else is refused by its name."""


def grant_json(view: GrantView, *, for_root: bool) -> dict[str, Any]:
    """A grant on this wire. Account and reservation are the platform's: only root sees them (D46)."""
    grant = view.grant
    place = {"accountId": view.account_id, "reservationId": view.reservation_id} if for_root else {}
    project = {"projectId": grant.project_id} if grant.project_id is not None else {}
    return {
        "grantId": grant.grant_id,
        "tenantId": grant.tenant_id,
        **project,
        **place,
        "poolId": grant.pool_id,
        "slots": grant.slots,
        "startsAt": grant.starts_at,
        "endsAt": grant.ends_at,
        "state": view.state.value,
        "createdAt": grant.created_at,
    }


async def create(runtime: Runtime, caller: Caller, given: dict[str, Any]) -> Any:
    if refusal := _refuse_fields("create", given):
        return refusal
    outcome = await runtime.grants.create(
        caller,
        tenant_id=given["tenantId"],
        account_id=given["accountId"],
        reservation_id=given["reservationId"],
        grant_tenant_id=given["grantTenantId"],
        project_id=given.get("projectId"),
        slots=given["slots"],
        starts_at=given["startsAt"],
        ends_at=given["endsAt"],
        idempotency_key=given["idempotencyKey"],
    )
    return _shown(outcome, caller)


async def get(runtime: Runtime, caller: Caller, given: dict[str, Any]) -> Any:
    if refusal := _refuse_fields("get", given):
        return refusal
    found = await runtime.reads.grant(caller, tenant_id=given["tenantId"], grant_id=given["grantId"])
    return found if isinstance(found, Refusal) else grant_json(found, for_root=caller.principal.is_root)


async def list_(runtime: Runtime, caller: Caller, given: dict[str, Any]) -> Any:
    if refusal := _refuse_fields("list", given):
        return refusal
    found = await runtime.reads.list_grants(caller, tenant_id=given["tenantId"], all_tenants=given.get("all"))
    if isinstance(found, Refusal):
        return found
    return {"items": [grant_json(view, for_root=caller.principal.is_root) for view in found]}


async def end(runtime: Runtime, caller: Caller, given: dict[str, Any]) -> Any:
    if refusal := _refuse_fields("end", given):
        return refusal
    outcome = await runtime.grants.end(
        caller, tenant_id=given["tenantId"], account_id=given["accountId"], grant_id=given["grantId"]
    )
    return _shown(outcome, caller)


def _shown(outcome: Any, caller: Caller) -> Any:
    if isinstance(outcome, Accepted):
        return grant_json(outcome.answer, for_root=caller.principal.is_root)
    return outcome


def _refuse_fields(method: str, given: dict[str, Any]) -> Refusal | None:
    required, optional = FIELDS[method]
    try:
        check_fields(given, required=required, optional=optional)
    except Shape as shape:
        return shape.refusal
    return None


ROUTES: Final = [
    Route(f"{PATH}/{name}", Endpoint(handler), methods=["POST"])
    for name, handler in (("create", create), ("get", get), ("list", list_), ("end", end))
]
