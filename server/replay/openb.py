"""`earmark replay openb`: months of a real GPU cluster through the desks and actors of a node, under a clock of its own.

One capacity reservation, smaller than what the cluster needed at its peak. Each class of service is a tenant with grants
(`plan`). Each pod that asks for GPUs asks for as many instances, one slot each, at its creation, and those it got are
deleted at its deletion; slots it did not get are refusals, and it does without.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from domain.terms import DAY_MS, HOUR_MS
from server.replay.audit import OF_A_REPLAY, audit_books
from server.replay.drive import BEGINS_AT, Drive, Progress
from server.replay.lateness import audit_lateness
from server.replay.report import OpenbReport, add_books, sizes_of
from server.replay.trace import Trace, read_trace
from server.replay.world import make_world
from storage.capacity.audit import Books, read_books
from storage.database import Database
from workers.clock import ManualClock
from workers.runtime import Runtime, RuntimeOptions

SLOTS_DEFAULT: Final = 48
"""GPUs of the reservation: two thirds of the 71 that the whole trace has at its peak."""
SLOTS_MAX: Final = 100_000
DAYS_MAX: Final = 366


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenbOptions:
    """Raises ValueError for what makes no sense. There is no chance in a run: the same options, the same decisions."""

    slots: int = SLOTS_DEFAULT
    term_days: int = 7
    """Length of most grants' terms."""
    meter_hours: int = 24
    """How often the meter passes. It writes all hours that are over since it last did: passing more often changes no
    record, only when it is written."""
    limit: int | None = None
    """Only the first pods of the file."""

    def __post_init__(self) -> None:
        if not 1 <= self.slots <= SLOTS_MAX:
            raise ValueError(f"the number of slots must be from 1 to {SLOTS_MAX}")
        if not 1 <= self.term_days <= DAYS_MAX or not 1 <= self.meter_hours <= DAYS_MAX * 24:
            raise ValueError(f"a term has 1 to {DAYS_MAX} days, and the meter passes within as many")
        if self.limit is not None and self.limit < 1:
            raise ValueError("the limit must be at least 1 pod")


async def run(database_url: str, path: Path, *, options: OpenbOptions, progress: Progress | None = None) -> OpenbReport:
    """Replay the trace at `path` on a fresh, migrated database, and audit what came of it.

    `progress` gets (events of pods done, all of them). Raises `TraceError` for a malformed file, `ReplayError` when
    the product refuses what it must not.
    """
    return report(await replay(database_url, path, options=options, progress=progress))


@dataclass(frozen=True, slots=True)
class Replayed:
    """A run that is over, and the books that it has left."""

    drive: Drive
    books: Books


async def replay(database_url: str, path: Path, *, options: OpenbOptions, progress: Progress | None = None) -> Replayed:
    """The same without the audit."""
    trace = read_trace(path, limit=options.limit)
    database = await Database.open(database_url)
    try:
        drive = await _drive(database, trace, options, progress or (lambda _done, _total: None))
        async with database.transaction(isolation="repeatable_read") as connection:
            return Replayed(drive, await read_books(connection, drive.world.key))
    finally:
        await database.close()


async def _drive(database: Database, trace: Trace, options: OpenbOptions, progress: Progress) -> Drive:
    clock = ManualClock(BEGINS_AT)
    runtime = Runtime(database, clock=clock, options=RuntimeOptions(lanes=1, runs_jobs=False))
    try:
        classes = sorted({pod.qos for pod in trace.pods})
        world = await make_world(runtime, classes=classes, slots=options.slots, now=clock.now)
        drive = Drive(
            runtime,
            clock,
            world,
            trace,
            term_ms=options.term_days * DAY_MS,
            meter_ms=options.meter_hours * HOUR_MS,
            progress=progress,
        )
        await drive.run()
        await runtime.relay.flush()
        return drive
    finally:
        await runtime.stop()


def report(replayed: Replayed) -> OpenbReport:
    """Audit everything, and say what came of it."""
    drive, books = replayed.drive, replayed.books
    violations = audit_books(books, OF_A_REPLAY)
    violations += [f"P3: {violation}" for violation in audit_lateness(drive.log, books)]
    tallies = {tenant_id: replace(tally) for tenant_id, tally in sorted(drive.tallies.items())}
    add_books(tallies, books)
    return OpenbReport(
        trace=drive.trace,
        slots=drive.world.slots,
        span_ms=drive.ends_at - BEGINS_AT,
        tallies=tallies,
        decisions=drive.decisions,
        wall_ms=drive.wall_ms,
        passes=drive.passes,
        sizes=sizes_of(books),
        violations=violations,
    )
