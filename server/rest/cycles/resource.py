"""From the headers of a request to the bytes of its answer, in the documented order of checks (5.3).

Written on plain ASGI: this is the hot path. A `Resource` is one path.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from domain.authority import Permission
from domain.identity import TENANT_ID
from domain.outcomes import AccessDenied, Refusal
from domain.shapes import Shape
from domain.terms import SECOND_MS
from server.auth import holder_of
from server.rest.cycles import failures
from server.rest.cycles.answers import Document
from server.rest.cycles.bodies import BODY_MAX
from server.rest.cycles.correlation import correlate
from server.rest.cycles.evidence import ATTESTED, attest_error, attest_reply
from server.rest.cycles.exchange import (
    ADMIN_KEY,
    API_KEY,
    WANTED,
    Access,
    Answer,
    Exchange,
    Operation,
    RefusedError,
    Reply,
    TooLargeError,
)
from server.rest.cycles.failures import ErrorCode, Failure, Plane
from server.rest.cycles.record import put_on_record
from storage.database import Unavailable
from workers.actor import Overloaded, Stopped
from workers.attempts import Attempt
from workers.request import Caller

log = logging.getLogger("earmark.cycles")

NO_CONTENT: Final = 204


@dataclass(slots=True)
class Resource:
    """The ASGI application of one path: method to operation. `names`: path parameters that this very path stands for."""

    operations: Mapping[str, Operation] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["path_params"] = {**scope["path_params"], **self.names}
        headers = _headers_of(scope)
        exchange = Exchange(
            runtime=scope["app"].state.runtime,
            scope=scope,
            receive=receive,
            headers=headers,
            correlation=correlate(
                headers, request_id=scope["state"]["request_id"], trace_id=scope["state"].get("trace_id")
            ),
        )
        await _send(send, exchange, await self._answer(exchange))

    async def _answer(self, exchange: Exchange) -> _Encoded:
        """What nobody expected is an answer in this wire's own form, too."""
        method = exchange.scope["method"]
        operation = self.operations.get("GET" if method == "HEAD" else method)
        if operation is None:
            unknown = self._unknown_method()
            return _encode_failure(unknown, exchange, _show_failure(unknown, exchange))
        try:
            answer = await _attempt(operation, exchange)
            if isinstance(answer, Reply):
                attester = exchange.runtime.attester
                if attester is not None and operation.artifact is not None:
                    await attest_reply(attester, exchange, operation.artifact, answer)
                body = b"" if answer.status == NO_CONTENT else msgspec.json.encode(answer.value)
                return _Encoded(answer.status, body, answer.headers, owner=answer.owner)
            failure = failures.failure_of(answer, operation.plane) if isinstance(answer, Refusal) else answer
        except ClientDisconnect:
            raise
        except Exception:
            log.exception("an operation failed", extra={"path": exchange.scope["path"]})
            failure = failures.broken()
        if operation.name is not None and failure.is_on_record:
            await put_on_record(exchange, operation.name, failure)
        error = _show_failure(failure, exchange)
        attester = exchange.runtime.attester
        if attester is not None and operation.artifact is not None and failure.error in ATTESTED:
            await attest_error(attester, exchange, operation.artifact, failure.status, error)
        return _encode_failure(failure, exchange, error)

    def _unknown_method(self) -> Failure:
        if not self.operations:
            return failures.unknown_path()
        allowed = ", ".join(sorted(self.operations))
        return Failure(
            status=405,
            error=ErrorCode.INVALID_REQUEST,
            message=f"this path takes {allowed}",
            headers=(("allow", allowed),),
        )


async def _attempt(operation: Operation, exchange: Exchange) -> Answer:
    """Whatever is expected to end an operation early, as its answer."""
    try:
        return await _perform(operation, exchange)
    except (Shape, RefusedError) as error:
        return error.refusal
    except TooLargeError:
        return failures.invalid_request(413, f"the body has more than {BODY_MAX} bytes")
    except Overloaded as error:
        return failures.overloaded(error.retry_after_s, str(error))
    except (Unavailable, Stopped) as error:
        failure = failures.broken(f"not available for the moment, ask again with the same idempotency key: {error}")
        return replace(failure, is_on_record=False)  # where there is no database, there is no record


async def _perform(operation: Operation, exchange: Exchange) -> Answer:
    if operation.has_body and not _is_json(exchange.headers.get("content-type")):
        return failures.invalid_request(415, "the body must be application/json")
    refused = await _authenticate(operation.access, exchange)
    if refused is not None:
        return refused
    if missing := operation.missing(exchange):
        return _lacking(missing, operation.plane)
    return await operation.handle(exchange)


