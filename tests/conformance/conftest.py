"""A live server for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.conformance.live import Live, live_on


@pytest.fixture
async def live(database_url: str) -> AsyncIterator[Live]:
    async with live_on(database_url) as server:
        yield server
