"""What the compute wire shares: strict JSON in, `{error: {code, message, details?}}` out, one total table of statuses."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from domain.capacity.refusals import CapacityUnavailable
from domain.outcomes import AccessDenied, Conflict, InvalidInput, InvalidState, NotFound, Refusal
from server.auth import caller_of, secret_of
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

Handler = Callable[[Runtime, Caller, dict[str, Any]], Awaitable[Any]]


def endpoint(handle: Handler) -> Callable[[Request], Awaitable[Response]]:
    """A route that authenticates, reads one JSON object, and answers with what `handle` returns or refuses."""

    async def serve(request: Request) -> Response:
        runtime: Runtime = request.app.state.runtime
        state = request.scope["state"]
        ids = {"request_id": state["request_id"], "trace_id": state["trace_id"], "trace_flags": state["trace_flags"]}
        try:
            caller = await caller_of(runtime.authenticator, secret_of(request.headers), **ids, request=request)
            if caller is None:
                headers = {"www-authenticate": "Bearer"}
                return failure(401, "UNAUTHENTICATED", "send a valid API key as Authorization: Bearer", headers=headers)
            body = await read_body(request)
            if body is None:
                return failure(413, "BODY_TOO_LARGE", f"the body has more than {BODY_MAX} bytes")
            given = read_object(body)
            if isinstance(given, Refusal):
                return refused(given)
            outcome = await handle(runtime, caller, given)
        except Overloaded as error:
            return failure(503, "OVERLOADED", str(error), headers={"retry-after": str(error.retry_after_s)})
        except (Unavailable, Stopped) as error:
            return failure(503, "UNAVAILABLE", str(error), headers={"retry-after": "1"})
        return refused(outcome) if isinstance(outcome, Refusal) else answer(outcome)

    return serve


async def read_body(request: Request) -> bytes | None:
    """The body, or None for one that is too large: as far as it says so itself, nothing of it is read."""
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdecimal() and int(declared) > BODY_MAX:
        return None
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_MAX:
            return None
    return body


def read_object(body: bytes) -> dict[str, Any] | InvalidInput:
    """A JSON object without duplicate names, NaN or infinities; an empty body is an empty object."""
    try:
        value = json.loads((body or b"{}").decode(), object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        return InvalidInput(field="body", reason="malformed", message=f"the body is not a JSON object: {error}")
    if not isinstance(value, dict):
        return InvalidInput(field="body", reason="wrong-type", message="the body must be a JSON object")
    return value


def answer(value: Any, *, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status_code=status, media_type="application/json")


def refused(refusal: Refusal) -> Response:
    details = {} if isinstance(refusal, UNTOLD) else refusal.details()
    return failure(
        STATUSES[type(refusal)], refusal.code, refusal.message, details={_camel(k): v for k, v in details.items()}
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
    if not all(name.isprintable() and len(name) <= NAME_MAX for name in value):
        raise ValueError(f"a name is not {NAME_MAX} printable characters at most")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _camel(name: str) -> str:
    head, *tail = name.split("_")
    return head + "".join(word.capitalize() for word in tail)
