"""Events of the observability stream as this wire spells them (8.1): instants as date-times, ratios as fractions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from domain.events import EventRecord
from server.rest.cycles.answers import Document
from server.rest.cycles.instants import show_instant

_MILLIONTHS: Final = "_millionths"
_MILLION: Final = 1_000_000
_OPTIONAL: Final = ("scope", "actor", "correlation_id")


def show_event(event: EventRecord) -> Document:
    payload = event.payload
    shown: Document = {
        "event_id": event.event_id,
        "event_type": event.type,
        "category": payload["category"],
        "timestamp": show_instant(event.occurred_at),
        "tenant_id": event.tenant_id,
        "source": _source(event),
        "data": _data(payload["data"]),
    }
    shown |= {name: payload[name] for name in _OPTIONAL if payload.get(name) is not None}
    if event.request_id is not None:
        shown["request_id"] = event.request_id
    if event.trace_id is not None:
        shown["trace_id"] = event.trace_id
    return shown


def _source(event: EventRecord) -> str:
    """The reference has a process for each of these; clients tell them apart by name."""
    if event.payload["source"] == "expiry":
        return "expiry-sweeper"
    return "cycles-server" if event.type.startswith("reservation.") else "cycles-admin"


def _data(facts: Mapping[str, Any]) -> Document:
    """A fraction is only ever looked at: nothing is decided by it."""
    shown: Document = {}
    for name, value in facts.items():
        if name.endswith(_MILLIONTHS):
            shown[name.removesuffix(_MILLIONTHS)] = value / _MILLION
        elif name.endswith("_at"):
            shown[name] = show_instant(value)
        else:
            shown[name] = value
    return shown
