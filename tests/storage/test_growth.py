"""What lets the same tables be distributed by key one day: read off the real catalogue, and off every hot statement."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator

import asyncpg
import pytest

HOT_TABLES = (
    "capacity_reservation",
    "capacity_grant",
    "capacity_instance",
    "capacity_segment",
)
"""Written by turns. The outbox, the locator, streams, answers and usage are keyed by what they are looked up by."""

HOT_MODULES = ("storage.capacity.books", "storage.capacity.settling", "storage.capacity.metering")
"""Statements that run once a turn or once a page of the meter; lists and sweeps may look at every key."""

_SWEEPS = {"_DUE", "_DUE_KEYS"}
"""Statements whose very question is which keys have something to do."""


@pytest.fixture
async def connection(database_url: str) -> asyncpg.Connection:
    made = await asyncpg.connect(database_url)
    yield made
    await made.close()


async def test_the_key_comes_first_in_every_primary_key_and_unique_index(connection: asyncpg.Connection) -> None:
    rows = await connection.fetch(
        """
        select c.relname as table_name, i.indexrelid::regclass::text as index_name,
            (select attname from pg_attribute where attrelid = c.oid and attnum = i.indkey[0]) as first_column
        from pg_index i join pg_class c on c.oid = i.indrelid
        where i.indisunique and c.relname = any ($1)
        """,
        list(HOT_TABLES),
    )
    assert {row["table_name"] for row in rows} == set(HOT_TABLES), "every hot table has a primary key"
    assert [row["index_name"] for row in rows if row["first_column"] != "key"] == []


async def test_every_foreign_key_of_a_hot_table_carries_the_key_in_the_same_place(
    connection: asyncpg.Connection,
) -> None:
    rows = await connection.fetch(
        """
        select conname,
            (select attname from pg_attribute where attrelid = conrelid and attnum = conkey[1]) as from_column,
            (select attname from pg_attribute where attrelid = confrelid and attnum = confkey[1]) as to_column
        from pg_constraint where contype = 'f' and conrelid = any ($1::regclass[])
        """,
        list(HOT_TABLES),
    )
    assert rows, "there are foreign keys to look at"
    assert [row["conname"] for row in rows if (row["from_column"], row["to_column"]) != ("key", "key")] == []


async def test_there_is_no_trigger_no_sequence_and_no_identity(connection: asyncpg.Connection) -> None:
    triggers = await connection.fetch("select tgname from pg_trigger where not tgisinternal")
    sequences = await connection.fetch("select relname from pg_class where relkind = 'S'")
    assert (triggers, sequences) == ([], [])


async def test_only_what_locks_and_what_checks_a_premise_reads_a_clock_in_a_function(
    connection: asyncpg.Connection,
) -> None:
    rows = await connection.fetch(
        """
        select proname from pg_proc p join pg_namespace n on n.oid = p.pronamespace
        where n.nspname = 'public' and prosrc ~* '(clock_timestamp|now\\s*\\(|current_timestamp|statement_timestamp)'
        """
    )
    assert all(row["proname"].endswith(("_lock", "_settle")) for row in rows)


def _statements() -> Iterator[tuple[str, str]]:
    for module_name in HOT_MODULES:
        module = importlib.import_module(module_name)
        for name, value in vars(module).items():
            if name.startswith("_") and name not in _SWEEPS and isinstance(value, str) and len(value) > 20:
                yield f"{module_name}.{name}", value


def _unkeyed_references(text: str) -> list[str]:
    """Hot tables that a statement reads or changes without `key = $n` or `key = any ($n)` on that very reference."""
    unkeyed = []
    reference = re.compile(
        rf"\b(?:from|join|update|,)\s+({'|'.join(HOT_TABLES)})(?:\s+(?:as\s+)?(\w+))?", re.IGNORECASE
    )
    for match in reference.finditer(text):
        alias = match[2] if match[2] and match[2].lower() not in {"where", "set", "on", "join", "order", "as"} else None
        name = rf"(?:{alias}|{match[1]})\." if alias else rf"(?:{match[1]}\.)?"
        if not re.search(rf"(?<![\w.]){name}key\s*=\s*(?:any\s*\(\s*)?\$\d", text):
            unkeyed.append(match[0])
    return unkeyed


def test_every_hot_statement_names_the_key_on_every_table_reference() -> None:
    statements = dict(_statements())
    touching = {name: text for name, text in statements.items() if any(table in text for table in HOT_TABLES)}
    assert len(touching) >= 5, "the walk finds the statements"
    assert {name: missing for name, text in touching.items() if (missing := _unkeyed_references(text))} == {}


def test_the_walk_would_notice() -> None:
    assert _unkeyed_references("select * from capacity_grant where grant_id = $1") == ["from capacity_grant where"]
    assert _unkeyed_references("select * from capacity_grant g where g.key = any ($1) and g.grant_id = $2") == []
    assert _unkeyed_references("update capacity_grant g set slots = 1 from capacity_instance i where g.key = $1") != []
