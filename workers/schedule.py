"""The table of jobs, and the scheduler that runs them on every node.

A job is a `run_once()`: bounded, safe when it runs twice, late, or on two nodes at once. Nothing here knows what a job
does; whatever one raises is logged and counted, and the next tick finds the scheduler alive (B3, T100).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, TypeAlias

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.interval import IntervalTrigger

from domain.terms import HOUR_MS, MINUTE_MS, SECOND_MS
from storage.database import Unavailable
from workers import measures
from workers.actor import Overloaded, Stopped
from workers.supervisor import Supervisor

log = logging.getLogger("earmark.jobs")

BOUNDARIES: Final = "vps.boundaries"
METER: Final = "vps.grants"
SCAN: Final = "vps.reservations"
EXPIRY: Final = "budget.expiry"
RELAY: Final = "events.relay"
CLOSING: Final = "tenants.closing"
WEBHOOKS: Final = "webhooks.deliver"
RESEAL: Final = "webhooks.reseal"
USED_KEYS: Final = "keys.used"
NOTICES: Final = "vps.notices"
RATES: Final = "budget.rates"
BURNING: Final = "budget.burning"
ATTEMPTS: Final = "keys.attempts"
LATENCY: Final = "system.latency"
EXPIRED_KEYS: Final = "keys.expired"
RETENTION: Final = "retention"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of the table: how often a job runs on each node, and what for."""

    name: str
    every_ms: int
    purpose: str


TABLE: Final = (
    Entry(name=BOUNDARIES, every_ms=500, purpose="apply starts and ends of grants that are due"),
    Entry(name=EXPIRY, every_ms=500, purpose="give back budget reservations whose time is over"),
    Entry(name=METER, every_ms=30 * SECOND_MS, purpose="write the usage of hours that are over"),
    Entry(name=SCAN, every_ms=MINUTE_MS, purpose="look at what providers report"),
    Entry(name=RELAY, every_ms=2 * SECOND_MS, purpose="move events that a node left in the outbox to their streams"),
    Entry(name=CLOSING, every_ms=30 * SECOND_MS, purpose="finish deletions of tenants that were interrupted"),
    Entry(name=WEBHOOKS, every_ms=MINUTE_MS, purpose="queue new events for webhooks and send what is due"),
    Entry(name=RESEAL, every_ms=MINUTE_MS, purpose="seal secrets with the present key that a former one has sealed"),
    Entry(name=USED_KEYS, every_ms=MINUTE_MS, purpose="write down which API keys were used"),
    Entry(name=EXPIRED_KEYS, every_ms=10 * SECOND_MS, purpose="tell of API keys whose time is over"),
    Entry(name=NOTICES, every_ms=10 * SECOND_MS, purpose="announce starts and ends of grants to tenants who want that"),
    Entry(name=RATES, every_ms=30 * SECOND_MS, purpose="tell of frequent denials, expiries and failed authentications"),
    Entry(name=BURNING, every_ms=15 * SECOND_MS, purpose="tell of budgets that are used up much faster than before"),
    Entry(name=ATTEMPTS, every_ms=2 * SECOND_MS, purpose="write down which API keys were refused, and tell of it"),
    Entry(name=LATENCY, every_ms=MINUTE_MS, purpose="tell of turns that have become slow"),
    Entry(
        name=RETENTION,
        every_ms=HOUR_MS,
        purpose="remove events, deliveries, answers, evidence and audit entries that are old",
    ),
)
JOB_NAMES: Final = tuple(entry.name for entry in TABLE)

WAKE_LEAST_MS: Final = 2
"""A job that asks to run again at once gets this pause, in which the scheduler notes that the last run is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a run did, in numbers for people. `wake_in_ms`: when there is something to do before the next tick."""

    counts: Mapping[str, int] = field(default_factory=dict)
    wake_in_ms: int | None = None


RunOnce: TypeAlias = Callable[[], Awaitable[Ran]]


