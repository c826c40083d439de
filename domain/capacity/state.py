"""The books of one capacity reservation: what every decision reads and changes.

A `CapacityState` is one reservation with the grants and instances that can still matter. Rules live beside this module
(`grants`, `placement`, `boundaries`, `observation`); here is only what keeps the counts right whoever changes them, and
what has changed since the last flush.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from domain.capacity.things import (
    Billing,
    CapacityEvent,
    Grant,
    GrantState,
    Instance,
    Mode,
    Reservation,
    ReservationStatus,
    RunState,
    Segment,
)
from domain.capacity.timeline import Timeline
from domain.terms import MINUTE_MS

__all__ = [
    "Billing",
    "CapacityEvent",
    "CapacityState",
    "Changes",
    "Grant",
    "GrantState",
    "Instance",
    "Mode",
    "Reservation",
    "ReservationStatus",
    "RunState",
    "Segment",
]


@dataclass(slots=True)
class Changes:
    """What the next flush has to write: whole rows, each at most once."""

    head: bool = False
    grants: dict[str, Grant] = field(default_factory=dict)
    new_grants: set[str] = field(default_factory=set)
    instances: dict[str, Instance] = field(default_factory=dict)
    new_instances: set[str] = field(default_factory=set)
    segments: dict[tuple[str, int], Segment] = field(default_factory=dict)
    events: list[CapacityEvent] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.head or self.grants or self.instances or self.segments or self.events)


class CapacityState:
    """One reservation's books. Every change goes through a method here, so the counts cannot drift from the things."""

    __slots__ = (
        "_due",
        "_forgotten_at",
        "changes",
        "deserted",
        "grants",
        "instances",
        "live_slots",
        "members",
        "outside_running",
        "outsiders",
        "reservation",
        "running",
        "tenant_grants",
        "timeline",
    )

    def __init__(
        self, reservation: Reservation, grants: Iterable[Grant] = (), instances: Iterable[Instance] = ()
    ) -> None:
        self.reservation = reservation
        self.grants: dict[str, Grant] = {grant.grant_id: grant for grant in grants}
        self.instances: dict[str, Instance] = {}
        self.members: dict[str, dict[str, Instance]] = {grant_id: {} for grant_id in self.grants}
        """grant id -> its not-deleted instances, running or stopped: held(g) is the size (R18)."""
        self.tenant_grants: dict[str, dict[str, Grant]] = {}
        """tenant id -> its grants here that are neither cancelled nor ended."""
        self.outsiders: dict[str, dict[str, Instance]] = {}
        """tenant id -> its attached running instances outside any grant."""
        self.timeline = Timeline(
            piece for grant in self.grants.values() if grant.cancelled_at is None for piece in grant.pieces()
        )
        self.running = 0
        """Attached running instances, whoever owns them, billing none included: our own part of U (R18)."""
        self.outside_running = 0
        """Those of them outside any grant."""
        self.live_slots = 0
        """Slots of the grants whose start is applied and whose end is not."""
        self._due: list[tuple[int, int, int, int, str]] = []
        self._forgotten_at = 0
        self.deserted: Mapping[str, int] = {}
        """Projects that a grant is restricted to and that are deleted, and since when, as far as the turn has looked."""
        self.changes = Changes()
        for grant in self.grants.values():
            self._count_live(grant, +1)
            self._index(grant)
            self.schedule_boundaries(grant)
        for instance in instances:
            self._enter(instance)

    # -- reading -------------------------------------------------------------------------------------------------

    @property
    def in_use(self) -> int:
        """U of R18 and D16."""
        return self.running + self.reservation.external_in_use

    @property
    def free(self) -> int:
        """F in the closed form of R20; negative when over-promised or shrunken (R21)."""
        outside = self.outside_running + self.reservation.external_in_use
        return self.reservation.total - outside - self.live_slots

    @property
    def unused_granted(self) -> int:
        """Granted slots of live grants that no running instance of theirs holds (R19)."""
        return self.live_slots - (self.running - self.outside_running)

    def held(self, grant_id: str) -> int:
        return len(self.members.get(grant_id, ()))

    def running_in(self, grant_id: str) -> int:
        return sum(instance.is_running for instance in self.members.get(grant_id, {}).values())

    def live_grants(self, tenant_id: str, *, at: int) -> list[Grant]:
        """The tenant's grants in term at `at`, in the order of R27."""
        mine = self.tenant_grants.get(tenant_id, {}).values()
        return sorted((grant for grant in mine if grant.is_live_at(at)), key=lambda grant: grant.preference)

    def restricted_projects(self) -> set[str]:
        """The projects that grants here are restricted to, of those that are neither cancelled nor ended."""
        mine = (grant for grants in self.tenant_grants.values() for grant in grants.values())
        return {grant.project_id for grant in mine if grant.project_id is not None}

    def takes_in(self, grant: Grant, instance: Instance, *, at: int) -> bool:
        """Whether the grant may take in what runs already: R26, R31, and none once its project is deleted (D30). That a
        boundary is applied late changes nothing: the project is looked at as it was at that instant."""
        if not grant.serves(instance.project_id) or instance.billing is not Billing.NORMAL:
            return False
        deleted_at = self.deserted.get(grant.project_id or "")
        return deleted_at is None or at <= deleted_at

    def open_grants(self, *, at: int) -> list[Grant]:
        """Scheduled and active ones, by (start, id)."""
        mine = (grant for grants in self.tenant_grants.values() for grant in grants.values())
        opened = (grant for grant in mine if grant.is_open_at(at))
        return sorted(opened, key=lambda grant: (grant.starts_at, grant.grant_id))

    # -- boundaries ----------------------------------------------------------------------------------------------

    def schedule_boundaries(self, grant: Grant) -> None:
        """Queue what is still to be applied, in the order of R16; a stale entry is passed over when it comes up."""
        if grant.cancelled_at is not None or grant.ended_applied:
            return
        restricted, longest, grant_id = grant.preference
        if not grant.started_applied:
            heapq.heappush(self._due, (grant.starts_at, 1, restricted, longest, grant_id))
        heapq.heappush(self._due, (grant.ends_at, 0, restricted, longest, grant_id))

    def next_boundary(self) -> tuple[int, Grant, bool] | None:
        """(instant, grant, whether it is the start) of the next boundary to apply; None when there is none."""
        while self._due:
            instant, is_start, _, _, grant_id = self._due[0]
            grant = self.grants.get(grant_id)
            if grant is not None and _is_pending(grant, instant, is_start=bool(is_start)):
                return instant, grant, bool(is_start)
            heapq.heappop(self._due)
        return None

    # -- changing ------------------------------------------------------------------------------------------------

    def add_grant(self, grant: Grant) -> None:
        self.grants[grant.grant_id] = grant
        self.members[grant.grant_id] = {}
        self._index(grant)
        self.timeline.add(grant.starts_at, grant.ends_at, grant.slots)
        self.schedule_boundaries(grant)
        self.changes.new_grants.add(grant.grant_id)
        self.touch(grant)

    def touch(self, grant: Grant) -> None:
        self.changes.grants[grant.grant_id] = grant

    def set_applied(self, grant: Grant, *, started: bool, ended: bool) -> None:
        """Record that a boundary has been applied; live slots follow."""
        self._count_live(grant, -1)
        grant.started_applied, grant.ended_applied = started, ended
        self._count_live(grant, +1)
        self._index(grant)
        self.touch(grant)

    def set_cancelled(self, grant: Grant, *, at: int) -> None:
        grant.cancelled_at = at
        self._index(grant)
        self.touch(grant)

    def set_slots(self, grant: Grant, slots: int) -> None:
        self._count_live(grant, -1)
        grant.slots = slots
        self._count_live(grant, +1)
        self.touch(grant)

    def add_instance(self, instance: Instance, *, at: int) -> None:
        self._enter(instance)
        self.changes.new_instances.add(instance.instance_id)
        self._open_segment(instance, at)
        self._touch(instance)

    def place(self, instance: Instance, *, at: int, grant_id: str | None, attached: bool = True) -> None:
        """Move the instance into a grant or out of any; a running one is billed the new way from `at` on (R45)."""
        self._leave(instance)
        instance.grant_id, instance.attached = grant_id, attached
        self._enter(instance)
        if instance.is_running:
            self._close_segment(instance, at)
            self._open_segment(instance, at)
        self._touch(instance)

    def set_run_state(self, instance: Instance, run_state: RunState, *, at: int, grant_id: str | None) -> None:
        """Start, stop or delete; `grant_id` is where it belongs afterwards."""
        self._leave(instance)
        self._close_segment(instance, at)
        instance.run_state, instance.grant_id = run_state, grant_id
        if run_state is not RunState.DELETED:
            self._enter(instance)
        self._open_segment(instance, at)
        self._touch(instance)

    def set_project(self, instance: Instance, project_id: str, *, at: int, grant_id: str | None) -> None:
        """What runs from `at` on is the new project's (D39); `grant_id` is where it belongs afterwards."""
        instance.project_id = project_id
        self.place(instance, at=at, grant_id=grant_id, attached=instance.attached)

    def send_away(self, instance: Instance, *, to: str) -> None:
        """A stopped instance goes to another reservation's books. What it ran here stays, to be billed as it was."""
        assert not instance.is_running, "what runs holds a slot here"
        self._leave(instance)
        self._touch(replace(instance, run_state=RunState.DELETED, grant_id=None, moved_to=to))

    def take_over(self, instance: Instance, *, at: int) -> None:
        """An instance comes from another reservation's books, and runs here from `at` on."""
        self._enter(instance)
        self._open_segment(instance, at)
        self._touch(instance)

    def catch_up(self, reservation: Reservation, grants: Iterable[Grant], instances: Iterable[Instance]) -> None:
        """Take in what others wrote since: the reservation as it is now, and whatever of it changed, over or not.

        The books are as they were written last: nothing of them waits for a flush.
        """
        assert not self.changes, "what is not flushed cannot be brought together with what others did"
        self.reservation = reservation
        moving = list(instances)
        for instance in moving:
            if (before := self.instances.get(instance.instance_id)) is not None:
                self._leave(before)
        for grant in grants:
            self._replace(grant)
        for instance in moving:
            if instance.run_state is not RunState.DELETED:
                self._enter(instance)

    def _replace(self, grant: Grant) -> None:
        """A grant as somebody else has left it, in the place of the one that was known, if any was."""
        before = self.grants.get(grant.grant_id)
        if before is None and grant.cancelled_at is not None:
            return
        if before is not None:
            self._lay_down(before, -1)
        self.grants[grant.grant_id] = grant
        self.members.setdefault(grant.grant_id, {})
        self._lay_down(grant, +1)
        self._index(grant)
        self.schedule_boundaries(grant)

    def _lay_down(self, grant: Grant, sign: int) -> None:
        """Put its slots into the timeline and the count, or take them out."""
        self._count_live(grant, sign)
        for from_at, to_at, slots in grant.pieces() if grant.cancelled_at is None else ():
            self.timeline.add(from_at, to_at, sign * slots)

    def publish(self, event: CapacityEvent) -> None:
        self.changes.events.append(event)

    def take_changes(self) -> Changes:
        """What has changed since the last call."""
        taken, self.changes = self.changes, Changes()
        return taken

    def forget(self, *, before: int) -> None:
        """Drop what no decision can ask about any more: grants over since `before` and the timeline behind it.

        Cheap to call after every turn: it looks only once a minute of the reservation's own time.
        """
        if before - self._forgotten_at < MINUTE_MS:
            return
        self._forgotten_at = before
        over = [
            grant.grant_id
            for grant in self.grants.values()
            if (grant.cancelled_at is not None or (grant.ended_applied and grant.ends_at < before))
            and not self.members[grant.grant_id]
        ]
        for grant_id in over:
            del self.grants[grant_id], self.members[grant_id]
        self.timeline.forget_before(before)

    # -- bookkeeping ---------------------------------------------------------------------------------------------

    def _index(self, grant: Grant) -> None:
        """Keep `tenant_grants` to the ones that are neither cancelled nor ended."""
        mine = self.tenant_grants.setdefault(grant.tenant_id, {})
        if grant.cancelled_at is None and not grant.ended_applied:
            mine[grant.grant_id] = grant
            return
        mine.pop(grant.grant_id, None)
        if not mine:
            del self.tenant_grants[grant.tenant_id]

    def _count_live(self, grant: Grant, sign: int) -> None:
        if grant.started_applied and not grant.ended_applied and grant.cancelled_at is None:
            self.live_slots += sign * grant.slots

    def _enter(self, instance: Instance) -> None:
        self.instances[instance.instance_id] = instance
        if instance.grant_id is not None:
            members = self.members[instance.grant_id]
            members[instance.instance_id] = instance
            slots = self.grants[instance.grant_id].slots
            assert len(members) <= slots, f"{instance.grant_id} holds {len(members)} of {slots} (P1)"
        self._count_running(instance, +1)

    def _leave(self, instance: Instance) -> None:
        del self.instances[instance.instance_id]
        if instance.grant_id is not None:
            del self.members[instance.grant_id][instance.instance_id]
        self._count_running(instance, -1)

    def _count_running(self, instance: Instance, sign: int) -> None:
        if instance.is_running and instance.attached:
            self.running += sign
            if instance.grant_id is None:
                self.outside_running += sign
                self._index_outsider(instance, present=sign > 0)

    def _index_outsider(self, instance: Instance, *, present: bool) -> None:
        mine = self.outsiders.setdefault(instance.tenant_id, {})
        if present:
            mine[instance.instance_id] = instance
            return
        del mine[instance.instance_id]
        if not mine:
            del self.outsiders[instance.tenant_id]

    def _open_segment(self, instance: Instance, at: int) -> None:
        if not instance.is_running:
            return
        instance.segment = Segment(
            number=instance.segment_count,
            from_at=at,
            to_at=None,
            mode=instance.mode,
            grant_id=instance.grant_id,
            project_id=instance.project_id,
        )
        instance.segment_count += 1
        self.changes.segments[instance.instance_id, instance.segment.number] = instance.segment

    def _close_segment(self, instance: Instance, at: int) -> None:
        if instance.segment is None:
            return
        instance.segment.to_at = at
        self.changes.segments[instance.instance_id, instance.segment.number] = instance.segment
        instance.segment = None

    def _touch(self, instance: Instance) -> None:
        self.changes.instances[instance.instance_id] = instance


def _is_pending(grant: Grant, instant: int, *, is_start: bool) -> bool:
    if grant.cancelled_at is not None or grant.ended_applied:
        return False
    if is_start:
        return not grant.started_applied and grant.starts_at == instant
    return grant.ends_at == instant
