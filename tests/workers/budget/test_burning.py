"""Budgets that are used up much faster than before: told once, in the window in which it begins (8.2)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from domain.amounts import Unit
from domain.budget.burning import (
    HISTORY_MOST,
    PUBLISHED_BURN,
    Burned,
    Burning,
    advance_burning,
    find_anomalies,
)
from domain.budget.rates import WINDOW_MS, window_end
from tests.budget_world import ACME, PARENT, START, WHOLE, BudgetWorld, accepted
from workers.announcing import Announcer
from workers.budget.burning import BurnJob

END = window_end(START) + WINDOW_MS


def burned(spent: int, before: Burning | None, **given: Any) -> Burned:
    values = {"tenant_id": ACME, "budget_id": "b", "scope": PARENT, "unit": Unit.TOKENS, "debt": 0, "remaining": 1_000}
    return Burned(**{**values, "was_reset": False, **given}, spent=spent, before=before)


def history(*windows: int) -> Burning:
    """What is kept after windows in which so much was charged."""
    kept = advance_burning(burned(0, None), window_ends_at=0, window_ms=WINDOW_MS)
    spent = 0
    for number, charged in enumerate(windows, 1):
        spent += charged
        if charged:
            kept = advance_burning(burned(spent, kept), window_ends_at=number * WINDOW_MS, window_ms=WINDOW_MS)
    return kept


def begins(*windows: int) -> bool:
    """Whether an anomaly begins in the last of these windows."""
    before, after = history(*windows[:-1]), history(*windows)
    found = find_anomalies(burned(sum(windows), before), after, levels=[PUBLISHED_BURN], window_ms=WINDOW_MS)
    return bool(found)


@pytest.mark.parametrize(
    ("windows", "expected"),
    [
        ((10, 10, 10, 30), True),
        ((10, 10, 10, 29), False),
        ((10, 10, 30), False),
        ((0, 0, 0, 0, 30), False),
        ((30, 0, 0, 30), True),
        ((10, 10, 10, 40, 90), False),
        ((10, 10, 10, 40, 0, 90), True),
    ],
    ids=["three times", "not quite", "too short", "nothing before", "silence counts", "it lasts", "it comes again"],
)
def test_a_window_is_held_against_the_average_before_it(windows: tuple[int, ...], expected: bool) -> None:
    assert begins(*windows) is expected


def test_a_debt_that_is_repaid_burns_nothing_and_what_was_set_is_not_charged() -> None:
    before = history(10, 10, 10)
    repaid = advance_burning(burned(500, before, debt=-470), window_ends_at=4 * WINDOW_MS, window_ms=WINDOW_MS)
    assert repaid.burned[-1] == 0
    reset = advance_burning(burned(900, before, was_reset=True), window_ends_at=4 * WINDOW_MS, window_ms=WINDOW_MS)
    assert (reset.burned[-1], reset.spent) == (0, 900)


def test_only_an_hour_is_remembered() -> None:
    assert history(*range(1, HISTORY_MOST + 6)).burned == tuple(range(6, HISTORY_MOST + 6))


def jobs(world: BudgetWorld) -> list[BurnJob]:
    return [BurnJob(node.budget_asker, Announcer(node.ids)) for node in world.nodes]


async def test_an_anomaly_is_told_once_by_one_of_two_nodes_with_what_is_left(world: BudgetWorld) -> None:
    await world.budget(PARENT, 10_000)
    await world.budget("tenant:acme/agent:idle", 10_000)
    for number, amount in enumerate((50, 100, 100, 100, 1_000)):
        accepted(await world.debit(amount, WHOLE))
        world.clock.now = END + number * WINDOW_MS
        await asyncio.gather(*(job.run_once() for job in jobs(world)))
    (event,) = [each for each in await world.events() if each.type == "budget.burn_rate_anomaly"]
    assert event.payload["scope"] == PARENT
    assert event.payload["data"] == {
        "scope": PARENT,
        "unit": "TOKENS",
        "current_rate_millionths": 200_000_000,
        "baseline_rate_millionths": 20_000_000,
        "multiplier_millionths": 10_000_000,
        "window_seconds": 300,
        "projected_exhaustion_minutes_millionths": 43_250_000,
    }
    assert (await jobs(world)[0].run_once()).counts == {"budgets": 0, "anomalies": 0}


async def test_after_a_pause_of_the_service_history_begins_anew(world: BudgetWorld) -> None:
    await world.budget(PARENT, 10_000)
    (job, *_) = jobs(world)
    for number, amount in enumerate((50, 100, 100, 100)):
        accepted(await world.debit(amount, WHOLE))
        world.clock.now = END + number * WINDOW_MS
        await job.run_once()
    accepted(await world.debit(1_000, WHOLE))
    world.clock.now = END + 20 * WINDOW_MS
    assert (await job.run_once()).counts == {"budgets": 1, "anomalies": 0}
