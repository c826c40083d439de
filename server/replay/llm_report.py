"""What the llm replay prints: what became of requests, the ledger, latencies and rate, and whether the invariants hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from domain.budget.values import Balance
from domain.terms import MINUTE_MS
from server.replay.llm_drive import Latencies, LlmTally
from storage.budget.audit import RULES

VIOLATIONS_SHOWN: Final = 20
"""Violations of a table; JSON has them all."""
INVARIANTS: Final = tuple(sorted(name for rule in RULES if (name := rule.partition(" ")[0]).startswith("I")))
OTHERS: Final = "others"
"""The rules without a number, and that answers agree with the ledger."""
PERCENTILES: Final = (50, 95, 99)

_COLUMNS: Final = (
    ("allowed", "allowed"),
    ("capped", "capped"),
    ("denied", "denied"),
    ("committed", "committed"),
    ("in_grace", "in grace"),
    ("cut", "cut"),
    ("overdraft", "overdraft"),
    ("refused", "refused"),
    ("too_late", "too late"),
    ("left", "left"),
    ("charged", "tokens"),
)
_LEDGER: Final = ("allocated", "spent", "reserved", "debt", "remaining")


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmReport:
    """`violations` empty: every invariant holds."""

    requests: int
    span_ms: int
    """From the first request to the last one."""
    concurrency: int
    tallies: Mapping[str, LlmTally]
    """By agent, and of all."""
    denials: Mapping[str, int]
    """By code; those of commits have the word before it."""
    ledger: Sequence[Balance]
    latencies: Mapping[str, Latencies]
    wall_ms: int
    violations: list[str] = field(default_factory=list)

    @property
    def decisions(self) -> int:
        return sum(len(each.taken_ns) for each in self.latencies.values())

    @property
    def decisions_per_second(self) -> int:
        return self.decisions * 1_000 // max(1, self.wall_ms)

    def as_json(self) -> dict[str, Any]:
        """Everything, for a script: tokens, milliseconds, and microseconds of latency."""
        return {
            "requests": self.requests,
            "spanMs": self.span_ms,
            "concurrency": self.concurrency,
            "agents": {name: asdict(tally) for name, tally in self.tallies.items()},
            "denials": dict(self.denials),
            "ledger": {
                each.scope_path: {name: getattr(each, name) for name in _LEDGER} | {"isOverLimit": each.is_over_limit}
                for each in self.ledger
            },
            "latencyUs": {
                what: {f"p{percent}": each.percentile_us(percent) for percent in PERCENTILES}
                for what, each in self.latencies.items()
            },
            "decisions": self.decisions,
            "wallMs": self.wall_ms,
            "decisionsPerSecond": self.decisions_per_second,
            "violations": self.violations,
        }

    def table(self) -> str:
        """For a person."""
        about = f"llm    {self.requests:,} requests in {self.span_ms // MINUTE_MS:,} minutes of the trace"
        agents = [["agent", *(title for _, title in _COLUMNS)]]
        agents += [
            [name, *(f"{getattr(tally, column):,}" for column, _ in _COLUMNS)] for name, tally in self.tallies.items()
        ]
        ledger = [["budget (tokens)", *_LEDGER]]
        ledger += [[each.scope_path, *(f"{getattr(each, name):,}" for name in _LEDGER)] for each in self.ledger]
        return "\n\n".join([about, _grid(agents), _grid(ledger), self._about_run(), self._about_audit()])

    def _about_run(self) -> str:
        denied = ", ".join(f"{count:,} {code}" for code, count in self.denials.items()) or "nothing"
        latencies = "; ".join(
            f"{what} "
            + ", ".join(f"p{percent} {_milliseconds(each.percentile_us(percent))}" for percent in PERCENTILES)
            for what, each in self.latencies.items()
        )
        wall = f"{self.wall_ms / 1_000:.1f} s, {self.decisions:,} decisions, {self.decisions_per_second:,} a second"
        return "\n".join(
            [
                f"denied {denied}",
                f"calls  {latencies} (with up to {self.concurrency:,} under way)",
                f"wall   {wall}",
            ]
        )

    def _about_audit(self) -> str:
        broken = Counter(_mark(violation) for violation in self.violations)
        marks = "  ".join(f"{name} {'FAIL' if broken[name] else 'ok'}" for name in (*INVARIANTS, OTHERS))
        lines = [f"audit  {marks}"]
        lines += [f"       {violation}" for violation in self.violations[:VIOLATIONS_SHOWN]]
        if len(self.violations) > VIOLATIONS_SHOWN:
            lines.append(f"       … and {len(self.violations) - VIOLATIONS_SHOWN:,} more")
        return "\n".join(lines)


def _mark(violation: str) -> str:
    name = violation.partition(" ")[0]
    return name if name in INVARIANTS else OTHERS


def _milliseconds(microseconds: int) -> str:
    return f"{microseconds / 1_000:.1f} ms"


def _grid(cells: Sequence[Sequence[str]]) -> str:
    """Names to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for name, *numbers in cells:
        texts = [number.rjust(width) for number, width in zip(numbers, widths[1:], strict=True)]
        lines.append("  ".join([name.ljust(widths[0]), *texts]))
    return "\n".join(lines)
