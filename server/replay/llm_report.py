"""What the llm replay prints: what became of requests, the ledger, latencies and rate, and whether the invariants hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from strawberry.utils.str_converters import to_camel_case

from domain.budget.values import Balance
from domain.terms import MINUTE_MS
from server.replay.llm_agents import LlmAgents, LlmTally, sum_tallies
from server.replay.llm_calls import Latencies
from server.replay.llm_trace import LlmRequest
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
    ("extended", "extended"),
    ("released", "released"),
    ("too_late", "too late"),
    ("recovered", "recovered"),
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
    audited: Sequence[str] = (*INVARIANTS, OTHERS)
    """What was looked at."""
    asked_again: Mapping[str, int] = field(default_factory=dict)
    """Over HTTP: how often a call was asked again under its key, by what for."""

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
            "agents": {name: _as_json(tally) for name, tally in self.tallies.items()},
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
            "audited": list(self.audited),
            **({"askedAgain": dict(self.asked_again)} if self.asked_again else {}),
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
            if each.taken_ns
        )
        again = ", ".join(f"{count:,} {why}" for why, count in self.asked_again.items())
        wall = f"{self.wall_ms / 1_000:.1f} s, {self.decisions:,} decisions, {self.decisions_per_second:,} a second"
        return "\n".join(
            [
                f"denied {denied}",
                f"calls  {latencies} (with up to {self.concurrency:,} under way)",
                f"wall   {wall}",
                *([f"again  {again}"] if again else []),
            ]
        )

    def _about_audit(self) -> str:
        broken = Counter(_mark(violation) for violation in self.violations)
        marks = "  ".join(f"{name} {'FAIL' if broken[name] else 'ok'}" for name in self.audited)
        lines = [f"audit  {marks}"]
        lines += [f"       {violation}" for violation in self.violations[:VIOLATIONS_SHOWN]]
        if len(self.violations) > VIOLATIONS_SHOWN:
            lines.append(f"       … and {len(self.violations) - VIOLATIONS_SHOWN:,} more")
        return "\n".join(lines)


def make_report(
    requests: Sequence[LlmRequest],
    *,
    concurrency: int,
    agents: LlmAgents,
    latencies: Mapping[str, Latencies],
    balances: Sequence[Balance],
    wall_ms: int,
    violations: list[str],
    audited: Sequence[str] = (*INVARIANTS, OTHERS),
    asked_again: Mapping[str, int] | None = None,
) -> LlmReport:
    total = sum_tallies(agents.tallies.values())
    return LlmReport(
        requests=len(requests),
        span_ms=requests[-1].came_at - requests[0].came_at,
        concurrency=concurrency,
        tallies={**dict(sorted(agents.tallies.items())), "all": total},
        denials=dict(agents.denials.most_common()),
        ledger=balances,
        latencies=latencies,
        wall_ms=wall_ms,
        violations=violations,
        audited=audited,
        asked_again=asked_again or {},
    )


def _as_json(tally: LlmTally) -> dict[str, int]:
    return {to_camel_case(name): count for name, count in asdict(tally).items()}


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
