"""What lets the same tables be distributed by key one day: read off the real catalogue, and off every hot statement."""

from __future__ import annotations

import importlib
import itertools
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

import storage
from storage.database import Trouble, trouble_of

DISTRIBUTING = (Path(__file__).resolve().parents[2] / "docs" / "citus.sql").read_text()
"""What an operator runs on a cluster: which table lies where is said there, and here it is held against the catalogue."""
COLUMNS = dict(re.findall(r"create_distributed_table\('(\w+)', '(\w+)'", DISTRIBUTING))
"""Table to the column that it is distributed by."""
REFERENCES = frozenset(re.findall(r"create_reference_table\('(\w+)'\)", DISTRIBUTING))
LOCALS = frozenset(re.findall(r"citus_add_local_table_to_metadata\('(\w+)'\)", DISTRIBUTING))

HOT = {
    "capacity_reservation": "key",
    "capacity_grant": "key",
    "capacity_instance": "key",
    "capacity_segment": "key",
    "budget_tenant": "tenant_id",
    "budget": "tenant_id",
    "budget_reservation": "tenant_id",
    "budget_debit": "tenant_id",
    "budget_policy": "tenant_id",
    "budget_rate_window": "tenant_id",
}
"""Read and written by turns, and the key of each."""

HOT_MODULES = (
    "storage.capacity.books",
    "storage.capacity.settling",
    "storage.capacity.metering",
    "storage.budget.books",
    "storage.budget.settling",
)
"""Statements that run once a turn or once a page of the meter; lists and sweeps may look at every key."""

SWEEPS = {"_DUE", "_DUE_KEYS", "_OWNERS"}
"""Statements whose very question is which keys there are: what is due, and whose a bare id is."""

WRITERS = ("capacity_flush", "budget_flush")
PREMISES = ("capacity_lock", "budget_lock", "capacity_settle", "budget_settle")
"""What locks, and what checks a premise: the only functions of a turn that read a clock."""


@pytest.fixture
async def connection(database_url: str) -> asyncpg.Connection:
    made = await asyncpg.connect(database_url)
    yield made
    await made.close()


@pytest.fixture
async def bodies(connection: asyncpg.Connection) -> dict[str, str]:
    """Every function of ours, without its comments."""
    rows = await connection.fetch("select proname, prosrc from pg_proc where pronamespace = 'public'::regnamespace")
    found = {row["proname"]: re.sub(r"--[^\n]*", "", row["prosrc"]) for row in rows}
    assert {*WRITERS, *PREMISES} <= set(found)
    return found


# -- tables (rules 1 and 2) ---------------------------------------------------------------------------------------------


async def test_it_is_said_of_every_table_where_it_lies(connection: asyncpg.Connection) -> None:
    rows = await connection.fetch(
        "select relname from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace"
    )
    assert {row["relname"] for row in rows} == {*COLUMNS, *REFERENCES, *LOCALS}
    assert {table: COLUMNS[table] for table in HOT} == HOT


async def test_every_table_has_a_primary_key(connection: asyncpg.Connection) -> None:
    rows = await connection.fetch(
        """
        select relname from pg_class c where relkind = 'r' and relnamespace = 'public'::regnamespace
            and not exists (select 1 from pg_index i where i.indrelid = c.oid and i.indisprimary)
        """
    )
    assert rows == []


async def test_the_bare_key_comes_first_in_every_primary_key_and_is_in_every_unique_index(
    connection: asyncpg.Connection,
) -> None:
    rows = await connection.fetch(
        """
        select c.relname as table_name, i.indexrelid::regclass::text as index_name, i.indisprimary, i.indisexclusion,
            array(select attname::text from unnest(i.indkey) with ordinality k (attnum, place)
                join pg_attribute a on a.attrelid = c.oid and a.attnum = k.attnum order by k.place) as columns
        from pg_index i join pg_class c on c.oid = i.indrelid
        where (i.indisunique or i.indisexclusion) and c.relname = any ($1)
        """,
        list(COLUMNS),
    )
    assert {row["table_name"] for row in rows if row["indisprimary"]} == set(COLUMNS)
    without = [row["index_name"] for row in rows if COLUMNS[row["table_name"]] not in row["columns"]]
    later = [
        row["index_name"] for row in rows if row["indisprimary"] and row["columns"][0] != COLUMNS[row["table_name"]]
    ]
    assert (without, later) == ([], [])


