"""How a request is tied to what it causes: its own id, and the trace that it belongs to (1.0, CORRELATION AND TRACING)."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_TRACEPARENT: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_TRACE_ID: Final = re.compile(r"[0-9a-f]{32}")
_ZEROS: Final = frozenset("0")


@dataclass(frozen=True, slots=True)
class Correlation:
    """`trace_flags`: the two digits of the client's own valid `traceparent`; None when it sent none."""

    request_id: str
    trace_id: str
    trace_flags: str | None = None


def correlate(headers: Mapping[str, str], *, request_id: str, trace_id: str | None = None) -> Correlation:
    """A valid `traceparent`, else a valid `X-Cycles-Trace-Id`, else `trace_id`, the one that the request has here
    anyway, so that all headers of an answer name the same; without it a new one. Malformed ones are as if absent."""
    parent = _TRACEPARENT.fullmatch(headers.get("traceparent", ""))
    if parent is not None and not _is_zero(parent[1]) and not _is_zero(parent[2]):
        return Correlation(request_id, parent[1], parent[3])
    own = headers.get("x-cycles-trace-id", "")
    if _TRACE_ID.fullmatch(own) and not _is_zero(own):
        return Correlation(request_id, own)
    return Correlation(request_id, trace_id or _new_trace_id())


def _new_trace_id() -> str:
    while _is_zero(trace_id := os.urandom(16).hex()):
        pass
    return trace_id


def _is_zero(digits: str) -> bool:
    return set(digits) == _ZEROS
