"""Histories that crowd: one reservation, hardly more than one tenant, grants that overlap and renew each other."""

from __future__ import annotations

import random

from tests.simulation.histories import HOUR_MS, HistoryWriter, Step
from tests.simulation.world_plan import WORLD, ReservationPlan

QUIET = frozenset({"unbind", "bind", "withdraw", "offer", "delete_account", "delete_project"})
MINUTES_10 = HOUR_MS // 6


class DenseWriter(HistoryWriter):
    """Edges on a grid of ten minutes meet often, so do ends and starts of one millisecond (R34)."""

    def _reservation(self) -> ReservationPlan:
        return self.chance.choices(WORLD.reservations[:2], [15, 1])[0]

    def _tenant(self) -> str:
        living = [tenant for tenant in WORLD.tenants if tenant not in self.deleted]
        return self.chance.choices(living, [{"A": 12, "B": 4}.get(tenant, 0.3) for tenant in living])[0]

    def _term(self) -> tuple[int, int]:
        if self.chance.random() < 0.25:
            return super()._term()
        next_edge = (self.now // MINUTES_10 + 1) * MINUTES_10
        starts_at = self.chance.choices([self.now, next_edge, next_edge + MINUTES_10], [6, 3, 1])[0]
        return starts_at, next_edge + self.chance.choice([1, 1, 2, 3, 6]) * MINUTES_10

    def _next_instant(self) -> int:
        if self.chance.random() < 0.5:
            return self.now
        if self.chance.random() < 0.5:
            return super()._next_instant()
        return self.now + self.chance.randrange(1, MINUTES_10)

    def _ask_grant(self, starts_at: int, ends_at: int) -> None:
        """One or two slots as a rule, so that many fit beside each other."""
        super()._ask_grant(starts_at, ends_at)
        arguments = self.steps[-1].arguments
        arguments["slots"] = self.chance.choices([1, 2, arguments["slots"]], [4, 4, 1])[0]


def dense_history(seed: int, steps: int) -> list[Step]:
    return DenseWriter(random.Random(seed), QUIET).write(steps)
