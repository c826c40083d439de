"""P3: what a run came to must not depend on when somebody looked at the clock.

During the run a job applies each start and end of a grant at its instant. Here the same commands are decided once more
on books in memory where no job ever passes, so that every boundary is applied late, by the next command that comes
along. Placements, refusals, segments and events must be the same as the ones in the database.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, TypeAlias

from domain.capacity.boundaries import advance
from domain.capacity.commands import CreateGrant, DeleteInstance, EndGrant, PlaceInstance, Surroundings
from domain.capacity.grants import decide_create, decide_end
from domain.capacity.placement import decide_delete, decide_place
from domain.capacity.state import CapacityEvent, CapacityState, Grant, Instance, Reservation, Segment
from domain.outcomes import Accepted, Outcome
from storage.capacity.audit import Books

REFUSED: Final = "refused"
ORDINARY: Final = "ordinary"

SHOWN_MAX: Final = 20
"""Differences of one kind that are put in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """One placement of several that were asked for alike and at once; None: refused."""

    instance_id: str | None
    grant_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Placing:
    """Placements that differ in nothing but their names, so that it does not matter in which order they were decided."""

    tenant_id: str
    project_id: str
    placed: tuple[Placed, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Granting:
    """A grant asked for; `command.grant_id` is the real one if it was made."""

    command: CreateGrant
    was_made: bool


Step: TypeAlias = Placing | Granting | EndGrant | DeleteInstance


@dataclass(slots=True)
class RunLog:
    """Every command of a run and what it came to, in the order of the decisions."""

    reservation: Reservation
    """As it was when nothing had been asked of it."""
    around: Surroundings
    steps: list[tuple[int, Step]] = field(default_factory=list)

    def add(self, at: int, step: Step) -> None:
        self.steps.append((at, step))


def audit_lateness(log: RunLog, books: Books) -> list[str]:
    """P3. The differences between the books and the same commands decided late, in words."""
    again = _Again(log)
    again.run()
    found = again.found
    segments = {(each.instance_id, each.segment.number): _shape(each.segment) for each in books.segments}
    found += _differences("segment", segments.items(), again.segments.items())
    return found + _differences("event", map(_told, books.events), map(_told, again.events))


class _Again:
    """The commands of a log, decided with nobody but themselves to apply boundaries."""

    def __init__(self, log: RunLog) -> None:
        self._log = log
        self._state = CapacityState(log.reservation)
        self._past: dict[str, Grant] = {}
        self._strangers = count()
        self.found: list[str] = []
        self.segments: dict[tuple[str, int], tuple[Any, ...]] = {}
        self.events: list[CapacityEvent] = []

    def run(self) -> None:
        for at, step in self._log.steps:
            advance(self._state, at)
            self._decide(step, at)
            self._take_changes()
            self._state.forget(before=at)

    def _decide(self, step: Step, at: int) -> None:
        around = self._log.around
        match step:
            case Placing():
                self._place(step, at)
            case Granting():
                made = decide_create(self._state, step.command, around=around, now=at)
                if isinstance(made, Accepted) != step.was_made:
                    self.found.append(f"at {at} a grant was {'made' if step.was_made else 'refused'}, late it is not")
                if isinstance(made, Accepted):
                    self._past[made.answer.grant_id] = made.answer
            case EndGrant():
                past = Surroundings(platform_tenant_id=around.platform_tenant_id, past_grants=self._past)
                decide_end(self._state, step, around=past, now=at)
            case DeleteInstance():
                if not isinstance(decide_delete(self._state, step, around=around, now=at), Accepted):
                    self.found.append(f"at {at} {step.instance_id} was deleted, late there is no such instance")

    def _place(self, step: Placing, at: int) -> None:
        for placed in sorted(step.placed, key=self._expected_order):
            command = PlaceInstance(
                instance_id=placed.instance_id or f"{REFUSED}-{next(self._strangers)}",
                tenant_id=step.tenant_id,
                project_id=step.project_id,
                name=REFUSED,
            )
            outcome = decide_place(self._state, command, around=self._log.around, now=at)
            was, late = _where(placed), _where_of(outcome)
            if was != late:
                self.found.append(f"at {at} an instance of {step.tenant_id} came to {was}, late to {late}")

    def _expected_order(self, placed: Placed) -> tuple[Any, ...]:
        """R25, R27: grants fill up in the order of preference, then ordinary slots; then it is full."""
        if placed.instance_id is None:
            return (2,)
        if placed.grant_id is None:
            return (1, placed.instance_id)
        grant = self._state.grants.get(placed.grant_id)
        return (0, *(grant.preference if grant else (0, 0, "")), placed.instance_id)

    def _take_changes(self) -> None:
        changes = self._state.take_changes()
        self.events += changes.events
        for where, segment in changes.segments.items():
            self.segments[where] = _shape(segment)


def _where(placed: Placed) -> str:
    return REFUSED if placed.instance_id is None else placed.grant_id or ORDINARY


def _where_of(outcome: Outcome[Instance]) -> str:
    return outcome.answer.grant_id or ORDINARY if isinstance(outcome, Accepted) else REFUSED


def _shape(segment: Segment) -> tuple[Any, ...]:
    return (segment.from_at, segment.to_at, segment.mode.value, segment.grant_id)


def _told(event: CapacityEvent) -> str:
    return json.dumps([event.tenant_id, event.type, event.occurred_at, event.payload], sort_keys=True)


def _differences(what: str, there: Iterable[Any], late: Iterable[Any]) -> list[str]:
    """What one has and the other has not, each as often as it occurs."""
    in_books, in_memory = Counter(there), Counter(late)
    found = _worded(f"{what} in the database only", in_books - in_memory)
    return found + _worded(f"{what} only when decided late", in_memory - in_books)


def _worded(what: str, left_over: Counter[Any]) -> list[str]:
    items: Sequence[Any] = list(left_over.elements())
    more = [f"{len(items) - SHOWN_MAX} more: {what}"] if len(items) > SHOWN_MAX else []
    return [f"{what}: {item}" for item in items[:SHOWN_MAX]] + more
