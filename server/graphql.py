"""The GraphQL endpoint: over HTTP by the GraphQL-over-HTTP rules, over graphql-transport-ws, and as server-sent events.

Who asks is settled before anything is read. Closing a connection cancels what it waits for and nothing else: a command
that was queued is decided by its lane, whoever still listens.
"""

from __future__ import annotations

import json
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec
from cross_web import HTTPException
from graphql import GraphQLError
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send
from starlette.websockets import WebSocket
from strawberry.asgi import GraphQL
from strawberry.http import GraphQLHTTPResponse
from strawberry.http.streaming import SSETransport
from strawberry.subscriptions import GRAPHQL_SSE_PROTOCOL, GRAPHQL_TRANSPORT_WS_PROTOCOL
from strawberry.types import ExecutionResult
from strawberry.types.unset import UnsetType

from schema.bounds import BODY_MAX, COST_MAX
from schema.compiled.operations import execute_compiled
from schema.context import Context
from schema.failures import RequestError, unauthenticated
from schema.root import schema
from server.accept import GRAPHQL_JSON, JSON, prefers_events, prefers_graphql_json
from server.auth import caller_in, caller_of, secret_of
from server.plain import read_whole, send_json
from server.sockets import SocketContext, SocketHandler, TextSocket, open_socket
from storage.database import Unavailable
from workers.request import Caller
from workers.runtime import Runtime

METHODS: Final = ("GET", "HEAD", "POST")
"""What the endpoint takes; OPTIONS from pages of other origins is answered before it."""
INIT_WITHIN: Final = timedelta(seconds=10)
"""How long a socket may stay open without saying who it is."""
OPERATIONS_MAX: Final = 100
"""Operations that one socket has open at a time, subscriptions for the most part."""
HEARTBEAT_S: Final = 15.0
"""Silence after which an event stream sends a comment, so that nothing in between takes it for dead."""

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode


ACCEPTS_MAX: Final = 256
"""Forms of the `Accept` header that are remembered."""

_TELLING: Final = frozenset({b"content-type", b"content-length", b"accept"})
_JSON: Final = JSON.encode()


