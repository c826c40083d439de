"""A database for one run, made on a given server and dropped afterwards whatever happens."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urlsplit

from storage.database import connect
from storage.migrate import migrate

PREFIX: Final = "earmark_replay_"


@asynccontextmanager
async def with_scratch_database(server_url: str) -> AsyncIterator[str]:
    """The address of a new, migrated database on the server that `server_url` leads to.

    The role needs the right to create databases. Nothing else on the server is touched.
    """
    name = PREFIX + secrets.token_hex(6)
    await _on_server(server_url, f"create database {name} template template0")
    url = urlsplit(server_url)._replace(path=f"/{name}").geturl()
    try:
        await migrate(url)
        yield url
    finally:
        await asyncio.shield(_on_server(server_url, f"drop database if exists {name} with (force)"))


async def _on_server(server_url: str, statement: str) -> None:
    connection = await connect(server_url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
