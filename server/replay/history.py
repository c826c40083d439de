"""The whole history of a reservation as rows tell it: what ran and what was promised at every instant there was."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile

from domain.capacity.state import Grant, Mode
from domain.terms import HOUR_MS, hour_start, overlap_ms
from storage.capacity.audit import Books


@dataclass(slots=True)
class Moment:
    """What ran and what was live from `at` on, until the next moment."""

    at: int
    outside: int = 0
    """Running on the reservation outside any grant, instances that are billed to nobody included."""
    inside: Counter[str] = field(default_factory=Counter)
    live: dict[str, int] = field(default_factory=dict)
    """Slots of the grants in term; 0 of one that is over."""

    def run(self, grant_id: str | None, change: int) -> None:
        if grant_id is None:
            self.outside += change
        else:
            self.inside[grant_id] += change


def moments(books: Books) -> Iterator[Moment]:
    """Every instant at which something began or ended, with everything that did so already counted.

    It is one object that moves on. What lasted no time is not seen.
    """
    ran: dict[int, list[tuple[str | None, int]]] = defaultdict(list)
    terms: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for each in books.segments:
        segment = each.segment
        if segment.mode is not Mode.ONDEMAND and segment.from_at != segment.to_at:
            ran[segment.from_at].append((segment.grant_id, +1))
            if segment.to_at is not None:
                ran[segment.to_at].append((segment.grant_id, -1))
    for grant in books.grants.values():
        for since, until, slots in pieces_of(grant):
            terms[until].insert(0, (grant.grant_id, 0))  # a next piece of the same term begins after this one
            terms[since].append((grant.grant_id, slots))
    moment = Moment(at=0)
    for instant in sorted(ran.keys() | terms.keys()):
        moment.at = instant
        moment.live.update(terms.get(instant, ()))
        for grant_id, change in ran.get(instant, ()):
            moment.run(grant_id, change)
        yield moment


def past_moments(books: Books) -> Iterator[Moment]:
    """Those that the rows speak of: what is due after the last decision has not been applied to them yet."""
    return takewhile(lambda moment: moment.at <= books.at, moments(books))


def idle_by_grant(books: Books) -> Counter[str]:
    """Slot-milliseconds of each grant in which nothing ran, up to the last moment there was."""
    idle: Counter[str] = Counter()
    since, live = 0, dict[str, int]()
    for moment in past_moments(books):
        for grant_id, free in live.items():
            idle[grant_id] += free * (moment.at - since)
        since = moment.at
        live = {grant_id: slots - moment.inside[grant_id] for grant_id, slots in moment.live.items()}
    return idle


def pieces_of(grant: Grant) -> list[tuple[int, int, int]]:
    """(from, to, slots) of the term, in order; nothing of a cancelled grant."""
    if grant.cancelled_at is not None:
        return []
    starts = [max(since, grant.starts_at) for since, _ in grant.commitments]
    ends = [*starts[1:], grant.ends_at]
    pieces = [
        (since, min(until, grant.ends_at), slots)
        for since, until, (_, slots) in zip(starts, ends, grant.commitments, strict=True)
    ]
    return [piece for piece in pieces if piece[0] < piece[1]]


def slots_at(grant: Grant, instant: int) -> int:
    return sum(slots for since, until, slots in pieces_of(grant) if since <= instant < until)


def committed_by_hour(grant: Grant, *, until: int) -> dict[int, int]:
    """Slot-milliseconds of every UTC hour of the term up to `until` (R39)."""
    hours: Counter[int] = Counter()
    for since, to, slots in pieces_of(grant):
        stop = min(to, until)
        for hour in range(hour_start(since), stop, HOUR_MS):
            hours[hour] += slots * overlap_ms(from_a=since, to_a=stop, from_b=hour, to_b=hour + HOUR_MS)
    return dict(hours)
