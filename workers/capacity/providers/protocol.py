"""The face every provider shows to the scan job (R54..R59, D12, D13, D16), and the limits of one report.

What must not live here: any provider's own words. A new kind of account is one module and one line in `registry`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from domain.capacity.scan import ReportedReservation, ScanReport
from domain.outcomes import InvalidInput

RESERVATIONS_MAX: Final = 5_000
"""Reservations in one report: a report is held in memory whole and recorded whole. More is a provider gone wrong."""

PROBLEMS_MAX: Final = 50
"""Problems told of one scan: enough to see the pattern, few enough for a log line."""

PROBLEM_CHARACTERS_MAX: Final = 400
"""Length of one problem: some of its words come from outside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderAccountConfig:
    """What a scan needs to know of a provider account. `settings` are stored on it, by their wire names."""

    account_id: str
    kind: str
    settings: Mapping[str, Any]


class Provider(Protocol):
    """One kind of provider. An instance serves every account of its kind and may be asked about several at once."""

    @property
    def name(self) -> str:
        """The kind word stored on the account: `file`, `push`, `gce`."""
        ...

    @property
    def scans(self) -> bool:
        """False when the provider reports by itself: the scan job skips such accounts."""
        ...

    def validate_settings(self, settings: Mapping[str, Any]) -> InvalidInput | None:
        """None when an account may be created with these settings. Looks at no file and no network."""
        ...

    async def scan(self, account: ProviderAccountConfig) -> ScanReport:
        """Look once. Trouble is never raised: it is an incomplete report that says in words what went wrong.

        A complete report may carry problems too: remarks for the operator that take nothing away from what was seen.
        A cancelled scan raises `CancelledError` as usual, so nothing can be concluded from it either.
        """
        ...


def incomplete(*problems: str, reservations: Iterable[ReportedReservation] = ()) -> ScanReport:
    """A report that concludes nothing (D12), and why."""
    assert problems, "an incomplete report says why"
    return ScanReport(reservations=tuple(reservations), complete=False, problems=bounded(problems))


def bounded(problems: Iterable[str]) -> tuple[str, ...]:
    """At most `PROBLEMS_MAX` problems of `PROBLEM_CHARACTERS_MAX` characters, on one line each."""
    lines = [shortened(problem) for problem in problems]
    if len(lines) <= PROBLEMS_MAX:
        return tuple(lines)
    left_out = len(lines) - PROBLEMS_MAX + 1
    return (*lines[: PROBLEMS_MAX - 1], f"and {left_out} more")


def shortened(problem: str) -> str:
    """`problem` on one line of printable characters, cut to its limit."""
    line = "".join(character if character.isprintable() else " " for character in problem[: PROBLEM_CHARACTERS_MAX + 1])
    return line if len(line) <= PROBLEM_CHARACTERS_MAX else f"{line[: PROBLEM_CHARACTERS_MAX - 1]}…"
