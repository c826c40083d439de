"""Reads of grants on a real database: who sees what, and pages that lose nothing (R60, R61)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from domain.authority import Permission
from domain.capacity.counts import GrantActivity, committed_ms
from domain.capacity.state import GrantState
from domain.outcomes import AccessDenied, InvalidInput, NotFound
from domain.paging import LIST_MAX, PAGE_MAX, encode_cursor
from domain.terms import INSTANT_MAX
from storage.database import Database
from storage.paging import Page
from tests.capacity_reading import (
    LARGE,
    MAIN_KEY,
    NOBODYS_GRANT,
    OF_B,
    ROOT_CALLER,
    SMALL,
    A,
    B,
    H,
    M,
    World,
    ids,
    member,
    reading_world,
    shown,
)
from tests.capacity_world import answer_of
from tests.simulation.world_plan import ACCOUNT_MAIN, ACCOUNT_SIDE, POOL_SIDE, ROOT, project_id


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    async with reading_world(database_url) as made:
        yield made


# -- one grant (R60) --------------------------------------------------------------------------------------------------


async def test_a_tenant_gets_its_own_grant_and_nobody_elses_exists_for_it(world: World) -> None:
    mine = await world.grant(2, B, B + H)
    id_ = mine.grant.grant_id
    assert await world.reads.grant(A, tenant_id="A", grant_id=id_) == mine
    assert isinstance(await world.reads.grant(OF_B, tenant_id="B", grant_id=id_), NotFound)
    assert isinstance(await world.reads.grant(A, tenant_id="A", grant_id=NOBODYS_GRANT), NotFound)


async def test_root_acting_in_the_root_tenant_gets_any_grant(world: World) -> None:
    mine = await world.grant(2, B, B + H)
    assert await world.reads.grant(ROOT_CALLER, tenant_id=ROOT, grant_id=mine.grant.grant_id) == mine


async def test_membership_and_permission_are_asked_before_the_grant_is_looked_for(world: World) -> None:
    mine = await world.grant(2, B, B + H)
    for grant_id in (mine.grant.grant_id, NOBODYS_GRANT):
        for caller, tenant_id in ((ROOT_CALLER, "A"), (OF_B, "A"), (member("A", Permission.INSTANCES_READ), "A")):
            assert isinstance(await world.reads.grant(caller, tenant_id=tenant_id, grant_id=grant_id), AccessDenied)


async def test_a_malformed_grant_id_is_invalid_before_anything_else(world: World) -> None:
    for grant_id in (f"{NOBODYS_GRANT}\n", "rgrant_", "", None, 7, f"inst_{0:026}"):
        refusal = await world.reads.grant(member("A"), tenant_id="A", grant_id=grant_id)
        assert isinstance(refusal, InvalidInput)
        assert refusal.field == "grantId"


async def test_the_state_of_a_grant_is_told_by_the_instant_of_the_read(world: World) -> None:
    grant_id = (await world.grant(2, B + H, B + 2 * H)).grant.grant_id
    seen = []
    for at in (B, B + H - 1, B + H, B + 2 * H - 1, B + 2 * H):
        world.clock.now = at
        seen.append(shown(await world.reads.grant(A, tenant_id="A", grant_id=grant_id)).state)
    scheduled, active, ended = GrantState.SCHEDULED, GrantState.ACTIVE, GrantState.ENDED
    assert seen == [scheduled, scheduled, active, active, ended]
    assert await world.reads.grants(A, tenant_id="A", state="ended") == await world.reads.grants(A, tenant_id="A")


# -- lists of grants (R61) --------------------------------------------------------------------------------------------


async def test_a_tenant_lists_its_own_grants_newest_first_over_ones_included(world: World) -> None:
    first = await world.grant(1, B + H, B + 2 * H)
    await world.grant(1, B, B + H, to="B")
    second = await world.grant(1, B, B + H)
    await world.end(first)
    await world.end(second)
    states = [view.state for view in shown(await world.reads.list_grants(A, tenant_id="A"))]
    assert states == [GrantState.ENDED, GrantState.CANCELLED]
    page = shown(await world.reads.grants(A, tenant_id="A"))
    assert ids(page) == [second.grant.grant_id, first.grant.grant_id]
    assert not page.has_more


async def test_all_is_for_root_in_the_root_tenant_and_nobody_else(world: World) -> None:
    of_a, of_b = await world.grant(1, B, B + H), await world.grant(1, B, B + H, to="B")
    own = await world.grant(1, B, B + H, to=ROOT)
    everything = [own.grant.grant_id, of_b.grant.grant_id, of_a.grant.grant_id]
    assert ids(shown(await world.reads.grants(ROOT_CALLER, tenant_id=ROOT, all_tenants=True))) == everything
    assert ids(shown(await world.reads.grants(ROOT_CALLER, tenant_id=ROOT))) == everything[:1]
    of_one = await world.reads.grants(ROOT_CALLER, tenant_id=ROOT, all_tenants=True, grant_tenant_id="B")
    assert ids(shown(of_one)) == [of_b.grant.grant_id]
    for caller, tenant_id in ((A, "A"), (ROOT_CALLER, "A"), (A, ROOT)):
        refused = await world.reads.grants(caller, tenant_id=tenant_id, all_tenants=True)
        assert isinstance(refused, AccessDenied)


async def test_filters_of_grants_choose_what_they_say(world: World) -> None:
    restricted = await world.grant(1, B, B + H, project_id=project_id("a"))
    later = await world.grant(1, B + 2 * H, B + 3 * H)
    elsewhere = await world.grant(1, B, B + 2 * H, account_id=ACCOUNT_SIDE, reservation_id=SMALL)
    cancelled = await world.end(await world.grant(1, B + 5 * H, B + 6 * H))

    async def chosen(**filters: Any) -> set[str]:
        page = shown(await world.reads.grants(A, tenant_id="A", **filters))
        assert await world.reads.count_grants(A, tenant_id="A", **filters) == len(page.items)
        return set(ids(page))

    name = {
        "restricted": restricted.grant.grant_id,
        "later": later.grant.grant_id,
        "elsewhere": elsewhere.grant.grant_id,
        "cancelled": cancelled.grant.grant_id,
    }
    assert await chosen() == set(name.values())
    assert await chosen(state="active") == {name["restricted"], name["elsewhere"]}
    assert await chosen(state="scheduled") == {name["later"]}
    assert await chosen(state="cancelled") == {name["cancelled"]}
    assert await chosen(state="ended") == set()
    assert await chosen(project_id=project_id("a")) == {name["restricted"]}
    assert await chosen(pool_id=POOL_SIDE) == {name["elsewhere"]}
    assert await chosen(pool_id=POOL_SIDE, state="scheduled") == set()
    # Half-open: what ends at the beginning of the stretch, or starts at its end, is not in it.
    assert await chosen(overlaps_from=B + H, overlaps_to=B + 2 * H) == {name["elsewhere"]}
    assert await chosen(overlaps_from=B + H - 1, overlaps_to=B + 2 * H) == {name["elsewhere"], name["restricted"]}
    assert await chosen(overlaps_from=B + H, overlaps_to=B + 2 * H + 1) == {name["elsewhere"], name["later"]}


async def test_only_root_may_ask_which_grants_a_reservation_carries(world: World) -> None:
    on_main = await world.grant(1, B, B + H)
    await world.grant(1, B, B + H, account_id=ACCOUNT_SIDE, reservation_id=SMALL)
    place = {"account_id": ACCOUNT_MAIN, "reservation_id": LARGE}
    assert isinstance(await world.reads.grants(A, tenant_id="A", **place), AccessDenied)
    page = shown(await world.reads.grants(ROOT_CALLER, tenant_id=ROOT, all_tenants=True, **place))
    assert ids(page) == [on_main.grant.grant_id]


MALFORMED: list[tuple[str, dict[str, Any]]] = [
    ("state", {"state": "over"}),
    ("state", {"state": 1}),
    ("poolId", {"pool_id": ""}),
    ("projectId", {"project_id": "prj_x"}),
    ("all", {"all_tenants": "yes"}),
    ("first", {"first": PAGE_MAX + 1}),
    ("first", {"first": -1}),
    ("first", {"first": True}),
    ("after", {"after": "???"}),
    ("after", {"after": encode_cursor(B, f"inst_{0:026}")}),
    ("after", {"after": encode_cursor(B, NOBODYS_GRANT) + "AAAA"}),
    ("after", {"after": "é"}),
    ("overlapsTo", {"overlaps_from": B}),
    ("overlapsTo", {"overlaps_from": B, "overlaps_to": B}),
    ("overlapsFrom", {"overlaps_to": INSTANT_MAX}),
    ("reservationId", {"account_id": ACCOUNT_MAIN}),
    ("grantTenantId", {"grant_tenant_id": "B"}),
]


async def test_a_malformed_question_about_grants_names_its_field(world: World) -> None:
    for field_name, filters in MALFORMED:
        refusal = await world.reads.grants(A, tenant_id="A", **filters)
        assert isinstance(refusal, InvalidInput), filters
        assert refusal.field == field_name, filters


async def test_paging_shows_every_grant_once_though_all_were_made_in_one_millisecond(world: World) -> None:
    made = {(await world.grant(1, B + n * H, B + (n + 1) * H)).grant.grant_id for n in range(7)}
    for first in (1, 2, 3, 7, 8):
        seen: list[str] = []
        after = None
        while True:
            page = shown(await world.reads.grants(A, tenant_id="A", first=first, after=after))
            seen += ids(page)
            if not page.has_more:
                break
            after = encode_cursor(page.positions[-1].created_at, page.positions[-1].id)
        assert seen == sorted(made, reverse=True)
    assert await world.reads.count_grants(A, tenant_id="A") == 7


async def test_the_plain_list_stops_at_a_thousand_and_pages_go_on(world: World) -> None:
    async with world.node.database.acquire() as connection:
        await connection.execute(
            """
            insert into capacity_grant (key, grant_id, tenant_id, slots, starts_at, ends_at, created_at, created_by,
                pool_id, region, provider, started_applied, ended_applied, version)
            select $1, 'rgrant_' || lpad(n::text, 26, '0'), 'A', 1, $2::bigint, $2 + 1, $2, 'key', 'pool', 'region',
                'gcp', true, true, 1
            from generate_series(1, $3) n
            """,
            MAIN_KEY,
            B - 9 * H,
            LIST_MAX + 5,
        )
    assert len(shown(await world.reads.list_grants(A, tenant_id="A"))) == LIST_MAX
    assert await world.reads.count_grants(A, tenant_id="A") == LIST_MAX + 5


# -- what hangs on grants ---------------------------------------------------------------------------------------------


async def test_the_activity_of_a_grant_counts_stopped_instances_as_held_and_idle(world: World) -> None:
    grant = await world.grant(4, B, B + H)
    running, stopped, deleted = await world.instance(), await world.instance(), await world.instance()
    await world.stop(stopped)
    await world.delete(deleted)
    activity = (await world.reads.load_grant_activity([grant]))[grant.grant.grant_id]
    assert activity == GrantActivity(held=2, running=1, idle=3)
    assert activity.stopped == 1
    assert (await world.main()).unused_granted == 3
    assert running.instance.grant_id == grant.grant.grant_id


async def test_used_time_ends_with_the_instant_and_committed_time_is_pro_rata(world: World) -> None:
    grant = await world.grant(2, B, B + 2 * H)
    one = await world.instance()
    world.clock.now = B + 15 * M
    await world.stop(one)
    world.clock.now = B + 30 * M
    await world.instance()
    world.clock.now = B + 40 * M
    now = shown(await world.reads.grant(A, tenant_id="A", grant_id=grant.grant.grant_id))
    assert await world.reads.load_used_ms([now]) == {now.grant.grant_id: 25 * M}
    assert committed_ms(now) == 2 * 40 * M
    world.clock.now = B + 9 * H
    over = shown(await world.reads.grant(A, tenant_id="A", grant_id=grant.grant.grant_id))
    assert await world.reads.load_used_ms([over]) == {now.grant.grant_id: 15 * M + 90 * M}
    assert committed_ms(over) == 2 * 2 * H


async def test_a_cancelled_grant_has_committed_nothing(world: World) -> None:
    cancelled = await world.end(await world.grant(2, B + H, B + 2 * H))
    world.clock.now = B + 3 * H
    later = shown(await world.reads.grant(A, tenant_id="A", grant_id=cancelled.grant.grant_id))
    assert committed_ms(later) == 0
    assert await world.reads.load_used_ms([later]) == {later.grant.grant_id: 0}


async def test_instances_of_many_grants_come_newest_first_and_limited(world: World) -> None:
    wide = await world.grant(5, B, B + 2 * H)
    restricted = await world.grant(1, B, B + H, project_id=project_id("a"))
    empty = await world.grant(1, B + 5 * H, B + 6 * H)
    inside = await world.instance("a")
    members = [await world.instance("b") for _ in range(3)]
    pages = await world.reads.load_instances_of_grants([wide, restricted, empty], first=2)
    assert [view.instance.instance_id for view in pages[wide.grant.grant_id].items] == [
        view.instance.instance_id for view in reversed(members[1:])
    ]
    assert pages[wide.grant.grant_id].has_more
    assert pages[restricted.grant.grant_id].items == (inside,)
    assert pages[empty.grant.grant_id] == Page()
    position = pages[wide.grant.grant_id].positions[-1]
    rest = shown(
        await world.reads.instances(
            A,
            tenant_id="A",
            grant_id=wide.grant.grant_id,
            after=encode_cursor(position.created_at, position.id),
        )
    )
    assert rest.items == (members[0],)


async def test_a_grant_whose_project_was_deleted_is_orphaned_while_it_lives(world: World) -> None:
    orphan = await world.grant(1, B, B + H, project_id=project_id("a"))
    fine = await world.grant(1, B, B + H, project_id=project_id("b"))
    wide = await world.grant(1, B, B + H)
    answer_of(await world.node.tenancy.delete_project(A, project_id=project_id("a")))
    assert await world.reads.load_orphaned([orphan, fine, wide]) == {orphan.grant.grant_id}
    world.clock.now = B + H
    over = shown(await world.reads.grant(A, tenant_id="A", grant_id=orphan.grant.grant_id))
    assert await world.reads.load_orphaned([over]) == set()


async def test_nothing_is_asked_about_no_grants(world: World) -> None:
    assert await world.reads.load_grant_activity([]) == {}
    assert await world.reads.load_used_ms([]) == {}
    assert await world.reads.load_instances_of_grants([], first=5) == {}
    assert await world.reads.load_orphaned([]) == set()
    assert await world.reads.load_reservation_views([]) == {}


async def test_a_thousand_grants_with_counts_and_usage_take_three_statements(world: World) -> None:
    await _many_grants(world, count=1_000)
    async with _statements(world.node.database) as statements:
        views = shown(await world.reads.list_grants(A, tenant_id="A"))
        activity = await world.reads.load_grant_activity(views)
        used = await world.reads.load_used_ms(views)
    about_tables = [text for text in statements if "capacity_" in text]
    assert len(about_tables) == 3, about_tables
    assert len(views) == 1_000
    assert sum(one.running for one in activity.values()) == 500
    assert sum(used.values()) == 500 * H


async def _many_grants(world: World, *, count: int) -> None:
    """Live grants of A that began an hour ago; in every second one an instance has been running since."""
    async with world.node.database.transaction() as connection:
        await connection.execute(
            """
            insert into capacity_grant (key, grant_id, tenant_id, slots, starts_at, ends_at, created_at, created_by,
                pool_id, region, provider, started_applied, ended_applied, version)
            select $1, 'rgrant_' || lpad(n::text, 26, '0'), 'A', 1, $2::bigint, $2 + 36000000, $2, 'key', 'pool',
                'region', 'gcp', true, false, 1
            from generate_series(1, $3) n
            """,
            MAIN_KEY,
            B - H,
            count,
        )
        await connection.execute(
            """
            insert into capacity_instance
            select $1, 'inst_' || lpad(n::text, 26, '0'), 'A', $4, 'one', $2, 'running', 'normal',
                'rgrant_' || lpad(n::text, 26, '0'), true, 1
            from generate_series(2, $3, 2) n
            """,
            MAIN_KEY,
            B - H,
            count,
            project_id("a"),
        )
        await connection.execute(
            """
            insert into capacity_segment (key, instance_id, number, from_at, mode, grant_id, project_id)
            select key, instance_id, 0, created_at, 'grant', grant_id, project_id from capacity_instance where key = $1
            """,
            MAIN_KEY,
        )


@asynccontextmanager
async def _statements(database: Database) -> AsyncIterator[list[str]]:
    """Every statement that pooled connections run meanwhile."""
    seen: list[str] = []
    held = [await database._pool.acquire() for _ in range(database._pool.get_max_size())]
    for connection in held:
        connection.add_query_logger(lambda record: seen.append(record.query))
    for connection in held:
        await database._pool.release(connection)
    yield seen
