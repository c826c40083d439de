"""A live server for clients of other makers: uvicorn on a free port of this machine, in the test's own event loop."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from server.asgi import create_app
from server.settings import Settings
from tests.schema.world import ROOT_KEY, World, until, world_on

HERE = Path(__file__).parent


@dataclass
class Live:
    world: World
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/graphql"

    @property
    def socket_url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/graphql"

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {ROOT_KEY}"}


@asynccontextmanager
async def live_on(url: str, *, send_buffer: int | None = None) -> AsyncIterator[Live]:
    """A furnished node behind a server. `send_buffer`: bytes the kernel may keep of what a client does not read."""
    async with world_on(url) as world:
        app = create_app(Settings(), url, runtime=world.runtime)
        listening = socket.create_server(("127.0.0.1", 0))
        if send_buffer is not None:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        config = uvicorn.Config(app, log_config=None, access_log=False, http="httptools", ws="websockets-sansio")
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            await until(lambda: server.started or serving.done())
            yield Live(world, listening.getsockname()[1])
        finally:
            world.runtime.end_streams()
            server.should_exit = True
            await serving
            listening.close()


async def run_node(script: str, environment: Mapping[str, str]) -> list[dict[str, Any]]:
    """What a script of this folder says, line by line. Skips where Node or the packages are missing."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    if not (HERE / "node_modules" / "graphql-http").exists():
        pytest.skip("the Node packages are not installed: make conformance")
    process = await asyncio.create_subprocess_exec(
        node,
        script,
        cwd=HERE,
        env={"PATH": os.environ["PATH"], **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(90):
            out, problems = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, problems.decode()
    return [json.loads(line) for line in out.decode().splitlines()]


async def run_client(**wanted: Any) -> list[dict[str, Any]]:
    """One operation through a public JavaScript client."""
    return await run_node("client.mjs", {"EARMARK_WANTED": json.dumps(wanted)})
