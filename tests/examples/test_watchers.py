"""The watchers among the examples, run as anybody would: they miss nothing, whatever becomes of the server."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from tests.examples.programs import EXAMPLES, needed, node_copy
from tests.faults.serving import Served
from tests.ports import reserved_port
from tests.schema.world import ROOT_KEY, World, world_on
from tests.server.processes import WITHIN_S

Command = Callable[[Path], list[str]]


def python_watcher(_folder: Path) -> list[str]:
    return [sys.executable, str(EXAMPLES / "watch-python" / "watch.py")]


def node_watcher(folder: Path) -> list[str]:
    return [needed("node"), str(node_copy("watch-node", folder, package="graphql-ws") / "watch.mjs")]


@asynccontextmanager
async def watching(
    command: list[str], port: int, key: str, bookmark: Path
) -> AsyncIterator[asyncio.subprocess.Process]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("EARMARK_")}
    process = await asyncio.create_subprocess_exec(
        *command,
        f"ws://127.0.0.1:{port}/graphql",
        env={**inherited, "EARMARK_KEY": key, "EARMARK_BOOKMARK": str(bookmark)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def lines(process: asyncio.subprocess.Process, count: int) -> list[list[str]]:
    """The next lines that it prints, in words."""
    assert process.stdout is not None
    said = [await asyncio.wait_for(process.stdout.readline(), WITHIN_S) for _ in range(count)]
    return [line.decode().split() for line in said]


@pytest.mark.parametrize("watcher", [python_watcher, node_watcher])
async def test_a_watcher_prints_every_event_once_across_a_restart_of_the_server(
    database_url: str, tmp_path: Path, watcher: Command
) -> None:
    command, bookmark = watcher(tmp_path), tmp_path / "cursor"
    async with world_on(database_url) as world, httpx2.AsyncClient() as client:
        bookmark.write_text((await world.data("{ eventsCursor }", world.callers["a"]))["eventsCursor"])
        served = Served(database_url, root_key=ROOT_KEY, port=reserved_port(), folder=tmp_path)
        port = int(served.address.rpartition(":")[2])
        served.start()
        try:
            await served.ready(client)
            async with watching(command, port, world.secrets["a"], bookmark) as process:
                first = await world.create_grant(slots=1)
                said = await lines(process, 2)
                served.kill()
                second = await world.create_grant(slots=2)
                served.start()
                await served.ready(client)
                third = await world.create_grant(slots=3)
                said += await lines(process, 4)
                await revoke(world, "a")
                assert await asyncio.wait_for(process.wait(), WITHIN_S) == 1
        finally:
            served.kill()
    made = [(grant["id"], str(slots)) for slots, grant in enumerate((first, second, third), start=1)]
    assert said == [
        [str(2 * number + step), f"reservation-grant.{kind}", grant_id, slots]
        for number, (grant_id, slots) in enumerate(made)
        for step, kind in enumerate(("created", "active"), start=1)
    ]


async def revoke(world: World, tenant: str) -> None:
    key_id = world.callers[tenant].principal.key_id
    document = "mutation ($id: ID!) { revokeApiKey(input: {keyId: $id}) { __typename } }"
    assert (await world.data(document, id=key_id))["revokeApiKey"]["__typename"] == "ApiKey"


@pytest.mark.parametrize("source", ["watch-python/watch.py", "watch-node/watch.mjs"])
def test_a_watcher_fits_on_a_page_or_two(source: str) -> None:
    assert len((EXAMPLES / source).read_text().splitlines()) < 100