async def test_a_key_is_text_everywhere(connection: asyncpg.Connection) -> None:
    rows = await connection.fetch(
        """
        select relname, attname, atttypid::regtype::text as type, attnotnull from pg_class c
        join pg_attribute a on a.attrelid = c.oid
        join unnest($1::text[], $2::text[]) d (t, k) on d.t = relname and d.k = attname
        where relkind = 'r'
        """,
        list(COLUMNS),
        list(COLUMNS.values()),
    )
    assert len(rows) == len(COLUMNS)
    assert [row["relname"] for row in rows if (row["type"], row["attnotnull"]) != ("text", True)] == []


async def test_a_foreign_key_carries_the_key_in_the_same_place_or_leads_to_a_table_that_is_everywhere(
    connection: asyncpg.Connection,
) -> None:
    rows = await connection.fetch(
        """
        select conname, conrelid::regclass::text as from_table, confrelid::regclass::text as to_table, confupdtype,
            confdeltype, array(select array[f.attname::text, t.attname::text]
                from unnest(conkey, confkey) k (from_number, to_number)
                join pg_attribute f on f.attrelid = conrelid and f.attnum = k.from_number
                join pg_attribute t on t.attrelid = confrelid and t.attnum = k.to_number) as pairs
        from pg_constraint where contype = 'f'
        """
    )
    assert len(rows) >= 10, "there are foreign keys to look at"
    wrong = []
    for row in rows:
        pair = [COLUMNS.get(row["from_table"]), COLUMNS.get(row["to_table"])]
        if row["to_table"] not in REFERENCES and (None in pair or pair not in row["pairs"]):
            wrong.append(row["conname"])
        if {row["confupdtype"], row["confdeltype"]} - {b"a", b"c"} or row["confupdtype"] != b"a":
            wrong.append(f"{row['conname']} acts by itself")
    assert wrong == []


async def test_there_is_no_trigger_no_sequence_no_identity_and_no_generated_id(connection: asyncpg.Connection) -> None:
    triggers = await connection.fetch("select tgname from pg_trigger where not tgisinternal")
    sequences = await connection.fetch("select relname from pg_class where relkind = 'S'")
    columns = await connection.fetch(
        """
        select a.attname from pg_attribute a join pg_class c on c.oid = a.attrelid
        left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
        where c.relnamespace = 'public'::regnamespace and c.relname <> all ($1) and (
            a.attidentity <> '' or pg_get_expr(d.adbin, d.adrelid) ~ '(nextval|random|uuid|now|clock|current)'
        )
        """,
        list(LOCALS),
    )
    assert (triggers, sequences, columns) == ([], [], [])


# -- functions (rules 2, 4, 5, 7, 8) --------------------------------------------------------------------------------------


def test_only_what_locks_and_what_checks_a_premise_reads_a_clock_in_a_function(bodies: dict[str, str]) -> None:
    clock = re.compile(r"clock_timestamp|\bnow\s*\(|current_timestamp|statement_timestamp|random\s*\(", re.IGNORECASE)
    reading = {name for name, body in bodies.items() if clock.search(body)}
    assert reading <= {*PREMISES, "webhook_lock"}, "what writes gets its instant as a parameter"


@pytest.mark.parametrize("name", WRITERS)
def test_a_flush_counts_what_it_wrote_and_raises_when_it_was_overtaken(bodies: dict[str, str], name: str) -> None:
    body = bodies[name]
    assert "row_count" in body
    assert "40001" in body


