"""Spikes of denials and expiries: told in the first window above the threshold, once, whoever counts it (8.2)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from domain.budget.rates import SAMPLES_LEAST, WINDOW_MS, Activity, Metric, find_spikes, window_end
from domain.credentials import UNKNOWN
from domain.events import MIRROR
from domain.identity import SYSTEM
from tests.budget_world import ACME, OTHER, PARENT, START, WHOLE, BudgetWorld, accepted, at_once, refused
from workers.announcing import Announcer
from workers.attempts import Attempt, AttemptLog
from workers.budget.rates import SETTLE_MS, RatesJob

NOTHING = Activity()
END = window_end(START) + WINDOW_MS


def jobs(world: BudgetWorld) -> list[RatesJob]:
    return [RatesJob(node.budget_asker, Announcer(node.ids)) for node in world.nodes]


async def spikes(world: BudgetWorld, tenant_id: str = ACME) -> list[Any]:
    return [event for event in await world.events(tenant_id) if event.type.endswith("_spike")]


async def begin(world: BudgetWorld) -> None:
    """The window before this one has been over for long enough to be counted."""
    world.clock.now = START + SETTLE_MS
    await world.budget(PARENT, 1_000)


async def ask(world: BudgetWorld, *, allowed: int, denied: int) -> None:
    await at_once(*(world.reserve(1, WHOLE) for _ in range(allowed)))
    for _ in range(denied):
        refused(await world.reserve(10**9, WHOLE), "BUDGET_EXCEEDED")
    await world.events()  # until they stand in the streams


@pytest.mark.parametrize(
    ("created", "denied", "tells"),
    [(18, 2, False), (17, 3, True), (0, SAMPLES_LEAST, True), (0, SAMPLES_LEAST - 1, False), (27, 3, False)],
)
def test_a_rate_is_above_its_threshold_not_at_it_and_needs_samples(created: int, denied: int, tells: bool) -> None:
    now = Activity(created=created, denied=denied)
    found = find_spikes(ACME, before=NOTHING, now=now, window_ends_at=END)
    assert [spike.metric for spike in found] == ([Metric.DENIAL_RATE] if tells else [])


def test_a_rate_that_stays_above_is_told_of_once() -> None:
    high = Activity(created=10, denied=30, expired=9)
    assert len(find_spikes(ACME, before=NOTHING, now=high, window_ends_at=END)) == 1
    assert find_spikes(ACME, before=high, now=high, window_ends_at=END) == []


def test_more_expiries_than_holds_made_are_all_of_them() -> None:
    (spike,) = find_spikes(ACME, before=NOTHING, now=Activity(created=3, expired=25), window_ends_at=END)
    assert (spike.metric, spike.rate_millionths, spike.samples) == (Metric.EXPIRY_RATE, 1_000_000, 25)


async def test_denials_of_a_window_are_told_of_once_by_one_of_two_nodes(world: BudgetWorld) -> None:
    await begin(world)
    await asyncio.gather(*(job.run_once() for job in jobs(world)))
    await ask(world, allowed=15, denied=10)
    assert await spikes(world) == []
    world.clock.now = END + SETTLE_MS
    ran = await asyncio.gather(*(job.run_once() for job in jobs(world)))
    assert sum(each.counts["windows"] for each in ran) == 1
    (event,) = await spikes(world)
    assert event.type == "reservation.denial_rate_spike"
    assert event.payload["data"] == {
        "metric": "denial_rate",
        "current_rate_millionths": 400_000,
        "threshold_rate_millionths": 100_000,
        "window_seconds": 300,
        "sample_count": 25,
    }
    assert event.payload["actor"] == {"type": "scheduler"}
    assert await spikes(world, OTHER) == []


async def test_the_next_window_is_silent_while_it_lasts_and_speaks_when_it_returns(world: BudgetWorld) -> None:
    await begin(world)
    (job, *_) = jobs(world)
    await job.run_once()
    for number, denied in enumerate((10, 10, 0, 10)):
        world.clock.now = END + number * WINDOW_MS - 1
        await ask(world, allowed=15, denied=denied)
        world.clock.now = END + number * WINDOW_MS + SETTLE_MS
        await job.run_once()
    assert len(await spikes(world)) == 2


async def test_windows_that_nobody_counted_are_counted_after(world: BudgetWorld) -> None:
    await begin(world)
    (job, *_) = jobs(world)
    await job.run_once()
    await ask(world, allowed=15, denied=10)
    world.clock.now = END + 3 * WINDOW_MS + SETTLE_MS
    assert (await job.run_once()).counts == {"windows": 4, "spikes": 1}
    assert (await job.run_once()).counts == {"windows": 0, "spikes": 0}
    accepted(await world.reserve(1, WHOLE))


async def test_a_spike_of_failed_authentications_is_told_to_operators(world: BudgetWorld) -> None:
    await begin(world)
    (job, *_) = jobs(world)
    await job.run_once()
    log = AttemptLog(world.clock)
    attempt = Attempt(request_id=None, trace_id=None, source_ip=None)
    for _ in range(30):
        log.succeeded(ACME)
        log.failed(UNKNOWN, attempt)
    await log.flush(world.node.database, world.node.ids)
    world.clock.now = END + SETTLE_MS
    await job.run_once()
    (event,) = [each for each in await world.events(MIRROR) if each.type.endswith("_spike")]
    assert (event.type, event.tenant_id) == ("api_key.auth_failure_rate_spike", SYSTEM)
    assert event.payload["data"]["current_rate_millionths"] == 500_000
    assert event.payload["data"]["sample_count"] == 60
