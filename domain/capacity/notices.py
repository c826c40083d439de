"""Notices ahead of time: a grant that starts soon or ends soon, for tenants who want them (F6).

They announce what stands in the books when they are written; nothing is decided by them. An amendment that moves a boundary
makes a new notice due, and never takes one back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from domain.capacity.things import Grant
from domain.terms import DAY_MS, MINUTE_MS

LEAD_LEAST_MS: Final = MINUTE_MS
LEAD_MAX_MS: Final = 90 * DAY_MS


class Notice(StrEnum):
    """The types of the events."""

    STARTING_SOON = "reservation-grant.starting-soon"
    ENDING_SOON = "reservation-grant.ending-soon"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leads:
    """How long ahead a tenant wants to know. None: not at all, which is the default."""

    tenant_id: str
    starting_ms: int | None = None
    ending_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """An instance that runs in the grant."""

    created_at: int
    instance_id: str
    project_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Taker:
    """Another grant of the tenant that is live at the instant of the end."""

    grant: Grant
    free: int


def count_falling(runners: Iterable[Runner], takers: Iterable[Taker]) -> int:
    """How many would be ordinary, at the reservation's rate, from the end on: the oldest go first to who takes them (R32),
    restricted grants before open ones, the later end before the earlier (R27)."""
    ordered = sorted(takers, key=lambda taker: taker.grant.preference)
    free = {taker.grant.grant_id: taker.free for taker in ordered}
    falling = 0
    for runner in sorted(runners, key=lambda each: (each.created_at, each.instance_id)):
        for taker in ordered:
            if free[taker.grant.grant_id] > 0 and taker.grant.serves(runner.project_id):
                free[taker.grant.grant_id] -= 1
                break
        else:
            falling += 1
    return falling


def ending_facts(runners: list[Runner], takers: list[Taker]) -> dict[str, Any]:
    """What a notice of an end says beside the grant itself."""
    return {
        "hasRenewal": bool(takers),
        "runningInstances": len(runners),
        "instancesToReservedRate": count_falling(runners, takers),
    }
