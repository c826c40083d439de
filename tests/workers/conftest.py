"""Fixtures of the workers' tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.registry_desks import Desks, open_desks


@pytest.fixture
async def desks(database_url: str) -> AsyncIterator[Desks]:
    """The registry's desks on this test's own database."""
    async with open_desks(database_url) as opened:
        yield opened
