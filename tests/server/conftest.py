"""What tests of the process need: the application around a node, and a data directory that PostgreSQL can reach."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx2
import pytest

from server.asgi import create_app
from server.settings import Settings
from storage.database import Database
from tests.databases import new_home
from workers.runtime import Runtime, RuntimeOptions

ROOT_KEY = "a-root-key-for-tests-of-the-process-0123456789"


@pytest.fixture
def data_dir() -> Iterator[Path]:
    home = new_home()
    yield home
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
async def node(database_url: str) -> AsyncIterator[Runtime]:
    """A node with a root key, without jobs."""
    database = await Database.open(database_url)
    opened = Runtime(database, options=RuntimeOptions(runs_jobs=False))
    await opened.open(root_key=ROOT_KEY)
    yield opened
    await opened.stop()
    await database.close()


@pytest.fixture
async def client(node: Runtime, database_url: str) -> AsyncIterator[httpx2.AsyncClient]:
    """The application in this process, on `node`."""
    app = create_app(Settings(data_dir=Path("/nonexistent")), database_url, runtime=node)
    transport = httpx2.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=transport, base_url="http://earmark.test") as opened,
    ):
        yield opened
