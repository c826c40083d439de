"""A disk that fills up while everything goes on, and is emptied again."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

from storage.database import Connection, connect
from storage.embedded.account import account_for
from tests.capacity_world import eventually
from tests.chaos.scene import Scene
from tests.databases import new_home

DISK_MB: Final = 96
TABLESPACE: Final = "chaos_disk"
UNANSWERED: Final = 20
"""Requests that must find the disk full before it is emptied."""
NOTICED_WITHIN_MS: Final = 60_000


class SmallDisk:
    """A file system of its own in memory, so small that it can be filled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self) -> int:
        """Take what is left; how many bytes it was."""
        taken = 0
        with self._ballast.open("ab", buffering=0) as ballast:
            for chunk in (1 << 20, 1 << 12):
                while _write(ballast.fileno(), chunk):
                    taken += chunk
        return taken

    def empty(self) -> None:
        self._ballast.unlink(missing_ok=True)


def _write(descriptor: int, size: int) -> bool:
    try:
        return os.write(descriptor, bytes(size)) == size
    except OSError:
        return False


@contextmanager
def small_disk() -> Iterator[SmallDisk | None]:
    """None where no file system can be mounted: that takes root."""
    home = new_home()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", home], check=False, capture_output=True
    )
    try:
        yield SmallDisk(home) if done.returncode == 0 else None
    finally:
        if done.returncode == 0:
            subprocess.run(["umount", "--lazy", home], check=False)
        shutil.rmtree(home, ignore_errors=True)


@asynccontextmanager
async def tablespace_on(disk: SmallDisk, connection: Connection) -> AsyncIterator[str]:
    """The name of a tablespace there. The databases in it must be gone at the end."""
    place = disk.folder / "tables"
    place.mkdir(mode=0o700)
    disk.folder.chmod(0o711)
    account_for(disk.folder / "pg").own(place)
    await connection.execute(f"create tablespace {TABLESPACE} location '{place}'")
    try:
        yield TABLESPACE
    finally:
        await connection.execute(f"drop tablespace {TABLESPACE}")


async def fill_the_disk(scene: Scene) -> None:
    """No table can grow any more, then there is room again."""
    async with scene.loaded():
        for _ in range(scene.size(short=1, long=3)):
            await scene.more_answers()
            await _fill_once(scene, scene.tools["disk"])
        await scene.more_answers()


async def _fill_once(scene: Scene, disk: SmallDisk | None) -> None:
    """Until it is noticed."""
    before = _unanswered(scene)

    async def is_noticed() -> bool:
        return _unanswered(scene) >= before + UNANSWERED

    if disk is None:
        scene.say("no file system can be mounted here: inserts fail as on a full disk instead")
        await _refuse_inserts(scene, forbidden=True)
        await eventually(is_noticed, timeout_ms=NOTICED_WITHIN_MS)
        await _refuse_inserts(scene, forbidden=False)
    else:
        taken = await asyncio.to_thread(disk.fill)
        scene.say(f"the disk of the tables is full: took the last {taken >> 10:,} KiB")
        await eventually(is_noticed, timeout_ms=NOTICED_WITHIN_MS)
        disk.empty()
    scene.say(f"there is room again; {_unanswered(scene) - before} requests were told to come again")


def _unanswered(scene: Scene) -> int:
    return scene.stage.budgets.unanswered + scene.stage.capacity.unanswered


FULL: Final = """
create or replace function chaos_full() returns trigger language plpgsql as
    $$ begin raise exception 'could not extend file: No space left on device' using errcode = '53100'; end $$;
"""


async def _refuse_inserts(scene: Scene, *, forbidden: bool) -> None:
    """The nearest thing to a full disk without one: its own error, at every insert into what every turn writes."""
    connection = await connect(scene.stage.url)
    try:
        await connection.execute(FULL)
        for table in ("answer", "budget_answer", "capacity_outbox", "budget_outbox"):
            await connection.execute(f"drop trigger if exists chaos_full on {table}")
            if forbidden:
                await connection.execute(
                    f"create trigger chaos_full before insert on {table} for each row execute function chaos_full()"
                )
    finally:
        await connection.close()
