"""Fixtures of tests about jobs: worlds of `tests.workers.capacity.world`."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.workers.capacity.world import World, open_world


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    """One reservation of 10 slots at START; tenants A and B."""
    async with open_world(database_url) as opened:
        yield opened
