"""The replay once more on the naive model of the rules: same trace, same plan, nothing of the product's decisions."""

from __future__ import annotations

import heapq
from collections import Counter
from itertools import count
from typing import Any

from domain.terms import DAY_MS, SECOND_MS
from server.replay.drive import BEGINS_AT
from server.replay.plan import Frame, PlannedGrant, plan_grants
from server.replay.trace import Pod, Trace
from tests.simulation.oracle import Oracle

ROOT = "platform"
ACCOUNT = "pacct_" + "0" * 26
RESERVATION = "openb/gpus"
POOL = "gpus"


def tenant_of(qos: str) -> str:
    return f"qos-{qos.lower()}"


def project_of(qos: str, *, whole: bool) -> str:
    letters = "".join(letter for letter in qos.lower() if letter in "abcdefghjkmnpqrstvwxyz")
    return "prj_" + (("w" if whole else "p") + letters).ljust(26, "0")


class Naive:
    """Commands of one run, in the order of time: boundaries, grants made, grants ended, deletions, creations."""

    def __init__(self, trace: Trace, *, slots: int) -> None:
        self.tallies: dict[str, Counter[str]] = {tenant_of(pod.qos): Counter() for pod in trace.pods}
        self.ends_at = BEGINS_AT + trace.ends_s * SECOND_MS
        self._oracle = Oracle(ROOT)
        for qos in {pod.qos for pod in trace.pods}:
            self._oracle.add_tenant(tenant_of(qos))
            for whole in (True, False):
                self._oracle.add_project(project_of(qos, whole=whole), tenant_id=tenant_of(qos))
        self._oracle.add_account(ACCOUNT)
        self._oracle.add_pool(POOL, offered_to=set(self.tallies))
        self._oracle.add_reservation(ACCOUNT, RESERVATION, total=slots, pool_id=POOL, region="region")
        self._numbers = count()
        self._due: list[tuple[int, int, int, Any, Any]] = []
        self._open: dict[str, int] = {}
        self._placed: dict[str, list[str]] = {}
        for pod in trace.pods:
            created_at = BEGINS_AT + pod.created_s * SECOND_MS
            self._later(created_at, 5, self._create, pod)
            if pod.deleted_s is not None:
                lives = pod.deleted_s > pod.created_s
                deleted_at = BEGINS_AT + pod.deleted_s * SECOND_MS if lives else created_at
                self._later(deleted_at, 4 if lives else 6, self._delete, pod)
        frame = Frame(slots=slots, term_ms=7 * DAY_MS, starts_at=BEGINS_AT, ends_at=self.ends_at)
        for planned in plan_grants(frame):
            if tenant_of(planned.qos) in self.tallies:
                self._later(planned.ask_at, 2, self._grant, planned)

    def run(self) -> None:
        while self._due and self._due[0][0] <= self.ends_at:
            at, _, _, do, what = heapq.heappop(self._due)
            do(at, what)
        for instance_ids in self._placed.values():
            for instance_id in instance_ids:
                self._oracle.delete_instance(self.ends_at, instance_id=instance_id)
        for grant_id in [grant_id for grant_id, ends_at in self._open.items() if ends_at > self.ends_at]:
            self._end(self.ends_at, grant_id)
        for segment in self._oracle.segments:
            assert segment.to_ms is not None
            owner = self._oracle.instances[segment.instance_id].tenant_id
            kind = "used_ms" if segment.mode == "grant" else "ordinary_ms"
            self.tallies[owner][kind] += segment.to_ms - segment.from_ms

    def _later(self, at: int, rank: int, do: Any, what: Any) -> None:
        heapq.heappush(self._due, (at, rank, next(self._numbers), do, what))

    def _create(self, at: int, pod: Pod) -> None:
        for _ in range(pod.gpus):
            code, answer = self._oracle.create_instance(
                at,
                tenant_id=tenant_of(pod.qos),
                account_id=ACCOUNT,
                reservation_id=RESERVATION,
                project_id=project_of(pod.qos, whole=pod.takes_whole_gpus),
            )
            if code != "ok":
                assert code == "CAPACITY_UNAVAILABLE"
                self.tallies[tenant_of(pod.qos)]["refused"] += 1
                continue
            self._placed.setdefault(pod.name, []).append(str(answer))
            is_inside = self._oracle.instances[str(answer)].grant_id is not None
            self.tallies[tenant_of(pod.qos)]["in_grant" if is_inside else "ordinary"] += 1

    def _delete(self, at: int, pod: Pod) -> None:
        for instance_id in self._placed.pop(pod.name, ()):
            self._oracle.delete_instance(at, instance_id=instance_id)

    def _grant(self, at: int, planned: PlannedGrant) -> None:
        code, answer = self._oracle.create_grant(
            at,
            tenant_id=ROOT,
            account_id=ACCOUNT,
            reservation_id=RESERVATION,
            grant_tenant_id=tenant_of(planned.qos),
            project_id=project_of(planned.qos, whole=True) if planned.whole_gpus_only else None,
            slots=planned.slots,
            starts_at=planned.starts_at,
            ends_at=planned.ends_at,
            key=f"{planned.series}:{planned.qos}:{planned.starts_at}",
        )
        self.tallies[tenant_of(planned.qos)]["grants_made" if code == "ok" else "grants_refused"] += 1
        if code != "ok":
            return
        self._open[str(answer)] = planned.ends_at
        if planned.end_at is not None:
            self._later(planned.end_at, 3, self._end, str(answer))

    def _end(self, at: int, grant_id: str) -> None:
        self._oracle.end_grant(at, tenant_id=ROOT, account_id=ACCOUNT, grant_id=grant_id)
        del self._open[grant_id]


def play(trace: Trace, *, slots: int) -> dict[str, Counter[str]]:
    """What each tenant's requests come to by the naive model, under the names that the report has for them."""
    naive = Naive(trace, slots=slots)
    naive.run()
    return naive.tallies