class _Operation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request with nothing in it but this, as the GraphQL-over-HTTP rules name it."""

    query: str
    variables: dict[str, Any] | None = None
    operationName: str | None = None  # noqa: N815 - theirs


_decode_operation: Final = msgspec.json.Decoder(_Operation).decode


class Asked(NamedTuple):
    """A body that was read, and the media type of its answer."""

    body: bytes
    media_type: bytes


class BodyTooLarge(Exception):  # noqa: N818 - what it is
    pass


class EventStream(SSETransport):
    """Server-sent events, only for a client that prefers them: some list them behind JSON on every request."""

    def __init__(self) -> None:
        super().__init__(heartbeat_interval=HEARTBEAT_S)

    def accepts(self, accept: str) -> bool:
        return prefers_events(accept)


class GraphQLEndpoint(GraphQL[Context, None]):
    """Mount it as a route's endpoint and as a WebSocket route's. It finds the node in `app.state.runtime`."""

    stream_transport_classes_by_protocol = {GRAPHQL_SSE_PROTOCOL: EventStream}  # noqa: RUF012 - strawberry's attribute
    graphql_transport_ws_handler_class = SocketHandler
    websocket_adapter_class = TextSocket

    def __init__(self, *, body_max: int = BODY_MAX, cost_max: int = COST_MAX) -> None:
        """`body_max`: bytes of a request, or characters of a message; `cost_max`: units of an operation."""
        self.body_max = body_max
        self.cost_max = cost_max
        super().__init__(
            schema,
            graphql_ide=None,
            subscription_protocols=(GRAPHQL_TRANSPORT_WS_PROTOCOL, GRAPHQL_SSE_PROTOCOL),
            connection_init_wait_timeout=INIT_WITHIN,
            max_subscriptions_per_connection=OPERATIONS_MAX,
            # A key travels in a header or a message that a page must be given, never in a cookie: a page of another
            # origin can do no more than any other program.
            allowed_origins=("*",),
        )

    # -- HTTP ----------------------------------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        if (asked := await self._asked(scope, receive)) is not None:
            data = await self._hurried(scope, asked)
            if data is not None:
                await send_json(send, _encode({"data": data}), content_type=asked.media_type)
                return
            receive = _again(asked.body, receive)
        request = Request(_as_get(scope), _bounded(receive, self.body_max))
        response = await self._respond(request)
        await response(scope, receive, send)

    # -- the short way -------------------------------------------------------------------------------------------------

    async def _asked(self, scope: Scope, receive: Receive) -> Asked | None:
        """The body of an ordinary request of somebody who is known, when it may be answered by a compiled operation.

        Nothing has been read when there is none. Who asks is settled once, whichever way the request goes on.
        """
        media_type = _short_way(scope, self.body_max)
        if media_type is None:
            return None
        try:
            caller = await caller_in(scope["app"].state.runtime.authenticator, scope)
        except Unavailable:
            return None
        scope["state"]["caller"] = caller
        if caller is None:
            return None
        body = await read_whole(scope, receive, most=self.body_max)
        return None if body is None else Asked(body, media_type)

    async def _hurried(self, scope: Scope, asked: Asked) -> dict[str, Any] | None:
        """The data of an answer without errors; None for what has to go the long way."""
        try:
            operation = _decode_operation(asked.body)
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            return None
        state = scope["state"]
        context = Context(runtime=scope["app"].state.runtime, caller=state["caller"], cost_max=self.cost_max)
        data = await execute_compiled(schema, context, operation.query, operation.variables, operation.operationName)
        state["known"] = context.known
        return data

    # -- the long way --------------------------------------------------------------------------------------------------

    async def _respond(self, request: Request) -> Response:
        if request.method not in METHODS:
            message = f"{request.method} is not allowed here: ask with {', '.join(METHODS)}"
            headers = {"allow": ", ".join(METHODS)}
            return self._fail(request, 405, RequestError("METHOD_NOT_ALLOWED", message), headers=headers)
        try:
            caller = await _caller(request)
            if caller is None:
                return self._fail(request, 401, unauthenticated(), headers={"www-authenticate": "Bearer"})
            _refuse_length(request.headers, self.body_max)
            request.state.caller = caller
            return self._in_own_media_type(request, await self.run(request))
        except HTTPException as error:
            if error.status_code == 404:  # that is how the library says that there is nothing to execute
                return self._fail(request, 400, RequestError("BAD_REQUEST", "a GET needs the parameter `query`"))
            return self._fail(request, error.status_code, RequestError("BAD_REQUEST", error.reason))
        except BodyTooLarge:
            message = f"the request has more than {self.body_max} bytes"
            return self._fail(request, 413, RequestError("BODY_TOO_LARGE", message, limit=self.body_max))
        except Unavailable as error:
            return self._fail(request, 503, RequestError("UNAVAILABLE", str(error)), headers={"retry-after": "1"})

    def _fail(
        self, request: Request, status: int, error: GraphQLError, *, headers: dict[str, str] | None = None
    ) -> Response:
        media_type = GRAPHQL_JSON if prefers_graphql_json(request.headers.get("accept", "")) else JSON
        body = self.encode_json({"errors": [error.formatted]})
        return Response(body, status_code=status, headers=headers, media_type=f"{media_type}; charset=utf-8")

    def _in_own_media_type(self, request: Request, response: Response) -> Response:
        """In GraphQL's own media type a request that was never executed is a bad one; in plain JSON it is a 200."""
        is_plain = response.media_type == JSON
        if is_plain and prefers_graphql_json(request.headers.get("accept", "")):
            response.headers["content-type"] = f"{GRAPHQL_JSON}; charset=utf-8"
            if response.status_code == 200 and getattr(request.state, "was_not_executed", False):
                response.status_code = 400
        return response

    async def process_result(self, request: Request, result: ExecutionResult) -> GraphQLHTTPResponse:
        shown = await super().process_result(request, result)
        if result.data is None and result.errors and all(error.path is None for error in result.errors):
            shown.pop("data", None)
            request.state.was_not_executed = True
        return shown

    def parse_json(self, data: str | bytes) -> Any:
        value = super().parse_json(data)
        if isinstance(data, bytes) and not isinstance(value, dict | list):  # a body; parameters of an address are text
            raise HTTPException(400, "The request must be a JSON object")
        return value

    def encode_json(self, data: object) -> str:
        """Text, since bytes would be sent as binary frames, which clients of the protocol do not read."""
        return _encode(data).decode()

    def decode_json(self, data: str | bytes) -> object:
        try:
            return _decode(data)
        except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
            raise json.JSONDecodeError(str(error), "", 0) from None

    # -- who asks ------------------------------------------------------------------------------------------------------

    async def get_context(self, request: Request | WebSocket, response: Response | WebSocket) -> Context:
        runtime = _runtime(request)
        if isinstance(request, WebSocket):
            ids = _ids(request)
            return SocketContext(
                runtime=runtime,
                is_socket=True,
                cost_max=self.cost_max,
                headers=request.headers,
                ids=ids,
                request=request,
            )
        known = getattr(request.state, "known", None)
        return Context(runtime=runtime, caller=request.state.caller, cost_max=self.cost_max, known=known)

    async def on_ws_connect(self, context: Context) -> UnsetType:
        assert isinstance(context, SocketContext)
        await open_socket(context)
        return UnsetType()


