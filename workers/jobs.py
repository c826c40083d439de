"""The jobs of one node, by their names in the table: what the schedule and the command line run."""

from __future__ import annotations

from dataclasses import dataclass

from domain.terms import MINUTE_MS
from workers.capacity.asking import CapacityAsker
from workers.capacity.boundaries import BoundaryJob
from workers.capacity.meter import MeterJob
from workers.capacity.reservations import ReservationDesk
from workers.capacity.scan import Providers, ScanJob
from workers.relay import KEYS_MAX, Relay
from workers.retention import ANSWER_DAYS, EVENT_DAYS, RetentionJob
from workers.schedule import BOUNDARIES, CLOSING, METER, RELAY, RETENTION, SCAN, Ran, RunOnce, Schedule
from workers.supervisor import Supervisor
from workers.tenancy_desk import TenancyDesk


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    scan_every_ms: int = MINUTE_MS
    """How often an account is looked at, however many nodes there are."""
    event_days: int = EVENT_DAYS
    answer_days: int = ANSWER_DAYS


class Jobs:
    """`all` runs what the command line runs: whatever is due and what is not. `schedule` makes the node's schedule."""

    def __init__(
        self,
        *,
        asker: CapacityAsker,
        reservations: ReservationDesk,
        tenancy: TenancyDesk,
        providers: Providers,
        relay: Relay,
        options: JobOptions,
    ) -> None:
        self._options = options
        self._scan = ScanJob(asker, reservations, providers)
        self._relay = relay
        self._tenancy = tenancy
        retention = RetentionJob(
            asker.database, asker.clock, event_days=options.event_days, answer_days=options.answer_days
        )
        self.all: dict[str, RunOnce] = {
            BOUNDARIES: BoundaryJob(asker).run_once,
            METER: MeterJob(asker).run_once,
            SCAN: self._scan.run_once,
            RELAY: self._sweep_outboxes,
            CLOSING: self._finish_closing,
            RETENTION: retention.run_once,
        }

    def schedule(self, supervisor: Supervisor) -> Schedule:
        """On every node; an account that another node has looked at lately is passed over."""
        jobs = self.all | {SCAN: self._scan_what_is_due}
        return Schedule(jobs, supervisor, every_ms={SCAN: self._options.scan_every_ms})

    async def _scan_what_is_due(self) -> Ran:
        """Ticks are never quite as far apart as they should be, so an account is due a little before its time."""
        every_ms = self._options.scan_every_ms
        return await self._scan.run_once(every_ms=every_ms - every_ms // 10)

    async def _sweep_outboxes(self) -> Ran:
        reservations = 0
        while True:
            swept = await self._relay.sweep(limit=KEYS_MAX)
            reservations += swept
            if swept < KEYS_MAX:
                return Ran(counts={"reservations": reservations})

    async def _finish_closing(self) -> Ran:
        return Ran(counts={"tenants": await self._tenancy.finish_closing()})
