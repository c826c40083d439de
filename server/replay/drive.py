"""The run of the openb replay: what is due is taken in the order of time, the clock is set, and the desks are asked.

What falls on one instant is done in this order: boundaries, the meter, grants, deletions, creations.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import count
from typing import Any, Final

from domain.capacity.commands import CreateGrant, DeleteInstance, EndGrant
from domain.capacity.refusals import CapacityUnavailable
from domain.capacity.state import Grant
from domain.terms import HOUR_MS, SECOND_MS
from server.replay.lateness import Granting, Placed, Placing, RunLog
from server.replay.plan import Frame, PlannedGrant, plan_grants
from server.replay.report import Pass, Tally
from server.replay.trace import Pod, Trace
from server.replay.world import FLAVOR, PLATFORM, RESERVATION, Grantee, World, accepted
from workers.capacity.boundaries import BoundaryJob
from workers.capacity.meter import MeterJob
from workers.clock import ManualClock
from workers.runtime import Runtime

BEGINS_AT: Final = 1_672_617_600_000
"""The trace names no date: its second 0 is put at 2023-01-02T00:00:00Z, a Monday."""

Progress = Callable[[int, int], None]


class Rank(IntEnum):
    """The order within one instant. A slot that is given back at an instant is free at it, as a term is over at its end;
    a pod that is deleted when it is created goes last."""

    BOUNDARY = 0
    METER = 1
    ASK_GRANT = 2
    END_GRANT = 3
    DELETE = 4
    CREATE = 5
    DELETE_AT_ONCE = 6


@dataclass(order=True, slots=True)
class Due:
    at: int
    rank: Rank
    number: int
    what: Any = field(compare=False, default=None)


@dataclass(slots=True)
class Agenda:
    """What is still to be done, by time."""

    _due: list[Due] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=count)

    def add(self, at: int, rank: Rank, what: Any = None) -> None:
        heapq.heappush(self._due, Due(at, rank, next(self._numbers), what))

    def next_batch(self, *, until: int) -> list[Due]:
        """Everything of the next instant and rank; nothing when there is none up to `until`."""
        batch: list[Due] = []
        while self._due and self._due[0].at <= until:
            first = self._due[0]
            if batch and (first.at, first.rank) != (batch[0].at, batch[0].rank):
                break
            batch.append(heapq.heappop(self._due))
        return batch


class Drive:
    """The run: takes what is due, sets the clock, asks the desks, and notes what came of it."""

    def __init__(
        self,
        runtime: Runtime,
        clock: ManualClock,
        world: World,
        trace: Trace,
        *,
        term_ms: int,
        meter_ms: int,
        progress: Progress,
    ) -> None:
        self.runtime, self.clock, self.world, self.trace = runtime, clock, world, trace
        self.log = RunLog(reservation=world.reservation(), around=world.surroundings())
        self.tallies: dict[str, Tally] = defaultdict(Tally)
        self.passes = {"boundaries": Pass(), "meter": Pass()}
        self.wall_ms = 0
        self.decisions = 0
        self.ends_at = BEGINS_AT + trace.ends_s * SECOND_MS
        self._term_ms, self._meter_ms = term_ms, meter_ms
        self._agenda = Agenda()
        self._placed: dict[str, list[str]] = {}
        self._open: dict[str, int] = {}
        """Grants that were not ended by hand, with the ends of their terms."""
        self._boundaries = BoundaryJob(runtime.asker)
        self._meter = MeterJob(runtime.asker)
        self._progress = progress
        self._total = 2 * len(trace.pods)
        self._done = 0

    async def run(self) -> None:
        """From the first pod to the last record of the meter."""
        self._fill_agenda()
        started = time.perf_counter_ns()
        while batch := self._agenda.next_batch(until=self.ends_at):
            self.clock.now = batch[0].at
            await self._do(batch)
            self._progress(self._done, self._total)
        await self._close()
        self.wall_ms = (time.perf_counter_ns() - started) // 1_000_000
        self._progress(self._total, self._total)

    def _fill_agenda(self) -> None:
        for pod in self.trace.pods:
            self._agenda.add(_instant(pod.created_s), Rank.CREATE, pod)
            if pod.deleted_s is not None and pod.deleted_s > pod.created_s:
                self._agenda.add(_instant(pod.deleted_s), Rank.DELETE, pod)
            elif pod.deleted_s is not None:
                self._agenda.add(_instant(pod.created_s), Rank.DELETE_AT_ONCE, pod)
        frame = Frame(slots=self.world.slots, term_ms=self._term_ms, starts_at=BEGINS_AT, ends_at=self.ends_at)
        for grant in plan_grants(frame):
            if grant.qos in self.world.grantees:
                self._agenda.add(grant.ask_at, Rank.ASK_GRANT, grant)
        for at in range(BEGINS_AT + self._meter_ms, self.ends_at, self._meter_ms):
            self._agenda.add(at, Rank.METER)

    async def _do(self, batch: list[Due]) -> None:
        match batch[0].rank:
            case Rank.BOUNDARY:
                await self._pass("boundaries", self._boundaries)
            case Rank.METER:
                await self._pass("meter", self._meter)
            case Rank.ASK_GRANT:
                for due in batch:
                    await self._ask_grant(due.what)
            case Rank.END_GRANT:
                for due in batch:
                    await self._end_grant(due.what)
            case Rank.CREATE:
                await self._create([due.what for due in batch])
            case Rank.DELETE | Rank.DELETE_AT_ONCE:
                await self._delete([due.what for due in batch])

    async def _pass(self, name: str, job: BoundaryJob | MeterJob) -> None:
        started = time.perf_counter_ns()
        ran = await job.run_once()
        done = ran.counts["boundaries" if name == "boundaries" else "records"]
        self.passes[name].add(done=done, took_ns=time.perf_counter_ns() - started)

    # -- grants --------------------------------------------------------------------------------------------------------

    async def _ask_grant(self, planned: PlannedGrant) -> None:
        command = self._command(planned)
        outcome = await self.runtime.grants.create(
            self.world.root,
            idempotency_key=f"{planned.series}:{planned.qos}:{planned.starts_at}",
            tenant_id=PLATFORM,
            account_id=command.account_id,
            reservation_id=command.reservation_id,
            grant_tenant_id=command.grant_tenant_id,
            project_id=command.project_id,
            slots=command.slots,
            starts_at=command.starts_at,
            ends_at=command.ends_at,
        )
        self.decisions += 1
        if isinstance(outcome, CapacityUnavailable):
            self.tallies[command.grant_tenant_id].grants_refused += 1
            self.log.add(self.clock.now, Granting(command=command, was_made=False))
        else:
            self._note_grant(planned, command, accepted(outcome).grant)

    def _note_grant(self, planned: PlannedGrant, command: CreateGrant, grant: Grant) -> None:
        self.tallies[grant.tenant_id].grants_made += 1
        self.log.add(self.clock.now, Granting(command=replace(command, grant_id=grant.grant_id), was_made=True))
        self._open[grant.grant_id] = grant.ends_at
        self._agenda.add(grant.starts_at, Rank.BOUNDARY)
        self._agenda.add(grant.ends_at, Rank.BOUNDARY)
        if planned.end_at is not None:
            self._agenda.add(planned.end_at, Rank.END_GRANT, grant.grant_id)

    def _command(self, planned: PlannedGrant) -> CreateGrant:
        """What is asked for, as the log keeps it."""
        grantee = self.world.grantees[planned.qos]
        return CreateGrant(
            grant_id="",
            account_id=self.world.account_id,
            reservation_id=RESERVATION,
            grant_tenant_id=grantee.tenant_id,
            project_id=grantee.whole_project_id if planned.whole_gpus_only else None,
            slots=planned.slots,
            starts_at=planned.starts_at,
            ends_at=planned.ends_at,
            created_by=self.world.root.principal.key_id,
        )

    async def _end_grant(self, grant_id: str) -> None:
        outcome = await self.runtime.grants.end(
            self.world.root, tenant_id=PLATFORM, account_id=self.world.account_id, grant_id=grant_id
        )
        self.decisions += 1
        self.log.add(self.clock.now, EndGrant(grant_id=grant_id))
        grant = accepted(outcome).grant
        tally = self.tallies[grant.tenant_id]
        if grant.cancelled_at is not None:
            tally.grants_cancelled += 1
        else:
            tally.grants_cut += 1
        del self._open[grant_id]

    # -- instances -----------------------------------------------------------------------------------------------------

    async def _create(self, pods: list[Pod]) -> None:
        """Pod after pod, so that which one got the last slot is the same in every run; a pod's own instances at once."""
        for pod in pods:
            grantee = self.world.grantees[pod.qos]
            project_id = grantee.project_id(takes_whole_gpus=pod.takes_whole_gpus)
            asked = (self._place(grantee, project_id, name) for name in _instance_names(pod))
            placed = tuple(await asyncio.gather(*asked))
            self.decisions += len(placed)
            self.log.add(self.clock.now, Placing(tenant_id=grantee.tenant_id, project_id=project_id, placed=placed))
            self._note(pod, placed)
        self._done += len(pods)

    async def _place(self, grantee: Grantee, project_id: str, name: str) -> Placed:
        outcome = await self.runtime.instances.create(
            grantee.caller, tenant_id=grantee.tenant_id, project_id=project_id, flavor=FLAVOR, name=name
        )
        if isinstance(outcome, CapacityUnavailable):
            return Placed(instance_id=None)
        instance = accepted(outcome).instance
        return Placed(instance_id=instance.instance_id, grant_id=instance.grant_id)

    def _note(self, pod: Pod, placed: tuple[Placed, ...]) -> None:
        tally = self.tallies[self.world.grantees[pod.qos].tenant_id]
        got = [slot for slot in placed if slot.instance_id is not None]
        inside = sum(slot.grant_id is not None for slot in got)
        tally.in_grant += inside
        tally.ordinary += len(got) - inside
        tally.refused += len(placed) - len(got)
        self._placed[pod.name] = [slot.instance_id for slot in got if slot.instance_id is not None]

    async def _delete(self, pods: list[Pod]) -> None:
        going = [(pod.qos, instance_id) for pod in pods for instance_id in self._placed.pop(pod.name, ())]
        await asyncio.gather(*(self._remove(self.world.grantees[qos], instance_id) for qos, instance_id in going))
        self._done += len(pods)

    async def _remove(self, grantee: Grantee, instance_id: str) -> None:
        accepted(
            await self.runtime.instances.delete(grantee.caller, tenant_id=grantee.tenant_id, instance_id=instance_id)
        )
        self.decisions += 1
        self.log.add(self.clock.now, DeleteInstance(instance_id=instance_id))

    # -- the end -------------------------------------------------------------------------------------------------------

    async def _close(self) -> None:
        """The trace is over: pods that outlive it are cut, grants are ended or cancelled, and the last hour is metered."""
        self.clock.now = self.ends_at
        await self._delete([pod for pod in self.trace.pods if pod.name in self._placed])
        for grant_id in [grant_id for grant_id, ends_at in self._open.items() if ends_at > self.ends_at]:
            await self._end_grant(grant_id)
        self.clock.now = self.ends_at + HOUR_MS
        await self._pass("meter", self._meter)


def _instant(seconds: int) -> int:
    return BEGINS_AT + seconds * SECOND_MS


def _instance_names(pod: Pod) -> list[str]:
    """One instance for each GPU: they are placed, and refused, one by one."""
    return [pod.name] if pod.gpus == 1 else [f"{pod.name}/{number}" for number in range(1, pod.gpus + 1)]
