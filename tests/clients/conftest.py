"""A live server for each test, and the interpreters that other makers' clients are installed in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.clients.environments import AGENTS, CLIENT
from tests.clients.live import Live, Relay, live_on
from tests.edges.cycles.world import TENANT


@pytest.fixture(scope="session")
def client_python() -> Path:
    return CLIENT.python()


@pytest.fixture(scope="session")
def agents_python() -> Path:
    return AGENTS.python()


@pytest.fixture
async def live(database_url: str, tmp_path: Path) -> AsyncIterator[Live]:
    """A tenant with 10,000 tokens."""
    async with live_on(database_url, tmp_path / "journal") as opened:
        await opened.world.budget(TENANT, 10_000)
        yield opened


@pytest.fixture
async def relay(live: Live) -> AsyncIterator[Relay]:
    line = Relay(live.port)
    await line.open()
    yield line
    await line.cut()