@pytest.mark.parametrize("name", WRITERS)
def test_an_answer_is_remembered_by_an_insert_that_fails_when_there_is_one(bodies: dict[str, str], name: str) -> None:
    inserts = [text for text in bodies[name].split(";") if re.search(r"insert into (budget_)?answer\b", text)]
    assert len(inserts) == 1
    assert "on conflict" not in inserts[0]


def test_no_count_is_taken_of_rows_that_an_insert_may_have_left_out(bodies: dict[str, str]) -> None:
    """Their number is not to be trusted on a distributed PostgreSQL."""
    for name, body in bodies.items():
        statements = body.split(";")
        for statement, following in itertools.pairwise(statements):
            if "do nothing" in statement and "returning" not in statement:
                assert "row_count" not in following, name


def test_parents_are_written_before_children(bodies: dict[str, str]) -> None:
    for name, order in (
        ("capacity_flush", ("capacity_reservation", "capacity_grant", "capacity_instance", "capacity_segment")),
        ("budget_flush", ("budget_tenant", "budget", "budget_funding")),
        ("budget_flush", ("budget_policy", "budget_rate_window")),
    ):
        places = [_first_write(bodies[name], table) for table in order]
        assert places == sorted(places), (name, order)


def _first_write(body: str, table: str) -> int:
    found = re.search(rf"(?:insert into|update)\s+{table}\b", body)
    assert found is not None, table
    return found.start()


def test_no_function_changes_a_key_or_sets_a_bare_element(bodies: dict[str, str]) -> None:
    for name, body in bodies.items():
        for statement in re.findall(r"\bset\b(.*?)(?:\bfrom\b|\bwhere\b|;|$)", body, re.DOTALL):
            assert not re.search(r"(?<![\w.])(key|tenant_id|owner|subscription_id)\s*=", statement), name
            assert not re.search(r"=\s*\w+(\[\w+\]|\s*->)\s*(,|$)", statement), name
        assert not re.search(r"\bmerge\s+into\b", body), name


@pytest.mark.parametrize("name", ["capacity_lock", "budget_lock", "capacity_settle", "budget_settle"])
def test_heads_are_locked_one_by_one_in_the_order_they_come_in(bodies: dict[str, str], name: str) -> None:
    """Locks over several shards in one statement are refused, and their order would be nobody's."""
    locking = [text for text in re.split(r";|\bloop\b", bodies[name]) if re.search(r"for (no key )?update", text)]
    assert locking
    assert [text for text in locking if "any (" in text] == []


def test_hot_functions_name_the_key_on_every_table_reference(bodies: dict[str, str]) -> None:
    found = {name: _unkeyed_references(bodies[name]) for name in (*WRITERS, *PREMISES)}
    assert {name: missing for name, missing in found.items() if missing} == {}


# -- statements (rules 3, 7, 8, 9) ----------------------------------------------------------------------------------------


def _statements() -> Iterator[tuple[str, str]]:
    for module_name in HOT_MODULES:
        module = importlib.import_module(module_name)
        for name, value in vars(module).items():
            if name.startswith("_") and name not in SWEEPS and isinstance(value, str) and len(value) > 20:
                yield f"{module_name}.{name}", value


def _unkeyed_references(text: str) -> list[str]:
    """Hot tables that a text reads or changes without the key being one, or any, of what is asked for, on that reference."""
    unkeyed = []
    reference = re.compile(rf"\b(?:from|join|update|,)\s+({'|'.join(HOT)})\b(?:\s+(?:as\s+)?(\w+))?", re.IGNORECASE)
    for match in reference.finditer(text):
        no_alias = {"where", "set", "on", "join", "order", "as"}
        alias = match[2] if match[2] and match[2].lower() not in no_alias else None
        name = rf"(?:{alias}|{match[1]})\." if alias else rf"(?:{match[1]}\.)?"
        asked = r"(?:any\s*\(\s*)?(?:\$\d|p_\w+|k\b)"
        if not re.search(rf"(?<![\w.]){name}{HOT[match[1]]}\s*=\s*{asked}", text):
            unkeyed.append(match[0])
    return unkeyed


