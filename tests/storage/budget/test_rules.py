"""What keeps the tables fast and ready to be spread over machines, and an audit that finds what it is for."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from domain.budget.queries import ReservationQuery, ReservationSort
from storage.budget import answers, books, due
from storage.budget.audit import RULES, find_breaches
from storage.budget.pages import RESERVATIONS, page_reservations
from storage.database import Connection, connect
from tests.budget_world import ACME, AWO, CHILD, PARENT, START, BudgetWorld, accepted, budget_world

KEY = ("tenant_id", "key")


@pytest.fixture
async def connection(database_url: str) -> AsyncIterator[Connection]:
    opened = await connect(database_url)
    yield opened
    await opened.close()


# -- the rules of growth -----------------------------------------------------------------------------------------------

KEYS = """
select c.conrelid::regclass::text as place, c.contype::text as kind, c.conname as name, (
    select array_agg(a.attname::text order by array_position(c.conkey, a.attnum)) from pg_attribute a
    where a.attrelid = c.conrelid and a.attnum = any (c.conkey)
) as columns
from pg_constraint c join pg_class t on t.oid = c.conrelid
where t.relname like 'budget%' and t.relkind = 'r' and c.contype in ('p', 'u', 'f')
"""


async def test_every_key_of_every_table_begins_with_the_tenant(connection: Connection) -> None:
    rows = await connection.fetch(KEYS)
    assert {row["place"] for row in rows if row["kind"] == "p"} == {
        "budget",
        *(
            f"budget_{name}"
            for name in (
                "answer",
                "audit",
                "burn",
                "debit",
                "evidence",
                "evidence_of",
                "funding",
                "outbox",
                "policy",
                "rate_window",
                "reservation",
                "tenant",
            )
        ),
    }
    assert [row["name"] for row in rows if row["columns"][0] not in KEY] == []


async def test_no_table_has_a_trigger_a_sequence_or_a_default(connection: Connection) -> None:
    """Numbers, ids and instants come from the application; a generated column is arithmetic over its own row."""
    triggers = """
select count(*) from pg_trigger g join pg_class t on t.oid = g.tgrelid
where t.relname like 'budget%' and not g.tgisinternal
"""
    assert await connection.fetchval(triggers) == 0
    columns = """
select a.attname from pg_attribute a join pg_class t on t.oid = a.attrelid
where t.relname like 'budget%' and t.relkind = 'r' and a.attnum > 0
    and (a.attidentity <> '' or (a.atthasdef and a.attgenerated = ''))
"""
    assert await connection.fetch(columns) == []


def statements(module: Any) -> dict[str, str]:
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, str) and re.match(r"\s*(with|select|insert|update|delete)\b", value)
    }


def test_every_hot_statement_names_the_tenant_at_each_table() -> None:
    """Retention, the job's look at the heads and the rare question whose a reservation is are not hot."""
    cold = {"_OWNERS", "_FORGET", "_DUE", "_NEXT"}
    hot = {
        name: sql for module in (books, answers, due) for name, sql in statements(module).items() if name not in cold
    }
    assert len(hot) >= 8
    for name, sql in hot.items():
        tables = re.findall(r"\b(?:from|join) (budget\w*)(?: (\w+))?", sql)
        tables = [(table, alias) for table, alias in tables if not table.startswith(("budget_lock", "budget_flush"))]
        keyed = re.findall(r"(?:(\w+)\.)?tenant_id = (?:any \(\$1\)|\$1)", sql)
        assert len(keyed) >= len(tables), (name, sql)


async def test_the_flush_tells_no_time_and_rolls_no_dice(connection: Connection) -> None:
    source = await connection.fetchval("select prosrc from pg_proc where proname = 'budget_flush'")
    assert not re.search(r"now\(|clock_timestamp|random|nextval|gen_random_uuid|current_timestamp", source)
    for table in ("budget_tenant", "budget", "budget_reservation", "budget_policy", "budget_rate_window"):
        assert f"insert into {table} " in source
    assert source.count("= any (p_tenants)") >= 7


