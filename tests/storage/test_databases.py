"""What the fixtures promise to every other test: clean databases of its own, on a server of either kind."""

from __future__ import annotations

import asyncpg
import pytest

from storage.migrate import migrate
from tests.conftest import MakeDatabase
from tests.databases import Databases, SystemPostgres

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


async def test_a_database_that_comes_back_is_clean_for_the_next_test(databases: Databases) -> None:
    first = await databases.create()
    await value(first, "INSERT INTO tenant (tenant_id, name, is_root, created_at) VALUES ('a', 'A', false, 1)")
    await value(first, "UPDATE webhook_cursor SET place = place + 1")
    cursors = "SELECT string_agg(c::text, ',' ORDER BY stream) FROM webhook_cursor c"
    assert await value(first, cursors) != await value(await databases.create(), cursors)
    await databases.drop(first)
    again = await databases.create()
    is_superuser = await value(again, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
    assert not is_superuser or again == first
    assert await value(again, "SELECT count(*) FROM tenant") == 0
    assert await value(again, cursors) == await value(await databases.create(), cursors)
    await databases.drop(again)


@pytest.mark.parametrize(
    "change",
    [
        "CREATE TABLE another ()",
        "ALTER TABLE tenant RENAME TO renamed",
        "ALTER TABLE tenant ALTER name DROP NOT NULL",
        "ALTER TABLE tenant ALTER name SET DEFAULT 'x'",
        "DROP INDEX event_by_age",
        "CREATE FUNCTION another() RETURNS int LANGUAGE sql RETURN 1",
        "CREATE SCHEMA another",
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET jit = off', current_database()); END $$",
        "TRUNCATE tenant CASCADE",
    ],
)
async def test_a_database_whose_shape_was_changed_never_comes_back(databases: Databases, change: str) -> None:
    changed = await databases.create()
    await value(changed, change)
    await databases.drop(changed)
    assert await databases.create() != changed
