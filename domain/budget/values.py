"""The values that requests and answers are made of: who acts, what is done, under which caps, and how a budget stands.

All are immutable. How they look on a wire is the edges' business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from domain.amounts import Unit


class OveragePolicy(StrEnum):
    """What happens when the actual is more than was held (section 2.5)."""

    REJECT = "REJECT"
    ALLOW_IF_AVAILABLE = "ALLOW_IF_AVAILABLE"
    ALLOW_WITH_OVERDRAFT = "ALLOW_WITH_OVERDRAFT"


class Decision(StrEnum):
    ALLOW = "ALLOW"
    ALLOW_WITH_CAPS = "ALLOW_WITH_CAPS"
    DENY = "DENY"


class ActorType(StrEnum):
    ADMIN = "admin"
    API_KEY = "api_key"
    ADMIN_ON_BEHALF_OF = "admin_on_behalf_of"
    SYSTEM = "system"
    SCHEDULER = "scheduler"
    NOBODY = "nobody"
    """Whoever it was had no valid key: told on record only, never in an event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Who or what asked: copied onto every event and audit entry that a command causes (section 8.1)."""

    actor_type: ActorType
    key_id: str | None = None
    source_ip: str | None = None
    request_id: str | None = None
    trace_id: str | None = None
    trace_flags: str | None = None
    """The two hex digits of the request's own `traceparent`; None when it had no valid one."""
    user_agent: str | None = None

    def actor(self) -> dict[str, str]:
        """Who it was, as events tell it."""
        told = {"type": self.actor_type.value, "key_id": self.key_id, "source_ip": self.source_ip}
        return {name: value for name, value in told.items() if value is not None}


class Level(StrEnum):
    """The levels of a subject in canonical order (section 2.1)."""

    TENANT = "tenant"
    WORKSPACE = "workspace"
    APP = "app"
    WORKFLOW = "workflow"
    AGENT = "agent"
    TOOLSET = "toolset"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Who spends. The values are kept as sent; scopes are derived from them (`scopes.derive_scopes`)."""

    tenant: str | None = None
    workspace: str | None = None
    app: str | None = None
    workflow: str | None = None
    agent: str | None = None
    toolset: str | None = None
    dimensions: Mapping[str, str] | None = None
    """For reports only: they play no part in any decision and come back as they were sent."""

    @property
    def values(self) -> tuple[str | None, ...]:
        """In canonical order."""
        return (self.tenant, self.workspace, self.app, self.workflow, self.agent, self.toolset)

    def content(self) -> dict[str, Any]:
        """The fields that were sent."""
        named: dict[str, Any] = {
            level: value for level, value in zip(LEVELS, self.values, strict=True) if value is not None
        }
        if self.dimensions:
            named["dimensions"] = dict(self.dimensions)
        return named


LEVELS = tuple(level.value for level in Level)


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What is about to be done, or was."""

    kind: str
    name: str
    tags: tuple[str, ...] = ()

    def content(self) -> dict[str, Any]:
        return {"kind": self.kind, "name": self.name, "tags": list(self.tags)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """What a client measured. Kept for analysis; no decision reads it."""

    tokens_input: int | None = None
    tokens_output: int | None = None
    latency_ms: int | None = None
    model_version: str | None = None
    custom: Mapping[str, Any] | None = None

    def content(self) -> dict[str, Any]:
        return {
            "tokens_input": self.tokens_input,
            "tokens_output": self.tokens_output,
            "latency_ms": self.latency_ms,
            "model_version": self.model_version,
            "custom": None if self.custom is None else dict(self.custom),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """Soft limits that a client is told to keep. None or an empty list is no limit (section 1.0)."""

    max_tokens: int | None = None
    max_steps_remaining: int | None = None
    tool_allowlist: tuple[str, ...] = ()
    """When it is not empty, only these tools are allowed and the denylist does not count."""
    tool_denylist: tuple[str, ...] = ()
    cooldown_ms: int | None = None

    @property
    def is_empty(self) -> bool:
        return self == NO_CAPS


NO_CAPS = Caps()


class Balance(NamedTuple):
    """How one budget stood at an instant. `remaining` follows from the rest: no balance contradicts itself (I1)."""

    scope_path: str
    unit: Unit
    allocated: int
    reserved: int
    spent: int
    debt: int
    overdraft_limit: int
    is_over_limit: bool

    @property
    def remaining(self) -> int:
        return self.allocated - self.spent - self.reserved - self.debt

    @property
    def scope(self) -> str:
        """The last segment of the path (section 2.1)."""
        return self.scope_path.rpartition("/")[2]
