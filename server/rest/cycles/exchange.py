"""One request on this wire as its operations see it: who asks, what was sent, and what they can answer.

An operation does what is particular to it; it raises `Shape` for what cannot be read, returns a refusal for what may not
be, or a `Reply`. What is the same for all is in `resource`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

from domain.authority import Permission
from domain.outcomes import InvalidInput, Refusal
from domain.shapes import Shape
from server.rest.cycles.bodies import BODY_MAX, Body, read_body
from server.rest.cycles.correlation import Correlation
from server.rest.cycles.failures import Failure, Plane
from server.rest.cycles.query import Query
from workers.budget.evidence import Artifact
from workers.request import Caller
from workers.runtime import Runtime

API_KEY: Final = "x-cycles-api-key"
ADMIN_KEY: Final = "x-admin-api-key"
IDEMPOTENCY_KEY: Final = "x-idempotency-key"

WANTED: Final = frozenset(
    name.encode()
    for name in (
        API_KEY,
        ADMIN_KEY,
        IDEMPOTENCY_KEY,
        "traceparent",
        "x-cycles-trace-id",
        "content-type",
        "content-length",
        "user-agent",
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
    """`owner`: the tenant that the thing belongs to, when the caller is an operator and has none of its own.

    `is_repeat`: it was accepted before, under the same key; a client cannot tell the difference.
    """

    value: Any
    status: int = 200
    owner: str | None = None
    is_repeat: bool = False
    headers: tuple[tuple[str, str], ...] = ()


Answer = Reply | Refusal | Failure


@dataclass(slots=True)
class Exchange:
    runtime: Runtime
    scope: Scope
    receive: Receive
    headers: Mapping[str, str]
    correlation: Correlation
    is_admin: bool = False
    sent: bytes = b""
    """The body, once it has been read."""
    idempotency_key: str = ""
    """The one in the body, once it has been read."""
    _caller: Caller | None = None

    @property
    def caller(self) -> Caller:
        assert self._caller is not None, "nobody has authenticated"
        return self._caller

    def admit(self, caller: Caller, *, as_admin: bool) -> None:
        self._caller, self.is_admin = caller, as_admin

    @property
    def known_caller(self) -> Caller | None:
        """None before anybody has authenticated, and when nobody could."""
        return self._caller

    @property
    def source_ip(self) -> str | None:
        client = self.scope.get("client")
        return client[0] if client else None

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
        self.sent = sent = await self._receive()
        request = read_body(b"{}" if optional and not sent.strip() else sent, kind)
        if isinstance(request, InvalidInput):
            raise Shape(request)
        if "idempotency_key" in kind.__struct_fields__:
            key = getattr(request, "idempotency_key", None)
            self._check_key(key)
            self.idempotency_key = key or ""
        return request

    @property
    def key_in_header(self) -> str | None:
        """For the operations whose bodies have no idempotency key: they are repeated under the one in the header."""
        return self.headers.get(IDEMPOTENCY_KEY)

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
    """`own`: a tenant's key needs one of these; `admin`: an operator's. The desks ask again: this only puts it in order.

    `name`: what the audit log calls it; None for one whose failures are not on record. `artifact`: what is attested of it
    where evidence is given.
    """

    handle: Handle
    access: Access
    plane: Plane
    own: tuple[Permission, ...] = ()
    admin: tuple[Permission, ...] = ()
    has_body: bool = False
    name: str | None = None
    artifact: Artifact | None = None

    def missing(self, exchange: Exchange) -> tuple[Permission, ...]:
        """What the caller's key would need one of; nothing when it has it."""
        needed = self.admin if exchange.is_admin else self.own
        return () if not needed or any(map(exchange.caller.principal.may, needed)) else needed
