"""The graphql-transport-ws side of the endpoint: who speaks on a socket, and what is no message of the protocol."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from json import JSONDecodeError
from typing import Any, Final

from graphql import GraphQLError
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState
from strawberry.asgi import ASGIWebSocketAdapter
from strawberry.exceptions import ConnectionRejectionError
from strawberry.http.exceptions import NonJsonMessageReceived, NonTextMessageReceived, WebSocketDisconnected
from strawberry.subscriptions.protocols.graphql_transport_ws.handlers import BaseGraphQLTransportWSHandler, Operation
from strawberry.subscriptions.protocols.graphql_transport_ws.types import (
    ConnectionInitMessage,
    Message,
    SubscribeMessage,
)

from schema.context import Context
from schema.sharing import Told
from server.auth import caller_of, secret_of
from storage.database import Unavailable
from workers.request import Caller

BAD_REQUEST: Final = 4400
FORBIDDEN: Final = 4403
TOO_BIG: Final = 1009
TRY_AGAIN: Final = 1013


@dataclass(slots=True, kw_only=True)
class SocketContext(Context):
    """A socket keeps the key it was opened with: each operation is held against it anew."""

    headers: Mapping[str, str]
    ids: Mapping[str, str | None]
    """Of the request and its trace, by the names that `caller_of` has for them."""
    request: WebSocket | None = None
    secret: str | None = field(default=None, repr=False)

    async def holder(self) -> Caller | None:
        """Whom the key speaks for, if it is valid now. Raises `Unavailable`."""
        return await caller_of(self.runtime.authenticator, self.secret, **self.ids, request=self.request)


async def open_socket(context: SocketContext) -> None:
    """Who is it? What the first message says counts before the headers: browsers cannot set those."""
    context.secret = _secret_in(context.connection_params or {}) or secret_of(context.headers)
    context.caller = await context.holder()
    if context.caller is None:
        raise ConnectionRejectionError


def _secret_in(parameters: Mapping[str, Any]) -> str | None:
    """The key in `{"apiKey": …}`, `{"Authorization": "Bearer …"}`, or a header's name in any case."""
    named = {name.lower(): text for name, text in parameters.items() if isinstance(text, str)}
    return named.get("apikey") or secret_of(named)


class TextSocket(ASGIWebSocketAdapter):
    """Bounds messages, and takes a client that has left for what it is."""

    async def iter_json(
        self,
        *,
        ignore_parsing_errors: bool = False,
    ) -> AsyncGenerator[object, None]:
        """What the client sends, until one of the two closes. A broken message ends the socket."""
        try:
            while self._is_open:
                text = await self.ws.receive_text()
                if len(text) > self.view.body_max:  # type: ignore[attr-defined]  # our endpoint's
                    await self.close(TOO_BIG, "Message too big")
                    return
                yield self.view.decode_json(text)
        except JSONDecodeError as error:
            raise NonJsonMessageReceived from error
        except KeyError as error:  # that is how starlette says that a frame was not text
            raise NonTextMessageReceived from error
        except WebSocketDisconnect:
            return

    async def send_json(self, message: Mapping[str, object]) -> None:
        if not self._is_open:
            raise WebSocketDisconnected
        await super().send_json(message)

    async def send_told(self, operation_id: str, told: Told) -> None:
        """An answer that several get: the operation's name goes before what was encoded for all of them."""
        if not self._is_open:
            raise WebSocketDisconnected
        payload = told.encoded(self._encode_data)
        name = str(self.view.encode_json(operation_id))
        await self.ws.send_text(f'{{"id":{name},"type":"next","payload":{payload}}}')

    def _encode_data(self, data: Told) -> str:
        return str(self.view.encode_json({"data": data}))

    async def close(self, code: int, reason: str) -> None:
        """Closing twice is no error: two operations may find the same fault at once."""
        if self._is_open:
            await super().close(code, reason)

    @property
    def _is_open(self) -> bool:
        return self.ws.application_state is WebSocketState.CONNECTED


class SocketHandler(BaseGraphQLTransportWSHandler[Context, None]):
    """Every operation needs a key that is valid when it begins; subscriptions are ended by the hub when it is not."""

    context: SocketContext

    async def handle_message(self, message: Message) -> None:
        if _is_message(message):
            await super().handle_message(message)
        else:
            await self.handle_invalid_message("Not a message of graphql-transport-ws")

    async def send_message(self, message: Message) -> None:
        if message["type"] == "next":
            data = message["payload"].get("data")
            if isinstance(data, Told) and len(message["payload"]) == 1:
                assert isinstance(self.websocket, TextSocket)
                await self.websocket.send_told(message["id"], data)
                return
        await super().send_message(message)

    async def handle_connection_init(self, message: ConnectionInitMessage) -> None:
        if message.get("payload", {}) is None:
            message = {"type": "connection_init"}
        try:
            await super().handle_connection_init(message)
        except Unavailable:
            await self.websocket.close(TRY_AGAIN, "Try again later")

    async def handle_subscribe(self, message: SubscribeMessage) -> None:
        limit = self.max_subscriptions_per_connection
        if limit is not None and len(self.operations) >= limit and message["id"] not in self.operations:
            error = _failure("TOO_MANY_SUBSCRIPTIONS", f"this socket has {limit} operations open", limit=limit)
            await self.send_message({"id": message["id"], "type": "error", "payload": [error.formatted]})
            return
        await super().handle_subscribe(message)

    async def run_operation(self, operation: Operation[Context, None]) -> None:
        try:
            holder = await self.context.holder()
        except Unavailable as error:
            await operation.send_initial_errors([_failure("UNAVAILABLE", str(error))])
            return
        if holder is not None:
            await super().run_operation(operation)
        else:
            self.operations.pop(operation.id, None)
            await self.websocket.close(FORBIDDEN, "Forbidden")

    async def handle_task_exception(self, error: Exception) -> None:
        """A client that leaves in the middle of an answer is no fault of anybody's."""
        if not isinstance(error, WebSocketDisconnected | WebSocketDisconnect):
            await super().handle_task_exception(error)


def _failure(code: str, message: str, **details: Any) -> GraphQLError:
    return GraphQLError(message, extensions={"code": code, **details})


def _is_message(message: Any) -> bool:
    """Whether it has the shape of its type. What an unknown type is, the protocol's own handler says."""
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        return False
    if message["type"] in ("subscribe", "complete") and not isinstance(message.get("id"), str):
        return False
    return message["type"] != "subscribe" or _is_request(message.get("payload"))


def _is_request(payload: Any) -> bool:
    if not isinstance(payload, dict) or not isinstance(payload.get("query"), str):
        return False
    return isinstance(payload.get("variables"), dict | None) and isinstance(payload.get("operationName"), str | None)
