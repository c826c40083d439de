"""Histories in which instances stop and start again on small reservations of one flavor, in two pools of two accounts."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tests.simulation.histories import WEIGHTS, HistoryWriter, Step
from tests.simulation.world_plan import (
    ACCOUNT_MAIN,
    ACCOUNT_SIDE,
    POOL_MAIN,
    POOL_SIDE,
    WORLD,
    ReservationPlan,
    WorldPlan,
)

ROAMING_WORLD: WorldPlan = WORLD._replace(
    reservations=(
        ReservationPlan(ACCOUNT_SIDE, "zone-1/large", POOL_SIDE, "large", "region-1", 2),
        ReservationPlan(ACCOUNT_MAIN, "zone-2/large", POOL_MAIN, "large", "region-1", 2),
        ReservationPlan(ACCOUNT_MAIN, "zone-3/large", POOL_MAIN, "large", "region-2", 3),
    ),
)
"""Keys and reservation ids are in opposite orders, so that locks are taken in another order than slots are tried."""

ROAMING_WEIGHTS = {
    **WEIGHTS,
    "create_grant": 10,
    "create_instance": 8,
    "delete_instance": 4,
    "create_instance_of_flavor": 14,
    "stop_instance": 24,
    "start_instance": 30,
    "move_instance": 5,
    "unbind": 3,
    "bind": 2,
    "withdraw": 2,
    "offer": 2,
}


@dataclass
class RoamingWriter(HistoryWriter):
    stopped: set[str] = field(default_factory=set)

    def _reservation(self) -> ReservationPlan:
        return self.chance.choice(self.plan.reservations)

    def _stop_instance(self) -> None:
        """One of the latest, so that the same ones stop and start again."""
        running = [label for label, _ in self.instances[-9:] if label not in self.stopped]
        if running:
            label = self.chance.choice(running)
            self.stopped.add(label)
            self._put("stop_instance", instance=label)

    def _start_instance(self) -> None:
        """Mostly one that was stopped; whether it starts the writer does not know."""
        stopped = [label for label, _ in self.instances[-12:] if label in self.stopped]
        if stopped and self.chance.random() < 0.9:
            label = self.chance.choice(stopped)
            if self.chance.random() < 0.6:
                self.stopped.discard(label)
            self._put("start_instance", instance=label)
        else:
            super()._start_instance()

    def _create_instance_of_flavor(self) -> None:
        """Half of them in any pool."""
        super()._create_instance_of_flavor()
        if self.chance.random() < 0.5:
            self.steps[-1].arguments["pool_id"] = None


def roaming_history(seed: int, steps: int) -> list[Step]:
    return RoamingWriter(random.Random(seed), plan=ROAMING_WORLD, weights=ROAMING_WEIGHTS).write(steps)
