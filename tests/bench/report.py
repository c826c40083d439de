"""Results as text, ratios first, and as JSON."""

from __future__ import annotations

import json
import os
import platform
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from tests.bench.harness import Comparison, Figures

_HEADING: Final = (
    f"{'':22}{'ops/s':>10}{'p50 ms':>9}{'p99 ms':>9}{'Python µs':>11}{'PG µs':>8}{'settle ms':>11}{'first ms':>10}"
)


class Report:
    """Everything that was found in a run."""

    def __init__(self) -> None:
        self.comparisons: list[Comparison] = []
        self.skipped: list[str] = []
        self.complaints: list[str] = []
        self.notes: list[str] = []

    def add(self, comparison: Comparison) -> None:
        self.comparisons.append(comparison)
        print(_headline(comparison))
        print(_HEADING)
        for figures in comparison.figures:
            print(_line(figures))
        print(flush=True)

    def note(self, text: str) -> None:
        """Something that follows from several comparisons."""
        self.notes.append(text)
        print(text, end="\n\n", flush=True)

    def skip(self, reason: str) -> None:
        self.skipped.append(reason)
        print(f"skipped: {reason}\n", flush=True)

    def complain(self, complaints: list[str]) -> None:
        self.complaints.extend(complaints)
        for complaint in complaints:
            print(f"WRONG: {complaint}", flush=True)

    def summarize(self) -> None:
        """All ratios once more, at the end where one looks, and what was wrong."""
        for comparison in self.comparisons:
            print(_headline(comparison))
        print(
            f"{len(self.complaints)} things were wrong"
            if self.complaints
            else "the books were right after every window"
        )

    def write(self, path: Path, *, settings: dict[str, Any]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        found = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "machine": {"cores": os.cpu_count(), "platform": platform.platform(), "python": platform.python_version()},
            "settings": settings,
            "comparisons": [asdict(comparison) for comparison in self.comparisons],
            "notes": self.notes,
            "skipped": self.skipped,
            "wrong": self.complaints,
        }
        path.write_text(json.dumps(found, indent=2) + "\n")


def _headline(comparison: Comparison) -> str:
    plural = "s" if comparison.clients > 1 else ""
    ratios = [
        f"{_times(middle)}x {name} ({_times(least)} to {_times(most)})"
        for name, (least, middle, most) in comparison.ratios.items()
    ]
    goal = f", goal {comparison.goal:g}x" if comparison.goal is not None else ""
    return f"{comparison.title}, {comparison.clients} client{plural}: {'; '.join(ratios)}{goal}"


def _times(ratio: float) -> str:
    return f"{ratio:.1f}" if ratio >= 1 else f"{ratio:.2f}"


def _line(figures: Figures) -> str:
    refused = f"  {figures.refused} refused" if figures.refused else ""
    return (
        f"  {figures.name:20}{figures.rate:10,.0f}{figures.p50_ms:9.2f}{figures.p99_ms:9.2f}"
        f"{figures.python_us:11.0f}{figures.postgres_us:8.0f}{figures.settle_ms:11.0f}{figures.first_ms:10.1f}{refused}"
    )
