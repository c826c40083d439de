"""`make plans`: every list and look-up of the schema on tables of a million rows, by the plans that PostgreSQL really ran.

Each query field is asked over GraphQL as root and as a tenant, once as it is and once with each of its filters;
`auto_explain` writes down the plan of every statement below. None may walk a large table, by a sequential scan (but for
FULL) or by an index whose rows are thrown away (but for WALKS). `EARMARK_TEST_ROWS` asks for fewer rows.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest
from graphql import GraphQLNonNull

from domain.authority import EVERYTHING, Principal
from domain.terms import DAY_MS
from storage.database import Connection, connect
from storage.embedded import EmbeddedPostgres
from tests.conftest import HOME_VARIABLE
from tests.databases import WITHOUT_DURABILITY
from tests.schema.test_authority import GRAPH, Root, argument, selection
from tests.schema.world import World, world_on
from tests.storage.capacity.test_pages import B, fill
from workers.request import Caller

ROWS: Final = int(os.environ.get("EARMARK_TEST_ROWS", "1000000"))
LARGE: Final = max(1_000, ROWS // 100)
"""Rows of a table that may not be walked."""
EXAMINED_MAX: Final = max(500, ROWS // 100)
"""Rows that one node of a plan may look at: a page is 200 at most, a tenant has a twenty-fifth of everything."""
TENANT: Final = "tenant-0"

_BUDGETS: Final = """
insert into budget_tenant (tenant_id, status, expiry_policy, denies_on_any_debt, clock_at, version, outbox_seq)
    select tenant_id, 'ACTIVE', 'AUTO_RELEASE', false, {b}, 1, 0 from tenant where tenant_id like 'tenant-%'
    on conflict do nothing;
create temp table counted as select n, 'tenant-' || n % 25 as tenant_id, lpad(n::text, 26, '0') as number
    from generate_series(0, {rows} - 1) n;
insert into budget (tenant_id, scope_path, unit, budget_id, allocated, reserved, spent, debt, overdraft_limit, capped,
        status, rollover_policy, created_at)
    select tenant_id, 'tenant:' || tenant_id || '/agent:a' || number, 'TOKENS', 'bud_' || number, 1000, 0, n % 1000, 0, 0,
        n % 1000 = 7, case when n % 1000 = 9 then 'FROZEN' else 'ACTIVE' end, 'NONE', {b} - n from counted;
insert into budget_reservation (tenant_id, reservation_id, idempotency_key, subject, action, unit, estimate, scope_path,
        budgeted_scopes, overage_policy, created_at, expires_at, ttl_ms, grace_ms, max_extensions, extensions_used, status,
        debts, charged, finalized_at)
    select tenant_id, 'rsv_' || number, 'key-' || number, json_build_object('tenant', tenant_id, 'agent', 'a' || number),
        '{{"kind": "k", "name": "n"}}', 'TOKENS', 10, 'tenant:' || tenant_id || '/agent:a' || number,
        array['tenant:' || tenant_id || '/agent:a' || number], 'REJECT', {b} - n, {b} - n + 60000, 60000, 5000, 10, 0,
        case when n % 1000 = 3 then 'ACTIVE' else 'COMMITTED' end, '{{}}', case when n % 1000 = 3 then null else 5 end,
        case when n % 1000 = 3 then null else {b} - n + 10 end
    from counted;
insert into budget_audit (tenant_id, entry_id, recorded_at, operation, resource_type, resource_id, actor_type, key_id,
        request_id, trace_id, status, error_code)
    select tenant_id, 'aud_' || number, {b} - n, 'fundBudget', 'budget', 'bud_' || number, 'admin', 'key_x',
        'req_' || number, 'trace_' || number, case when n % 1000 = 1 then 409 else 200 end,
        case when n % 1000 = 1 then 'CONFLICT' end from counted;
