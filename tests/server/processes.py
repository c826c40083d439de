"""The real command `earmark` as processes of its own: run to their end, or served and stopped."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx2

EARMARK: Final = Path(sys.executable).with_name("earmark")
WITHIN_S: Final = 60.0
"""For anything that a process should come to: generous, since tests share their machine."""


def environment(**given: str) -> dict[str, str]:
    """Ours without any setting of Earmark's, and those given."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("EARMARK_")}
    return {**inherited, **given}


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed for a script: one line of JSON and nothing else."""
        (line,) = self.out.splitlines()
        return json.loads(line)


async def earmark(*arguments: str, settings: Mapping[str, str] | None = None) -> Ended:
    """Run one command to its end."""
    process = await asyncio.create_subprocess_exec(
        EARMARK,
        *arguments,
        env=environment(**(settings or {})),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), WITHIN_S)
    except BaseException:
        process.kill()
        await process.wait()
        raise
    assert process.returncode is not None
    return Ended(process.returncode, out.decode(), err.decode())


@dataclass
class Serving:
    """A process that serves. `lines`: what it has printed on standard error so far."""

    process: asyncio.subprocess.Process
    lines: list[str] = field(default_factory=list)
    address: str = ""
    started_in_s: float = 0.0
    _news: asyncio.Condition = field(default_factory=asyncio.Condition)
    _is_silent: bool = False

    @property
    def log(self) -> list[dict[str, Any]]:
        """The lines that are JSON."""
        return [json.loads(line) for line in self.lines if line.startswith("{")]

    @property
    def plain(self) -> str:
        """The other ones."""
        return "\n".join(line for line in self.lines if not line.startswith("{"))

    async def wait_for(self, wanted: str) -> str:
        """The first line, printed already or from now on, that has this in it."""

        return await self._first(lambda line: wanted in line)

    async def logged(self, message: str) -> dict[str, Any]:
        """The first entry of the log with this message."""
        line = await self._first(lambda line: line.startswith("{") and json.loads(line)["message"] == message)
        entry: dict[str, Any] = json.loads(line)
        return entry

    async def _first(self, is_wanted: Callable[[str], bool]) -> str:
        def found() -> str | None:
            return next(filter(is_wanted, self.lines), None)

        async with asyncio.timeout(WITHIN_S), self._news:
            await self._news.wait_for(lambda: found() or self._is_silent)
        line = found()
        assert line is not None, self.lines
        return line

    async def stop(self, number: signal.Signals) -> int:
        """The exit code after a signal; everything that it still prints is in `lines`."""
        self.process.send_signal(number)
        async with asyncio.timeout(WITHIN_S), self._news:
            await self._news.wait_for(lambda: self._is_silent)
        return await asyncio.wait_for(self.process.wait(), WITHIN_S)

    def client(self, secret: str | None = None) -> httpx2.AsyncClient:
        headers = {} if secret is None else {"X-API-Key": secret}
        return httpx2.AsyncClient(base_url=self.address, headers=headers, timeout=30)

    async def listen(self) -> None:
        """Take down what it prints, until it ends."""
        assert self.process.stderr is not None
        while line := await self.process.stderr.readline():
            async with self._news:
                self.lines.append(line.decode().rstrip("\n"))
                self._news.notify_all()
        async with self._news:
            self._is_silent = True
            self._news.notify_all()


@contextlib.asynccontextmanager
async def serving(*arguments: str, settings: Mapping[str, str] | None = None) -> AsyncIterator[Serving]:
    """`earmark serve` on a free port, once it takes requests; killed at the end if it still runs."""
    began = time.monotonic()
    async with started("serve", "--port", "0", *arguments, settings=settings) as server:
        ready = await server.logged("ready")
        server.address = ready["address"]
        server.started_in_s = time.monotonic() - began
        yield server


@contextlib.asynccontextmanager
async def started(*arguments: str, settings: Mapping[str, str] | None = None) -> AsyncIterator[Serving]:
    """A command that goes on until it is told to stop."""
    process = await asyncio.create_subprocess_exec(
        EARMARK,
        *arguments,
        env=environment(**(settings or {})),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        limit=1 << 20,
        # What a shell does to its background processes must not reach the tests of Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    server = Serving(process)
    listening = asyncio.create_task(server.listen())
    try:
        yield server
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await listening


async def graphql(client: httpx2.AsyncClient, document: str, **variables: Any) -> Any:
    """The data of an operation; fails on errors."""
    response = await client.post("/graphql", json={"query": document, "variables": variables})
    answer = response.json()
    assert "errors" not in answer, answer
    return answer["data"]
