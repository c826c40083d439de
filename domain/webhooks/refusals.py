"""Refusals that only webhooks know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from domain.outcomes import NotFound, Refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookUrlInvalid(Refusal):
    """Nothing may be delivered to this URL (8.6). `reason` is a stable word."""

    code: ClassVar[str] = "WEBHOOK_URL_INVALID"
    field: str = "url"
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayInProgress(Refusal):
    """A subscription replays one window at a time (8.5). `replay_id` names the one that still runs."""

    code: ClassVar[str] = "REPLAY_IN_PROGRESS"
    replay_id: str


NO_WEBHOOK = NotFound(field="webhook_id", message="no such webhook")