insert into event (tenant_id, seq, event_id, subject, type, occurred_at, recorded_at, payload, request_id, trace_id)
    select s.stream, 1 + case when s.stream = '*' then n else n / 25 end, 'evt_' || number, tenant_id,
        case when n % 1000 = 2 then 'budget.exhausted' else 'reservation-grant.ended' end, {b} - {rows} + n,
        {b} - {rows} + n, jsonb_build_object('grantId', 'rgrant_' || number, 'scope', 'tenant:' || tenant_id,
        'correlation_id', 'cor_' || number, 'slots', 1, 'startsAt', {b}, 'endsAt', {b} + 1000, 'poolId', 'pool'),
        'req_' || number, 'trace_' || number
    from counted, lateral (values (tenant_id), ('*')) s (stream);
insert into event_stream (tenant_id, last_seq) select tenant_id, max(seq) from event group by 1
    on conflict (tenant_id) do update set last_seq = excluded.last_seq;
drop table counted;
"""


def _server() -> EmbeddedPostgres:
    return EmbeddedPostgres(Path(os.environ[HOME_VARIABLE]), settings=WITHOUT_DURABILITY)


@dataclass(frozen=True)
class Finding:
    asked: str
    what: str
    statement: str


async def furnish(connection: Connection) -> None:
    await fill(connection, grants=ROWS)
    await connection.execute(_BUDGETS.format(b=B, rows=ROWS))
    await connection.execute("vacuum analyze")


async def explain_from_now_on(connection: Connection) -> None:
    name = await connection.fetchval("select current_database()")
    settings = {
        "session_preload_libraries": "auto_explain",
        "auto_explain.log_min_duration": "0",
        "auto_explain.log_format": "json",
        "auto_explain.log_analyze": "on",
        "auto_explain.log_timing": "off",
        "auto_explain.log_nested_statements": "on",
    }
    await connection.execute("load 'auto_explain'")
    for setting, value in settings.items():
        await connection.execute(f"alter database {name} set {setting} = '{value}'")


class Plans:
    """What PostgreSQL has written into its log since it was last looked at."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._at = log.stat().st_size

    def news(self) -> Iterator[dict[str, Any]]:
        with self._log.open("rb") as file:
            file.seek(self._at)
            text = file.read().decode(errors="replace")
            self._at = file.tell()
        decoder = json.JSONDecoder(strict=False)
        for begin in re.finditer(r"plan:\n", text):
            yield decoder.raw_decode(text, text.index("{", begin.end()))[0]


