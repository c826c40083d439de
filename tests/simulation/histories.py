"""Seeded histories of commands for the naive model and for the product, as plain tuples.

`random_history(seed, steps)` is a pure function of its arguments. A step names its instant, a command (a method of
`Oracle`) and plain arguments. Grants and instances do not exist yet when a history is written, so a step that makes one
carries a label, and later steps say `grant="g3"` or `instance="i5"`; whoever plays a history keeps label -> id
(see `player`). A label whose command was refused stays unknown, and steps that use it are left out on both sides.

The world that a history plays in is `world_plan.WORLD`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.simulation.world_plan import (
    ACCOUNT_SIDE,
    POOL_MAIN,
    POOL_SIDE,
    ROOT,
    WORLD,
    ReservationPlan,
    WorldPlan,
    project_id,
)

START_AT = 1_800_000_000_000  # 2027-01-15T08:00:00.000Z, on a UTC hour
MINUTE_MS = 60_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class Step(NamedTuple):
    """`label` is set on steps that make a grant or an instance."""

    at: int
    command: str
    arguments: dict[str, Any]
    label: str | None = None


WEIGHTS = {
    "create_grant": 20,
    "late_grant": 3,
    "create_instance": 20,
    "create_instance_of_flavor": 5,
    "stop_instance": 9,
    "start_instance": 9,
    "delete_instance": 7,
    "attach_instance": 4,
    "move_instance": 3,
    "end_grant": 6,
    "amend_grant": 8,
    "scan": 8,
    "meter": 5,
    "advance": 4,
    "unbind": 1,
    "bind": 1,
    "withdraw": 1,
    "offer": 1,
    "delete_tenant": 1,
    "delete_project": 1,
    "delete_account": 1,
    "retry": 8,
}
# Commands whose repetition must change nothing at all.
REPEATABLE = frozenset(WEIGHTS) - {
    "late_grant",
    "retry",
    "create_instance",
    "create_instance_of_flavor",
    "attach_instance",
    "move_instance",
    "amend_grant",
}


@dataclass
class Asked:
    """A grant that the history asked for; the writer does not know whether it was given."""

    label: str
    arguments: dict[str, Any]


@dataclass
class HistoryWriter:
    chance: random.Random
    excluded: frozenset[str] = frozenset()
    plan: WorldPlan = WORLD
    weights: Mapping[str, int] = field(default_factory=lambda: WEIGHTS)
    now: int = START_AT
    steps: list[Step] = field(default_factory=list)
    grants: list[Asked] = field(default_factory=list)
    instances: list[tuple[str, str]] = field(default_factory=list)  # (label, tenant)
    lost: dict[tuple[str, str], bool] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    repairs: list[Step] = field(default_factory=list)  # what undoes an unbind or a withdrawal, a few steps later
    labels: int = 0

    def write(self, count: int) -> list[Step]:
        names = [name for name in self.weights if name not in self.excluded]
        weights = [self.weights[name] for name in names]
        while len(self.steps) < count:
            self.now = self._next_instant()
            if self.repairs and self.chance.random() < 0.4:
                self._put_again(self.repairs.pop())
                continue
            command = self.chance.choices(names, weights)[0]
            writer: Callable[[], None] = getattr(self, f"_{command}")
            writer()
        return self.steps[:count]

    # --- time ---------------------------------------------------------------------------------------------------

    def _next_instant(self) -> int:
        """Never backwards; often the same ms, often a boundary or a full hour exactly or 1 ms beside it."""
        kind = self.chance.choices(["same", "beside", "hour", "short", "long", "days"], [40, 18, 5, 33, 2, 1])[0]
        if kind == "same":
            return self.now
        if kind == "hour":
            edge = (self.now // HOUR_MS + self.chance.choice([1, 1, 2])) * HOUR_MS
            return max(self.now, edge + self.chance.choice([-1, 0, 0, 1]))
        if kind == "beside":
            edges: set[int] = {asked.arguments[name] for asked in self.grants for name in ("starts_at", "ends_at")}
            ahead = sorted(edge for edge in edges if edge + 1 > self.now)
            if ahead:
                return max(self.now, ahead[0] + self.chance.choice([-1, 0, 0, 0, 1]))
        if kind == "long":
            return self.now + self.chance.randrange(HOUR_MS, 8 * HOUR_MS)
        if kind == "days":
            return self.now + self.chance.randrange(DAY_MS, 4 * DAY_MS)
        return self.now + self.chance.choice([1, 999, MINUTE_MS, self.chance.randrange(1, 20 * MINUTE_MS)])

    def _term(self) -> tuple[int, int]:
        next_hour = (self.now // HOUR_MS + 1) * HOUR_MS
        offsets = [0, self.chance.randrange(1, 3 * HOUR_MS), next_hour - self.now, -300_001, -300_000, -1, 1]
        starts_at = self.now + self.chance.choices(offsets, [40, 20, 15, 1, 8, 5, 5])[0]
        edges = [
            asked.arguments["ends_at"] for asked in self.grants if asked.arguments["ends_at"] >= self.now - 300_000
        ]
        if edges and self.chance.random() < 0.3:  # a renewal: the very ms, or 1 ms beside it
            starts_at = self.chance.choice(edges) + self.chance.choice([-1, 0, 0, 0, 0, 1])
        return starts_at, self._end_after(starts_at)

    def _end_after(self, starts_at: int) -> int:
        lengths = [0, 1, MINUTE_MS, 20 * MINUTE_MS, HOUR_MS, 90 * MINUTE_MS, 25 * HOUR_MS, 3 * DAY_MS]
        lengths.append(self.chance.randrange(1, 4 * HOUR_MS))
        length = self.chance.choices(lengths, [1, 2, 4, 10, 14, 16, 10, 3, 26])[0]
        ends_at = starts_at + length
        if self.chance.random() < 0.2:
            ends_at = (ends_at // HOUR_MS + 1) * HOUR_MS
        return ends_at

    # --- pieces of commands ---------------------------------------------------------------------------------------

    def _put(self, command: str, *, label: str | None = None, **arguments: Any) -> None:
        self.steps.append(Step(self.now, command, arguments, label))

    def _label(self, letter: str) -> str:
        self.labels += 1
        return f"{letter}{self.labels}"

    def _put_again(self, step: Step) -> None:
        self.steps.append(step._replace(at=self.now))

    def _open_grants(self) -> list[Asked]:
        """Recent grants that, for all the writer knows, are not over; sometimes any."""
        recent = self.grants[-5:]
        still = [asked for asked in recent if asked.arguments["ends_at"] > self.now]
        return still if still and self.chance.random() < 0.9 else recent

    def _reservation(self) -> ReservationPlan:
        return self.chance.choices(self.plan.reservations, [6, 2, 2])[0]

    def _tenant(self) -> str:
        living = [tenant for tenant in self.plan.tenants if tenant not in self.deleted]
        return self.chance.choices(living, [{"A": 12, "B": 6, "C": 2}.get(tenant, 1) for tenant in living])[0]

    def _project(self, tenant_id: str, odds: float) -> str | None:
        mine = [project for project, owner in self.plan.projects if owner == tenant_id and project not in self.deleted]
        return self.chance.choice(mine) if mine and self.chance.random() < odds else None

    def _any_instance(self) -> str | None:
        return self.chance.choice(self.instances[-25:])[0] if self.instances else None

    # --- commands -------------------------------------------------------------------------------------------------

    def _late_grant(self) -> None:
        """Meters just after a full hour and then lets a grant start just before it (R41, D6)."""
        self.now = (self.now // HOUR_MS + 1) * HOUR_MS + self.chance.randrange(4 * MINUTE_MS)
        self._put("meter")
        starts_at = self.now - self.chance.randrange(self.now % HOUR_MS, 300_001)
        self._ask_grant(starts_at, self._end_after(self.now))

    def _create_grant(self) -> None:
        self._ask_grant(*self._term())

    def _ask_grant(self, starts_at: int, ends_at: int) -> None:
        plan = self._reservation()
        tenant_id = self._tenant()
        restricted = self._project(tenant_id, 0.3)
        if self.chance.random() < 0.03:  # somebody else's, or nobody's
            restricted = self.chance.choice([project for project, _ in self.plan.projects] + [project_id("z")])
        label = self._label("g")
        arguments = {
            "tenant_id": ROOT if self.chance.random() > 0.02 else tenant_id,
            "account_id": plan.account_id,
            "reservation_id": plan.reservation_id if self.chance.random() > 0.02 else "zone-9/none",
            "grant_tenant_id": tenant_id,
            "project_id": restricted,
            "slots": self.chance.choices([1, 2, 3, 4, plan.total, plan.total + 1], [8, 10, 6, 4, 2, 1])[0],
            "starts_at": starts_at,
            "ends_at": ends_at,
            "key": f"key-{label}",
        }
        if self.grants and self.chance.random() < 0.03:  # another request under a used key
            arguments["key"] = self.chance.choice(self.grants).arguments["key"]
        self.grants.append(Asked(label, arguments))
        self._put("create_grant", label=label, **arguments)

    def _end_grant(self) -> None:
        if self.grants:
            asked = self.chance.choice(self._open_grants())
            account_id = asked.arguments["account_id"] if self.chance.random() > 0.03 else "pacct_" + "9" * 26
            self._put("end_grant", tenant_id=ROOT, account_id=account_id, grant=asked.label)

    def _amend_grant(self) -> None:
        """`stale` asks for the version before the current one, which is a conflict."""
        if not self.grants:
            return
        asked = self.chance.choice(self._open_grants())
        changes: dict[str, Any] = {}
        if self.chance.random() < 0.55:
            changes["slots"] = self.chance.choice([1, 2, 3, 4, 6, 11])
        if self.chance.random() < 0.55:
            changes["ends_at"] = self.chance.choice([self._end_after(self.now), self.now, self.now + 1])
        if self.chance.random() < 0.25:
            changes["starts_at"] = self._term()[0]
        stale = self.chance.random() < 0.08
        # Later steps should hit the new edges; whether the amendment is accepted the writer does not know.
        self.grants.append(Asked(asked.label, {**asked.arguments, **changes}))
        account_id = asked.arguments["account_id"]
        self._put("amend_grant", tenant_id=ROOT, account_id=account_id, grant=asked.label, stale=stale, **changes)

    def _create_instance(self) -> None:
        plan, tenant_id = self._reservation(), self._tenant()
        label = self._label("i")
        self.instances.append((label, tenant_id))
        self._put(
            "create_instance",
            label=label,
            tenant_id=tenant_id,
            account_id=plan.account_id,
            reservation_id=plan.reservation_id,
            project_id=self._project(tenant_id, 0.6),
        )

    def _create_instance_of_flavor(self) -> None:
        plan, tenant_id = self._reservation(), self._tenant()
        label = self._label("i")
        self.instances.append((label, tenant_id))
        self._put(
            "create_instance_of_flavor",
            label=label,
            tenant_id=tenant_id,
            pool_id=plan.pool_id,
            flavor=plan.flavor,
            project_id=self._project(tenant_id, 0.6),
        )

    def _attach_instance(self) -> None:
        """Imports a running instance, or attaches one that lost its reservation."""
        plan = self._reservation()
        arguments = {
            "account_id": plan.account_id,
            "reservation_id": plan.reservation_id,
            "billing": self.chance.choice(["normal", "none"]),
        }
        if self.instances and self.chance.random() < 0.3:
            label, tenant_id = self.chance.choice(self.instances[-25:])
            self._put("attach_instance", tenant_id=tenant_id, existing=label, **arguments)
            return
        tenant_id = self._tenant()
        label = self._label("i")
        self.instances.append((label, tenant_id))
        project = self._project(tenant_id, 0.6)
        self._put("attach_instance", label=label, tenant_id=tenant_id, project_id=project, **arguments)

    def _start_instance(self) -> None:
        if label := self._any_instance():
            self._put("start_instance", instance=label)

    def _stop_instance(self) -> None:
        if label := self._any_instance():
            self._put("stop_instance", instance=label)

    def _delete_instance(self) -> None:
        if self.instances:
            chosen = self.chance.choice(self.instances[-25:])
            self._put("delete_instance", instance=chosen[0])
            if self.chance.random() < 0.8:  # the others are asked for again, deleted as they are
                self.instances.remove(chosen)

    def _move_instance(self) -> None:
        if self.instances:
            label, tenant_id = self.chance.choice(self.instances[-25:])
            project = self._project(tenant_id, 0.8)
            if self.chance.random() < 0.05:  # somebody else's
                project = self.chance.choice([project for project, _ in self.plan.projects])
            self._put("move_instance", instance=label, project_id=project, start=self.chance.random() < 0.4)

    def _scan(self) -> None:
        """Shrinking and growing totals; now and then a reservation is missing, an account is gone, a page failed."""
        account_id, _ = self.chance.choice(self.plan.accounts)
        reported: dict[str, dict[str, Any]] = {}
        for plan in self.plan.reservations:
            if plan.account_id != account_id:
                continue
            key = (plan.account_id, plan.reservation_id)
            lost = self.lost.get(key, False)
            self.lost[key] = self.chance.random() < (0.2 if lost else 0.04)
            if self.lost[key]:
                continue
            total = self.chance.choice([plan.total] * 4 + [plan.total - 2, plan.total - 1, plan.total + 2, 1, 0])
            in_use = 0 if lost else self.chance.choice([None, None, 0, self.chance.randrange(plan.total)])
            reported[plan.reservation_id] = {"total": total, "in_use": in_use, "ready": self.chance.random() > 0.06}
        self._put("scan", account_id=account_id, reported=reported, complete=self.chance.random() > 0.1)

    def _meter(self) -> None:
        self._put("meter")

    def _advance(self) -> None:
        self._put("advance")

    def _unbind(self) -> None:
        plan = self._reservation()
        self._put("unbind", account_id=plan.account_id, reservation_id=plan.reservation_id)
        self.repairs.append(self._binding(plan))

    def _bind(self) -> None:
        self._put_again(self._binding(self._reservation()))

    def _binding(self, plan: ReservationPlan) -> Step:
        arguments = {"account_id": plan.account_id, "reservation_id": plan.reservation_id, "pool_id": plan.pool_id}
        return Step(self.now, "bind", arguments)

    def _offer(self) -> None:
        self._put("offer", pool_id=self.chance.choice([POOL_MAIN, POOL_SIDE]), tenant_id=self._tenant())

    def _withdraw(self) -> None:
        arguments = {"pool_id": self.chance.choice([POOL_MAIN, POOL_SIDE]), "tenant_id": self._tenant()}
        self.steps.append(Step(self.now, "withdraw", arguments))
        self.repairs.append(Step(self.now, "offer", arguments))

    def _delete_tenant(self) -> None:
        """At most one, never the busiest: a deleted tenant asks for nothing more."""
        victim = self.chance.choice(["B", "C"])
        if not {"B", "C"} & self.deleted and self.chance.random() < 0.5:
            self.deleted.add(victim)
            self._put("delete_tenant", tenant_id=victim)

    def _delete_project(self) -> None:
        project, _ = self.chance.choice(self.plan.projects)
        if self.chance.random() < 0.3:
            self.deleted.add(project)
            self._put("delete_project", project_id=project)

    def _delete_account(self) -> None:
        """Asked for now and then; it only succeeds once nothing on the account lives or waits for metering."""
        if len(self.steps) > 30 and self.chance.random() < 0.4:
            self._put("delete_account", account_id=ACCOUNT_SIDE)

    def _retry(self) -> None:
        """An earlier step once more, now. The label of a create stays: a retry that answers gives the same id."""
        earlier = [step for step in self.steps[-30:] if step.command in REPEATABLE]
        if earlier:
            self._put_again(self.chance.choice(earlier))


def random_history(seed: int, steps: int, *, excluded: frozenset[str] = frozenset()) -> list[Step]:
    """`steps` commands that only depend on `seed`. `excluded` commands (keys of `WEIGHTS`) do not occur."""
    return HistoryWriter(random.Random(seed), excluded).write(steps)


def shifted(history: list[Step], by_ms: int) -> list[Step]:
    """The same history at other instants (P14)."""
    moved = []
    for step in history:
        arguments = dict(step.arguments)
        for name in ("starts_at", "ends_at"):
            if name in arguments:
                arguments[name] += by_ms
        moved.append(step._replace(at=step.at + by_ms, arguments=arguments))
    return moved
