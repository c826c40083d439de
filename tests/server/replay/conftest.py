"""The small trace, replayed once for all tests here."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from server.replay.openb import OpenbOptions, Replayed, replay
from tests.databases import Databases
from tests.server.replay.small_trace import write_trace

SLOTS = 7


@pytest.fixture(scope="session")
def small_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_trace(tmp_path_factory.mktemp("openb") / "pods.csv")


@pytest.fixture(scope="session")
async def replayed_url(databases: Databases) -> AsyncIterator[str]:
    address = await databases.create()
    yield address
    await databases.drop(address)


@pytest.fixture(scope="session")
async def replayed(replayed_url: str, small_trace: Path) -> Replayed:
    """Nobody changes what is in it: tests that want other books make copies."""
    return await replay(replayed_url, small_trace, options=OpenbOptions(slots=SLOTS))
