"""What every request passes: its ids, the log line, the counters, and the last resort for what nobody caught."""

from __future__ import annotations

import logging
import os
import re
import time
from dataclasses import dataclass
from typing import Final

import msgspec
from prometheus_client import Counter, Gauge, Histogram
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.logs import REQUEST

log = logging.getLogger("earmark.http")

REQUEST_SECONDS: Final = Histogram("earmark_http_request_seconds", "Time of HTTP requests", ["method", "route"])
REQUESTS: Final = Counter("earmark_http_requests_total", "HTTP requests", ["method", "route", "status"])
SOCKETS: Final = Gauge("earmark_sockets", "Open WebSockets")

METHODS: Final = frozenset({"GET", "POST", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE"})
"""Every other word counts as one: a client must not be able to make new time series."""
LEFT: Final = 499
"""The status that is counted when a client has gone before it was answered."""

SAMPLED: Final = "01"
"""The flags of a trace that nobody has decided about."""

_TRACING: Final = frozenset({b"traceparent", b"x-cycles-trace-id"})
_TRACE_ID: Final = re.compile(r"[0-9a-f]{32}")
_TRACEPARENT: Final = re.compile(r"(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_QUIET: Final = frozenset({"/healthz", "/readyz", "/metrics"})


@dataclass(frozen=True, slots=True)
class Trace:
    """The W3C trace that a request belongs to. `given_flags`: the caller's, handed on as they came; None: it sent none."""

    trace_id: str
    given_flags: str | None = None

    def parent(self) -> str:
        """A `traceparent` of our own in this trace."""
        return f"00-{self.trace_id}-{os.urandom(8).hex()}-{self.given_flags or SAMPLED}"


def trace_of(traceparent: str | None, cycles_trace_id: str = "") -> Trace:
    """The caller's trace, or a new one: `traceparent` first, then `X-Cycles-Trace-Id`. A malformed header is ignored."""
    match = _TRACEPARENT.fullmatch(traceparent or "")
    if match is None or set(match[2]) == {"0"} or set(match[3]) == {"0"} or (match[1] == "00" and match[5]):
        given = _TRACE_ID.fullmatch(cycles_trace_id)
        return Trace(given[0]) if given and set(given[0]) != {"0"} else _new_trace()
    return Trace(match[2], match[4])


def _new_trace() -> Trace:
    return Trace(os.urandom(16).hex())


class RequestScope:
    """The outermost layer. Sets `request_id` and `trace_id` in the scope's state, and on every response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"] if name in _TRACING}
        trace = (
            trace_of(headers.get(b"traceparent"), headers.get(b"x-cycles-trace-id", "")) if headers else _new_trace()
        )
        request_id = f"req_{os.urandom(12).hex()}"
        ids = {"request_id": request_id, "trace_id": trace.trace_id}
        scope.setdefault("state", {}).update(ids, trace_flags=trace.given_flags)
        token = REQUEST.set(ids)
        try:
            if scope["type"] == "http":
                await self._serve(scope, receive, send, request_id=request_id, trace=trace)
            else:
                await self._hold(scope, receive, send)
        finally:
            REQUEST.reset(token)

    async def _serve(self, scope: Scope, receive: Receive, send: Send, *, request_id: str, trace: Trace) -> None:
        started = time.perf_counter()
        status = 0

        async def tell(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                extra = ((b"x-request-id", request_id.encode()), (b"traceparent", trace.parent().encode()))
                message = {**message, "headers": [*message.get("headers", ()), *extra]}
            await send(message)

        try:
            await self._app(scope, receive, tell)
        except ClientDisconnect:  # it left before its body had come: nobody is there to be answered
            pass
        except Exception:
            log.exception("a request failed", extra={"path": scope["path"]})
            if status:
                raise
            await _answer_unknown(tell, request_id)
        finally:
            _count(scope, status or LEFT, time.perf_counter() - started)

    async def _hold(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A WebSocket, as long as it is open."""
        started = time.perf_counter()
        SOCKETS.inc()
        try:
            await self._app(scope, receive, send)
        except Exception:
            log.exception("a socket failed", extra={"path": scope["path"]})
            raise
        finally:
            SOCKETS.dec()
            seconds = round(time.perf_counter() - started, 1)
            log.info("socket closed", extra={"path": scope["path"], "seconds": seconds})


def _count(scope: Scope, status: int, seconds: float) -> None:
    route = getattr(scope.get("route"), "path", "unknown")
    method = scope["method"] if scope["method"] in METHODS else "other"
    _measure(method, route, status, seconds)
    if scope["path"] not in _QUIET:
        details = {"method": scope["method"], "path": scope["path"], "status": status}
        log.info("served", extra={**details, "milliseconds": round(seconds * 1000, 1)})


_SERIES: Final[dict[tuple[str, str, int], tuple[Counter, Histogram]]] = {}
"""Finding a series by its labels costs more than counting in it. There are as many as `METHODS` and routes allow."""


def _measure(method: str, route: str, status: int, seconds: float) -> None:
    series = _SERIES.get((method, route, status))
    if series is None:
        series = (REQUESTS.labels(method, route, str(status)), REQUEST_SECONDS.labels(method, route))
        _SERIES[method, route, status] = series
    requests, durations = series
    requests.inc()
    durations.observe(seconds)


async def _answer_unknown(send: Send, request_id: str) -> None:
    """Never a word about what went wrong inside: it is in the log, under the request id."""
    error = {"code": "INTERNAL", "message": "something went wrong on our side", "details": {"requestId": request_id}}
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 500, "headers": headers})
    await send({"type": "http.response.body", "body": msgspec.json.encode({"error": error})})
