"""What the fixtures promise to every other test: clean databases of its own, on a server of either kind."""

from __future__ import annotations

import asyncpg
import pytest

from storage.migrate import migrate
from tests.conftest import MakeDatabase
from tests.databases import SystemPostgres

TABLES = "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'"


async def value(address: str, statement: str) -> object:
    connection = await asyncpg.connect(address)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


async def test_each_database_is_migrated_and_clean(make_database: MakeDatabase) -> None:
    first, second = await make_database(), await make_database()
    assert first != second
    assert await value(first, TABLES) == await value(second, TABLES) != 0
    await value(first, "CREATE TABLE only_here ()")
    assert await value(second, "SELECT to_regclass('only_here')") is None


async def test_an_empty_database_is_empty(make_database: MakeDatabase) -> None:
    assert await value(await make_database(migrated=False), TABLES) == 0


async def test_a_test_may_leave_connections_open(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    assert await connection.fetchval("SELECT 1") == 1
    connection.terminate()


async def test_a_server_of_ones_own_asks_for_the_password(real_postgres: SystemPostgres) -> None:
    assert real_postgres.major >= 15
    address = real_postgres.dsn
    assert str(await value(address, "SHOW password_encryption")) == "scram-sha-256"
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(address, password="wrong")


async def test_the_migrations_need_no_superuser(real_database_url: str) -> None:
    assert await value(real_database_url, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user") is False
    await migrate(real_database_url)
    assert await value(real_database_url, TABLES) != 0