async def run_job(jobs: Mapping[str, RunOnce], name: str) -> Ran:
    """Run one job now, as the command line does. What it raises is the caller's."""
    return await jobs[name]()


class Schedule:
    """Runs every job that it is given, each at most once at a time. `every_ms` overrides the table's intervals."""

    def __init__(
        self,
        jobs: Mapping[str, RunOnce],
        supervisor: Supervisor,
        *,
        every_ms: Mapping[str, int] | None = None,
    ) -> None:
        if strange := sorted({*jobs, *(every_ms or {})} - {*JOB_NAMES}):
            raise ValueError(f"not in the table of jobs: {', '.join(strange)}")
        self._jobs = dict(jobs)
        self._every_ms = {entry.name: entry.every_ms for entry in TABLE} | dict(every_ms or {})
        self._supervisor = supervisor
        self._running: set[asyncio.Task[object]] = set()
        self._is_stopping = False
        # A run that comes late is still wanted, and several that were missed are one.
        defaults = {"coalesce": True, "max_instances": 1, "misfire_grace_time": None}
        self._scheduler = AsyncIOScheduler(timezone=UTC, job_defaults=defaults)

    def start(self) -> None:
        """Begin, with a run of everything at once: what was due while nobody was here is due now."""
        # A tick that finds its job still running is passed over, which is what we want: not worth a warning each time.
        logging.getLogger("apscheduler").setLevel(logging.ERROR)
        for name in self._jobs:
            interval = IntervalTrigger(seconds=self._every_ms[name] / SECOND_MS, timezone=UTC)
            self._scheduler.add_job(partial(self._fire, name), interval, id=name, next_run_time=datetime.now(UTC))
        self._scheduler.start()

    async def stop(self, *, within_s: float) -> None:
        """Begin nothing more, let what runs finish if it can in time, cancel the rest, and leave nothing behind."""
        self._is_stopping = True
        self._scheduler.pause()
        if self._running:
            _, late = await asyncio.wait(self._running, timeout=within_s)
            for task in late:
                log.warning("%s was interrupted", task.get_name())
                task.cancel()
            if late:
                await asyncio.wait(late)
        self._scheduler.shutdown(wait=False)
        await asyncio.sleep(0)  # the scheduler ends itself in the loop's next round

    async def run_job(self, name: str) -> Ran:
        """Run one job now, beside the schedule. What it raises is the caller's."""
        return await run_job(self._jobs, name)

    async def _fire(self, name: str) -> None:
        """One tick. The run is a task of the supervisor's, so that it has a context of its own."""
        if self._is_stopping:
            return
        task = self._supervisor.spawn(f"job {name}", self._guarded(name))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        await asyncio.wait([task])
        ran = None if task.cancelled() else task.result()
        if isinstance(ran, Ran) and ran.wake_in_ms is not None:
            self._wake(name, ran.wake_in_ms)

    async def _guarded(self, name: str) -> Ran | None:
        """Run a job, whatever comes of it."""
        started = time.perf_counter()
        result = "failed"
        try:
            ran = await self._jobs[name]()
            result = "done"
            log.debug("%s: %s", name, dict(ran.counts))
            return ran
        except asyncio.CancelledError:
            result = "cancelled"
            raise
        except (Unavailable, Overloaded, Stopped) as error:
            result = "unavailable"
            log.warning("%s could not run: %s", name, error)
        except Exception:
            log.exception("%s failed", name)
        finally:
            measures.JOB_RUNS.labels(job=name, result=result).inc()
            measures.JOB_SECONDS.labels(job=name).observe(time.perf_counter() - started)
        return None

    def _wake(self, name: str, in_ms: int) -> None:
        """Move the next tick of a job forward."""
        if self._is_stopping:
            return
        job = self._scheduler.get_job(name)
        wake_at = datetime.now(UTC) + timedelta(milliseconds=max(in_ms, WAKE_LEAST_MS))
        if job is not None and wake_at < job.next_run_time:
            job.modify(next_run_time=wake_at)
