"""The PostgreSQL that is measured: embedded, in a folder of its own, durable as in production."""

from __future__ import annotations

import itertools
import urllib.parse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import asyncpg

from storage.embedded import EmbeddedPostgres
from storage.migrate import migrate
from tests.templates import address_of

TEMPLATE: Final = "bench_template"
MUST_BE_ON: Final = ("fsync", "synchronous_commit", "full_page_writes")


class Place:
    """A running server, and clean databases in it."""

    def __init__(self, server: EmbeddedPostgres) -> None:
        assert server.pid is not None, "it runs"
        self.postmaster_pid: Final = server.pid
        self.version = ""
        self._dsn = server.dsn
        self._numbers = itertools.count(1)

    async def open(self) -> None:
        """Make the template. Refuses a server that is not durable: its figures would say nothing."""
        await self._execute(f"create database {TEMPLATE}")
        await migrate(address_of(self._dsn, database=TEMPLATE))
        connection = await asyncpg.connect(self._dsn)
        try:
            self.version = await connection.fetchval("show server_version")
            for setting in MUST_BE_ON:
                value = await connection.fetchval("select current_setting($1)", setting)
                assert value == "on", f"{setting} is {value}: only durable figures count"
        finally:
            await connection.close()

    @asynccontextmanager
    async def database(self) -> AsyncIterator[str]:
        """The address of a migrated database, dropped at the end."""
        name = f"bench_{next(self._numbers)}"
        await self._execute(f"create database {name} template {TEMPLATE} strategy file_copy")
        try:
            yield urllib.parse.urlsplit(self._dsn)._replace(path=f"/{name}").geturl()
        finally:
            await self._execute(f"drop database {name} with (force)")

    async def _execute(self, statement: str) -> None:
        connection = await asyncpg.connect(self._dsn)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()
