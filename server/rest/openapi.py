"""The OpenAPI 3.1 document of the compute wire, made of the very patterns and limits that the desks check."""

from __future__ import annotations

from re import Pattern
from typing import Any, Final

from domain.capacity.state import GrantState
from domain.identity import ACCOUNT_ID, GRANT_ID, IDEMPOTENCY_KEY, POOL_ID, PROJECT_ID, RESERVATION_ID, TENANT_ID
from domain.terms import INSTANT_MAX
from server.rest.grants import FIELDS, PATH
from server.rest.wire import STATUSES
from workers.capacity.grants import SLOTS_MAX


def _text(pattern: Pattern[str], longest: int, description: str) -> dict[str, Any]:
    return {"type": "string", "pattern": f"^{pattern.pattern}$", "maxLength": longest, "description": description}


def _instant(description: str) -> dict[str, Any]:
    return {
        "type": "integer",
        "minimum": 0,
        "maximum": INSTANT_MAX,
        "description": f"{description} Epoch milliseconds.",
    }


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Null is as good as absent."""
    return {**schema, "type": [schema["type"], "null"]}


PROPERTIES: Final[dict[str, dict[str, Any]]] = {
    "tenantId": _text(TENANT_ID, 128, "The tenant that the caller acts in."),
    "accountId": _text(ACCOUNT_ID, 58, "The provider account that carries the reservation."),
    "reservationId": _text(RESERVATION_ID, 300, "The provider's name of the capacity reservation."),
    "grantTenantId": _text(TENANT_ID, 128, "The tenant that gets the slots."),
    "projectId": _or_null(_text(PROJECT_ID, 56, "Only this project's instances may use the slots.")),
    "grantId": _text(GRANT_ID, 59, "The grant."),
    "slots": {"type": "integer", "minimum": 1, "maximum": SLOTS_MAX, "description": "Slots committed for the term."},
    "startsAt": _instant("The first instant of the term, at most 5 minutes in the past."),
    "endsAt": _instant("The end of the term, no longer part of it."),
    "idempotencyKey": _text(IDEMPOTENCY_KEY, 128, "A retry with the same key returns the same grant."),
    "all": _or_null({"type": "boolean", "default": False, "description": "Root only: the grants of every tenant."}),
}

SUMMARIES: Final = {
    "create": "Commit slots of a capacity reservation to a tenant for a term",
    "get": "One grant",
    "list": "A tenant's grants, newest first, at most 1000",
    "end": "End a grant now, or cancel it before it starts",
}

ERRORS: Final = {
    "400": "INVALID_INPUT: the request can never be right as it stands; `details.field` names the input",
    "401": "UNAUTHENTICATED: no valid API key",
    "403": "ACCESS_DENIED: the caller may not do this",
    "404": "NOT_FOUND: no such thing for this caller",
    "409": "CONFLICT, INVALID_STATE or CAPACITY_UNAVAILABLE, with details to act on",
    "413": "BODY_TOO_LARGE: no request of this wire is that long",
    "500": "INTERNAL: something went wrong on our side; `details.requestId` finds it in the log",
    "503": "UNAVAILABLE or OVERLOADED: ask again, with the same idempotency key, after `Retry-After` seconds",
}


CODES: Final = (
    *sorted({kind.code for kind in STATUSES}),
    "UNAUTHENTICATED",
    "BODY_TOO_LARGE",
    "OVERLOADED",
    "UNAVAILABLE",
    "INTERNAL",
)


def document(version: str) -> dict[str, Any]:
    """The whole document, as served at `/openapi.json`."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Earmark compute wire",
            "version": version,
            "description": "Reservation grants: slots of provider capacity reservations committed to tenants.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{"bearer": []}, {"apiKey": []}],
        "paths": {f"{PATH}/{method}": {"post": _operation(method)} for method in FIELDS},
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            },
            "schemas": {"Grant": _grant(), "Error": _error()},
        },
    }


def _operation(method: str) -> dict[str, Any]:
    required, optional = FIELDS[method]
    names = [name for name in PROPERTIES if name in required | optional]
    grant = {"$ref": "#/components/schemas/Grant"}
    items = {"type": "object", "required": ["items"], "properties": {"items": {"type": "array", "items": grant}}}
    body = {
        "type": "object",
        "required": [name for name in names if name in required],
        "properties": {name: PROPERTIES[name] for name in names},
        "additionalProperties": False,
    }
    return {
        "operationId": f"reservationGrants.{method}",
        "summary": SUMMARIES[method],
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {
            "200": {"description": SUMMARIES[method], "content": _json(items if method == "list" else grant)},
            **{status: _refusal(status) for status in ERRORS},
        },
    }


def _refusal(status: str) -> dict[str, Any]:
    refusal: dict[str, Any] = {
        "description": ERRORS[status],
        "content": _json({"$ref": "#/components/schemas/Error"}),
    }
    if status == "503":
        seconds = {"description": "Seconds to wait.", "schema": {"type": "integer", "minimum": 1}}
        refusal["headers"] = {"Retry-After": seconds}
    return refusal


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _grant() -> dict[str, Any]:
    shown = ("grantId", "tenantId", "projectId", "accountId", "reservationId", "slots", "startsAt", "endsAt")
    properties = {name: PROPERTIES[name] for name in shown}
    properties["projectId"] = _text(PROJECT_ID, 56, "The only project that it serves, if it names one.")
    properties["tenantId"] = _text(TENANT_ID, 128, "The tenant that holds the grant.")
    properties["startsAt"], properties["endsAt"] = _instant("Start of the term."), _instant("End of the term.")
    properties["poolId"] = _text(POOL_ID, 128, "The pool as it was when the grant was made.")
    properties["state"] = {"type": "string", "enum": [state.value for state in GrantState]}
    properties["createdAt"] = _instant("When the grant was made.")
    hidden = {"projectId", "accountId", "reservationId"}
    return {
        "type": "object",
        "description": "A grant as it is now. Account and reservation are shown to root only.",
        "required": [name for name in properties if name not in hidden],
        "properties": properties,
        "additionalProperties": False,
    }


def _error() -> dict[str, Any]:
    error = {
        "type": "object",
        "required": ["code", "message"],
        "properties": {
            "code": {"type": "string", "enum": list(CODES)},
            "message": {"type": "string", "description": "For people. It may change; act on the code and the details."},
            "details": {"type": "object", "description": "What a client can act on, such as field, reason, grantIds."},
        },
        "additionalProperties": False,
    }
    return {"type": "object", "required": ["error"], "properties": {"error": error}, "additionalProperties": False}
