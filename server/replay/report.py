"""What the openb replay prints: a table by tenant, what the jobs did, and whether the invariants hold.

All quantities are integers of milliseconds until they are shown; hours have one decimal, half to even.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

from strawberry.utils.str_converters import to_camel_case

from domain.capacity.metering import RESERVED_INSTANCE_HOURS
from domain.capacity.state import Mode
from domain.terms import DAY_MS, HOUR_MS
from server.replay.history import idle_by_grant
from server.replay.trace import Trace
from storage.capacity.audit import AuditedSegment, Books

VIOLATIONS_SHOWN: Final = 20
"""Violations of a table; JSON has them all."""

INVARIANTS: Final = ("P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8", "P9", "R38", "R40", "R44")


@dataclass(slots=True, kw_only=True)
class Tally:
    """What one tenant's requests came to. Instances first, then grants and what moved instances between them."""

    in_grant: int = 0
    ordinary: int = 0
    refused: int = 0
    grants_made: int = 0
    grants_refused: int = 0
    grants_cut: int = 0
    """Ended by hand in their term."""
    grants_cancelled: int = 0
    adopted: int = 0
    """Taken in from an ordinary slot when a grant started (R30)."""
    handed_over: int = 0
    """Passed on to another grant when theirs ended (R32)."""
    let_go: int = 0
    """Left on an ordinary slot when their grant ended."""
    committed_ms: int = 0
    used_ms: int = 0
    idle_ms: int = 0
    ordinary_ms: int = 0

    @property
    def asked(self) -> int:
        return self.in_grant + self.ordinary + self.refused

    def __add__(self, other: Tally) -> Tally:
        names = [each.name for each in fields(self)]
        return Tally(**{name: getattr(self, name) + getattr(other, name) for name in names})


@dataclass(slots=True)
class Pass:
    """The passes of one job."""

    passes: int = 0
    done: int = 0
    took_ns: int = 0

    def add(self, *, done: int, took_ns: int) -> None:
        self.passes += 1
        self.done += done
        self.took_ns += took_ns

    @property
    def took_ms(self) -> int:
        return self.took_ns // 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenbReport:
    """`violations` empty: every invariant holds."""

    trace: Trace
    slots: int
    span_ms: int
    tallies: Mapping[str, Tally]
    """By tenant."""
    decisions: int
    wall_ms: int
    passes: Mapping[str, Pass]
    sizes: Mapping[str, int]
    """What the audit looked at."""
    violations: list[str] = field(default_factory=list)

    @property
    def decisions_per_second(self) -> int:
        return self.decisions * 1_000 // max(1, self.wall_ms)

    def as_json(self) -> dict[str, Any]:
        """Everything, for a script: quantities in milliseconds."""
        total = _sum(self.tallies.values())
        return {
            "trace": {to_camel_case(name): getattr(self.trace, name) for name in _TRACE},
            "slots": self.slots,
            "spanMs": self.span_ms,
            "tenants": {tenant_id: _as_json(tally) for tenant_id, tally in self.tallies.items()},
            "total": _as_json(total),
            "decisions": self.decisions,
            "wallMs": self.wall_ms,
            "decisionsPerSecond": self.decisions_per_second,
            "jobs": {
                name: {"passes": each.passes, "done": each.done, "tookMs": each.took_ms}
                for name, each in self.passes.items()
            },
            "audited": dict(self.sizes),
            "violations": self.violations,
        }

    def table(self) -> str:
        """For a person."""
        rows = [*self.tallies.items(), ("all", _sum(self.tallies.values()))]
        blocks = [
            self._about_trace(),
            _grid("tenant", _PLACEMENTS, rows),
            _grid("tenant", _HOURS, rows),
            _grid("tenant", _GRANTS, rows),
            self._about_run(),
            self._about_audit(),
        ]
        return "\n\n".join(blocks)

    def _about_trace(self) -> str:
        trace = self.trace
        pods = (
            f"{trace.lines:,} pods, {len(trace.pods):,} of them ask for GPUs, {trace.with_several_gpus:,} for several"
        )
        instances = f"{trace.gpus:,} GPUs in all, an instance each"
        odd = f"{trace.never_scheduled:,} were never scheduled by the real cluster and ask all the same"
        times = f"{trace.gone_at_once:,} deleted no later than created, {trace.never_deleted:,} never deleted"
        reservation = f"one capacity reservation of {self.slots:,} GPUs over {self.span_ms // DAY_MS:,} days"
        return f"openb  {pods}: {instances}\n       {odd}; {times}\n       {reservation}"

    def _about_run(self) -> str:
        total = _sum(self.tallies.values())
        ran_ms, could_ms = total.used_ms + total.ordinary_ms, self.slots * self.span_ms
        jobs = "; ".join(
            f"{name}: {each.passes:,} passes, {each.done:,} {_DONE[name]}, {_seconds(each.took_ms)}"
            for name, each in self.passes.items()
        )
        return "\n".join(
            [
                f"GPUs ran {_hours(ran_ms)} of {_hours(could_ms)} hours ({_percent(ran_ms, could_ms)})",
                f"jobs   {jobs}",
                f"wall   {_seconds(self.wall_ms)}, {self.decisions:,} decisions, {self.decisions_per_second:,} a second",
            ]
        )

    def _about_audit(self) -> str:
        looked_at = ", ".join(f"{number:,} {what}" for what, number in self.sizes.items())
        broken = Counter(violation.partition(":")[0] for violation in self.violations)
        marks = "  ".join(f"{name} {'FAIL' if broken[name] else 'ok'}" for name in INVARIANTS)
        lines = [f"audit  {looked_at}", f"       {marks}"]
        lines += [f"       {violation}" for violation in self.violations[:VIOLATIONS_SHOWN]]
        if len(self.violations) > VIOLATIONS_SHOWN:
            lines.append(f"       … and {len(self.violations) - VIOLATIONS_SHOWN:,} more")
        return "\n".join(lines)


