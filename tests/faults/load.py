"""Clients that ask for this and that, again under the same key until they are answered, and what must hold afterwards.

The steps are those of the simulation's histories; how one is sent is the caller's: to desks in this process, or over
HTTP. Time is real.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from domain.identity import split_reservation_key
from storage.database import Connection, read_clock
from tests.capacity_world import drained, eventually
from tests.faults.crowd import Crowd
from tests.simulation.auditor import audit_all
from tests.simulation.histories import HOUR_MS, Step
from tests.simulation.oracle_rows import Outcome
from tests.simulation.product import PLAIN_PROJECTS
from tests.simulation.product_rows import Row, export_rows
from tests.simulation.world_plan import ACCOUNT_MAIN, POOL_MAIN, ROOT, WORLD, ReservationPlan

TENANTS = ("A", "B")
RESERVATIONS = tuple(plan for plan in WORLD.reservations if plan.account_id == ACCOUNT_MAIN)
SHORT_MS = (50, 300, 1_000, 2_500)
"""Terms that end while the test runs; the others last an hour."""

SendOnce = Callable[[Step, str, int], Awaitable[Outcome | None]]
"""A step, its key, and which attempt this is; None when there was no answer, so that nobody knows what happened."""


class Sent(NamedTuple):
    step: Step
    key: str
    outcome: Outcome


class Load(Crowd):
    """What all clients have been answered so far."""

    def __init__(self, send_once: SendOnce, *, seed: int) -> None:
        super().__init__()
        self._send_once = send_once
        self._seed = seed
        self.sent: list[Sent] = []
        self.besides: set[str] = set()
        """Grants that were made by others."""
        self._repeated = 0

    async def send(self, step: Step, key: str) -> Outcome:
        """Ask until there is an answer."""
        return await self.until_answered(lambda attempt: self._send_once(step, key, attempt), step)

    async def ask(self, step: Step, key: str) -> Outcome:
        """Ask until there is an answer, and note it."""
        outcome = await self.send(step, key)
        self.sent.append(Sent(step, key, outcome))
        self.answered += 1
        return outcome

    async def repeat_all(self) -> None:
        """P11: whatever was accepted, asked for once more under its key, gives the same thing and changes nothing.

        Each is repeated once, however often this is called.
        """
        again = [sent for sent in self.sent[self._repeated :] if sent.outcome[0] == "ok"]
        self._repeated = len(self.sent)
        for begin in range(0, len(again), 32):
            page = again[begin : begin + 32]
            outcomes = await asyncio.gather(*(self.send(sent.step, sent.key) for sent in page))
            assert outcomes == [sent.outcome for sent in page]

    async def one_after_another(self, number: int) -> None:
        writer = _Writer(random.Random(f"{self._seed}/{self.run_number}/{number}"), TENANTS[number % 2])
        for count in itertools.count():
            if self.has_enough:
                return
            key = f"client-{self.run_number}-{number}-{count}"
            step = writer.next_step(key)
            writer.note(step, await self.ask(step, key))

    def made(self, *commands: str) -> set[str]:
        """The ids that accepted steps of these commands gave."""
        return {str(sent.outcome[1]) for sent in self.sent if sent.step.command in commands and sent.outcome[0] == "ok"}


class _Writer:
    """One client's next step, out of what it has."""

    def __init__(self, chance: random.Random, tenant_id: str) -> None:
        self._chance = chance
        self._tenant_id = tenant_id
        self._grants: list[str] = []
        self._instances: list[str] = []

    def next_step(self, key: str) -> Step:
        commands = ["create_grant", "create_instance_of_flavor", "end_grant", "amend_grant"]
        commands += ["stop_instance", "start_instance", "delete_instance"]
        weights = [6, 6, *([2, 2] if self._grants else [0, 0]), *([2, 2, 3] if self._instances else [0, 0, 0])]
        command = self._chance.choices(commands, weights)[0]
        return Step(0, command, getattr(self, f"_{command}")(key))

    def note(self, step: Step, outcome: Outcome) -> None:
        code, made = outcome
        if code == "ok" and step.command == "create_grant":
            self._grants.append(str(made))
        elif code == "ok" and step.command == "create_instance_of_flavor":
            self._instances.append(str(made))

    def _reservation(self) -> ReservationPlan:
        return self._chance.choice(RESERVATIONS)

    def _create_grant(self, key: str) -> dict[str, Any]:
        starts_at = now_ms() + self._chance.choice([-60_000, 0, 0, 200, 900])
        length = self._chance.choice([*SHORT_MS, HOUR_MS])
        return {
            "tenant_id": ROOT,
            "account_id": ACCOUNT_MAIN,
            "reservation_id": self._reservation().reservation_id,
            "grant_tenant_id": self._tenant_id,
            "project_id": None,
            "slots": self._chance.choice([1, 1, 2, 3]),
            "starts_at": starts_at,
            "ends_at": max(starts_at, now_ms()) + length,
            "key": key,
        }

    def _end_grant(self, _: str) -> dict[str, Any]:
        return {"tenant_id": ROOT, "account_id": ACCOUNT_MAIN, "grant_id": self._chance.choice(self._grants)}

    def _amend_grant(self, key: str) -> dict[str, Any]:
        slots = self._chance.choice([1, 2, 3])
        return {**self._end_grant(key), "version": self._chance.choice([1, 1, 2]), "slots": slots}

    def _create_instance_of_flavor(self, _: str) -> dict[str, Any]:
        return {
            "tenant_id": self._tenant_id,
            "pool_id": POOL_MAIN,
            "flavor": self._reservation().flavor,
            "project_id": PLAIN_PROJECTS[self._tenant_id],
        }

    def _start_instance(self, _: str) -> dict[str, Any]:
        return {"instance_id": self._chance.choice(self._instances)}

    _stop_instance = _start_instance

    def _delete_instance(self, key: str) -> dict[str, Any]:
        return self._start_instance(key)


