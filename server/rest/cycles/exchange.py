"""One request on this wire, from its headers to the bytes of its answer, in the documented order of checks (5.3).

Written on plain ASGI: this is the hot path. A `Resource` is one path; its operations do what is particular to them and
raise `Shape` for what cannot be read, return a refusal for what may not be, or a `Reply`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

import msgspec
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from domain.authority import Permission
from domain.outcomes import AccessDenied, InvalidInput, Refusal
from domain.shapes import Shape
from domain.terms import SECOND_MS
from server.rest.cycles import failures
from server.rest.cycles.bodies import BODY_MAX, Body, read_body
from server.rest.cycles.correlation import Correlation, correlate
from server.rest.cycles.failures import ErrorCode, Failure, Plane
from server.rest.cycles.query import Query
from storage.database import Unavailable
from workers.actor import Overloaded, Stopped
from workers.request import Caller
from workers.runtime import Runtime

log = logging.getLogger("earmark.cycles")

API_KEY: Final = "x-cycles-api-key"
ADMIN_KEY: Final = "x-admin-api-key"
IDEMPOTENCY_KEY: Final = "x-idempotency-key"

_WANTED: Final = frozenset(
    name.encode()
    for name in (
        API_KEY,
        ADMIN_KEY,
        IDEMPOTENCY_KEY,
        "traceparent",
        "x-cycles-trace-id",
        "content-type",
        "content-length",
    )
)


class Access(Enum):
    """Whose key an operation takes."""

    TENANT = "tenant"
    ADMIN = "admin"
    EITHER = "either"
    NOBODY = "nobody"


@dataclass(frozen=True, slots=True)
class Reply:
    """`owner`: the tenant that the thing belongs to, when the caller is an operator and has none of its own."""

    value: Any
    status: int = 200
    owner: str | None = None


Answer = Reply | Refusal | Failure


@dataclass(slots=True)
class Exchange:
    runtime: Runtime
    scope: Scope
    receive: Receive
    headers: Mapping[str, str]
    correlation: Correlation
    is_admin: bool = False
    _caller: Caller | None = None

    @property
    def caller(self) -> Caller:
        assert self._caller is not None, "nobody has authenticated"
        return self._caller

    def admit(self, caller: Caller, *, as_admin: bool) -> None:
        self._caller, self.is_admin = caller, as_admin

    @property
    def tenant_id(self) -> str | None:
        """The effective tenant; None for an operator, and before anybody has authenticated."""
        return None if self.is_admin or self._caller is None else self._caller.principal.tenant_id

    def path(self, name: str) -> str:
        value: str = self.scope["path_params"][name]
        return value

    def query(self) -> Query:
        """Raises `Shape`."""
        return Query(self.scope["query_string"])

    async def body(self, kind: type[Body], *, optional: bool = False) -> Body:
        """The request as it was sent, closed at every level. `optional`: no body counts as `{}`. Raises `Shape`."""
        sent = await self._receive()
        request = read_body(b"{}" if optional and not sent.strip() else sent, kind)
        if isinstance(request, InvalidInput):
            raise Shape(request)
        self._check_key(getattr(request, "idempotency_key", None))
        return request

    async def _receive(self) -> bytes:
        sent: bytes = b""
        declared = self.headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > BODY_MAX:
            raise TooLargeError
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            sent += message.get("body", b"")
            if len(sent) > BODY_MAX:
                raise TooLargeError
            if not message.get("more_body", False):
                return sent

    def _check_key(self, key: str | None) -> None:
        """A key in the header must be the body's, and cannot be blank (4.4). Raises `Shape`.

        HTTP takes the spaces off the ends of a header, so a key that has some is compared without them.
        """
        header = self.headers.get(IDEMPOTENCY_KEY)
        if header is not None and (not header or key is None or header not in (key, key.strip())):
            message = "X-Idempotency-Key is not the body's idempotency_key"
            raise Shape(InvalidInput(field="idempotency_key", reason="header-mismatch", message=message))


class RefusedError(Exception):
    """Carries a refusal out of nested reads, as `Shape` does with what cannot be read; never leaves the resource."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class TooLargeError(Exception):
    """The body has more than `BODY_MAX` bytes."""


