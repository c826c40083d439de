"""The schedule: every job at most once at a time, alive whatever one raises, exact at the boundaries, quiet at the end
(T97, T100, B3, B28)."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from domain.capacity.boundaries import ACTIVE, ENDED
from domain.capacity.metering import GRANT_SLOT_HOURS
from domain.capacity.state import Grant
from domain.outcomes import Accepted
from storage.database import Unavailable
from storage.embedded import EmbeddedPostgres
from storage.migrate import migrate
from tests.capacity_world import eventually, running_node
from tests.databases import WITHOUT_DURABILITY, new_home
from tests.workers.capacity.world import HOUR, START, World, furnish, open_world
from workers import measures
from workers.clock import ManualClock
from workers.runtime import running
from workers.schedule import (
    BOUNDARIES,
    CLOSING,
    JOB_NAMES,
    METER,
    RELAY,
    RETENTION,
    SCAN,
    TABLE,
    Ran,
    RunOnce,
    Schedule,
)
from workers.supervisor import Supervisor

QUICK_MS = 5
NEVER_MS = 1_000_000_000


class Scripted:
    """A job that does what the test says, and counts."""

    def __init__(self, act: Callable[[int], Awaitable[Ran | None]] | None = None) -> None:
        self._act = act
        self.runs = 0
        self.running = 0
        self.running_most = 0

    async def run_once(self) -> Ran:
        self.runs += 1
        self.running += 1
        self.running_most = max(self.running_most, self.running)
        try:
            ran = await self._act(self.runs) if self._act else None
        finally:
            self.running -= 1
        return ran or Ran()

    async def has_run(self, times: int) -> None:
        async def often_enough() -> bool:
            return self.runs >= times

        await eventually(often_enough)


@asynccontextmanager
async def scheduled(jobs: dict[str, RunOnce], *, every_ms: dict[str, int] | None = None) -> AsyncIterator[Schedule]:
    supervisor = Supervisor()
    schedule = Schedule(jobs, supervisor, every_ms=dict.fromkeys(jobs, QUICK_MS) | (every_ms or {}))
    schedule.start()
    try:
        yield schedule
    finally:
        await schedule.stop(within_s=60)
        await supervisor.stop()


def runs_of(job: str, result: str) -> float:
    value = measures.JOB_RUNS.labels(job=job, result=result)._value.get()
    assert isinstance(value, float)
    return value


# -- ticks -----------------------------------------------------------------------------------------------------------


async def test_a_job_that_takes_longer_than_its_interval_neither_overlaps_nor_piles_up() -> None:
    """T97: while the slow one runs, another has come round many times."""
    go_on = asyncio.Event()
    slow = Scripted(lambda _: go_on.wait())  # type: ignore[arg-type,return-value]
    other = Scripted()
    async with scheduled({METER: slow.run_once, BOUNDARIES: other.run_once}):
        await other.has_run(20)
        assert (slow.runs, slow.running_most) == (1, 1)
        go_on.set()
        await slow.has_run(2)
        seen = other.runs
        await other.has_run(seen + 10)
        assert slow.running_most == 1
        assert slow.runs <= other.runs - seen + 3, "ticks that were missed are not made up for"


async def test_a_job_that_fails_is_counted_and_comes_round_again(caplog: pytest.LogCaptureFixture) -> None:
    """B3: one error must not end the periodic work, its own or another's."""

    async def fail(run: int) -> Ran:
        if run == 1:
            raise RuntimeError("one bad pass")
        if run == 2:
            raise Unavailable("the database is away")
        return Ran()

    before = {result: runs_of(METER, result) for result in ("failed", "unavailable", "done")}
    failing, other = Scripted(fail), Scripted()
    async with scheduled({METER: failing.run_once, BOUNDARIES: other.run_once}):
        await failing.has_run(4)
        await other.has_run(4)
    assert runs_of(METER, "failed") == before["failed"] + 1
    assert runs_of(METER, "unavailable") == before["unavailable"] + 1
    assert runs_of(METER, "done") >= before["done"] + 1
    failures = [record for record in caplog.records if record.name == "earmark.jobs" and record.exc_info]
    assert len(failures) == 1, "what the database does is no bug of the job and has no traceback"


