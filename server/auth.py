"""Which principal a request speaks for: `Authorization: Bearer KEY` or `X-API-Key: KEY`."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection

from workers.attempts import Attempt
from workers.authority import Authenticator
from workers.request import Caller


def secret_of(headers: Mapping[str, str]) -> str | None:
    """The API key in the headers, if there is one. A bearer token wins over the other header."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    is_bearer = scheme.lower() == "bearer" and token.strip()
    secret = (token if is_bearer else headers.get("x-api-key", "")).strip()
    return (_as_sent(secret) if isinstance(headers, Headers) else secret) or None


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
    principal = await authenticator.authenticate(secret, attempt)
    if principal is None:
        return None
    return Caller(
        principal=principal,
        request_id=request_id,
        trace_id=trace_id,
        source_ip=source_ip,
        user_agent=None if request is None else request.headers.get("user-agent"),
        trace_flags=trace_flags,
    )


def _as_sent(text: str) -> str:
    """A header's text, which starlette reads as latin-1: clients send a key with other letters in UTF-8."""
    try:
        return text.encode("latin-1").decode()
    except UnicodeError:
        return text
