"""What is sent, and how it is signed (section 8.4)."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

import pytest

from domain.events import EventRecord
from domain.webhooks.messages import headers_of, message_of, refuse_headers, sign, trace_of

TRACE = "0af7651916cd43dd8448eb211c80319c"
NEW = "f" * 32


def event(**changes: Any) -> EventRecord:
    given: dict[str, Any] = {
        "stream": "*",
        "seq": 7,
        "event_id": "evt_1",
        "tenant_id": "acme",
        "type": "budget.exhausted",
        "occurred_at": 1_800_000_000_250,
        "recorded_at": 1_800_000_000_300,
        "payload": {"category": "budget", "source": "request", "scope": "tenant:acme", "data": {"unit": "TOKENS"}},
        "request_id": "req_1",
        "trace_id": TRACE,
        **changes,
    }
    return EventRecord(**given)


def test_the_signature_is_what_a_receiver_computes() -> None:
    body = b'{"a":"\xc3\xa4"}'
    expected = hmac.new("gehéim".encode(), body, hashlib.sha256).hexdigest()
    assert sign("gehéim", body) == f"sha256={expected}"
    assert sign("key", b"The quick brown fox jumps over the lazy dog") == (
        "sha256=f7bc83f430538424b13298e6aa6fb143ef4d59a14946175997479dbc2d1a3cd8"
    )


def test_an_event_about_a_grant_has_the_same_envelope() -> None:
    payload = {"grantId": "rgrant_1", "slots": 3, "trace_flags": "00"}
    grant = event(type="reservation-grant.ended", payload=payload, request_id=None)
    assert trace_of(grant, otherwise=NEW).flags == "00"
    assert message_of(grant, trace_of(grant, otherwise=NEW)) == {
        "event_id": "evt_1",
        "event_type": "custom.reservation-grant.ended",
        "category": "custom",
        "timestamp": "2027-01-15T08:00:00.250Z",
        "tenant_id": "acme",
        "source": "earmark",
        "data": {"grantId": "rgrant_1", "slots": 3},
        "correlation_id": "reservation_grant:rgrant_1",
        "trace_id": TRACE,
    }


@pytest.mark.parametrize("trace_id", [None, "trace", "0" * 32, "A" * 32, TRACE + "\n"])
def test_an_event_without_a_trace_gets_one(trace_id: str | None) -> None:
    lone = event(trace_id=trace_id)
    trace = trace_of(lone, otherwise=NEW)
    assert (trace.trace_id, trace.flags, trace.was_given) == (NEW, "01", False)
    assert message_of(lone, trace)["trace_id"] == NEW


def test_the_callers_own_flags_go_on() -> None:
    traced = event(payload={**event().payload, "trace_flags": "00"})
    assert trace_of(traced, otherwise=NEW).flags == "00"
    assert trace_of(traced, otherwise=NEW).was_given
    strange = event(payload={**event().payload, "trace_flags": "0x"})
    assert (trace_of(strange, otherwise=NEW).flags, trace_of(strange, otherwise=NEW).was_given) == ("01", False)


def test_headers_are_the_published_ones_each_once() -> None:
    happened = event()
    body = json.dumps(message_of(happened, trace_of(happened, otherwise=NEW))).encode()
    headers = headers_of(
        event_id="evt_1",
        kind="budget.exhausted",
        body=body,
        secret="s",
        trace=trace_of(happened, otherwise=NEW),
        span_id="b7ad6b7169203331",
        agent="earmark/1",
        request_id="req_1",
        own={"Authorization": "Bearer x"},
    )
    assert headers == [
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(body))),
        ("User-Agent", "earmark/1"),
        ("X-Cycles-Event-Id", "evt_1"),
        ("X-Cycles-Event-Type", "budget.exhausted"),
        ("X-Cycles-Signature", sign("s", body)),
        ("X-Cycles-Trace-Id", TRACE),
        ("traceparent", f"00-{TRACE}-b7ad6b7169203331-01"),
        ("X-Request-Id", "req_1"),
        ("Authorization", "Bearer x"),
    ]


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Authorization": "Bearer x", "X-Own": ""}, None),
        ({"x-CYCLES-signature": "x"}, "reserved"),
        ({"X-Cycles-Anything": "x"}, "reserved"),
        ({"Traceparent": "x"}, "reserved"),
        ({"HOST": "x"}, "reserved"),
        ({"content-length": "0"}, "reserved"),
        ({"Transfer-Encoding": "chunked"}, "reserved"),
        ({"Proxy-Authorization": "x"}, "reserved"),
        ({"Bad Name": "x"}, "malformed"),
        ({"": "x"}, "malformed"),
        ({"A:": "x"}, "malformed"),
        ({"A": "x\r\nB: y"}, "malformed"),
        ({"A": "x\0"}, "malformed"),
        ({"A": " x"}, "malformed"),
        ({"A": "ü"}, "malformed"),
        ({"A": "x" * 4_097}, "malformed"),
        ({"A": "x", "a": "y"}, "twice"),
        ({f"A{number}": "x" for number in range(33)}, "too-many"),
    ],
)
def test_headers_of_a_subscription(headers: dict[str, str], expected: str | None) -> None:
    refused = refuse_headers(headers)
    assert (None if refused is None else refused.reason) == expected
