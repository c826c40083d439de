"""Questions about time to come: how much is granted when, the earliest fits, and what a grant would do (F1, F4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from domain.capacity.boundaries import advance
from domain.capacity.commands import CreateGrant, Surroundings
from domain.capacity.grants import decide_create
from domain.capacity.state import Billing, CapacityState, Grant
from domain.outcomes import Accepted, Refusal


@dataclass(frozen=True, slots=True)
class Step:
    """From `at` until the next step, `granted` slots of `total` are granted; `free` of them are not (never below 0)."""

    at: int
    granted: int
    free: int


@dataclass(frozen=True, slots=True)
class Fit:
    """A term that fits: it may start anywhere from `starts_at` up to `latest_start_at`."""

    starts_at: int
    ends_at: int
    latest_start_at: int


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A stretch of the planned term in which the slots do not fit, and the grants that hold them then."""

    starts_at: int
    ends_at: int
    granted: int
    missing: int
    grant_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What `createGrant` would answer right now, and why (F4). Nothing is written."""

    refusal: Refusal | None
    total: int
    peak: int
    """Granted slots at the peak of the term, without the planned ones."""
    obstacles: tuple[Obstacle, ...]
    physical_room: int
    """Slots of the grant that could be used at once if it started with the instances that run now: a grant is checked
    against grants, not against instances (R11)."""
    adopted: int
    """Running instances of the tenant that it would take in at its start (R30)."""
    runs_out: tuple[Step, ...]
    """Steps inside the term after which no further slot could be granted, were the grant made."""


def availability(state: CapacityState, *, starts_at: int, ends_at: int) -> list[Step]:
    """The granted slots over [starts_at, ends_at) as a step function; one step at the start, one at every change."""
    total = state.reservation.total
    return [Step(at, level, max(0, total - level)) for at, level in state.timeline.steps(starts_at, ends_at)]


def earliest_fits(
    state: CapacityState, *, slots: int, duration_ms: int, not_before: int, not_after: int, first: int
) -> list[Fit]:
    """Up to `first` terms that fit, the earliest start of each window with room, by start.

    A term may start from `not_before` to `not_after`, both included. It comes from the same timeline as the admission
    (R10), so an accepted offer can fail only to a competitor.
    """
    fits: list[Fit] = []
    horizon = not_after + duration_ms
    for since, until in _windows(state, slots, not_before, horizon):
        if len(fits) == first:
            break
        latest = min(until - duration_ms, not_after)
        if latest >= since:
            fits.append(Fit(since, since + duration_ms, latest))
    return fits


def plan_grant(state: CapacityState, command: CreateGrant, *, around: Surroundings, now: int) -> Plan:
    """The same decision as `decide_create` on books that are thrown away afterwards, with its reasons."""
    advance(state, now)
    peak = state.timeline.peak(command.starts_at, max(command.starts_at + 1, command.ends_at))
    obstacles = tuple(_obstacles(state, command, now=now))
    adopted = _adoptable(state, command)
    room = max(0, state.reservation.total - state.in_use + adopted)
    total = state.reservation.total
    outcome = decide_create(state, command, around=around, now=now)
    accepted = isinstance(outcome, Accepted)
    steps = availability(state, starts_at=command.starts_at, ends_at=command.ends_at) if accepted else []
    return Plan(
        refusal=outcome if isinstance(outcome, Refusal) else None,
        total=total,
        peak=peak,
        obstacles=obstacles,
        physical_room=min(command.slots, room),
        adopted=adopted,
        runs_out=tuple(step for step in steps if step.free == 0),
    )


def committed_slot_ms(grant: Grant, *, until: int) -> int:
    """Slot-milliseconds committed up to `until`: every piece of the term at the slots it had (R38, R39)."""
    return sum(slots * max(0, min(to_at, until) - from_at) for from_at, to_at, slots in grant.pieces())


def _windows(state: CapacityState, slots: int, starts_at: int, ends_at: int) -> Iterator[tuple[int, int]]:
    """Half-open stretches of [starts_at, ends_at) with room for `slots` all along."""
    room_to = state.reservation.total - slots
    since: int | None = None
    for instant, level in state.timeline.steps(starts_at, ends_at):
        if level <= room_to and since is None:
            since = instant
        elif level > room_to and since is not None:
            yield since, instant
            since = None
    if since is not None:
        yield since, ends_at


def _obstacles(state: CapacityState, command: CreateGrant, *, now: int) -> Iterator[Obstacle]:
    """Stretches with the same holders all along: where one grant takes over from another, another stretch begins."""
    starts_at, ends_at = command.starts_at, max(command.starts_at, command.ends_at)
    grants = [grant for grant in state.open_grants(at=now) if grant.starts_at < ends_at and starts_at < grant.ends_at]
    edges = {edge for grant in grants for edge in (grant.starts_at, grant.ends_at) if starts_at < edge < ends_at}
    edges.update(instant for instant, _ in state.timeline.steps(starts_at, ends_at))
    for since, until in pairwise(sorted({*edges, ends_at})):
        level = state.timeline.level(since)
        missing = level + command.slots - state.reservation.total
        if missing > 0:
            holding = tuple(grant.grant_id for grant in grants if grant.starts_at < until and since < grant.ends_at)
            yield Obstacle(since, until, level, missing, holding)


def _adoptable(state: CapacityState, command: CreateGrant) -> int:
    outsiders = state.outsiders.get(command.grant_tenant_id, {}).values()
    fitting = [
        instance
        for instance in outsiders
        if instance.billing is Billing.NORMAL and command.project_id in (None, instance.project_id)
    ]
    return min(command.slots, len(fitting))
