"""What can be the matter with a database that does not die: broken connections, a slow disk, a clock that is set."""

from __future__ import annotations

import random
from collections import Counter
from typing import Final

from storage.database import Connection, connect
from tests.chaos.scene import Scene, pause
from tests.cutting import Cut

CUT_SHARE: Final = 1 / 150
"""Of the messages to the database, once cutting begins."""
CUTS_LEAST: Final = 15
CUT_WEIGHTS: Final = (20, 20, 20, 20, 1)
"""A silence holds up whoever hears nothing for a quarter of a minute."""
COMMIT_DELAY_US: Final = 100_000
"""The most that PostgreSQL can be told to wait before it flushes."""


class RandomCuts:
    """The plan of the wire, while `is_on`."""

    def __init__(self, chance: random.Random) -> None:
        self.is_on = False
        self._chance = chance

    def __call__(self) -> Cut:
        if not self.is_on or self._chance.random() >= CUT_SHARE:
            return Cut.NONE
        return self._chance.choices([Cut.BEFORE, Cut.AFTER, Cut.BLIND, Cut.HALF, Cut.SILENT], CUT_WEIGHTS)[0]


async def cut_connections(scene: Scene) -> None:
    """Between the nodes and the database, in the middle of messages and right before and after they have an effect."""
    wire, cuts = scene.wire, scene.tools["cuts"]
    assert wire is not None
    before = Counter(wire.cuts)

    def cut_so_far() -> Counter[Cut]:
        since = Counter(wire.cuts) - before
        del since[Cut.NONE]
        return since

    async with scene.loaded():
        await scene.more_answers()
        cuts.is_on = True
        while cut_so_far().total() < scene.size(short=CUTS_LEAST, long=10 * CUTS_LEAST):
            await scene.more_answers()
            ended = await _end_busy_sessions(scene)
            scene.say(f"cut {_shown(cut_so_far())} so far; ended {ended} sessions that were at work")
        cuts.is_on = False
        await scene.more_answers()


async def _end_busy_sessions(scene: Scene) -> int:
    """From the database's side: whoever has a statement under way loses its connection."""
    connection = await connect(scene.stage.url)
    try:
        found = await connection.fetch(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() "
            "and pid <> pg_backend_pid() and state <> 'idle'"
        )
        return len(found)
    finally:
        await connection.close()


def _shown(cuts: Counter[Cut]) -> str:
    return ", ".join(f"{count} {cut}" for cut, count in cuts.items()) or "nothing"


async def slow_the_disk(scene: Scene) -> None:
    """Every commit waits a tenth of a second for its flush."""
    connection = await connect(scene.stage.url)
    try:
        async with scene.loaded():
            await scene.compare_latency("with the slow disk", lambda: _while_slow(scene, connection))
            await scene.more_answers()
    finally:
        await connection.close()


async def _while_slow(scene: Scene, connection: Connection) -> None:
    await _configure(connection, commit_delay=str(COMMIT_DELAY_US), commit_siblings="0")
    scene.say(f"commit_delay is {COMMIT_DELAY_US // 1_000} ms")
    await scene.more_answers()
    await _configure(connection, commit_delay="0", commit_siblings="5")
    scene.say("commit_delay is 0")


async def _configure(connection: Connection, **settings: str) -> None:
    for name, value in settings.items():
        await connection.execute(f"alter system set {name} = {value}")
    await connection.execute("select pg_reload_conf()")


STEPS_MS: Final = (-3_000, 10_000, -4_000, -2_000, 20_000)
"""They end ahead of wherever the clock was, so that nothing that is audited lies in its future."""

CLOCK: Final = """
create schema clock;
create table clock.step (ms bigint not null);
insert into clock.step values (0);
create function clock.clock_timestamp() returns timestamptz language sql volatile
    as 'select pg_catalog.clock_timestamp() + ms * interval ''1 ms'' from clock.step';
"""
"""A clock that can be set, before PostgreSQL's own on the search path: for the statements of the nodes it is the clock."""


async def make_clock(connection: Connection, database: str) -> None:
    """Only for connections that are opened from now on."""
    await connection.execute(CLOCK)
    await connection.execute(f"alter database {database} set search_path = public, clock, pg_catalog")


async def step_the_clock(scene: Scene) -> None:
    """The database's clock is set back and forth by seconds while everything goes on."""
    connection = await connect(scene.stage.url)
    try:
        async with scene.loaded():
            for step_ms in STEPS_MS:
                await scene.more_answers()
                before = await connection.fetchval("select clock_timestamp()")
                await connection.execute("update clock.step set ms = ms + $1", step_ms)
                after = await connection.fetchval("select clock_timestamp()")
                assert (after > before) == (step_ms > 0), "it is the clock that the nodes read"
                scene.say(f"set the database's clock by {step_ms:+,} ms")
                await pause(scene.size(short=100, long=1_500) / 1_000)
            await scene.more_answers()
    finally:
        await connection.close()
