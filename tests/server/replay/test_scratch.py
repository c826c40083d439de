from __future__ import annotations

import asyncpg
import pytest

from server.replay.scratch import PREFIX, with_scratch_database
from storage.database import connect
from storage.migrate import pending


async def names(server: str) -> list[str]:
    connection = await asyncpg.connect(server)
    try:
        rows = await connection.fetch("select datname from pg_database where starts_with(datname, $1)", PREFIX)
        return [row["datname"] for row in rows]
    finally:
        await connection.close()


async def test_it_is_migrated_and_dropped_afterwards(postgres: str) -> None:
    async with with_scratch_database(postgres) as url:
        connection = await connect(url)
        name = await connection.fetchval("select current_database()")
        assert name in await names(postgres)
        assert await pending(connection) == []
        await connection.close()
    assert name not in await names(postgres)


async def fail_inside(server: str, seen: list[str]) -> None:
    """Leaves a connection open, as a run that is torn down would."""
    async with with_scratch_database(server) as url:
        connection = await connect(url)
        seen.append(await connection.fetchval("select current_database()"))
        raise RuntimeError("as it happens")


async def test_it_is_dropped_when_the_run_fails_with_connections_open(postgres: str) -> None:
    seen: list[str] = []
    with pytest.raises(RuntimeError, match="as it happens"):
        await fail_inside(postgres, seen)
    assert seen[0] not in await names(postgres)


async def test_two_at_once_have_databases_of_their_own(postgres: str) -> None:
    async with with_scratch_database(postgres) as first, with_scratch_database(postgres) as second:
        assert first != second
