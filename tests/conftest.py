"""Fixtures of every test: a PostgreSQL for the run, and clean databases in it.

`EARMARK_TEST_DATABASE_URL` names a server of yours to run the tests against (a role that may create databases,
PostgreSQL 15 or newer); without it one embedded server is started, which the workers of pytest-xdist share.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import asyncpg
import pytest

from storage.embedded import EmbeddedPostgres
from tests.databases import (
    WITHOUT_DURABILITY,
    Databases,
    SystemPostgres,
    address_for,
    address_of,
    new_home,
    remove_homes_of_killed_runs,
    system_bin_dir,
)

MakeDatabase = Callable[..., Awaitable[str]]

HOME_VARIABLE = "EARMARK_TEST_HOME"
"""How the controlling process tells the workers where the server is; not for people."""


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        remove_homes_of_killed_runs()
        os.environ[HOME_VARIABLE] = str(new_home())


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ.pop(HOME_VARIABLE), ignore_errors=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of the run's server. Tests want `database_url` or `make_database`."""
    if url := os.environ.get("EARMARK_TEST_DATABASE_URL"):
        yield url
        return
    with EmbeddedPostgres(Path(os.environ[HOME_VARIABLE]), settings=WITHOUT_DURABILITY) as server:
        yield server.dsn


@pytest.fixture(scope="session")
async def databases(postgres: str) -> AsyncIterator[Databases]:
    """Makes and drops databases; for fixtures of a wider scope than one test."""
    made = Databases(postgres)
    try:
        await made.open()
        yield made
    finally:
        await made.close()


@pytest.fixture
async def make_database(databases: Databases) -> AsyncIterator[MakeDatabase]:
    """`await make_database()` is the address of a new, migrated database (`migrated=False`: an empty one)."""
    addresses: list[str] = []

    async def make(*, migrated: bool = True) -> str:
        addresses.append(await databases.create(migrated=migrated))
        return addresses[-1]

    yield make
    for address in addresses:
        await databases.drop(address)


@pytest.fixture
async def database_url(make_database: MakeDatabase) -> str:
    """The address of this test's own migrated database."""
    return await make_database()


@pytest.fixture(scope="session")
def real_postgres() -> Iterator[SystemPostgres]:
    """The PostgreSQL that the system's packages installed, on TCP with a password. Skips where there is none."""
    bin_dir = system_bin_dir()
    if bin_dir is None:
        pytest.skip("no PostgreSQL 15 or newer in /usr/lib/postgresql (Debian: apt-get install postgresql)")
    home = new_home()
    try:
        with SystemPostgres(bin_dir, home=home).running() as server:
            yield server
    finally:
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
async def real_database_url(real_postgres: SystemPostgres) -> AsyncIterator[str]:
    """An empty database on `real_postgres`, as an administrator would hand it out: its owner is no superuser."""
    connection = await asyncpg.connect(real_postgres.dsn)
    try:
        await connection.execute("CREATE ROLE earmark_owner LOGIN PASSWORD 'p@ss/word'")
        await connection.execute("CREATE DATABASE earmark_real OWNER earmark_owner")
        address = address_of(real_postgres.dsn, database="earmark_real")
        yield address_for(address, user="earmark_owner", password="p@ss/word")
        await connection.execute("DROP DATABASE earmark_real WITH (FORCE)")
        await connection.execute("DROP ROLE earmark_owner")
    finally:
        await connection.close()
