"""kill -9 of a node, and of PostgreSQL, in the middle of a budget load: each request has one effect, as it was told."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.embedded import EmbeddedPostgres
from storage.migrate import migrate
from tests.faults.serving import kill_postgres, turns_held_up
from tests.faults.stage import staged

CLIENTS = 12


@pytest.mark.timeout(300)
async def test_killed_nodes_lose_and_double_no_token(database_url: str, tmp_path: Path) -> None:
    async with staged(database_url, tmp_path, seed=21) as stage:
        first, second = stage.servers
        async with stage.loaded(capacity=0, budgets=CLIENTS):
            await stage.more_answers(200)
            first.kill()
            await stage.budgets.more_unanswered()
            await stage.more_answers(50)
            await stage.restart(first)
            await stage.more_answers(200)
            second.kill()  # for good
            await stage.budgets.more_unanswered()
            await stage.more_answers(200)
        await stage.check()


@pytest.mark.timeout(300)
async def test_a_killed_postgres_loses_and_doubles_no_token(durable_postgres: EmbeddedPostgres, tmp_path: Path) -> None:
    """With durability on: whatever was told is there when it comes back. The last kill hits a turn for certain."""
    await migrate(durable_postgres.dsn)
    async with staged(durable_postgres.dsn, tmp_path, seed=22) as stage:
        async with stage.loaded(capacity=0, budgets=CLIENTS):
            for only_a_backend in (False, True):
                await stage.more_answers(150)
                await kill_postgres(durable_postgres, only_a_backend=only_a_backend)
            await stage.more_answers(150)
            async with turns_held_up(durable_postgres.dsn, "budget_tenant"):
                await kill_postgres(durable_postgres)
            await stage.more_answers(150)
        await stage.check()
