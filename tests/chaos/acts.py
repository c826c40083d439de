"""The acts of chaos, and the places they need."""

from __future__ import annotations

import random
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

import asyncpg

from storage.embedded import EmbeddedPostgres
from storage.migrate import migrate
from tests.chaos.boundaries import end_many_at_once
from tests.chaos.clients import be_in_a_hurry, do_not_read, vanish
from tests.chaos.database import RandomCuts, cut_connections, make_clock, slow_the_disk, step_the_clock
from tests.chaos.disk import SmallDisk, fill_the_disk, small_disk, tablespace_on
from tests.chaos.flood import flood
from tests.chaos.kills import kill_nodes, kill_the_database
from tests.chaos.poison import poison
from tests.chaos.rolling import restart_one_after_another
from tests.chaos.scene import Log, Scene
from tests.cutting import CuttingWire
from tests.databases import address_of
from tests.faults.stage import staged


class Place(Enum):
    PLAIN = "plain"
    BEHIND_A_WIRE = "behind a wire"
    """Every connection of the nodes to the database can be cut."""
    ON_A_SMALL_DISK = "on a small disk"
    UNDER_A_CLOCK = "under a clock that can be set"


@dataclass(frozen=True, slots=True)
class Act:
    name: str
    play: Callable[[Scene], Awaitable[None]]
    place: Place = Place.PLAIN

    @property
    def about(self) -> str:
        return " ".join((self.play.__doc__ or "").split())


ACTS: Final = (
    Act("killed-node", kill_nodes),
    Act("rolling-restart", restart_one_after_another),
    Act("vanishing-clients", vanish),
    Act("deadlines", be_in_a_hurry),
    Act("poison", poison),
    Act("silent-subscriber", do_not_read),
    Act("flood", flood),
    Act("boundaries", end_many_at_once),
    Act("slow-disk", slow_the_disk),
    Act("killed-database", kill_the_database),
    Act("cut-connections", cut_connections, Place.BEHIND_A_WIRE),
    Act("full-disk", fill_the_disk, Place.ON_A_SMALL_DISK),
    Act("set-clock", step_the_clock, Place.UNDER_A_CLOCK),
)
NAMES: Final = tuple(act.name for act in ACTS)


@asynccontextmanager
async def placed(
    place: Place, postgres: EmbeddedPostgres, *, seed: int, say: Log, is_short: bool
) -> AsyncIterator[Scene]:
    """Two nodes on a database of their own, with what the place is about."""
    database = f"chaos_{place.name.lower()}"
    url, chance = address_of(postgres.dsn, database=database), random.Random(f"{seed}/{place.value}")
    async with AsyncExitStack() as stack:
        disk = await _disk(stack, postgres, place)
        await _make_database(stack, postgres, database, tablespace=None if disk is None else "chaos_disk")
        if place is Place.UNDER_A_CLOCK:
            await _with(url, lambda connection: make_clock(connection, database))
        cuts = RandomCuts(chance)
        wire = CuttingWire(url, cuts, everywhere=True) if place is Place.BEHIND_A_WIRE else None
        if wire is not None:
            await stack.enter_async_context(wire.open())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="earmark-chaos-")))
        node_url = None if wire is None else wire.url
        stage = await stack.enter_async_context(staged(url, folder, seed=seed, node_url=node_url))
        if wire is not None:
            wire.is_armed = True
        tools = {"cuts": cuts, "disk": disk}
        yield Scene(stage=stage, postgres=postgres, chance=chance, say=say, is_short=is_short, wire=wire, tools=tools)


async def _disk(stack: AsyncExitStack, postgres: EmbeddedPostgres, place: Place) -> SmallDisk | None:
    if place is not Place.ON_A_SMALL_DISK or (disk := stack.enter_context(small_disk())) is None:
        return None
    connection = await asyncpg.connect(postgres.dsn)
    stack.push_async_callback(connection.close)
    await stack.enter_async_context(tablespace_on(disk, connection))
    return disk


async def _make_database(
    stack: AsyncExitStack, postgres: EmbeddedPostgres, name: str, *, tablespace: str | None
) -> None:
    """Migrated, and dropped at the end."""
    where = "" if tablespace is None else f" tablespace {tablespace}"
    await _with(
        postgres.dsn, lambda connection: connection.execute(f"create database {name} template template0{where}")
    )
    stack.push_async_callback(
        _with, postgres.dsn, lambda connection: connection.execute(f"drop database {name} with (force)")
    )
    await migrate(address_of(postgres.dsn, database=name))


async def _with(url: str, do: Callable[[asyncpg.Connection[asyncpg.Record]], Awaitable[object]]) -> None:
    connection = await asyncpg.connect(url)
    try:
        await do(connection)
    finally:
        await connection.close()