Handle = Callable[[Exchange], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Operation:
    """`own`: a tenant's key needs one of these; `admin`: an operator's. The desks ask again: this only puts it in order."""

    handle: Handle
    access: Access
    plane: Plane
    own: tuple[Permission, ...] = ()
    admin: tuple[Permission, ...] = ()
    has_body: bool = False

    def missing(self, exchange: Exchange) -> tuple[Permission, ...]:
        """What the caller's key would need one of; nothing when it has it."""
        needed = self.admin if exchange.is_admin else self.own
        return () if not needed or any(map(exchange.caller.principal.may, needed)) else needed


@dataclass(slots=True)
class Resource:
    """The ASGI application of one path: method to operation."""

    operations: Mapping[str, Operation] = field(default_factory=dict)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = _headers_of(scope)
        exchange = Exchange(
            runtime=scope["app"].state.runtime,
            scope=scope,
            receive=receive,
            headers=headers,
            correlation=correlate(headers, request_id=scope["state"]["request_id"]),
        )
        await _send(send, exchange, await self._answer(exchange))

    async def _answer(self, exchange: Exchange) -> _Encoded:
        """What nobody expected is an answer in this wire's own form, too."""
        method = exchange.scope["method"]
        operation = self.operations.get("GET" if method == "HEAD" else method)
        if operation is None:
            return _encode_failure(self._unknown_method(), exchange)
        try:
            answer = await _attempt(operation, exchange)
            if isinstance(answer, Reply):
                return _Encoded(answer.status, msgspec.json.encode(answer.value), owner=answer.owner)
            failure = failures.failure_of(answer, operation.plane) if isinstance(answer, Refusal) else answer
            return _encode_failure(failure, exchange)
        except ClientDisconnect:
            raise
        except Exception:
            log.exception("an operation failed", extra={"path": exchange.scope["path"]})
            return _encode_failure(failures.broken(), exchange)

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
        return failures.broken(f"not available for the moment, ask again with the same idempotency key: {error}")


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
    principal = await exchange.runtime.authenticator.authenticate(secret) if secret else None
    if principal is None:
        return None
    client = exchange.scope.get("client")
    return Caller(
        principal=principal,
        request_id=exchange.correlation.request_id,
        trace_id=exchange.correlation.trace_id,
        source_ip=client[0] if client else None,
        trace_flags=exchange.correlation.trace_flags,
    )


def _lacking(missing: Iterable[Permission], plane: Plane) -> Failure | AccessDenied:
    message = f"the key lacks the permission {' or '.join(missing)}"
    if plane is Plane.RUNTIME:
        return AccessDenied(message=message)
    return Failure(status=403, error=ErrorCode.INSUFFICIENT_PERMISSIONS, message=message)


def _headers_of(scope: Scope) -> dict[str, str]:
    """Those that this wire reads."""
    return {name.decode(): _as_sent(value) for name, value in scope["headers"] if name in _WANTED}


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


def _encode_failure(failure: Failure, exchange: Exchange) -> _Encoded:
    error: dict[str, Any] = {
        "error": failure.error.value,
        "message": failure.message,
        "request_id": exchange.correlation.request_id,
        "trace_id": exchange.correlation.trace_id,
    }
    if failure.details:
        error["details"] = failure.details
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
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(answer.body)).encode()),
        (b"x-cycles-trace-id", exchange.correlation.trace_id.encode()),
        *((name.encode(), text.encode()) for name, text in answer.headers),
    ]
    if (tenant_id := exchange.tenant_id or answer.owner) is not None:
        headers.append((b"x-cycles-tenant", tenant_id.encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
