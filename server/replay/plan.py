"""The grants of the openb replay: the trace has none, so they are laid over its months by rule, without chance.

Classes of service are the tenants. What each is promised is a share of the reservation, in several series of terms that
are chosen so that everything that can happen to a grant does: renewals without a gap (hand-over), renewals that come
late (a stretch at the reservation rate, then adoption), nights, terms of one project beside those of the whole tenant,
wishes that do not fit, early ends, and terms that are cancelled because the trace is over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from domain.terms import DAY_MS, HOUR_MS

LATENCY_SENSITIVE: Final = "LS"
BURSTABLE: Final = "Burstable"
BEST_EFFORT: Final = "BE"
GUARANTEED: Final = "Guaranteed"

LATE_MS: Final = 6 * HOUR_MS
"""The gap that burstable pods' renewals leave."""
NIGHT_FROM_MS: Final = 20 * HOUR_MS
NIGHT_MS: Final = 12 * HOUR_MS

STANDING_PERCENT: Final = 45
GUARANTEED_PERCENT: Final = 5
BURSTABLE_PERCENT: Final = 12
NIGHT_PERCENT: Final = 8
PROJECT_PERCENT: Final = 10
CAMPAIGN_PERCENTS: Final = (10, 20, 30, 40, 50)
"""Together with the standing terms the larger ones do not fit."""

CAMPAIGN_EVERY_MS: Final = 10 * DAY_MS
CAMPAIGN_MS: Final = 3 * DAY_MS
CAMPAIGN_CUT_MS: Final = 30 * HOUR_MS
"""When every second campaign is ended by hand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedGrant:
    """A grant to ask for at `ask_at`, and to end by hand at `end_at` if that is given. Instants in epoch milliseconds."""

    series: str
    qos: str
    whole_gpus_only: bool = False
    """Restricted to the tenant's project of pods that take whole GPUs."""
    slots: int
    ask_at: int
    starts_at: int
    ends_at: int
    end_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What the plan is laid over: the slots of the reservation, and grants asked for in [starts_at, ends_at)."""

    slots: int
    term_ms: int
    starts_at: int
    ends_at: int

    def share(self, percent: int) -> int:
        return max(1, self.slots * percent // 100)


def plan_grants(frame: Frame) -> list[PlannedGrant]:
    """Every grant that is asked for, by the instant of asking.

    Most are asked for a term ahead, so the last of each series are still scheduled when the trace is over.
    """
    planned = [
        *_standing(frame, "standing", LATENCY_SENSITIVE, percent=STANDING_PERCENT),
        *_standing(frame, "long", GUARANTEED, percent=GUARANTEED_PERCENT, terms=4),
        *_standing(frame, "late", BURSTABLE, percent=BURSTABLE_PERCENT, gap_ms=LATE_MS),
        *_project(frame),
        *_nights(frame),
        *_campaigns(frame),
    ]
    return sorted(planned, key=lambda grant: grant.ask_at)


def _standing(
    frame: Frame, series: str, qos: str, *, percent: int, terms: int = 1, gap_ms: int = 0
) -> Iterator[PlannedGrant]:
    """One after another, each `terms` long; `gap_ms` is missing from the start of each but the first."""
    length_ms = terms * frame.term_ms
    for term_at in range(frame.starts_at, frame.ends_at + length_ms, length_ms):
        yield PlannedGrant(
            series=series,
            qos=qos,
            slots=frame.share(percent),
            ask_at=max(frame.starts_at, term_at - length_ms),
            starts_at=term_at if term_at == frame.starts_at else term_at + gap_ms,
            ends_at=term_at + length_ms,
        )


def _project(frame: Frame) -> Iterator[PlannedGrant]:
    """Two terms of every four, for one project of a tenant that has a grant of its own: the more specific is filled
    first (R27), and what it lets go finds a place in the other (R32)."""
    for term_at in range(frame.starts_at, frame.ends_at, 4 * frame.term_ms):
        yield PlannedGrant(
            series="project",
            qos=LATENCY_SENSITIVE,
            whole_gpus_only=True,
            slots=frame.share(PROJECT_PERCENT),
            ask_at=term_at,
            starts_at=term_at + frame.term_ms,
            ends_at=term_at + 3 * frame.term_ms,
        )


def _nights(frame: Frame) -> Iterator[PlannedGrant]:
    for day_at in range(frame.starts_at, frame.ends_at, DAY_MS):
        yield PlannedGrant(
            series="nights",
            qos=BEST_EFFORT,
            slots=frame.share(NIGHT_PERCENT),
            ask_at=max(frame.starts_at, day_at - DAY_MS),
            starts_at=day_at + NIGHT_FROM_MS,
            ends_at=day_at + NIGHT_FROM_MS + NIGHT_MS,
        )


def _campaigns(frame: Frame) -> Iterator[PlannedGrant]:
    for number, ask_at in enumerate(range(frame.starts_at + DAY_MS, frame.ends_at, CAMPAIGN_EVERY_MS)):
        begins_at = ask_at + DAY_MS
        yield PlannedGrant(
            series="campaigns",
            qos=LATENCY_SENSITIVE,
            slots=frame.share(CAMPAIGN_PERCENTS[number % len(CAMPAIGN_PERCENTS)]),
            ask_at=ask_at,
            starts_at=begins_at,
            ends_at=begins_at + CAMPAIGN_MS,
            end_at=begins_at + CAMPAIGN_CUT_MS if number % 2 else None,
        )
