"""Pages and batch reads on a filled database: nothing is lost between pages, and no statement walks a whole table."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import pytest

from domain.capacity.state import GrantState, Mode, ReservationStatus, RunState
from domain.capacity.usage import UsageGroup
from domain.terms import DAY_MS, HOUR_MS
from storage.capacity.activity import (
    read_due_keys,
    read_grant_rows,
    read_members,
    read_reservation_rows,
    read_terms,
    read_used_ms,
)
from storage.capacity.pages import (
    GrantFilter,
    InstanceFilter,
    PlacedInstance,
    ReservationFilter,
    count_grants,
    count_instances,
    count_reservations,
    find_instance,
    page_grants,
    page_instances,
    page_reservations,
)
from storage.capacity.rows import PlacedGrant
from storage.capacity.usage import UsageFilter, page_usage, sum_usage
from storage.database import Connection, connect
from storage.paging import Page, Position
from tests.databases import Databases

B = 1_800_000_000_000
KEYS, TENANTS, GRANTS, HOURS = 40, 25, 20_000, 48
"""Grants, instances and segments come in equal numbers. Ten share a millisecond; the higher number is the older."""
PROJECT = f"prj_{0:026}"

_FILL = """
insert into tenant (tenant_id, name, is_root, created_at) select 'root', 'root', true, {b}
    union all select 'tenant-' || n, 'tenant', false, {b} from generate_series(0, {tenants} - 1) n;
insert into provider_account (account_id, tenant_id, name, provider, kind, created_at, deleted_at)
    select 'pacct_' || lpad(n::text, 26, '0'), 'root', 'account', 'gcp', 'push', {b}, case when n = 0 then {b} end
    from generate_series(0, 3) n;
insert into capacity_reservation
    select account_id || '/res-' || lpad(n::text, 4, '0'), account_id, 'res-' || lpad(n::text, 4, '0'), 'gcp',
        'flavor-' || n % 5, 'region', 100000, case when n % 10 = 9 then 'not_ready' else 'ready' end, 'pool-' || n % 3,
        0, {b}, 0, null, 0, {b} - n / 4, case when n = 7 then {b} end, 1, 0
    from (
        select n, 'pacct_' || lpad((n % 4)::text, 26, '0') as account_id from generate_series(0, {keys} - 1) n
    ) numbered;
create temp table numbered as
    select n, 'rgrant_' || lpad(n::text, 26, '0') as grant_id, 'inst_' || lpad(n::text, 26, '0') as instance_id,
        'tenant-' || n % {tenants} as tenant_id, {b} - (n / 10) * 1000 as created_at,
        n % 20 = 3 as is_live, n % 20 = 5 as is_cancelled, n % 20 = 7 as is_ahead,
        (select r.key from capacity_reservation r where r.reservation_id = 'res-' || lpad((n % {keys})::text, 4, '0'))
            as key
    from generate_series(0, {grants} - 1) n;
insert into capacity_grant (key, grant_id, tenant_id, project_id, slots, starts_at, ends_at, created_at, created_by,
        pool_id, region, provider, cancelled_at, started_applied, ended_applied, version)
    select key, grant_id, tenant_id, case when n % 3 = 0 then '{project}' end, 1 + n % 5,
        case when is_ahead then {b} + 3600000 when is_live then {b} - 3600000 else {b} - 90000000 end,
        case when is_ahead or is_live then {b} + 7200000 else {b} - 3600000 end,
        created_at, 'key', 'pool-' || n % 3, 'region', 'gcp', case when is_cancelled then {b} end,
        not is_ahead and not is_cancelled, not (is_ahead or is_live or is_cancelled), 1
    from numbered;
insert into capacity_instance
    select key, instance_id, tenant_id, '{project}', 'one', created_at,
        case when n % 20 in (3, 4) then 'running' when n % 20 = 9 then 'stopped' else 'deleted' end,
        'normal', case when is_live then grant_id end, true, 1
    from numbered;
insert into capacity_segment (key, instance_id, number, from_at, to_at, mode, grant_id, project_id)
    select key, instance_id, 0, {b} - 3600000, case when n % 20 not in (3, 4) then {b} - 1800000 end,
        case when is_live then 'grant' else 'reserved' end, case when is_live then grant_id end, '{project}'
    from numbered;
