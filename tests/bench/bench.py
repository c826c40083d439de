"""What a bench gets to work with: the server, how long to measure, and where results go."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.bench.harness import Variant, compare, once
from tests.bench.place import Place
from tests.bench.processors import Processors
from tests.bench.report import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    seconds: float
    """Of one window."""
    repetitions: int
    clients: tuple[int, ...] | None = None
    """Instead of each bench's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    place: Place
    options: Options
    report: Report

    def processors(self, *python_pids: int) -> Processors:
        """Of this process, or of servers that it started; and of the PostgreSQL."""
        return Processors(python_pids=python_pids or (os.getpid(),), postmaster_pid=self.place.postmaster_pid)

    def clients(self, *usual: int) -> tuple[int, ...]:
        return self.options.clients or usual

    async def compare(
        self,
        title: str,
        variants: Sequence[Variant],
        *,
        clients: int,
        goal: float | None = None,
        times: Callable[[Variant], int] = once,
    ) -> None:
        """Measure, print, keep. Ours comes first. `times`: how many times the clients a variant has."""
        comparison, complaints = await compare(
            title,
            variants,
            clients=clients,
            seconds=self.options.seconds,
            repetitions=self.options.repetitions,
            goal=goal,
            times=times,
        )
        self.report.add(comparison)
        self.report.complain(complaints)