def add_books(tallies: Mapping[str, Tally], books: Books) -> None:
    """Fill in what only the books know, by tenant id: quantities on record, and what moved between grants."""
    for record in books.slot_records:
        tallies[record.tenant_id].committed_ms += record.quantity_ms
    for (grant_id, _), used_ms in books.used_in_grants.items():
        tallies[books.grants[grant_id].tenant_id].used_ms += used_ms
    for grant_id, idle_ms in idle_by_grant(books).items():
        tallies[books.grants[grant_id].tenant_id].idle_ms += idle_ms
    for (instance_id, meter), used_ms in books.used_by_instances.items():
        if meter == RESERVED_INSTANCE_HOURS:
            tallies[books.instances[instance_id].tenant_id].ordinary_ms += used_ms
    _add_moves(tallies, books)


def sizes_of(books: Books) -> dict[str, int]:
    return {
        "grants": len(books.grants),
        "instances": len(books.instances),
        "segments": len(books.segments),
        "slot records": len(books.slot_records),
        "events": len(books.events),
    }


def _add_moves(tallies: Mapping[str, Tally], books: Books) -> None:
    before: AuditedSegment | None = None
    for each in books.segments:
        if before is not None and before.instance_id == each.instance_id:
            tally = tallies[books.instances[each.instance_id].tenant_id]
            was_inside, is_inside = before.segment.mode is Mode.GRANT, each.segment.mode is Mode.GRANT
            tally.adopted += is_inside and not was_inside
            tally.handed_over += is_inside and was_inside
            tally.let_go += was_inside and not is_inside
        before = each


# -- showing -----------------------------------------------------------------------------------------------------------

_TRACE: Final = (
    "lines",
    "without_gpu",
    "gpus",
    "with_several_gpus",
    "never_scheduled",
    "gone_at_once",
    "never_deleted",
)
"""Properties of a trace."""

_DONE: Final = {"boundaries": "boundaries", "meter": "records"}

Column = tuple[str, Any]

_PLACEMENTS: Final[Sequence[Column]] = (
    ("asked", lambda tally: f"{tally.asked:,}"),
    ("in grant", lambda tally: f"{tally.in_grant:,}"),
    ("ordinary", lambda tally: f"{tally.ordinary:,}"),
    ("refused", lambda tally: f"{tally.refused:,}"),
    ("refused", lambda tally: _percent(tally.refused, tally.asked)),
    ("adopted", lambda tally: f"{tally.adopted:,}"),
    ("handed over", lambda tally: f"{tally.handed_over:,}"),
    ("let go", lambda tally: f"{tally.let_go:,}"),
)
_HOURS: Final[Sequence[Column]] = (
    ("committed h", lambda tally: _hours(tally.committed_ms)),
    ("used h", lambda tally: _hours(tally.used_ms)),
    ("idle h", lambda tally: _hours(tally.idle_ms)),
    ("utilisation", lambda tally: _percent(tally.used_ms, tally.committed_ms)),
    ("ordinary h", lambda tally: _hours(tally.ordinary_ms)),
)
_GRANTS: Final[Sequence[Column]] = (
    ("grants made", lambda tally: f"{tally.grants_made:,}"),
    ("refused", lambda tally: f"{tally.grants_refused:,}"),
    ("ended early", lambda tally: f"{tally.grants_cut:,}"),
    ("cancelled", lambda tally: f"{tally.grants_cancelled:,}"),
)


def _grid(first: str, columns: Sequence[Column], rows: Sequence[tuple[str, Tally]]) -> str:
    """Names to the left, numbers to the right."""
    cells = [[first, *(title for title, _ in columns)]]
    cells += [[name, *(show(tally) for _, show in columns)] for name, tally in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for name, *numbers in cells:
        texts = [number.rjust(width) for number, width in zip(numbers, widths[1:], strict=True)]
        lines.append("  ".join([name.ljust(widths[0]), *texts]))
    return "\n".join(lines)


def _sum(tallies: Iterable[Tally]) -> Tally:
    return sum(tallies, start=Tally())


def _as_json(tally: Tally) -> dict[str, Any]:
    return {to_camel_case(each.name): getattr(tally, each.name) for each in fields(tally)} | {"asked": tally.asked}


def _hours(quantity_ms: int) -> str:
    tenths = _rounded(quantity_ms * 10, HOUR_MS)
    return f"{tenths // 10:,}.{tenths % 10}"


def _percent(part: int, whole: int) -> str:
    if whole == 0:
        return "–"
    tenths = _rounded(part * 1_000, whole)
    return f"{tenths // 10}.{tenths % 10} %"


def _seconds(milliseconds: int) -> str:
    tenths = _rounded(milliseconds, 100)
    return f"{tenths // 10}.{tenths % 10} s"


def _rounded(part: int, whole: int) -> int:
    """Half to even."""
    quotient, rest = divmod(part, whole)
    return quotient + (rest * 2 > whole or (rest * 2 == whole and quotient % 2 == 1))