async def test_everything_runs_once_at_the_start() -> None:
    """What was due while nobody was here is due now."""
    jobs = {name: Scripted() for name in JOB_NAMES}
    every_ms = dict.fromkeys(JOB_NAMES, NEVER_MS)
    async with scheduled({name: job.run_once for name, job in jobs.items()}, every_ms=every_ms):
        for job in jobs.values():
            await job.has_run(1)
    assert {job.runs for job in jobs.values()} == {1}


async def test_a_job_that_knows_when_there_is_more_is_woken_before_its_next_tick() -> None:
    async def more(run: int) -> Ran:
        return Ran(wake_in_ms=10 if run < 5 else None)

    job = Scripted(more)
    async with scheduled({BOUNDARIES: job.run_once}, every_ms={BOUNDARIES: NEVER_MS}):
        await job.has_run(5)
    assert job.runs == 5


async def test_a_wake_up_never_puts_a_tick_off() -> None:
    async def much_later(_: int) -> Ran:
        return Ran(wake_in_ms=NEVER_MS)

    job = Scripted(much_later)
    async with scheduled({BOUNDARIES: job.run_once}):
        await job.has_run(5)


async def test_jobs_see_nothing_of_the_context_they_were_started_from() -> None:
    request = contextvars.ContextVar("request", default="none")
    seen: list[str] = []

    async def look(_: int) -> Ran:
        seen.append(request.get())
        request.set("a job's own")
        return Ran()

    supervisor = Supervisor()
    job = Scripted(look)
    schedule = Schedule({METER: job.run_once}, supervisor, every_ms={METER: QUICK_MS})
    token = request.set("a caller's")
    schedule.start()
    await job.has_run(3)
    await schedule.stop(within_s=60)
    request.reset(token)
    assert set(seen) == {"none"}


# -- the end ---------------------------------------------------------------------------------------------------------


async def test_stopping_waits_for_what_runs_and_starts_nothing_more() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def work(_: int) -> Ran:
        begun.set()
        await go_on.wait()
        return Ran()

    job, supervisor = Scripted(work), Supervisor()
    schedule = Schedule({METER: job.run_once}, supervisor, every_ms={METER: QUICK_MS})
    schedule.start()
    await begun.wait()
    stopping = asyncio.create_task(schedule.stop(within_s=60))
    await asyncio.sleep(0)
    assert not stopping.done()
    go_on.set()
    await stopping
    assert (job.runs, job.running) == (1, 0)
    assert not [task for task in asyncio.all_tasks() if "job" in task.get_name()]


async def test_stopping_cancels_what_will_not_end_and_waits_for_its_clean_up(caplog: pytest.LogCaptureFixture) -> None:
    begun, cleaned = asyncio.Event(), asyncio.Event()

    async def hang(_: int) -> Ran:
        begun.set()
        try:
            await asyncio.Future[None]()
        finally:
            cleaned.set()
        return Ran()

    supervisor = Supervisor()
    schedule = Schedule({METER: Scripted(hang).run_once}, supervisor)
    schedule.start()
    await begun.wait()
    with caplog.at_level(logging.WARNING):
        await schedule.stop(within_s=0.01)
    assert cleaned.is_set()
    assert [record.message for record in caplog.records] == [f"job {METER} was interrupted"]


# -- the table -------------------------------------------------------------------------------------------------------


async def test_a_job_that_is_not_in_the_table_fails_the_start() -> None:
    with pytest.raises(ValueError, match=r"vps\.unknown"):
        Schedule({"vps.unknown": Scripted().run_once}, Supervisor())
    with pytest.raises(ValueError, match=r"vps\.unknown"):
        Schedule({}, Supervisor(), every_ms={"vps.unknown": 1})


async def test_every_job_of_the_table_is_there_and_runs_by_its_name(database_url: str) -> None:
    async with open_world(database_url) as world:
        assert {entry.name for entry in TABLE if entry.purpose} == set(JOB_NAMES)
        await world.grant(1, START, START + HOUR)
        world.at(START + HOUR)
        ran = {name: await world.node.schedule.run_job(name) for name in JOB_NAMES}
    assert ran[BOUNDARIES].counts["boundaries"] == 1
    assert ran[METER].counts["records"] == 1
    assert set(ran[SCAN].counts) == {"complete", "incomplete", "skipped", "failed"}
    assert set(ran[RETENTION].counts) == {"streams", "answers", "audit", "deliveries", "evidence"}


