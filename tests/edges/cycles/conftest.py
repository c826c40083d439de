"""The world of the Cycles wire for each test: its one tenant has a key and no budgets yet."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.edges.cycles.world import World, furnished_world_on


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    async with furnished_world_on(database_url) as opened:
        yield opened
