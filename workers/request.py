"""Who is asking, on which request: what every desk takes first."""

from __future__ import annotations

from dataclasses import dataclass

from domain.authority import Principal
from domain.replay import RequestKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """An authenticated principal on one request. What is known of the request travels on into events and logs."""

    principal: Principal
    request_id: str | None = None
    trace_id: str | None = None
    source_ip: str | None = None
    user_agent: str | None = None
    trace_flags: str | None = None
    """The two hex digits of the request's own `traceparent`; None when it had no valid one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """What a queued command carries of its request: the ids for events, and the key for replay."""

    request_id: str | None = None
    trace_id: str | None = None
    trace_flags: str | None = None
    key: RequestKey | None = None
    fingerprint: bytes = b""


NOBODY = Provenance()
"""A command that no request caused: a job's."""
