"""One history on the product and on the naive model side by side: the product first, its ids imposed on the model.

What a variant of the simulation does to the product (nodes, repeated sends, cut connections, a clock that jumps) is a
`Send`: it delivers one step, and must give the one answer that the model gives.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from storage.database import Connection
from tests.capacity_world import NO_ANSWER, drained
from tests.simulation.agreed_oracle import AgreedOracle
from tests.simulation.auditor import audit_all, audit_order, audit_p3
from tests.simulation.histories import HOUR_MS, Step
from tests.simulation.oracle_rows import Outcome
from tests.simulation.player import SKIPPED, Player, new_world
from tests.simulation.product import NOT_TOLD, PLAIN_PROJECTS, Played, ProductWorld
from tests.simulation.product_rows import export_rows
from workers.clock import ManualClock

IMPOSED = {
    "create_grant": "grant_id",
    "create_instance": "instance_id",
    "create_instance_of_flavor": "instance_id",
    "attach_instance": "instance_id",
}
METERS = {"vm.reserved.instance.hours": "vm.reserved.hours", "vm.ondemand.instance.hours": "vm.ondemand.hours"}
"""The product's names of the meters that the seed leaves open, as the model calls them."""

SENDS_MAX = 50
TIMES = int(os.environ.get("EARMARK_TEST_SIMULATION", "1"))
"""How many times as many seeds to run: 1 in the suite, 50 for a night."""


def seeds(count: int, *, first: int = 0) -> list[int]:
    return list(range(first, first + count * TIMES))


Send = Callable[[ProductWorld, Step, str], Awaitable[Played]]


async def send_once(product: ProductWorld, step: Step, key: str) -> Played:
    return await product.play(step, key=key)


