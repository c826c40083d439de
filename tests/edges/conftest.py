"""A world for each test, and each of the two edges to it."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import asyncpg
import pytest

from tests.databases import Databases, address_of
from tests.edges.edge import Edge, GraphQLEdge, RestEdge
from tests.edges.world import Furnished, World, furnish, open_world

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
async def furnished(databases: Databases) -> AsyncIterator[Furnished]:
    """Made once through the desks; each test gets a copy."""
    address = await databases.create()
    yield await furnish(address)
    await databases.drop(address)


@pytest.fixture
async def furnished_url(databases: Databases, furnished: Furnished) -> AsyncIterator[str]:
    template = urlsplit(furnished.address).path.removeprefix("/")
    name = f"{template}_{next(_NUMBERS)}"
    connection = await asyncpg.connect(databases.dsn)
    try:
        await connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
    finally:
        await connection.close()
    address = address_of(databases.dsn, database=name)
    yield address
    await databases.drop(address)


@pytest.fixture
async def world(furnished_url: str, furnished: Furnished) -> AsyncIterator[World]:
    async with open_world(furnished_url, furnished) as opened:
        yield opened


@pytest.fixture(params=[RestEdge.name, GraphQLEdge.name])
def edge(world: World, request: pytest.FixtureRequest) -> Edge:
    return world.edge(request.param)
