"""Which principal a request speaks for: `Authorization: Bearer KEY` or `X-API-Key: KEY`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import Scope

from workers.attempts import Attempt
from workers.authority import Authenticator
from workers.request import Caller

_AUTHORIZATION: Final = b"authorization"
_API_KEY: Final = b"x-api-key"
_USER_AGENT: Final = b"user-agent"


class SentHeaders(dict[str, str]):
    """Some headers of a request, each as it was sent first, read as starlette reads them: latin-1."""


def sent_headers(scope: Scope, *wanted: bytes) -> SentHeaders:
    found = SentHeaders()
    for name, value in scope["headers"]:
        if name in wanted:
            found.setdefault(name.decode(), value.decode("latin-1"))
    return found


async def caller_in(authenticator: Authenticator, scope: Scope) -> Caller | None:
    """Who sent a request that has been through the outermost layer; None without a valid key. Raises `Unavailable`."""
    headers = sent_headers(scope, _AUTHORIZATION, _API_KEY, _USER_AGENT)
    secret = secret_of(headers)
    if secret is None:
        return None
    state, client = scope["state"], scope.get("client")
    attempt = Attempt(
        request_id=state["request_id"],
        trace_id=state["trace_id"],
        source_ip=client[0] if client else None,
        trace_flags=state["trace_flags"],
    )
    return await holder_of(authenticator, secret, attempt, user_agent=headers.get("user-agent"))


def secret_of(headers: Mapping[str, str]) -> str | None:
    """The API key in the headers, if there is one. A bearer token wins over the other header."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    is_bearer = scheme.lower() == "bearer" and token.strip()
    secret = (token if is_bearer else headers.get("x-api-key", "")).strip()
    return (_as_sent(secret) if isinstance(headers, Headers | SentHeaders) else secret) or None


async def caller_of(
    authenticator: Authenticator,
    secret: str | None,
    *,
    request_id: str | None,
    trace_id: str | None,
    trace_flags: str | None = None,
    request: HTTPConnection | None = None,
) -> Caller | None:
    """The caller behind a key; None without a valid one. `request`: where it comes from, for the audit log and for
    what is told of a key that is not valid."""
    if not secret:
        return None
    source_ip = None if request is None or request.client is None else request.client.host
    attempt = Attempt(request_id=request_id, trace_id=trace_id, source_ip=source_ip, trace_flags=trace_flags)
    user_agent = None if request is None else request.headers.get("user-agent")
    return await holder_of(authenticator, secret, attempt, user_agent=user_agent)


async def holder_of(
    authenticator: Authenticator, secret: str, attempt: Attempt, *, user_agent: str | None
) -> Caller | None:
    """Who the key is that the request was sent with, as desks want to know it. None for one that is not valid."""
    principal = await authenticator.authenticate(secret, attempt)
    if principal is None:
        return None
    return Caller(
        principal=principal,
        request_id=attempt.request_id,
        trace_id=attempt.trace_id,
        source_ip=attempt.source_ip,
        user_agent=user_agent,
        trace_flags=attempt.trace_flags,
    )


def _as_sent(text: str) -> str:
    """A header's text, which starlette reads as latin-1: clients send a key with other letters in UTF-8."""
    try:
        return text.encode("latin-1").decode()
    except UnicodeError:
        return text