MANY = """
with rows as (select n, lpad(n::text, 26, '0') as name from generate_series(1, 3000) n), more as (
    insert into budget (
        tenant_id, scope_path, unit, budget_id, allocated, reserved, spent, debt, overdraft_limit, capped, status,
        rollover_policy, created_at
    )
    select $1, 'tenant:' || lower($1) || '/agent:' || name, 'TOKENS', 'bud_' || name, 9, 0, 0, 0, 0, false, 'ACTIVE', 'NONE',
        0
    from rows
)
insert into budget_reservation (
    tenant_id, reservation_id, idempotency_key, subject, action, unit, estimate, scope_path, budgeted_scopes,
    overage_policy, created_at, expires_at, ttl_ms, grace_ms, max_extensions, extensions_used, status, debts
)
select $1, 'rsv_' || name, name, '{}', '{}', 'TOKENS', 1, 'tenant:' || $1, array['tenant:' || $1], 'REJECT', 0, 9, 9, 0, 0, 0,
    'ACTIVE', '{}'
from rows
"""
NAME = f"{7:026}"
BALANCES = [
    {
        "scope_path": f"tenant:{ACME.lower()}/agent:{NAME}",
        "unit": "TOKENS",
        "budget_id": f"bud_{NAME}",
        "tenant_id": ACME,
    }
    | {"allocated": 9, "reserved": 1, "spent": 0, "debt": 0, "capped": False, "updated_at": 1}
]
HOLD = [
    {"tenant_id": ACME, "reservation_id": f"rsv_{NAME}", "expires_at": 10, "extensions_used": 0, "status": "ACTIVE"}
    | {"debts": []}
]
FLUSHED = {
    what: f"""
    select budget_flush(
        $1, array[$1], null, (select json_agg(json_build_object(
            'tenant_id', tenant_id, 'clock_at', clock_at, 'version', version + 1, 'outbox_seq', outbox_seq
        )) from budget_tenant where tenant_id = $1), null, {places}, null, null, null, null, null, null, null, null, null
    )
    """
    for what, places in {"balances": "$2, null, null", "holds": "null, null, $2"}.items()
}
READ = """
select sum(pg_stat_get_xact_tuples_returned(i.indexrelid)) + pg_stat_get_xact_tuples_returned($1::regclass)
from pg_index i where i.indrelid = $1::regclass
"""


# -- the layout of the hot rows ----------------------------------------------------------------------------------------


async def test_holding_and_settling_rewrites_no_index_of_the_balances(database_url: str) -> None:
    """The head and the budgets are updated in place (HOT): a page has room, and no indexed column changes."""
    async with budget_world(database_url) as world:
        await world.budget(PARENT)
        await world.budget(CHILD)
        holds = [await world.hold(1) for _ in range(20)]
        for hold in holds:
            accepted(await world.commit(hold, 1))
        async with world.connection.transaction():
            await world.connection.execute(
                "update budget set reserved = reserved + 1, updated_at = updated_at + 1 where tenant_id = $1", ACME
            )
            await world.connection.execute(
                "update budget_tenant set version = version + 1, clock_at = clock_at + 1 where tenant_id = $1", ACME
            )
            rows = await world.connection.fetch(
                "select relname, n_tup_upd, n_tup_hot_upd from pg_stat_xact_user_tables where n_tup_upd > 0"
            )
        assert {row["relname"]: row["n_tup_upd"] - row["n_tup_hot_upd"] for row in rows} == {
            "budget": 0,
            "budget_tenant": 0,
        }


async def test_a_hold_touches_its_own_budgets_however_many_a_young_table_has(database_url: str) -> None:
    """Plans are made when the tables were almost empty, and nobody has looked at them since."""
    async with budget_world(database_url) as world:
        await world.budget(PARENT)
        await world.budget(CHILD)
        accepted(await world.commit(await world.hold(1), 1))
        await world.connection.execute(MANY, ACME)
        for statement, row in (("budget", BALANCES), ("budget_reservation", HOLD)):
            async with world.connection.transaction():
                asked = "balances" if statement == "budget" else "holds"
                await world.connection.execute(FLUSHED[asked], ACME, row)
                read = await world.connection.fetchval(READ, statement)
            assert 1 <= read < 20, (statement, read)