insert into usage_record (tenant_id, source_key, project_id, meter, hour_start, quantity_ms, grant_id, tags, written_at)
    select tenant_id, 'slot:' || grant_id || ':' || hour, '{project}', 'vm.grant.slot.hours', hour, 3600000, grant_id,
        '{{}}', {b}
    from numbered, generate_series({b} - {hours} * 3600000, {b} - 3600000, 3600000) hour
    where n < {grants} / 20;
analyze
"""
HOT = ("capacity_reservation", "capacity_grant", "capacity_instance", "capacity_segment", "usage_record")


async def fill(connection: Connection, *, grants: int = GRANTS) -> None:
    """Reservations, grants, instances, segments and usage in the given number."""
    values = {"b": B, "tenants": TENANTS, "keys": KEYS, "grants": grants, "project": PROJECT, "hours": HOURS}
    await connection.execute(_FILL.format(**values))


@pytest.fixture(scope="module")
async def connection(databases: Databases) -> AsyncIterator[Connection]:
    """Filled once for the module: nothing here writes."""
    address = await databases.create()
    opened = await connect(address)
    try:
        await fill(opened)
        yield opened
    finally:
        await opened.close()
        await databases.drop(address)


async def walk(read: Callable[[Position | None], Awaitable[Page[Any]]]) -> list[Any]:
    """Every item of a list, page by page."""
    items: list[Any] = []
    after: Position | None = None
    while True:
        page = await read(after)
        items += page.items
        if not page.has_more:
            return items
        after = page.positions[-1]


def number(thing_id: str) -> int:
    return int(thing_id.rpartition("_")[2])


# -- pages lose nothing ------------------------------------------------------------------------------------------------


async def test_pages_of_grants_show_each_once_newest_first_by_bytes_though_tens_share_a_millisecond(
    connection: Connection,
) -> None:
    chosen = GrantFilter(tenant_id="tenant-3")
    found = await walk(lambda after: page_grants(connection, chosen, at=B, first=37, after=after))
    names = [number(placed.grant.grant_id) for placed in found]
    assert sorted(names) == list(range(3, GRANTS, TENANTS))
    assert names == sorted(names, key=lambda n: (n // 10, -n))
    assert await count_grants(connection, chosen, at=B) == len(names)


async def test_pages_of_everybodys_grants_cross_tenants_without_a_gap(connection: Connection) -> None:
    read = 2_000
    first = await page_grants(connection, GrantFilter(), at=B, first=read, after=None)
    pieces: list[PlacedGrant] = []
    after: Position | None = None
    while len(pieces) < read:
        page = await page_grants(connection, GrantFilter(), at=B, first=7, after=after)
        pieces += page.items
        after = page.positions[-1]
    assert tuple(pieces[:read]) == first.items
    assert await count_grants(connection, GrantFilter(), at=B) == GRANTS


async def test_every_state_of_a_grant_is_found_by_the_instants_alone(connection: Connection) -> None:
    for state, remainders in (
        (GrantState.ACTIVE, {3}),
        (GrantState.CANCELLED, {5}),
        (GrantState.SCHEDULED, {7}),
        (GrantState.ENDED, set(range(20)) - {3, 5, 7}),
    ):
        chosen = GrantFilter(tenant_id="tenant-3", state=state)
        page = await page_grants(connection, chosen, at=B, first=1_000, after=None)
        expected = [n for n in range(3, GRANTS, TENANTS) if n % 20 in remainders]
        assert sorted(number(placed.grant.grant_id) for placed in page.items) == expected
        assert all(placed.grant.state_at(B) is state for placed in page.items)
    totals = [await count_grants(connection, GrantFilter(state=state), at=B) for state in GrantState]
    assert sum(totals) == GRANTS
    later = [await count_grants(connection, GrantFilter(state=state), at=B + HOUR_MS) for state in GrantState]
    active, scheduled = list(GrantState).index(GrantState.ACTIVE), list(GrantState).index(GrantState.SCHEDULED)
    assert (later[active], later[scheduled]) == (totals[active] + totals[scheduled], 0)


async def test_a_clock_that_stepped_back_takes_no_state_back(connection: Connection) -> None:
    """What is applied has passed (R3). What is not yet follows the clock, unless it was shown further on already."""
    expected = {state: await states_at(connection, state, at=B) for state in GrantState}
    for at in (B - HOUR_MS, B - 2 * HOUR_MS, B - DAY_MS, 0):
        assert {state: await states_at(connection, state, at=at) for state in GrantState} == expected
    key = await connection.fetchval("select key from capacity_reservation where reservation_id = 'res-0007'")
    further = {key: B + HOUR_MS, "nobody's": B + DAY_MS}
    begun = await states_at(connection, GrantState.ACTIVE, at=B - DAY_MS, ahead=further)
    waiting = await states_at(connection, GrantState.SCHEDULED, at=B - DAY_MS, ahead=further)
    here = {n for n in expected[GrantState.SCHEDULED] if n % KEYS == 7}
    assert here
    assert (begun, waiting) == (expected[GrantState.ACTIVE] | here, expected[GrantState.SCHEDULED] - here)


async def states_at(
    connection: Connection, state: GrantState, *, at: int, ahead: Mapping[str, int] | None = None
) -> set[int]:
    """The numbers of all grants that are found in a state."""
    chosen = GrantFilter(state=state)
    found = await walk(lambda after: page_grants(connection, chosen, at=at, ahead=ahead, first=1_000, after=after))
    assert len(found) == await count_grants(connection, chosen, at=at, ahead=ahead)
    assert {placed.clock_at for placed in found} <= {B}
    return {number(placed.grant.grant_id) for placed in found}


async def test_pages_of_instances_carry_their_open_stretch_and_the_flavor_of_their_head(
    connection: Connection,
) -> None:
    chosen = InstanceFilter(tenant_id="tenant-3", run_state=RunState.RUNNING)
    found: list[PlacedInstance] = await walk(lambda after: page_instances(connection, chosen, first=50, after=after))
    names = [number(one.instance.instance_id) for one in found]
    assert sorted(names) == [n for n in range(3, GRANTS, TENANTS) if n % 20 in (3, 4)]
    assert names == sorted(names, key=lambda n: (n // 10, -n))
    assert await count_instances(connection, chosen) == len(names)
    for one in found:
        n = number(one.instance.instance_id)
        assert one.flavor == f"flavor-{n % KEYS % 5}"
        assert one.instance.segment is not None
        assert one.instance.segment.mode is (Mode.GRANT if n % 20 == 3 else Mode.RESERVED)
        assert one.instance.segment.grant_id == one.instance.grant_id
        assert await find_instance(connection, one.key, one.instance.instance_id) == one
    deleted = InstanceFilter(tenant_id="tenant-3", run_state=RunState.DELETED)
    page = await page_instances(connection, deleted, first=50, after=None)
    assert all(one.instance.segment is None for one in page.items)


async def test_reservations_of_deleted_accounts_are_in_no_page(connection: Connection) -> None:
    found = await walk(lambda after: page_reservations(connection, ReservationFilter(), first=4, after=after))
    names = [int(head.reservation_id.removeprefix("res-")) for head in found]
    assert sorted(names) == [n for n in range(KEYS) if n % 4]
    assert [(-head.created_at, head.key) for head in found] == sorted(
        ((-head.created_at, head.key) for head in found), key=lambda place: (place[0], [-ord(c) for c in place[1]])
    )
    assert await count_reservations(connection, ReservationFilter()) == len(names)
    not_ready = ReservationFilter(status=ReservationStatus.NOT_READY, pool_id="pool-0", flavor="flavor-4")
    page = await page_reservations(connection, not_ready, first=50, after=None)
    assert {int(head.reservation_id.removeprefix("res-")) for head in page.items} == {9, 39}


async def test_pages_of_usage_show_each_record_once_the_newest_hour_first(connection: Connection) -> None:
    chosen = UsageFilter(tenant_id="tenant-3")
    found = await walk(lambda after: page_usage(connection, chosen, first=61, after=after))
    assert len(found) == len({record.source_key for record in found}) == GRANTS // 20 // TENANTS * HOURS
    assert [record.hour_start for record in found] == sorted((r.hour_start for r in found), reverse=True)


async def test_totals_are_integers_per_group_and_everybodys_add_up(connection: Connection) -> None:
    grants = GRANTS // 20
    every = await sum_usage(connection, UsageFilter(tenant_id=None), groups=[], limit=10)
    assert [(total.quantity_ms, total.records) for total in every] == [(grants * HOURS * HOUR_MS, grants * HOURS)]
    by_tenant = await sum_usage(connection, UsageFilter(tenant_id=None), groups=[UsageGroup.TENANT], limit=100)
    assert {total.quantity_ms for total in by_tenant} == {grants // TENANTS * HOURS * HOUR_MS}
    assert len(by_tenant) == TENANTS
    by_day = await sum_usage(
        connection, UsageFilter(tenant_id="tenant-1"), groups=[UsageGroup.DAY, UsageGroup.GRANT], limit=1_000
    )
    days = sorted({total.day_start or 0 for total in by_day}, reverse=True)
    assert days == [B - B % DAY_MS - day * DAY_MS for day in range(3)]
    assert sum(total.quantity_ms for total in by_day) == grants // TENANTS * HOURS * HOUR_MS
    assert len(await sum_usage(connection, UsageFilter(tenant_id=None), groups=[UsageGroup.GRANT], limit=7)) == 7


# -- batches -----------------------------------------------------------------------------------------------------------


async def test_batches_count_each_grant_for_itself_and_name_the_next_boundary(connection: Connection) -> None:
    page = await page_grants(connection, GrantFilter(), at=B, first=400, after=None)
    places = [(placed.key, placed.grant.grant_id) for placed in page.items]
    rows = await read_grant_rows(connection, places)
    used = await read_used_ms(connection, places, until=[B - HOUR_MS // 4] * len(places))
    closed = await read_used_ms(connection, places, until=[B] * len(places), only_closed=True)
    members = await read_members(connection, places, limit=5)
    assert set(rows) == set(used) == {grant_id for _, grant_id in places}
    for _, grant_id in places:
        n = number(grant_id)
        is_live = n % 20 == 3
        assert (rows[grant_id].held, rows[grant_id].running) == (int(is_live), int(is_live))
        assert rows[grant_id].next_boundary_at == (B if n % KEYS == 7 else None)
        assert used[grant_id].used_ms == (HOUR_MS * 3 // 4 if is_live else 0)
        assert closed[grant_id].used_ms == 0
        assert [number(one.instance.instance_id) for one in members.get(grant_id, [])] == ([n] if is_live else [])
    keys = {key for key, _ in places}
    assert {key[-4:] for key in await read_due_keys(connection, dict.fromkeys(keys, B))} == {"0007"}
    assert await read_due_keys(connection, dict.fromkeys(keys, B - 1)) == set()


async def test_reservations_are_counted_from_rows_as_their_own_books_count_them(connection: Connection) -> None:
    keys = [row["key"] for row in await connection.fetch("select key from capacity_reservation order by key limit 9")]
    found = await read_reservation_rows(connection, [*keys, "nobody's"])
    assert set(found) == set(keys)
    for key, row in found.items():
        mine = [n for n in range(GRANTS) if n % KEYS == int(row.head.reservation_id.removeprefix("res-"))]
        live = [n for n in mine if n % 20 == 3]
        assert row.head.key == key
        assert row.counts.running == sum(n % 20 in (3, 4) for n in mine)
        assert row.counts.outside_running == sum(n % 20 == 4 for n in mine)
        assert row.counts.live_slots == sum(1 + n % 5 for n in live)
        assert len(row.terms) == sum(n % 20 in (3, 7) for n in mine)


async def test_terms_over_a_stretch_include_what_is_over_and_leave_out_what_was_cancelled(
    connection: Connection,
) -> None:
    key = await connection.fetchval("select key from capacity_reservation where reservation_id = 'res-0005'")
    assert await read_terms(connection, key, starts_at=B - DAY_MS, ends_at=B) == []
    other = await connection.fetchval("select key from capacity_reservation where reservation_id = 'res-0006'")
    over = await read_terms(connection, other, starts_at=B - DAY_MS, ends_at=B)
    assert len(over) == GRANTS // KEYS
    assert await read_terms(connection, other, starts_at=B - HOUR_MS, ends_at=B) == []


# -- plans -------------------------------------------------------------------------------------------------------------


async def test_no_read_of_a_tenant_or_of_a_key_walks_a_whole_table(connection: Connection) -> None:
    seen: list[tuple[str, tuple[Any, ...]]] = []

    def remember(record: Any) -> None:
        seen.append((record.query, record.args))

    connection.add_query_logger(remember)
    await _read_everything(connection)
    connection.remove_query_logger(remember)
    assert len(seen) > 30
    for query, arguments in seen:
        plan = "\n".join(row[0] for row in await connection.fetch(f"explain (costs off) {query}", *arguments))
        walked = [table for table in HOT if f"Seq Scan on {table}" in plan]
        assert not walked or _is_small(walked), f"{query}\n{arguments}\n{plan}"


def _is_small(walked: list[str]) -> bool:
    """The heads of this database fit into a few blocks, which is what PostgreSQL then reads."""
    return walked == ["capacity_reservation"]


async def _read_everything(connection: Connection) -> None:
    """Every statement that answers a client, with the filters that clients combine."""
    after = Position(B - 100_000, f"rgrant_{0:026}")
    key = await connection.fetchval("select key from capacity_reservation where reservation_id = 'res-0003'")
    for grants in (
        GrantFilter(tenant_id="tenant-3"),
        GrantFilter(),
        GrantFilter(key=key),
        GrantFilter(tenant_id="tenant-3", key=key),
        GrantFilter(tenant_id="tenant-3", project_id=PROJECT, pool_id="pool-1"),
        GrantFilter(tenant_id="tenant-3", overlaps=(B, B + HOUR_MS)),
        *(GrantFilter(tenant_id="tenant-3", state=state) for state in GrantState),
    ):
        await page_grants(connection, grants, at=B, first=50, after=None)
        await page_grants(connection, grants, at=B, first=50, after=after)
        await page_grants(connection, grants, at=B, ahead={key: B + HOUR_MS}, first=50, after=after)
        if grants != GrantFilter():
            await count_grants(connection, grants, at=B)
    page = await page_grants(connection, GrantFilter(tenant_id="tenant-3"), at=B, first=50, after=None)
    places = [(placed.key, placed.grant.grant_id) for placed in page.items]
    for instances in (
        InstanceFilter(tenant_id="tenant-3"),
        InstanceFilter(),
        InstanceFilter(key=key),
        InstanceFilter(tenant_id="tenant-3", run_state=RunState.RUNNING),
        InstanceFilter(key=places[0][0], grant_id=places[0][1]),
    ):
        await page_instances(connection, instances, first=50, after=None)
        await page_instances(connection, instances, first=50, after=after)
        if instances != InstanceFilter():
            await count_instances(connection, instances)
    await find_instance(connection, key, f"inst_{3:026}")
    await page_reservations(connection, ReservationFilter(account_id=key.partition("/")[0]), first=50, after=None)
    await read_grant_rows(connection, places)
    await read_used_ms(connection, places, until=[B] * len(places))
    await read_members(connection, places, limit=50)
    await read_due_keys(connection, {key: B})
    await read_reservation_rows(connection, [key])
    await read_terms(connection, key, starts_at=B, ends_at=B + HOUR_MS)
    usage = UsageFilter(tenant_id="tenant-3", since=B - 9 * HOUR_MS, until=B)
    of_grant = UsageFilter(tenant_id="tenant-3", grant_id=f"rgrant_{3:026}")
    for used in (usage, of_grant):
        await page_usage(connection, used, first=50, after=None)
        await page_usage(connection, used, first=50, after=Position(B - HOUR_MS, "slot"))
        await sum_usage(connection, used, groups=[UsageGroup.HOUR], limit=1_000)
