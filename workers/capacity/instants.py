"""The instant that a read shows a reservation and its grants at: never behind what was decided or shown before (R3, D15).

What is decided leaves its floor on the head, `clock_at`. A read may also show a boundary before a turn has applied it;
should the clock step back in that moment, the node remembers what it has shown until the floor gets there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

AHEAD_MAX: Final = 10_000
"""Reservations that are remembered as shown ahead of their floor. A boundary is applied within moments, so hardly any
are; of more, the longest remembered are dropped."""


class ShownAhead:
    """One object a node: reservation key to the latest instant at which a boundary was shown that was not applied yet."""

    def __init__(self) -> None:
        self._instants: dict[str, int] = {}

    def instants(self, now: int) -> Instants:
        """For one read, when the clock says `now`."""
        return Instants(now, {key: at for key, at in self._instants.items() if at > now}, self)

    def note(self, key: str, at: int) -> None:
        if at <= self._instants.get(key, -1):
            return
        self._instants.pop(key, None)  # so that it counts as the latest
        self._instants[key] = at
        if len(self._instants) > AHEAD_MAX:
            del self._instants[next(iter(self._instants))]

    def forget(self, key: str, *, clock_at: int) -> None:
        """The floor is what it is: whatever it has reached need not be remembered."""
        if self._instants.get(key, clock_at + 1) <= clock_at:
            del self._instants[key]


@dataclass(frozen=True, slots=True)
class Instants:
    """The instants of one read. `now` is the clock's; each reservation has its own, which is never behind it."""

    now: int
    ahead: Mapping[str, int]
    """By key, those that this node has shown at a later instant than now: none, unless the clock has stepped back."""
    shown: ShownAhead

    def of(self, key: str, clock_at: int = 0) -> int:
        """The instant to show a reservation at, or what is on it, whose head has this floor."""
        self.shown.forget(key, clock_at=clock_at)
        return max(self.now, clock_at, self.ahead.get(key, 0))

    def note(self, key: str) -> None:
        """A boundary of the reservation is shown that no turn has applied."""
        self.shown.note(key, self.of(key))
