"""Migrations: numbered SQL files, applied in order, once, by whichever node comes first.

A file that was applied never changes again: its checksum is kept and compared, so that a database and a checkout that
have parted ways are noticed at start and not at the first odd answer.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from storage.database import Connection, connect

FOLDER: Final = Path(__file__).parent / "migrations"

_LOCK: Final = 0x0EA2_3A2C
"""The advisory lock that lets one node migrate while the others wait."""

_CREATE: Final = """
create table if not exists schema_migration (
    name        text primary key,
    checksum    text not null,
    applied_at  timestamptz not null default clock_timestamp()
)
"""


class MigrationError(Exception):
    """The database holds migrations that this version of Earmark does not know, or knows otherwise."""


@dataclass(frozen=True, slots=True)
class Migration:
    name: str
    text: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def known() -> list[Migration]:
    """All migrations of this version, in order."""
    return [Migration(path.stem, path.read_text()) for path in sorted(FOLDER.glob("[0-9]*.sql"))]


async def migrate(url: str) -> list[str]:
    """Bring the database up to date; the names of the migrations applied now. Raises `MigrationError`."""
    connection = await connect(url)
    try:
        await connection.execute("set statement_timeout = 0; set lock_timeout = 0")
        await connection.execute("select pg_advisory_lock($1)", _LOCK)
        return await _apply_missing(connection)
    finally:
        await connection.close()


async def pending(connection: Connection) -> list[str]:
    """The names of the migrations that the database still lacks. Raises `MigrationError`."""
    return [migration.name for migration in _missing(await _applied(connection))]


async def _apply_missing(connection: Connection) -> list[str]:
    await connection.execute(_CREATE)
    names = []
    for migration in _missing(await _applied(connection)):
        async with connection.transaction():
            await connection.execute(migration.text)
            await connection.execute(
                "insert into schema_migration (name, checksum) values ($1, $2)", migration.name, migration.checksum
            )
        names.append(migration.name)
    return names


async def _applied(connection: Connection) -> dict[str, str]:
    if await connection.fetchval("select to_regclass('schema_migration')") is None:
        return {}
    rows = await connection.fetch("select name, checksum from schema_migration")
    return {row["name"]: row["checksum"] for row in rows}


def _missing(applied: dict[str, str]) -> list[Migration]:
    ours = {migration.name: migration for migration in known()}
    if strange := sorted(applied.keys() - ours.keys()):
        raise MigrationError(f"the database was migrated by a newer Earmark: it has {', '.join(strange)}")
    changed = [name for name, checksum in applied.items() if ours[name].checksum != checksum]
    if changed:
        raise MigrationError(f"applied migrations differ from this version's: {', '.join(sorted(changed))}")
    return [migration for name, migration in ours.items() if name not in applied]
