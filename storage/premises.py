"""What decisions made from memory rest on, and what the database says about it (`storage.*.settling` ask it)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from domain.replay import RequestKey


class Verdict(StrEnum):
    """What the database said about decisions that were made without it. All but the first: nothing was written."""

    SETTLED = "settled"
    MOVED = "moved"
    """A head is at another version, or somebody else holds it."""
    SET_BACK = "set back"
    """The clock shows less than it was believed to."""
    LATE = "late"
    """So much time has passed that something may have fallen due."""
    CHANGED = "changed"
    """A tenant, a project, an account or an offer is gone."""
    ANSWERED = "answered"
    """A refused request was answered before, by another node or long ago."""


@dataclass(slots=True, kw_only=True)
class Premises:
    """Everything that must still hold when the decisions are written."""

    clock_ms: int
    """What the database's clock was believed to show when they were made."""
    valid_ms: int
    """How much later they could have been made just the same: nothing falls due before."""
    versions: Mapping[str, int]
    """Of every head that was looked at, as it was before."""
    unanswered: Collection[RequestKey] = ()
    """Requests that must not have been answered before, beside those that the flush remembers."""

    def columns(self, written: Sequence[str]) -> tuple[Any, ...]:
        """As the functions take them: clock, the heads that are written, and those that were only seen."""
        seen = sorted(self.versions.keys() - set(written))
        return (
            self.clock_ms,
            self.valid_ms,
            written,
            [self.versions[key] for key in written],
            seen,
            [self.versions[key] for key in seen],
        )
