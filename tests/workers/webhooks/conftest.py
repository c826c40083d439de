"""A world with one node whose courier stands still, and a receiver."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.receiver import Receiver, receiving
from tests.webhook_world import WebhookWorld, webhook_world


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[WebhookWorld]:
    async with webhook_world(database_url) as made:
        yield made


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as made:
        yield made
