"""Copies of a database that tests take and give back.

Making a database is hundreds of files; emptying one is a moment. So a copy that comes back is made like its template
again and serves the next test. Where that cannot be done for certain, it is dropped: when its shape was changed, when it
has grown, or when the role may not (`session_replication_role` takes a superuser).
"""

from __future__ import annotations

import io
import itertools
import urllib.parse
from typing import Final, TypeAlias

import asyncpg

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

GROWN_BYTES: Final = 2_000_000
"""Dead rows stay where they were: beyond this a new database is cheaper, and no test feels the others' size."""

TABLES: Final = "select oid::regclass::text from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace"

SHAPE: Final = """
select md5(string_agg(found, ' ' order by found)) from (
    select concat('class ', oid, xmin) from pg_class where oid >= 16384 and relpersistence <> 't'
    union all select concat('column ', attrelid, ' ', attnum, xmin) from pg_attribute where attrelid >= 16384
    union all select concat('default ', oid, xmin) from pg_attrdef
    union all select concat('constraint ', oid, xmin) from pg_constraint where oid >= 16384
    union all select concat('index ', indexrelid, xmin) from pg_index where indexrelid >= 16384
    union all select concat('trigger ', oid, xmin) from pg_trigger where oid >= 16384
    union all select concat('function ', oid, xmin) from pg_proc where oid >= 16384
    union all select concat('schema ', oid, xmin) from pg_namespace where nspname not like 'pg\\_%'
    union all select concat('settings ', setconfig) from pg_db_role_setting, pg_database
        where setdatabase = pg_database.oid and datname = current_database()
) as everything (found)
"""
"""The same as long as nothing was created, altered or dropped: whoever writes a catalog's row puts a number in `xmin`."""

EMPTY: Final = """
do $$
declare full_table regclass;
begin
    for full_table in
        select oid from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace
    loop
        execute format('delete from %s', full_table);
    end loop;
end
$$
"""

SIZE: Final = "select sum(pg_relation_size(oid)) from pg_class where relkind in ('r', 'i') and oid >= 16384"


class Template:
    """Of one database, which nobody may change from now on. `administrator` is connected to another one."""

    def __init__(self, administrator: Connection, address: str, *, shape: str, rows: dict[str, bytes]) -> None:
        self._administrator = administrator
        self._address = address
        self._shape = shape
        self._rows = rows
        self._numbers = itertools.count(1)
        self._free: list[str] = []

    @classmethod
    async def of(cls, administrator: Connection, address: str) -> Template:
        connection = await asyncpg.connect(address)
        try:
            shape: str = await connection.fetchval(SHAPE)
            rows = {table: await _rows_of(connection, table) for (table,) in await connection.fetch(TABLES)}
        finally:
            await connection.close()
        return cls(administrator, address, shape=shape, rows={table: some for table, some in rows.items() if some})

    async def take(self) -> str:
        """The address of a copy."""
        if self._free:
            return self._free.pop()
        name = f"{name_of(self._address)}_{next(self._numbers)}"
        await create(self._administrator, name, template=name_of(self._address))
        return address_of(self._address, database=name)

    async def give_back(self, address: str) -> None:
        """Whoever is still connected."""
        everybody = "select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = $1"
        await self._administrator.execute(everybody, name_of(address))
        if await self._restored(address):
            self._free.append(address)
        else:
            await drop(self._administrator, address)

    async def _restored(self, address: str) -> bool:
        try:
            connection = await asyncpg.connect(address)
        except asyncpg.PostgresError:
            return False
        try:
            return await connection.fetchval(SHAPE) == self._shape and await self._refill(connection)
        except asyncpg.InsufficientPrivilegeError:
            return False
        finally:
            await connection.close()

    async def _refill(self, connection: Connection) -> bool:
        """False when it has grown too much to be worth it."""
        await connection.execute("select pg_stat_reset(); set session_replication_role = replica")
        await connection.execute(EMPTY)
        for table, rows in self._rows.items():
            await connection.copy_to_table(table, source=io.BytesIO(rows), format="binary")
        size: int = await connection.fetchval(SIZE)
        return size < GROWN_BYTES


async def _rows_of(connection: Connection, table: str) -> bytes:
    """As COPY writes them; nothing for an empty table."""
    if not await connection.fetchval(f"select exists (select 1 from {table})"):
        return b""
    written = io.BytesIO()
    await connection.copy_from_table(table, output=written, format="binary")
    return written.getvalue()


async def create(administrator: Connection, name: str, *, template: str) -> None:
    await administrator.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")


async def drop(administrator: Connection, address: str) -> None:
    """Whoever is still connected."""
    await administrator.execute(f"DROP DATABASE IF EXISTS {name_of(address)} WITH (FORCE)")


def name_of(address: str) -> str:
    """Of the database at this address."""
    return urllib.parse.urlsplit(address).path.removeprefix("/")


def address_of(dsn: str, *, database: str) -> str:
    """The same server, another database."""
    return urllib.parse.urlsplit(dsn)._replace(path=f"/{database}").geturl()
