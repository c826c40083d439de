"""The Cycles wire on a port of this machine, and programs of other makers' clients that use it as their users would."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from tests.edges.cycles.world import ACME, World, furnished_world_on
from tests.schema.world import until

PROGRAMS = Path(__file__).parent / "programs"
PROGRAM_SECONDS = 60


@dataclass
class Live:
    world: World
    port: int
    journal: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def environment(self, **changes: str) -> dict[str, str]:
        """What the clients read, and nothing of ours: their journal must be the test's own."""
        return {
            "PATH": os.environ["PATH"],
            "CYCLES_BASE_URL": self.url,
            "CYCLES_API_KEY": self.world.secrets[ACME],
            "CYCLES_TENANT": ACME,
            "CYCLES_JOURNAL_DIR": str(self.journal),
            "OPENAI_API_KEY": "unused",
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
            "LANGSMITH_TRACING": "false",
            **changes,
        }


@asynccontextmanager
async def live_on(url: str, journal: Path) -> AsyncIterator[Live]:
    """A furnished node behind uvicorn, in the test's own event loop."""
    async with furnished_world_on(url) as world:
        listening = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(world.app, log_config=None, access_log=False, http="httptools", lifespan="off")
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            await until(lambda: server.started or serving.done())
            yield Live(world, listening.getsockname()[1], journal)
        finally:
            server.should_exit = True
            await serving
            listening.close()


class Program:
    """A running program: it says one JSON document a line, and may wait for a line from the test."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def said(self) -> Any:
        """The next thing it says."""
        assert self._process.stdout is not None
        async with asyncio.timeout(PROGRAM_SECONDS):
            line = await self._process.stdout.readline()
        if not line:
            raise AssertionError(f"the program ended: {await self._problems()}")
        return json.loads(line)

    async def go_on(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"go on\n")
        await self._process.stdin.drain()

    async def finished(self) -> None:
        """Wait for its end, which must be a good one."""
        async with asyncio.timeout(PROGRAM_SECONDS):
            problems = await self._problems()
            await self._process.wait()
        assert self._process.returncode == 0, problems

    async def _problems(self) -> str:
        assert self._process.stderr is not None
        return (await self._process.stderr.read()).decode()


@asynccontextmanager
async def running(python: Path, name: str, environment: Mapping[str, str], *arguments: str) -> AsyncIterator[Program]:
    process = await asyncio.create_subprocess_exec(
        python,
        PROGRAMS / f"{name}.py",
        *arguments,
        env=dict(environment),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield Program(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def run(python: Path, name: str, environment: Mapping[str, str], *arguments: str) -> Any:
    """The one thing that a program says, once it has come to a good end."""
    async with running(python, name, environment, *arguments) as program:
        said = await program.said()
        await program.finished()
        return said


class Relay:
    """A line to the server that a test can cut: what comes to its port goes to the server's."""

    def __init__(self, target: int) -> None:
        self.port = 0
        self._target = target
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def open(self) -> None:
        """Again on the same port when it was cut."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """Nothing gets through any more, nor is anything accepted."""
        if self._server is not None:
            self._server.close()
            for writer in list(self._writers):
                writer.transport.abort()
            await self._server.wait_closed()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers |= {writer, there_writer}
        await asyncio.gather(_pump(reader, there_writer), _pump(there_reader, writer))
        self._writers -= {writer, there_writer}


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(65_536):
            writer.write(chunk)
            await writer.drain()
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
