"""A furnished node for each test of the schema."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.schema.world import World, world_on


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    async with world_on(database_url) as furnished:
        yield furnished