def test_every_hot_statement_names_the_key_on_every_table_reference() -> None:
    statements = dict(_statements())
    touching = {name: text for name, text in statements.items() if any(table in text for table in HOT)}
    assert len(touching) >= 12, "the walk finds the statements"
    assert {name: missing for name, text in touching.items() if (missing := _unkeyed_references(text))} == {}


def test_the_walk_would_notice() -> None:
    assert _unkeyed_references("select * from capacity_grant where grant_id = $1") == ["from capacity_grant where"]
    assert _unkeyed_references("select * from capacity_grant g where g.key = any ($1) and g.grant_id = $2") == []
    assert _unkeyed_references("update capacity_grant g set slots = 1 from capacity_instance i where g.key = $1") != []


def _all_statements() -> Iterator[tuple[str, str]]:
    for module in pkgutil.walk_packages(storage.__path__, "storage."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, str) and re.search(r"\b(select|insert|update|delete|with)\b", value):
                yield f"{module.name}.{name}", value


def test_no_statement_takes_locks_over_several_keys() -> None:
    """A row that is everywhere may be shared by many; heads are locked by their functions alone."""
    locking = re.compile(rf"from ({'|'.join(HOT)})\b[^;]*\bany \([^;]*\bfor (no key )?(update|share)", re.IGNORECASE)
    assert [name for name, text in _all_statements() if locking.search(text)] == []


LATERAL = {
    *("capacity_lock", "budget_lock", "capacity_settle", "budget_settle", "event_relay", "event_append"),
    *("storage.budget.books._BUDGETS", "storage.budget.books._RESERVATIONS"),
}
"""Look-ups of pairs by primary key, whatever the statistics of a young table say. A distributed PostgreSQL wants them by
`any` instead (docs/citus.md): there shall be no more of them than these."""


def test_pairs_are_looked_up_one_by_one_in_few_places(bodies: dict[str, str]) -> None:
    hot = {name: text for name, text in _all_statements() if name.rpartition(".")[0] in HOT_MODULES}
    texts = bodies | hot
    assert {name for name, text in texts.items() if re.search(r"\blateral\s*\(", text)} <= LATERAL


def test_other_nodes_get_a_hint_from_the_relay_only_and_no_lock_is_advisory(bodies: dict[str, str]) -> None:
    assert {name for name, body in bodies.items() if "pg_notify" in body} == {"event_relay", "event_append"}
    statements = dict(_all_statements())
    assert len(statements) > 100, "the walk finds the statements"
    assert [name for name, text in statements.items() if re.search(r"\bnotify\b|pg_notify", text)] == []
    assert not any("advisory" in text for text in (*bodies.values(), *statements.values()))


# -- errors (rule 6) ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "message", "trouble"),
    [
        ("40001", "a reservation has moved on", Trouble.TRANSIENT),
        ("40P01", "deadlock detected", Trouble.TRANSIENT),
        ("57P01", "terminating connection", Trouble.TRANSIENT),
        ("08006", "connection failure", Trouble.TRANSIENT),
        ("23505", "duplicate key value violates unique constraint", Trouble.DUPLICATE),
        ("XX000", 'duplicate key value violates unique constraint "answer_pkey_102008"', Trouble.DUPLICATE),
        ("XX000", "something else", Trouble.BUG),
    ],
)
def test_errors_are_told_apart_by_their_state_and_remote_ones_by_their_words(
    state: str, message: str, trouble: Trouble
) -> None:
    error = asyncpg.PostgresError(message)
    error.sqlstate = state
    assert trouble_of(error) is trouble