def scans(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "Relation Name" in plan:
        yield plan
    for below in plan.get("Plans", ()):
        yield from scans(below)


def amiss(scan: dict[str, Any], sizes: dict[str, int]) -> str | None:
    table, loops = scan["Relation Name"], scan.get("Actual Loops", 1)
    examined = loops * (scan.get("Actual Rows", 0) + scan.get("Rows Removed by Filter", 0))
    if table.startswith("pg_"):
        return None
    if scan["Node Type"] == "Seq Scan" and sizes.get(table, 0) > LARGE:
        return f"walks {table}"
    if examined > EXAMINED_MAX:
        return f"looks at {examined:.0f} rows of {table} by {scan.get('Index Name', scan['Node Type'])}"
    return None


VALUES: Final[dict[str, Any]] = {
    "tenantId": TENANT, "ofTenantId": TENANT, "grantTenantId": TENANT, "ownerTenantId": TENANT,
    "projectId": f"prj_{0:026}", "grantId": f"rgrant_{25:026}", "poolId": "pool-1", "accountId": f"pacct_{1:026}",
    "scope": f"tenant:{TENANT}/agent:a{25:026}", "scopePrefix": f"tenant:{TENANT}/agent:a{25:024}", "unit": "TOKENS",
    "reservation": f"pacct_{1:026}/res-0001", "idempotencyKey": f"key-{25:026}", "requestId": f"req_{25:026}",
    "traceId": f"trace_{25:026}", "correlationId": f"cor_{25:026}", "keyId": "key_x", "resourceId": f"bud_{25:026}",
    "subject": {"agent": f"a{25:026}"}, "overlaps": {"startsAt": B - 1_000, "endsAt": B}, "first": 50,
    "types": ["budget.exhausted"], "category": "budget", "flavor": "flavor-1",
    "project.id": f"prj_{0:026}", "apiKey.id": f"key_{0:026}", "providerAccount.id": f"pacct_{1:026}",
    "webhook.id": f"whsub_{0:026}", "webhookId": f"whsub_{0:026}", "pool.id": "pool", "policy.id": f"pol_{0:026}",
    "grant.id": f"rgrant_{25:026}", "instance.id": f"inst_{25:026}", "budgetReservation.id": f"rsv_{25:026}",
    "capacityReservation.id": f"pacct_{1:026}/res-0001", "meters": ["vm.grant.slot.hours"],
    "from": B - DAY_MS, "to": B, "until": B, "createdFrom": B - 1_000, "createdTo": B, "expiresFrom": B,
    "expiresTo": B + 1_000, "finalizedFrom": B - 1_000, "finalizedTo": B, "recordedFrom": B - 1_000, "recordedTo": B,
    "operations": ["fundBudget"], "resourceTypes": ["budget"], "errorCodes": ["CONFLICT"], "statusFrom": 400,
    "statusTo": 499, "isOverLimit": True, "hasDebt": True, "search": "zzz",
}  # fmt: skip

_LIVE: Final = "counts what is live on the reservations that are shown, by their index"
_SUM: Final = "adds up the hours that were asked for, by their index"
_OWN: Final = "looks through what the tenant has, by its index, until the page is full"
_ALL: Final = "looks through everybody's in the order of the list until the page is full"
_TEXT: Final = "text anywhere in a column: everything that the other filters leave is looked at"
WALKS: Final[dict[str, str]] = {
    **dict.fromkeys([f"root capacityReservations({name})" for name in ("", "accountId", "poolId", "status", "flavor")], _LIVE),
    **dict.fromkeys([f"root grants({name})" for name in ("", "state", "poolId", "projectId", "grantTenantId")], _LIVE),
    **dict.fromkeys([f"root instances({name})" for name in ("", "projectId", "runState", "ownerTenantId")], _LIVE),
    **dict.fromkeys(["root grants(reservation)", "root grants(overlaps)", "root instances(reservation)"], _ALL),
    **dict.fromkeys([f"root events({name})" for name in ("ofTenantId", "types", "category", "scope")], _ALL),
    **dict.fromkeys([f"root auditLog({name})" for name in ("errorCodes", "statusFrom", "statusTo")], _ALL),
    **dict.fromkeys([f"root budgets(utilization{end}Millionths)" for end in ("From", "To")], _ALL),
    "root budgets(status)": _ALL,
    "root budgets(hasDebt)": "an index on what changes with every charge would cost more than this list",
    "root budgets(sortBy)": "sorted by what changes with every request: everything is looked at and sorted",
    **dict.fromkeys([f"root {name}(search)" for name in ("events", "budgets", "auditLog")], _TEXT),
    **dict.fromkeys([f"tenant {name}(search)" for name in ("events", "budgets")], _TEXT),
    **{f"{who} usage({name})": _SUM for who in ("root", "tenant") for name in
       ("", "ofTenantId", "meters", "from", "to", "projectId", "grantId")},
    **dict.fromkeys(["tenant grants(overlaps)", "tenant instances(runState)"], _OWN),
    **dict.fromkeys([f"tenant events({name})" for name in ("types", "category", "scope")], _OWN),
    **dict.fromkeys([f"tenant budgets({name})" for name in ("hasDebt", "sortBy", "isOverLimit")], _OWN),
    **dict.fromkeys([f"tenant budgets(utilization{end}Millionths)" for end in ("From", "To")], _OWN),
    **{f"tenant budgetReservations({name})": _OWN for name in
       ("status", "subject", "expiresFrom", "expiresTo", "finalizedFrom", "finalizedTo")},
}  # fmt: skip
"""`who field(filter)` to why it looks at more rows than a page has; whatever is not here does not."""
FULL: Final = frozenset(
    {"root budgets(search)", "root budgets(hasDebt)", "root budgets(sortBy)", "root auditLog(search)"}
)
"""Those that walk a whole table. Operators ask for them, rarely, and the statement's time is bounded."""


def questions(everybody: bool) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(name, operation, variables): each query as it is, and with each filter by itself."""
    assert GRAPH.query_type is not None
    for field, definition in GRAPH.query_type.fields.items():
        if "input" in definition.args:
            continue
        arguments = definition.args
        base = {name for name, item in arguments.items() if isinstance(item.type, GraphQLNonNull) and _is_bare(item)}
        base |= {"all"} & set(arguments) if everybody else set()
        base |= {"ofTenantId"} if everybody and field == "usage" else set()
        filters = [name for name in arguments if name not in base | {"all", "first", "after", "tenantId"}]
        for chosen in (None, *filters):
            names = sorted(base | ({chosen} if chosen else set()))
            yield f"{field}({chosen or ''})", *_operation(field, names)


def _is_bare(item: Any) -> bool:
    return item.ast_node is None or item.ast_node.default_value is None


def _operation(field: str, names: list[str]) -> tuple[str, dict[str, Any]]:
    definition = Root("query", field).definition
    values = {name: argument(name, definition.args[name].type, VALUES, field) for name in names}
    values |= {"all": True} if "all" in names else {}
    declared = ", ".join(f"${name}: {definition.args[name].type}" for name in names)
    passed = ", ".join(f"{name}: ${name}" for name in names)
    call = f"{field}({passed})" if names else field
    head = f"query ({declared})" if names else "query"
    shown = selection(definition.type).replace(
        "totalCount", ""
    )  # it counts whatever is counted: see docs/operations.md
    return f"{head} {{ {call} {shown} }}", values


@pytest.mark.timeout(3_600)
async def test_no_question_walks_a_large_table(postgres: str, make_database: Any, capsys: Any) -> None:
    url = await make_database()
    connection = await connect(url)
    await connection.execute("set statement_timeout = 0")
    await furnish(connection)
    await explain_from_now_on(connection)
    rows = await connection.fetch("select relname, reltuples::bigint as count from pg_class where relkind = 'r'")
    sizes = {row["relname"]: row["count"] for row in rows}
    plans, findings, asked = Plans(_server().log), [], 0
    async with world_on(url) as world:
        for caller in (world.root, tenant(world)):
            for name, text, values in questions(everybody=caller is world.root):
                list(plans.news())
                result = await world.ask(text, caller, **values)
                asked += 1
                who = "root" if caller is world.root else "tenant"
                if result.errors and result.errors[0].extensions.get("code") not in ("ACCESS_DENIED", "NOT_FOUND"):
                    findings.append(Finding(f"{who} {name}", str(result.errors[0].extensions), text))
                for plan in plans.news():
                    told = {what for scan in scans(plan["Plan"]) if (what := amiss(scan, sizes))}
                    findings += [Finding(f"{who} {name}", what, plan["Query Text"]) for what in sorted(told)]
    await connection.close()
    with capsys.disabled():
        print(f"\n{asked} questions over {ROWS} rows of each kind")
        for finding in findings:
            print(f"  {finding.asked}: {finding.what}\n      {' '.join(finding.statement.split())[:300]}")
    assert {finding.asked for finding in findings} - WALKS.keys() == set()
    assert {finding.asked for finding in findings if finding.what.startswith("walks")} <= FULL


def tenant(world: World) -> Caller:
    everything = frozenset({EVERYTHING})
    principal = Principal(key_id="key_plans", tenant_id=TENANT, is_root=False, permissions=everything)
    return replace(world.root, principal=principal)