def now_ms() -> int:
    """The host's clock, which is the database's too: both are on this machine."""
    return time.time_ns() // 1_000_000


async def check_all(connection: Connection, load: Load) -> None:
    """One effect for each accepted step and none besides, nothing lost, no gap in any stream, nothing amiss."""
    await eventually(lambda: _is_quiet(connection))
    await drained(connection)
    rows = with_admissions(await export_rows(connection, now=await read_clock(connection)))
    assert {row["grant_id"] for row in rows["grants"]} == load.made("create_grant") | load.besides
    assert {row["instance_id"] for row in rows["instances"]} == load.made("create_instance_of_flavor")
    grants = {row["grant_id"]: row for row in rows["grants"]}
    for grant_id in load.made("end_grant"):
        assert grants[grant_id]["ends_at"] <= rows["now"] or grants[grant_id]["cancelled_at"] is not None
    deleted = {row["instance_id"] for row in rows["instances"] if row["run_state"] == "deleted"}
    assert deleted == load.made("delete_instance")
    assert audit_all(rows) == []


async def _is_quiet(connection: Connection) -> bool:
    """Whether no boundary is due, nor will be for a while: the terms that could end here are over."""
    due_at = await connection.fetchval("select min(next_boundary_at) from capacity_reservation")
    return due_at is None or due_at > await read_clock(connection) + 10 * max(SHORT_MS)


def with_admissions(rows: dict[str, Any]) -> dict[str, Any]:
    """Totals never change under this load, so every grant was checked against the one there is (P9)."""
    totals = {(row["account_id"], row["reservation_id"]): row["total"] for row in rows["reservations"]}

    def admitted(grant: Row) -> Row:
        total = totals[split_reservation_key(grant["key"])]
        return {**grant, "admissions": [{"order": 1, "from_ms": grant["starts_at"], "total": total}]}

    return {**rows, "grants": [admitted(grant) for grant in rows["grants"]]}
