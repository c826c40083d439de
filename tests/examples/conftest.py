"""A shop for the examples: a live server, a platform with ten slots, and a tenant with a budget."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from server.asgi import create_app
from server.settings import Settings
from tests.edges.world import served_app
from tests.schema.world import ROOT_KEY, World, world_on

TENANT = "acme-corp"
TOKENS = 100


@dataclass
class Shop:
    world: World
    address: str

    @property
    def as_root(self) -> dict[str, str]:
        return {"EARMARK_KEY": ROOT_KEY}

    @property
    def as_tenant(self) -> dict[str, str]:
        """What the Cycles clients read."""
        secret = self.world.secrets[TENANT]
        return {"CYCLES_BASE_URL": self.address, "CYCLES_API_KEY": secret, "CYCLES_TENANT": TENANT}

    async def budget(self) -> tuple[int, int]:
        """(spent, reserved) of the tenant, in tokens."""
        document = f'{{ budget(scope: "tenant:{TENANT}", unit: TOKENS) {{ spent reserved }} }}'
        found = (await self.world.data(document, self.world.callers[TENANT]))["budget"]
        return int(found["spent"]), int(found["reserved"])

    async def grants(self) -> list[str]:
        """The ids of the tenant's grants."""
        found = await self.world.data("{ grants { nodes { id } } }", self.world.callers[TENANT])
        return [grant["id"] for grant in found["grants"]["nodes"]]


@pytest.fixture
async def shop(database_url: str) -> AsyncIterator[Shop]:
    async with opened_shop(database_url) as opened:
        yield opened


@asynccontextmanager
async def opened_shop(url: str) -> AsyncIterator[Shop]:
    """Its clock shows the time that the examples see, and stands still."""
    async with world_on(url, now=int(time.time() * 1000)) as world:
        caller = await world.add_tenant(TENANT)
        amount = {"unit": "TOKENS", "amount": TOKENS}
        wanted = {"scope": f"tenant:{TENANT}", "unit": "TOKENS", "allocated": amount}
        assert (await world.mutate("createBudget", wanted, caller=caller))["__typename"] == "Budget"
        app = create_app(Settings(data_dir=Path("/nonexistent")), url, runtime=world.runtime)
        async with app.router.lifespan_context(app), served_app(app) as address:
            yield Shop(world, address)