async def _caller(request: Request) -> Caller | None:
    """Who asks, if that is not known yet. Raises `Unavailable`."""
    state = request.scope["state"]
    if "caller" in state:
        caller: Caller | None = state["caller"]
        return caller
    secret = secret_of(request.headers)
    return await caller_of(_runtime(request).authenticator, secret, **_ids(request), request=request)


def _runtime(request: Request | WebSocket) -> Runtime:
    runtime: Runtime = request.app.state.runtime
    return runtime


def _ids(request: Request | WebSocket) -> dict[str, str | None]:
    state = request.scope.get("state", {})
    return {name: state.get(name) for name in ("request_id", "trace_id", "trace_flags")}


def _short_way(scope: Scope, most: int) -> bytes | None:
    """The media type of the answer to a request that can go it: JSON posted whole, for one answer."""
    if scope["method"] != "POST":
        return None
    given = {}
    for name, value in scope["headers"]:
        if name in _TELLING:
            if name in given:
                return None
            given[name] = value
    length = given.get(b"content-length", b"")
    if given.get(b"content-type") != _JSON or not length.isdigit() or int(length) > most:
        return None
    return _answered_in(given.get(b"accept", b""))


@lru_cache(ACCEPTS_MAX)
def _answered_in(accept: bytes) -> bytes | None:
    """None where it may be a stream."""
    text = accept.decode("latin-1")
    if "event-stream" in text or "multipart" in text:
        return None
    return f"{GRAPHQL_JSON}; charset=utf-8".encode() if prefers_graphql_json(text) else _JSON


def _again(body: bytes, receive: Receive) -> Receive:
    """What was read already, and then the rest."""
    read = [body]

    async def tell() -> Message:
        return {"type": "http.request", "body": read.pop(), "more_body": False} if read else await receive()

    return tell


def _as_get(scope: Scope) -> Scope:
    """A HEAD is answered like the GET would be; the server leaves the body out. It never begins a stream."""
    if scope["method"] != "HEAD":
        return scope
    accept = b",".join(value for name, value in scope["headers"] if name == b"accept").decode("latin-1")
    headers = scope["headers"]
    if prefers_events(accept):
        headers = [(name, value) for name, value in headers if name != b"accept"]
    return {**scope, "method": "GET", "headers": headers}


def _refuse_length(headers: Headers, most: int) -> None:
    """A body that says to be too large is not read at all."""
    declared = headers.get("content-length", "")
    if declared.isascii() and declared.isdecimal() and int(declared) > most:
        raise BodyTooLarge


def _bounded(receive: Receive, most: int) -> Receive:
    """Counts a body that does not say how large it is."""
    total = 0

    async def count() -> Message:
        nonlocal total
        message = await receive()
        total += len(message.get("body", b""))
        if total > most:
            raise BodyTooLarge
        return message

    return count
