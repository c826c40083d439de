"""What is published: an event's place in its stream, and the cursor that resumes after it."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from domain.outcomes import InvalidInput
from domain.paging import CURSOR_LENGTH_MAX
from domain.shapes import Shape

MIRROR: Final = "*"
"""The stream that repeats every tenant's events, for root: no tenant can have this id."""


TRACE_FLAGS: Final = "trace_flags"
"""Where a payload keeps the flags of the caller's own `traceparent`, if it sent one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRecord:
    """An event as a stream keeps it. (`stream`, `seq`) is its place, without gaps; `event_id` is the same everywhere."""

    stream: str
    seq: int
    event_id: str
    tenant_id: str
    """The tenant that it is about."""
    type: str
    occurred_at: int
    recorded_at: int
    payload: Mapping[str, Any]
    request_id: str | None = None
    trace_id: str | None = None
    shown: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)
    """What edges have made of it, so that it is made once for all who listen."""

    @property
    def cursor(self) -> str:
        return encode_cursor(self.stream, self.seq)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSearch:
    """What to look for in a stream; None is not asked about. `scope`: how the scope path begins; `text`: what is in the
    scope or the correlation id, in any case; instants are of the occurrence, both ends included."""

    category: str | None = None
    scope: str | None = None
    correlation_id: str | None = None
    trace_id: str | None = None
    request_id: str | None = None
    occurred_from: int | None = None
    occurred_until: int | None = None
    text: str | None = None


ANYTHING: Final = EventSearch()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """An event before it has a place: what whoever publishes it knows.

    `is_for_operators`: it stands in the mirror alone, since tenants are not shown its type (8.2).
    """

    event_id: str
    tenant_id: str
    type: str
    occurred_at: int
    payload: Mapping[str, Any]
    request_id: str | None = None
    trace_id: str | None = None
    is_for_operators: bool = False


def encode_cursor(stream: str, seq: int) -> str:
    """Opaque to clients: good for this stream only."""
    return base64.urlsafe_b64encode(f"{seq}/{stream}".encode()).decode().rstrip("=")


_CURSOR: Final = re.compile(r"(0|[1-9][0-9]{0,17})/(.+)", re.DOTALL)


def decode_cursor(stream: str, cursor: str) -> int | None:
    """The number after which to resume; None if it is not a cursor of this stream."""
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
    except (binascii.Error, ValueError):
        return None
    match = _CURSOR.fullmatch(text)
    return int(match[1]) if match and match[2] == stream else None


def check_cursor(stream: str, after: Any) -> int | None:
    """The same of what a client has sent; None if it has sent none. Raises `Shape`."""
    if after is None:
        return None
    number = decode_cursor(stream, after) if isinstance(after, str) and len(after) <= CURSOR_LENGTH_MAX else None
    if number is None:
        raise Shape(InvalidInput(field="after", reason="bad-cursor", message="after is not a cursor of this stream"))
    return number
