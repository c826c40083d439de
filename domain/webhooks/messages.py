"""What is sent to a receiver: the event, the headers around it, and the signature that proves where it came from (8.4).

The signature is over the very bytes of the body, so a message is made once and sent as it is.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from domain.budget import envelopes
from domain.events import TRACE_FLAGS, EventRecord
from domain.identity import SYSTEM
from domain.instants import show_instant
from domain.outcomes import InvalidInput
from domain.shapes import quoted
from domain.webhooks.selectors import CUSTOM, published_type

TEST_TYPE: Final = "system.webhook_test"
"""The probe: it goes to its own receiver only and is in no stream."""

SAMPLED: Final = "01"
"""The trace flags of what no caller's `traceparent` has decided."""

HEADERS_MAX: Final = 32
HEADER_VALUE_MAX: Final = 4_096
MASK: Final = "********"
"""Stands for a header's value wherever a subscription is shown. Sent back in a change, it leaves the value as it is."""

RESERVED: Final = frozenset(
    {
        *("host", "connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "expect", "date"),
        *("content-type", "content-length", "content-encoding", "user-agent", "accept", "accept-encoding"),
        *("traceparent", "tracestate", "x-request-id"),
    }
)
"""Headers that a delivery has already, or that would change how it is read. A second signature would be a trap."""
RESERVED_PREFIXES: Final = ("x-cycles-", "proxy-", "sec-")

_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_VALUE: Final = re.compile(r"[ -~]*")
_TRACE_ID: Final = re.compile(r"(?!0{32})[0-9a-f]{32}")
_TRACE_FLAGS: Final = re.compile(r"[0-9a-f]{2}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What ties a delivery to what caused it. `was_given`: the flags are those of the caller's own `traceparent`."""

    trace_id: str
    flags: str = SAMPLED
    was_given: bool = False


def trace_of(event: EventRecord, *, otherwise: str) -> Trace:
    """`otherwise`: a new trace id, for an event that belongs to no trace."""
    trace_id = event.trace_id
    if trace_id is None or not _TRACE_ID.fullmatch(trace_id):
        return Trace(trace_id=otherwise)
    flags = event.payload.get(TRACE_FLAGS)
    if isinstance(flags, str) and _TRACE_FLAGS.fullmatch(flags):
        return Trace(trace_id=trace_id, flags=flags, was_given=True)
    return Trace(trace_id=trace_id)


def message_of(event: EventRecord, trace: Trace) -> dict[str, Any]:
    """The event as receivers get it: the closed envelope of the protocol, whichever context it comes from."""
    if envelopes.is_published(event.type):
        shown = envelopes.envelope(event)
    else:
        shown = {
            "event_id": event.event_id,
            "event_type": published_type(event.type),
            "category": CUSTOM,
            "timestamp": show_instant(event.occurred_at),
            "tenant_id": event.tenant_id,
            "source": "earmark",
            "data": {name: value for name, value in event.payload.items() if name != TRACE_FLAGS},
            **_ties(event),
        }
    return {**shown, "trace_id": trace.trace_id}


def _ties(event: EventRecord) -> dict[str, str]:
    """What an event about a grant has in common with others: the request, and everything about the same grant."""
    ties = {}
    if isinstance(grant_id := event.payload.get("grantId"), str):
        ties["correlation_id"] = f"reservation_grant:{grant_id}"
    if event.request_id:
        ties["request_id"] = event.request_id
    return ties


def probe(
    *, event_id: str, subscription_id: str, tenant_id: str, trace_id: str, request_id: str | None, at: int
) -> Any:
    """The body of a test (8.3): it tells nothing but that it arrives."""
    shown = {
        "event_id": event_id,
        "event_type": TEST_TYPE,
        "category": envelopes.category_of(TEST_TYPE),
        "timestamp": show_instant(at),
        "tenant_id": tenant_id or SYSTEM,
        "source": envelopes.BY_SERVER,
        "data": {
            "component": "webhook_dispatcher",
            "message": "a test of this webhook",
            "severity": "info",
            "details": {"subscription_id": subscription_id},
        },
        "request_id": request_id,
        "trace_id": trace_id,
    }
    return {name: value for name, value in shown.items() if value is not None}


def sign(secret: str, body: bytes) -> str:
    """The value of `X-Cycles-Signature`. A receiver computes the same over the bytes it got and compares."""
    digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return f"sha256={digest}"


def headers_of(
    *,
    event_id: str,
    kind: str,
    body: bytes,
    secret: str,
    trace: Trace,
    span_id: str,
    agent: str,
    request_id: str | None,
    own: Mapping[str, str],
) -> list[tuple[str, str]]:
    """Every header but Host. `span_id`: 16 new hex digits, never the caller's. `own`: the subscription's."""
    headers = [
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(body))),
        ("User-Agent", agent),
        ("X-Cycles-Event-Id", event_id),
        ("X-Cycles-Event-Type", kind),
        ("X-Cycles-Signature", sign(secret, body)),
        ("X-Cycles-Trace-Id", trace.trace_id),
        ("traceparent", f"00-{trace.trace_id}-{span_id}-{trace.flags}"),
    ]
    if request_id is not None and _VALUE.fullmatch(request_id):
        headers.append(("X-Request-Id", request_id))
    return headers + list(own.items())


def refuse_headers(headers: Mapping[str, str]) -> InvalidInput | None:
    """Refuses in this order: `too-many`, `malformed` (name or value), `reserved`, `twice`."""
    if len(headers) > HEADERS_MAX:
        return _refused("too-many", f"a webhook has at most {HEADERS_MAX} headers")
    names = set()
    for name, value in headers.items():
        folded = name.lower()
        if not _NAME.fullmatch(name):
            return _refused("malformed", f"{quoted(name)} cannot be the name of a header")
        if len(value) > HEADER_VALUE_MAX or not _VALUE.fullmatch(value) or value != value.strip():
            message = f"the value of {name} must be at most {HEADER_VALUE_MAX} printable ASCII characters, trimmed"
            return _refused("malformed", message)
        if folded in RESERVED or folded.startswith(RESERVED_PREFIXES):
            return _refused("reserved", f"{name} is a header of the delivery itself")
        if folded in names:
            return _refused("twice", f"{name} is named twice")
        names.add(folded)
    return None


def _refused(reason: str, message: str) -> InvalidInput:
    return InvalidInput(field="headers", reason=reason, message=message)