async def test_interrupted_deletions_of_tenants_are_finished_by_the_schedule(database_url: str) -> None:
    """R53: the tenant was marked, and then the node died."""
    async with open_world(database_url) as world:
        grant = await world.grant(1, START, START + HOUR)
        await world.value("update tenant set deleted_at = $1 where tenant_id = 'A'", START)
        ran = await world.node.schedule.run_job(CLOSING)
        assert ran.counts == {"tenants": 1}
        assert await world.value("select closed_at from tenant where tenant_id = 'A'") == START
        assert await world.story(grant) == [("created", 0), ("active", 0), ("ended", 0)]


async def test_events_that_a_dead_node_left_behind_are_moved_by_the_schedule(database_url: str) -> None:
    async with open_world(database_url) as world:
        await world.value(
            """insert into capacity_outbox (key, seq, event_id, tenant_id, type, occurred_at, recorded_at, payload)
            select 'key-' || n, 1, 'evt-' || n, 'A', 'left-behind', $1::bigint, $1::bigint, '{}'
            from generate_series(1, 400) n""",
            START,
        )
        world.clock.advance(10_000)
        ran = await world.node.schedule.run_job(RELAY)
        assert ran.counts == {"reservations": 400}
        assert Counter(event.type for event in await world.events())["left-behind"] == 400


# -- for real --------------------------------------------------------------------------------------------------------


async def test_starts_and_ends_happen_by_themselves_at_their_instants(database_url: str) -> None:
    """By the database's own clock, on two nodes: each boundary once, and never early. How late it is, is printed."""
    async with running_node(database_url) as maker, running(database_url), running(database_url):
        world = World(maker, ManualClock(0))
        await furnish(world)
        grant = await grant_ahead(world)

        async def is_over() -> bool:
            return bool(
                await world.value("select ended_applied from capacity_grant where grant_id = $1", grant.grant_id)
            )

        await eventually(is_over)
        told = [event for event in await world.events() if event.payload.get("grantId") == grant.grant_id]
    boundaries = [(event.type, event.occurred_at) for event in told if event.type in (ACTIVE, ENDED)]
    assert boundaries == [(ACTIVE, grant.starts_at), (ENDED, grant.ends_at)]
    lateness = [event.recorded_at - event.occurred_at for event in told]
    print("late by", lateness, "ms")
    assert min(lateness) >= 0


async def grant_ahead(world: World) -> Grant:
    """One that was made before its start, which comes soon: on a machine that was too slow for that, another one."""
    while True:
        async with world.database.acquire() as connection:
            now = await world.node.asker.now(connection)
        outcome = await world.try_grant(2, now + 700, now + 1_450)
        if isinstance(outcome, Accepted) and outcome.answer.grant.created_at < now + 700:
            return outcome.answer.grant


async def test_a_database_that_restarts_in_mid_run_only_delays(caplog: pytest.LogCaptureFixture) -> None:
    """T100, B3: the next tick works, with no node restarted."""
    home = new_home()
    clock = ManualClock(START)
    server = EmbeddedPostgres(home, settings=WITHOUT_DURABILITY)
    await asyncio.to_thread(server.start)
    try:
        await migrate(server.dsn)
        async with running_node(server.dsn, clock=clock) as node:
            world = World(node, clock)
            await furnish(world)
            await world.grant(2, START + HOUR, START + 3 * HOUR)
            supervisor = Supervisor()
            jobs = {BOUNDARIES: node.boundaries.run_once, METER: node.meter.run_once}
            schedule = Schedule(jobs, supervisor, every_ms=dict.fromkeys(jobs, 20))
            schedule.start()
            before = runs_of(BOUNDARIES, "unavailable")
            await asyncio.to_thread(server.stop)

            async def has_noticed() -> bool:
                return runs_of(BOUNDARIES, "unavailable") > before

            await eventually(has_noticed)
            clock.now = START + 2 * HOUR
            await asyncio.to_thread(server.start)

            async def is_caught_up() -> bool:
                try:
                    return len(await world.hours(GRANT_SLOT_HOURS)) == 1
                except Unavailable:
                    return False

            await eventually(is_caught_up)
            assert [event.type for event in await world.events() if event.type == ACTIVE] == [ACTIVE]
            await schedule.stop(within_s=60)
            await supervisor.stop()
    finally:
        await asyncio.to_thread(server.stop)
        shutil.rmtree(home, ignore_errors=True)
    assert not [record for record in caplog.records if record.name == "earmark.jobs" and record.exc_info]
