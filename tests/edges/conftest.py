"""A world for each test, and each of the two edges to it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from storage.migrate import migrate
from tests.databases import Databases
from tests.edges.edge import Edge, GraphQLEdge, RestEdge
from tests.edges.world import Furnished, World, furnish, open_world
from tests.templates import Template


@pytest.fixture(scope="session")
async def furnishing(databases: Databases) -> tuple[Furnished, Template]:
    """Made once through the desks; each test gets a copy."""
    address = await databases.create(migrated=False)
    await migrate(address)
    made = await furnish(address)
    return made, await databases.template_of(address)


@pytest.fixture
def furnished(furnishing: tuple[Furnished, Template]) -> Furnished:
    return furnishing[0]


@pytest.fixture
async def furnished_url(databases: Databases, furnishing: tuple[Furnished, Template]) -> AsyncIterator[str]:
    address = await databases.copy(furnishing[1])
    yield address
    await databases.drop(address)


@pytest.fixture
async def world(furnished_url: str, furnished: Furnished) -> AsyncIterator[World]:
    async with open_world(furnished_url, furnished) as opened:
        yield opened


@pytest.fixture(params=[RestEdge.name, GraphQLEdge.name])
def edge(world: World, request: pytest.FixtureRequest) -> Edge:
    return world.edge(request.param)