async def _authenticate(access: Access, exchange: Exchange) -> Failure | None:
    """An operator's key counts only where it is taken, and then it decides: a wrong one is not made up for (7)."""
    if access is Access.NOBODY:
        return None
    if access is not Access.TENANT and ADMIN_KEY in exchange.headers:
        caller = await _caller_of(exchange, exchange.headers[ADMIN_KEY])
        if caller is None or not caller.principal.is_root:
            return failures.unauthorized("X-Admin-API-Key is not valid")
        exchange.admit(caller, as_admin=True)
        return None
    if access is Access.ADMIN:
        return failures.unauthorized("send a valid X-Admin-API-Key")
    caller = await _caller_of(exchange, exchange.headers.get(API_KEY, ""))
    if caller is None:
        return failures.unauthorized("send a valid X-Cycles-API-Key")
    exchange.admit(caller, as_admin=False)
    return None


async def _caller_of(exchange: Exchange, secret: str) -> Caller | None:
    if not secret:
        return None
    correlation = exchange.correlation
    attempt = Attempt(
        request_id=correlation.request_id,
        trace_id=correlation.trace_id,
        source_ip=exchange.source_ip,
        trace_flags=correlation.trace_flags,
    )
    user_agent = exchange.headers.get("user-agent")
    return await holder_of(exchange.runtime.authenticator, secret, attempt, user_agent=user_agent)


def _lacking(missing: Iterable[Permission], plane: Plane) -> Failure | AccessDenied:
    message = f"the key lacks the permission {' or '.join(missing)}"
    if plane is Plane.RUNTIME:
        return AccessDenied(message=message)
    return Failure(status=403, error=ErrorCode.INSUFFICIENT_PERMISSIONS, message=message)


def _headers_of(scope: Scope) -> dict[str, str]:
    """Those that this wire reads."""
    return {name.decode(): _as_sent(value) for name, value in scope["headers"] if name in WANTED}


def _as_sent(value: bytes) -> str:
    """Clients send other letters than ASCII in UTF-8, whatever HTTP says of them."""
    try:
        return value.decode().strip()
    except UnicodeDecodeError:
        return value.decode("latin-1").strip()


def _is_json(content_type: str | None) -> bool:
    """One that is not named is taken for JSON: there is nothing else."""
    name = (content_type or "application/json").partition(";")[0].strip().lower()
    return name == "application/json" or (name.startswith("application/") and name.endswith("+json"))


@dataclass(frozen=True, slots=True)
class _Encoded:
    """An answer as it goes out. `owner` as in `Reply`."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    owner: str | None = None


def _show_failure(failure: Failure, exchange: Exchange) -> Document:
    error: Document = {
        "error": failure.error.value,
        "message": failure.message,
        "request_id": exchange.correlation.request_id,
        "trace_id": exchange.correlation.trace_id,
    }
    if failure.details:
        error["details"] = failure.details
    return error


def _encode_failure(failure: Failure, exchange: Exchange, error: Document) -> _Encoded:
    headers = failure.headers
    if failure.retry_after_ms is not None:
        headers += _throttled(failure.retry_after_ms, now=exchange.runtime.clock.local_ms())
    return _Encoded(failure.status, msgspec.json.encode(error), headers)


def _throttled(retry_after_ms: int, *, now: int) -> tuple[tuple[str, str], ...]:
    """How long to wait, in whole seconds and rounded up, so that nobody comes too early (1.0)."""
    return (
        ("retry-after", str(-(-retry_after_ms // SECOND_MS))),
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", str(-(-(now + retry_after_ms) // SECOND_MS))),
    )


async def _send(send: Send, exchange: Exchange, answer: _Encoded) -> None:
    of_body = [(b"content-type", b"application/json"), (b"content-length", str(len(answer.body)).encode())]
    headers = [
        *(of_body if answer.status != NO_CONTENT else ()),
        (b"x-cycles-trace-id", exchange.correlation.trace_id.encode()),
        *((name.encode(), text.encode()) for name, text in answer.headers),
    ]
    tenant_id = exchange.tenant_id or answer.owner
    if tenant_id is not None and TENANT_ID.fullmatch(tenant_id):  # an operator may have asked for what cannot be one
        headers.append((b"x-cycles-tenant", tenant_id.encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
