"""What the compute wire shares: strict JSON in, `{error: {code, message, details?}}` out, one total table of statuses."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from strawberry.utils.str_converters import to_camel_case

from domain.capacity.refusals import CapacityUnavailable
from domain.outcomes import AccessDenied, Conflict, InvalidInput, InvalidState, NotFound, Refusal
from server.auth import caller_in
from server.plain import read_whole, send_json, unreadable
from storage.database import Unavailable
from workers.actor import Overloaded, Stopped
from workers.request import Caller
from workers.runtime import Runtime

STATUSES: Final[dict[type[Refusal], int]] = {
    InvalidInput: 400,
    AccessDenied: 403,
    NotFound: 404,
    InvalidState: 409,
    Conflict: 409,
    CapacityUnavailable: 409,
}
"""Refusal to HTTP status: total over what the capacity desks can answer (a test enumerates them)."""

UNTOLD: Final[tuple[type[Refusal], ...]] = (AccessDenied, NotFound)
"""Refusals without details (R64): nothing about what exists."""

BODY_MAX: Final = 64 * 1024
"""Bytes of a request body: the largest request of this wire has under 2 kB."""

NAME_MAX: Final = 128
"""Characters of a field's name: an unknown one is named in the refusal."""

_USUAL: Final = frozenset(
    ("tenantId", "accountId", "reservationId", "grantTenantId", "slots", "startsAt", "endsAt", "idempotencyKey")
)
"""Names that need no second look."""

Handler = Callable[[Runtime, Caller, dict[str, Any]], Awaitable[Any]]


class Endpoint:
    """A route on plain ASGI that authenticates, reads one JSON object, and answers with what `handle` returns or
    refuses."""

    def __init__(self, handle: Handler) -> None:
        self._handle = handle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        runtime: Runtime = scope["app"].state.runtime
        try:
            outcome = await self._respond(runtime, scope, receive)
        except Overloaded as error:
            outcome = failure(503, "OVERLOADED", str(error), headers={"retry-after": str(error.retry_after_s)})
        except (Unavailable, Stopped) as error:
            outcome = failure(503, "UNAVAILABLE", str(error), headers={"retry-after": "1"})
        if isinstance(outcome, Refusal):
            outcome = refused(outcome)
        if isinstance(outcome, Response):
            await outcome(scope, receive, send)
        else:
            await send_json(send, msgspec.json.encode(outcome))

    async def _respond(self, runtime: Runtime, scope: Scope, receive: Receive) -> Any:
        """A response, a refusal, or a value to show."""
        caller = await caller_in(runtime.authenticator, scope)
        if caller is None:
            headers = {"www-authenticate": "Bearer"}
            return failure(401, "UNAUTHENTICATED", "send a valid API key as Authorization: Bearer", headers=headers)
        body = await read_whole(scope, receive, most=BODY_MAX)
        if body is None:
            return failure(413, "BODY_TOO_LARGE", f"the body has more than {BODY_MAX} bytes")
        given = read_object(body)
        return given if isinstance(given, Refusal) else await self._handle(runtime, caller, given)


def read_object(body: bytes) -> dict[str, Any] | InvalidInput:
    """A JSON object without duplicate names, NaN or infinities; an empty body is an empty object."""
    try:
        value = _DECODER.decode((body or b"{}").decode())
    except (ValueError, RecursionError) as error:
        return InvalidInput(
            field="body", reason="malformed", message=f"the body is not a JSON object: {unreadable(error)}"
        )
    if not isinstance(value, dict):
        return InvalidInput(field="body", reason="wrong-type", message="the body must be a JSON object")
    return value


def answer(value: Any, *, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status_code=status, media_type="application/json")


def refused(refusal: Refusal) -> Response:
    details = {} if isinstance(refusal, UNTOLD) else refusal.details()
    return failure(
        STATUSES[type(refusal)],
        refusal.code,
        refusal.message,
        details={to_camel_case(k): v for k, v in details.items()},
    )


def failure(
    status: int,
    code: str,
    message: str,
    *,
    details: dict[str, Any] | None = None,
    headers: dict[str, str] | None = None,
) -> Response:
    error: dict[str, Any] = {"code": code, "message": message}
    if details:
        error["details"] = details
    body = msgspec.json.encode({"error": error})
    return Response(body, status_code=status, headers=headers, media_type="application/json")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a name stands twice in one object")
    if not _USUAL.issuperset(value) and not all(name.isprintable() and len(name) <= NAME_MAX for name in value):
        raise ValueError(f"a name is not {NAME_MAX} printable characters at most")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)