async def test_a_page_of_the_newest_reservations_begins_where_the_last_one_ended(database_url: str) -> None:
    """However many there are: the index gives the order, nothing is sorted or skipped."""
    async with budget_world(database_url) as world:
        await world.budget(PARENT, 10**9)
        for _ in range(300):
            world.clock.advance(1)
            await world.hold(1)
        await world.connection.execute("analyze budget_reservation")
        first = await page_reservations(
            world.connection, ACME, ReservationQuery(), now=START, scope_filter=(), after=None, limit=20
        )
        newest = [(ReservationSort.CREATED_AT, True, goes_on) for goes_on in (False, True)]
        texts = [RESERVATIONS._statements[order] for order in newest]
        for sql, place in zip(texts, ((), first.places[-1]), strict=True):
            arguments = (ACME, START, *[None] * 11, 21, *place)
            plan = await world.connection.fetch(f"explain {sql}", *arguments)
            told = "\n".join(row[0] for row in plan)
            assert "budget_reservation_newest" in told, told
            if place:
                assert "created_at <= " in told.partition("Filter")[0], told


# -- the audit ---------------------------------------------------------------------------------------------------------

BROKEN: dict[str, str] = {
    "I1 what remains follows from the rest": """
alter table budget alter column remaining drop expression;
update budget set remaining = remaining + 1
""",
    "I2 reserved is the sum of the active holds": "update budget set reserved = reserved + 1",
    "I3 no amount is negative": "alter table budget drop constraint budget_amounts; update budget set allocated = -1",
    "I4 a reservation has one end, and its answer tells it": """
update budget_reservation set status = 'RELEASED', charged = null where status = 'COMMITTED'
""",
    "I5 a debit is charged once under its key": """
insert into budget_debit select (json_populate_record(d, '{"debit_id": "dbt_twice"}')).* from budget_debit d
""",
    "I6 what is held has a budget in its unit": "update budget_reservation set unit = 'CREDITS'",
    "I7 spent and debt are what was charged, on every budget alike": "update budget set spent = spent + 1",
    "each funding begins where the last one ended": "update budget set allocated = allocated + 1",
    "I8 only a live reserve makes a reservation": """
delete from budget_answer where operation = 'budget.reserve' and idempotency_key = 'k2'
""",
    "nothing of a closed tenant is open": "update budget_tenant set status = 'CLOSED', closed_at = 1",
    "no hold is over before the tenant is looked at": "update budget_tenant set next_expiry_at = next_expiry_at + 1",
    "events are numbered without a gap": "delete from event where seq = 2",
}


async def lively(world: BudgetWorld) -> None:
    """Something of everything that the audit looks at."""
    await world.budget(PARENT, 1_000, 500)
    await world.budget(CHILD, 500)
    accepted(await world.reserve(10, idempotency_key="k1"))
    accepted(await world.reserve(10, idempotency_key="k2"))
    accepted(await world.commit(await world.hold(10, overage_policy=AWO), 8))
    accepted(await world.release(await world.hold(10)))
    accepted(await world.debit(5))
    accepted(await world.fund("CREDIT", 10))
    accepted(await world.fund("REPAY_DEBT", 10))
    await world.events()


@pytest.mark.parametrize("rule", list(RULES))
async def test_the_audit_finds_what_breaks_each_rule(database_url: str, rule: str) -> None:
    async with budget_world(database_url) as world:
        await lively(world)
        assert await find_breaches(world.connection, [ACME]) == []
        await world.connection.execute(BROKEN[rule])
        found = {breach.rule for breach in await find_breaches(world.connection, [ACME])}
        assert rule in found, found


def test_every_rule_of_the_audit_is_broken_once() -> None:
    assert set(BROKEN) == set(RULES)