class Twin(Player):
    """The model's player, with the product played beside it."""

    oracle: AgreedOracle

    def __init__(
        self, product: ProductWorld, clock: ManualClock, connection: Connection, *, send: Send = send_once
    ) -> None:
        super().__init__(new_world(product.plan, model=AgreedOracle))
        self.product = product
        self.clock = clock
        self.connection = connection
        self.send = send
        self.sent = 0

    def resolved(self, step: Step) -> dict[str, Any] | None:
        """A stale version is one that never was, where there is no earlier one."""
        arguments = super().resolved(step)
        if arguments is not None and arguments.get("version") == 0:
            arguments["version"] = 7
        return arguments

    def prepared(self, step: Step) -> Step | None:
        """The step with its ids filled in; None when it names what was refused."""
        step = with_plain_project(step)
        arguments = self.resolved(step)
        if arguments is None:
            return None
        if step.command == "move_instance" and arguments["project_id"] is None:
            owner = self.oracle.instances[arguments["instance_id"]].tenant_id
            arguments["project_id"] = PLAIN_PROJECTS[owner]
        return step._replace(arguments=arguments)

    async def play_beside(self, step: Step) -> Outcome:
        """One step on both. Fails with the step when they disagree."""
        self.now = step.at
        ready = self.prepared(step)
        if ready is None:
            self.outcomes.append(SKIPPED)
            return SKIPPED
        self.clock.now = step.at
        played = await self.send(self.product, ready, self.next_key())
        self.accept(ready, played, mirrored(self.oracle, ready, played))
        return played.outcome

    def next_key(self) -> str:
        self.sent += 1
        return f"step-{self.sent}"

    def accept(self, step: Step, played: Played, expected: Outcome) -> None:
        assert played.outcome == expected, f"{step} gives {played.outcome}, by the rules {expected}"
        assert is_placed_alike(self.oracle, played), f"{step} puts it into {played.inside}"
        self.remember(step, expected)

    def remember(self, step: Step, outcome: Outcome) -> None:
        if step.label is not None and outcome[0] == "ok":
            self.ids[step.label] = str(outcome[1])
        self.outcomes.append(outcome)

    # -- comparing -----------------------------------------------------------------------------------------------

    async def compare(self, *, metered: bool = False) -> None:
        """Both caught up to the present: equal row by row, and the auditor has nothing to say of the product's."""
        await self.catch_up()
        rows = await export_rows(self.connection, now=self.now, metered=metered)
        model = self.oracle.rows(self.now, metered_at=self.now if metered else None)
        differences = audit_p3(in_order(rows), in_order({**model, "placements": []}))
        differences += _usage_amiss(rows["usage"], model["usage"])
        assert differences == [], "\n".join(differences)
        assert audit_all(rows) + audit_order(rows) == []

    async def finish(self) -> None:
        """Compare now, and once more after everything is over and on record."""
        await self.compare()
        await self.play_beside(Step(self.now, "meter", {}))
        await self.compare(metered=True)
        self.now = self.end()
        await self.play_beside(Step(self.now, "meter", {}))
        await self.compare(metered=True)

    def end(self) -> int:
        """An instant by which every grant is over and its last hour with it."""
        last = max([self.now, *(grant.ends_at for grant in self.oracle.grants.values())])
        return (last // HOUR_MS + 1) * HOUR_MS

    async def catch_up(self) -> None:
        """Apply what is due on the product and wait for its events. The model does so by itself when it is exported."""
        self.clock.now = self.now
        await self.product.nodes[0].boundaries.run_once()
        await drained(self.connection)


def mirrored(oracle: AgreedOracle, step: Step, played: Played) -> Outcome:
    """The step on the model, with the id that the product gave."""
    imposed = IMPOSED.get(step.command)
    new_id = {imposed: played.outcome[1]} if imposed is not None and played.outcome[0] == "ok" else {}
    outcome: Outcome = getattr(oracle, step.command)(step.at, **step.arguments, **new_id)
    return outcome


def is_placed_alike(oracle: AgreedOracle, played: Played) -> bool:
    """Whether the instance that the answer shows is in the same grant on the model, or in none on both."""
    return played.inside == NOT_TOLD or played.inside == oracle.instances[str(played.outcome[1])].grant_id


def with_plain_project(step: Step) -> Step:
    """In place of no project, the tenant's project without grants of its own."""
    if step.command not in IMPOSED or step.command == "create_grant" or "existing" in step.arguments:
        return step
    project_id = step.arguments["project_id"] or PLAIN_PROJECTS[step.arguments["tenant_id"]]
    return step._replace(arguments={**step.arguments, "project_id": project_id})


def in_order(rows: dict[str, Any]) -> dict[str, Any]:
    """The keys of payloads sorted, for `audit_p3` compares them as text."""
    events = [{**event, "payload": dict(sorted(event["payload"].items()))} for event in rows["events"]]
    return {**rows, "events": events}


def _usage_amiss(product: Any, model: Any) -> list[str]:
    """Sums by owner, meter, grant, instance and hour: corrections may come in other portions (D6)."""
    one, other = _sums(product), _sums(model)
    keys = sorted(key for key in one.keys() | other.keys() if one[key] != other[key])
    return [f"usage of {key}: {one[key]}, by the rules {other[key]}" for key in keys]


def _sums(usage: Any) -> Counter[tuple[str, ...]]:
    sums: Counter[tuple[str, ...]] = Counter()
    for row in usage:
        entry = row if isinstance(row, dict) else dict(row)
        meter = METERS.get(entry["meter"], entry["meter"])
        owner = (entry["tenant_id"], str(entry["project_id"]), meter)
        what = (str(entry["grant_id"]), str(entry["instance_id"]), str(entry["hour_start"]))
        sums[(*owner, *what)] += entry["quantity_ms"]
    return sums


async def send_until_answered(product: ProductWorld, step: Step, key: str) -> Played:
    """As a client whose connections break: again under the same key, until there is an answer."""
    for _ in range(SENDS_MAX):
        with contextlib.suppress(*NO_ANSWER):
            return await product.play(step, key=key)
    raise AssertionError(f"{step} was never answered")


async def send_twice_at_once(product: ProductWorld, step: Step, key: str) -> Played:
    """To two nodes in the same moment, under one key: both get one answer."""
    first, second = await asyncio.gather(*(product.play(step, key=key, node=node) for node in (0, 1)))
    assert first.outcome == second.outcome, (step, first, second)
    return first
