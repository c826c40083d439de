"""How every comparison is measured: closed loop, variants in turn inside one repetition, medians, books checked after.

Absolute figures depend on the machine and on the hour; ratios of windows that lie side by side hardly do. So a result is
a ratio first, and CPU time an operation second.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final, Protocol, runtime_checkable

from tests.bench.processors import Processors

WARM_UP_SECONDS: Final = 0.3
"""A window before the first repetition that counts for nothing: plans are made, caches fill."""


class Variant(Protocol):
    """One way of doing the work. Its calls are made by several clients at once."""

    name: str
    processors: Processors

    async def prepare(self) -> None:
        """Make what the next window works on."""

    async def call(self, client: int) -> bool:
        """Do one operation from request to reply; whether it was accepted."""

    async def settle(self) -> None:
        """Wait until everything that the window caused is done."""

    async def check(self) -> list[str]:
        """What is wrong with the books after the window, in words; nothing when all is right."""


@runtime_checkable
class SelfTimed(Protocol):
    """A variant that has no calls: a program that measures itself."""

    async def run(self, seconds: float) -> Window:
        """One window of it."""


@dataclass(slots=True)
class Window:
    """What some clients did in one stretch of time."""

    latencies: list[float] = field(default_factory=list)
    """Seconds from request to reply."""
    refused: int = 0
    faults: list[str] = field(default_factory=list)
    first_seconds: float = 0.0
    """Of the one call before the window, which may have to read everything."""
    seconds: float = 0.0
    settle_seconds: float = 0.0
    python_seconds: float = 0.0
    """CPU time, from the first call until all is settled."""
    postgres_seconds: float = 0.0

    @property
    def operations(self) -> int:
        return len(self.latencies)

    @property
    def rate(self) -> float:
        return self.operations / self.seconds

    def percentile_ms(self, share: float) -> float:
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1_000


@dataclass(frozen=True, slots=True)
class Figures:
    """Medians of one variant over the repetitions."""

    name: str
    rate: float
    p50_ms: float
    p99_ms: float
    python_us: float
    postgres_us: float
    settle_ms: float
    """From the last reply until everything that the window caused is done, its events relayed."""
    first_ms: float
    """The first call on new reservations."""
    operations: int
    refused: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Ours, which comes first, and the baselines."""

    title: str
    clients: int
    figures: tuple[Figures, ...]
    ratios: dict[str, tuple[float, float, float]]
    """Baseline to (lowest, median, highest) of ours / baseline, window by window."""
    goal: float | None = None
    """What the median against the first baseline should at least be on two cores."""


async def measure(variant: Variant, *, clients: int, seconds: float) -> Window:
    """One window: every client asks again as soon as it has its answer, until the time is over."""
    await variant.prepare()
    if isinstance(variant, SelfTimed):
        return await variant.run(seconds)
    window = Window()
    window.first_seconds = await _first_call(variant)
    gc.collect()
    before = variant.processors.read()
    started = time.perf_counter()
    until = started + seconds
    await asyncio.gather(*(_client(variant, number, until, window) for number in range(clients)))
    answered = time.perf_counter()
    await variant.settle()
    settled = time.perf_counter()
    after = variant.processors.read()
    window.seconds, window.settle_seconds = answered - started, settled - answered
    window.python_seconds, window.postgres_seconds = after.python - before.python, after.postgres - before.postgres
    return window


async def _first_call(variant: Variant) -> float:
    """What is read into memory once is told apart from what every call costs."""
    started = time.perf_counter()
    await variant.call(0)
    answered = time.perf_counter()
    await variant.settle()
    return answered - started


async def _client(variant: Variant, number: int, until: float, window: Window) -> None:
    now = time.perf_counter()
    while now < until:
        try:
            accepted = await variant.call(number)
        except Exception as error:  # noqa: BLE001 - it is counted, and fails the run
            window.faults.append(f"{type(error).__name__}: {error}")
            return
        answered = time.perf_counter()
        window.latencies.append(answered - now)
        window.refused += not accepted
        now = answered


def once(_: Variant) -> int:
    """Every variant has the same number of clients."""
    return 1


async def compare(
    title: str,
    variants: Sequence[Variant],
    *,
    clients: int,
    seconds: float,
    repetitions: int,
    goal: float | None = None,
    times: Callable[[Variant], int] = once,
) -> tuple[Comparison, list[str]]:
    """The comparison, and what went wrong. The variants take turns at being first."""
    complaints: list[str] = []
    windows: dict[str, list[Window]] = {variant.name: [] for variant in variants}
    for repetition in range(-1, repetitions):
        turn = repetition % len(variants)
        for variant in (*variants[turn:], *variants[:turn]):
            length = seconds if repetition >= 0 else min(WARM_UP_SECONDS, seconds)
            window = await measure(variant, clients=clients * times(variant), seconds=length)
            wrong = [*window.faults[:3], *await variant.check()]
            complaints.extend(f"{title}, {clients} clients, {variant.name}: {text}" for text in wrong)
            if repetition >= 0:
                windows[variant.name].append(window)
    ours, *baselines = variants
    comparison = Comparison(
        title=title,
        clients=clients,
        figures=tuple(_figures(name, measured) for name, measured in windows.items()),
        ratios={each.name: _ratios(windows[ours.name], windows[each.name]) for each in baselines},
        goal=goal,
    )
    return comparison, complaints


def _figures(name: str, windows: Sequence[Window]) -> Figures:
    counted = [window for window in windows if window.operations]
    if not counted:
        return Figures(name, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    return Figures(
        name=name,
        rate=median(window.rate for window in counted),
        p50_ms=median(window.percentile_ms(0.50) for window in counted),
        p99_ms=median(window.percentile_ms(0.99) for window in counted),
        python_us=median(window.python_seconds / window.operations for window in counted) * 1e6,
        postgres_us=median(window.postgres_seconds / window.operations for window in counted) * 1e6,
        settle_ms=median(window.settle_seconds for window in counted) * 1e3,
        first_ms=median(window.first_seconds for window in counted) * 1e3,
        operations=sum(window.operations for window in counted),
        refused=sum(window.refused for window in counted),
    )


def _ratios(ours: Sequence[Window], theirs: Sequence[Window]) -> tuple[float, float, float]:
    pairs = [mine.rate / other.rate for mine, other in zip(ours, theirs, strict=True) if other.operations]
    return (min(pairs), median(pairs), max(pairs)) if pairs else (0.0, 0.0, 0.0)
