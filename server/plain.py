"""Bodies in and JSON out on plain ASGI, for the routes that every microsecond counts on."""

from __future__ import annotations

from typing import Final

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

REASON_MAX: Final = 256

_LENGTH: Final = b"content-length"


async def read_whole(scope: Scope, receive: Receive, *, most: int) -> bytes | None:
    """The body, or None for one that is too large: as far as it says so itself, nothing of it is read.

    Raises `ClientDisconnect`.
    """
    if _declared(scope) > most:
        return None
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        received: bytes = message.get("body", b"")
        body += received
        if len(body) > most:
            return None
        if not message.get("more_body", False):
            return body


def _declared(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == _LENGTH:
            return int(value) if value.isdigit() else 0
    return 0


async def send_json(send: Send, body: bytes, *, content_type: bytes = b"application/json") -> None:
    """A 200 with the headers in the order in which starlette has them."""
    headers = [(b"content-length", b"%d" % len(body)), (b"content-type", content_type)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def unreadable(error: Exception) -> str:
    """Why a body cannot be read, in words that a client can do something with."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, UnicodeError):
        return "it has text that is not UTF-8"
    return str(error)[:REASON_MAX]
