"""Models against the real database, and Tortoise on connections of ours: its manners, and those of the pool."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from domain.tenancy import Tenant
from storage import identity, tables
from storage.database import POOL_MAX, Database, Trouble, Unavailable, trouble_of
from tests.conftest import MakeDatabase

T = 1_800_000_000_000


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    opened = await Database.open(database_url)
    yield opened
    await opened.close()


def tenant(name: str, *, created_at: int = T, is_root: bool = False) -> Tenant:
    return Tenant(tenant_id=name, name=f"Tenant {name}", is_root=is_root, created_at=created_at)


# -- models against the database ---------------------------------------------------------------------------------------

FULL_NAMES = {"bool": "boolean"}
COLUMNS = """
select a.attname as name, format_type(a.atttypid, a.atttypmod) as type, not a.attnotnull as nullable
from pg_attribute a where a.attrelid = $1::regclass and a.attnum > 0 and not a.attisdropped
"""
KEYS = """
select contype::text as kind, confrelid::regclass::text as target, (
    select array_agg(a.attname::text order by a.attnum) from pg_attribute a
    where a.attrelid = c.conrelid and a.attnum = any (c.conkey)
) as columns
from pg_constraint c where c.conrelid = $1::regclass and contype in ('p', 'u', 'f')
"""


def columns_of(model: type[Any]) -> dict[str, tuple[str, bool]]:
    meta = model._meta
    described = {}
    for attribute, column in meta.fields_db_projection.items():
        field = meta.fields_map[attribute]
        name = field.get_for_dialect("postgres", "SQL_TYPE").lower()
        described[column] = (FULL_NAMES.get(name, name), field.null)
    return described


def keys_of(model: type[Any]) -> set[tuple[str, str, tuple[str, ...]]]:
    meta = model._meta
    keys: set[tuple[str, str, tuple[str, ...]]] = {("p", "-", (meta.db_pk_column,))}
    for name, field in meta.fields_map.items():
        if name in meta.fk_fields:
            target = field.related_model._meta
            keys.add(("f", target.db_table, (meta.fields_db_projection[field.source_field],)))
        elif field.unique and not field.pk and name in meta.fields_db_projection:
            keys.add(("u", "-", (meta.fields_db_projection[name],)))
    return keys


@pytest.mark.parametrize("model", tables.MODELS, ids=lambda model: str(model.__name__))
async def test_models_have_the_columns_that_the_migrations_made(database: Database, model: type[Any]) -> None:
    async with database.acquire() as connection:
        rows = await connection.fetch(COLUMNS, model._meta.db_table)
    assert columns_of(model) == {row["name"]: (row["type"], row["nullable"]) for row in rows}


@pytest.mark.parametrize("model", tables.MODELS, ids=lambda model: str(model.__name__))
async def test_models_have_the_keys_that_the_migrations_made(database: Database, model: type[Any]) -> None:
    async with database.acquire() as connection:
        rows = await connection.fetch(KEYS, model._meta.db_table)
    made = {(row["kind"], row["target"], tuple(row["columns"])) for row in rows}
    if model is tables.PoolOffer:  # a key of two columns, of which Tortoise knows the first only
        assert made == {("p", "-", ("pool_id", "tenant_id")), ("f", "pool", ("pool_id",))}
        assert keys_of(model) == {("p", "-", ("pool_id",))}
    else:
        assert keys_of(model) == made


async def test_every_table_of_the_registry_has_a_model() -> None:
    names = {model._meta.db_table for model in tables.MODELS}
    assert names == {"tenant", "project", "api_key", "provider_account", "pool", "pool_offer"}


# -- Tortoise on our connections ---------------------------------------------------------------------------------------


async def test_two_databases_in_one_process_do_not_see_each_other(make_database: MakeDatabase) -> None:
    first, second = await Database.open(await make_database()), await Database.open(await make_database())
    try:
        async with first.transaction() as connection:
            await identity.flush_tenant(connection, tenant("only-in-first"))
        async with first.acquire() as here, second.acquire() as there:
            found = await asyncio.gather(
                identity.get_tenant(here, "only-in-first"), identity.get_tenant(there, "only-in-first")
            )
        assert tuple(found) == (tenant("only-in-first"), None)
    finally:
        await first.close()
        await second.close()


async def test_tortoise_reads_what_its_own_transaction_wrote_and_a_rollback_takes_it_back(database: Database) -> None:
    async def write() -> None:
        async with database.transaction() as connection:
            await identity.flush_tenant(connection, tenant("a"))
            assert await identity.get_tenant(connection, "a") == tenant("a")
            async with database.acquire() as other:
                assert await identity.get_tenant(other, "a") is None
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        await write()
    async with database.acquire() as connection:
        assert await identity.get_tenant(connection, "a") is None


async def test_a_model_without_a_connection_refuses_to_query(database: Database) -> None:
    with pytest.raises(AssertionError, match="using_db"):
        await tables.Tenant.all().values()


async def test_tortoise_opens_no_transaction_of_its_own(database: Database) -> None:
    async with database.acquire() as connection:
        with pytest.raises(RuntimeError, match="No TortoiseContext"):
            await tables.Tenant.get_or_create(
                using_db=tables.on(connection), tenant_id="a", defaults={"name": "A", "created_at": T}
            )


async def test_a_taken_name_is_a_duplicate_also_through_tortoise(database: Database) -> None:
    async with database.transaction() as connection:
        await identity.flush_tenant(connection, tenant("a"))
    with pytest.raises(asyncpg.UniqueViolationError) as caught:
        async with database.transaction() as connection:
            await identity.flush_tenant(connection, tenant("a"))
    assert trouble_of(caught.value) is Trouble.DUPLICATE


async def test_cancelled_reads_and_writes_give_their_connections_back(database: Database) -> None:
    async def work(number: int) -> None:
        async with database.transaction() as connection:
            await identity.flush_tenant(connection, tenant(f"t{number}"))
            await identity.get_tenant(connection, f"t{number}")

    for number in range(60):
        task = asyncio.create_task(work(number))
        for _ in range(number % 12):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    held = [database.acquire() for _ in range(POOL_MAX)]
    connections = [await context.__aenter__() for context in held]
    assert [await c.fetchval("select pg_current_xact_id_if_assigned()") for c in connections] == [None] * POOL_MAX
    for context in held:
        await context.__aexit__(None, None, None)


async def test_a_broken_connection_is_unavailable_to_whoever_used_it_and_never_used_again(database: Database) -> None:
    """Whether asyncpg has noticed yet or is in the middle of sending: it tells the two in different ways."""

    async def read_on_a_killed_one(steps: int) -> None:
        async with database.acquire() as connection, database.acquire() as other:
            await other.fetchval("select pg_terminate_backend($1, 5000)", connection.get_server_pid())
            for _ in range(steps):
                await asyncio.sleep(0)
            await identity.get_tenant(connection, "a")

    for number in range(24):
        with pytest.raises(Unavailable):
            await read_on_a_killed_one(number % 4)
        async with database.acquire() as connection, database.acquire() as another:
            assert await identity.get_tenant(connection, "a") is None
            assert await identity.get_tenant(another, "a") is None


async def test_a_value_that_does_not_fit_its_type_is_our_mistake_and_not_the_databases(database: Database) -> None:
    async def ask() -> None:
        async with database.acquire() as connection:
            await connection.fetchval("select $1::bigint", 2**63)

    with pytest.raises(asyncpg.DataError) as caught:
        await ask()
    assert trouble_of(caught.value) is Trouble.BUG


async def test_a_lock_that_cannot_be_had_is_unavailable(database: Database) -> None:
    async with database.transaction() as connection:
        await identity.flush_tenant(connection, tenant("a"))

    async def wait_for_the_lock() -> None:
        async with database.transaction() as waiting:
            await waiting.execute("set local lock_timeout = '1ms'")
            await identity.lock_tenants_shared(waiting, ["a"])

    async with database.transaction() as holder:
        await identity.lock_tenant(holder, "a")
        with pytest.raises(Unavailable):
            await wait_for_the_lock()
    await wait_for_the_lock()
