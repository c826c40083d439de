"""The two edges to budgets: on a stage that all stories share, or in a world with the tenant ACME for each test."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator

import pytest

from tests.databases import Databases
from tests.edges.budget.edge import BudgetEdge
from tests.edges.budget.graphql_edge import EDGES
from tests.edges.cycles.world import ACME, OTHER, World, furnished_world_on, world_on

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
async def stage(databases: Databases) -> AsyncIterator[World]:
    """One world for many stories, each of which has tenants of its own."""
    address = await databases.create()
    async with world_on(address) as opened:
        yield opened
    await databases.drop(address)


@pytest.fixture
async def cast(stage: World) -> dict[str, str]:
    """Names that nobody else has, for the two tenants that stories are about; the first one is there already."""
    number = next(_NUMBERS)
    names = {ACME: f"tenant-{number}", OTHER: f"stranger-{number}"}
    await stage.add_tenant(names[ACME])
    return names


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    async with furnished_world_on(database_url) as opened:
        yield opened


@pytest.fixture(params=list(EDGES))
def edge(world: World, request: pytest.FixtureRequest) -> BudgetEdge:
    return EDGES[request.param](world)


@pytest.fixture(params=list(EDGES))
def stage_edge(stage: World, request: pytest.FixtureRequest) -> BudgetEdge:
    return EDGES[request.param](stage)
