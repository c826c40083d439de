"""Reads of event streams on a real database (R62, D47)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from domain.authority import Permission
from domain.capacity.boundaries import TYPES
from domain.events import MIRROR, decode_cursor
from domain.events import encode_cursor as event_cursor
from domain.outcomes import AccessDenied, InvalidInput
from domain.paging import encode_cursor
from tests.capacity_reading import NOBODYS_GRANT, OF_B, ROOT_CALLER, A, B, H, World, member, reading_world, shown
from tests.simulation.world_plan import ROOT
from workers.events import SubscriptionClosed


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    async with reading_world(database_url) as made:
        yield made


async def test_a_tenant_reads_its_stream_in_order_and_resumes_by_cursor(world: World) -> None:
    grant = await world.grant(1, B, B + H)
    await world.grant(1, B, B + H, to="B")
    await world.end(grant)
    await world.relayed()
    page = shown(await world.reads.events(A, tenant_id="A", first=2))
    assert [event.type for event in page.items] == ["reservation-grant.created", "reservation-grant.active"]
    assert page.has_more
    rest = shown(await world.reads.events(A, tenant_id="A", after=page.end_cursor))
    assert [event.type for event in rest.items] == ["reservation-grant.ended"]
    assert not rest.has_more
    assert rest.end_cursor == await world.reads.events_cursor(A, tenant_id="A")
    nothing = shown(await world.reads.events(A, tenant_id="A", after=rest.end_cursor))
    assert (nothing.items, nothing.has_more, nothing.end_cursor) == ((), False, rest.end_cursor)


async def test_root_reads_the_mirror_and_filters_it(world: World) -> None:
    mine, other = await world.grant(1, B, B + H), await world.grant(1, B, B + H, to="B")
    await world.relayed()

    async def of_grants(**given: Any) -> list[Any]:
        page = shown(await world.reads.events(ROOT_CALLER, tenant_id=ROOT, all_tenants=True, **given))
        return [event.payload["grantId"] for event in page.items]

    a, b = mine.grant.grant_id, other.grant.grant_id
    assert sorted(await of_grants()) == sorted([a, a, b, b])
    assert await of_grants(of_tenant_id="B") == [b, b]
    assert await of_grants(grant_id=a) == [a, a]
    assert await of_grants(grant_id=a, types=["reservation-grant.active"]) == [a]
    assert await of_grants(grant_id=a, of_tenant_id="B") == []
    assert await of_grants(types=[]) == []
    assert shown(await world.reads.events(ROOT_CALLER, tenant_id=ROOT)).items == ()
    end = await world.reads.events_cursor(ROOT_CALLER, tenant_id=ROOT, all_tenants=True)
    assert decode_cursor(MIRROR, shown(end)) == 4


async def test_events_of_others_and_foreign_cursors_are_refused(world: World) -> None:
    await world.grant(1, B, B + H)
    await world.relayed()
    assert isinstance(await world.reads.events(A, tenant_id="A", all_tenants=True), AccessDenied)
    assert isinstance(await world.reads.events(ROOT_CALLER, tenant_id="A"), AccessDenied)
    assert isinstance(await world.reads.events(member("A"), tenant_id="A"), AccessDenied)
    of_b = shown(await world.reads.events_cursor(OF_B, tenant_id="B"))
    for cursor in (of_b, "?", "", 5, encode_cursor(B, NOBODYS_GRANT)):
        refusal = await world.reads.events(A, tenant_id="A", after=cursor)
        assert isinstance(refusal, InvalidInput)
        assert (refusal.field, refusal.reason) == ("after", "bad-cursor")
    needs_all = await world.reads.events(A, tenant_id="A", of_tenant_id="B")
    assert isinstance(needs_all, InvalidInput)
    assert needs_all.field == "ofTenantId"


async def test_a_cursor_behind_the_oldest_event_that_is_kept_is_refused_and_none_begins_there(world: World) -> None:
    await world.grant(1, B, B + H)
    await world.grant(1, B, B + H)
    await world.relayed()
    start = shown(await world.reads.events(A, tenant_id="A", first=0)).end_cursor
    async with world.node.database.transaction() as connection:
        await connection.execute("delete from event where tenant_id = 'A' and seq <= 2")
        await connection.execute("update event_stream set first_seq = 3 where tenant_id = 'A'")
    refusal = await world.reads.events(A, tenant_id="A", after=start)
    assert isinstance(refusal, InvalidInput)
    assert refusal.reason == "cursor-expired"
    assert [event.seq for event in shown(await world.reads.events(A, tenant_id="A")).items] == [3, 4]


async def test_the_filter_of_a_page_accepts_exactly_what_the_page_shows(world: World) -> None:
    mine, _ = await world.grant(1, B, B + H), await world.grant(1, B, B + H, to="B")
    await world.relayed()
    every = shown(await world.reads.events(ROOT_CALLER, tenant_id=ROOT, all_tenants=True)).items
    choices: list[dict[str, Any]] = [
        {},
        {"types": ["reservation-grant.active"]},
        {"grant_id": mine.grant.grant_id},
        {"of_tenant_id": "B"},
    ]
    for given in choices:
        chosen = shown(world.reads.event_filter(ROOT_CALLER, tenant_id=ROOT, all_tenants=True, **given))
        page = shown(await world.reads.events(ROOT_CALLER, tenant_id=ROOT, all_tenants=True, **given))
        assert tuple(filter(chosen.accepts, every)) == page.items


async def test_events_of_other_contexts_need_a_permission_of_their_own(world: World) -> None:
    """Budget events lie in the same stream: who may read grants does not read money by it."""
    await world.grant(1, B, B + H)
    await world.relayed()
    async with world.node.database.transaction() as connection:
        await connection.execute(
            "insert into event (tenant_id, seq, event_id, subject, type, occurred_at, recorded_at, payload) "
            "values ('A', 3, 'evt_budget', 'A', 'budget.exhausted', 0, 0, '{}')"
        )
        await connection.execute("update event_stream set last_seq = 3 where tenant_id = 'A'")
    confined = member("A", Permission.QUOTAS_READ)
    both = member("A", Permission.QUOTAS_READ, Permission.EVENTS_READ)
    seen = shown(await world.reads.events(confined, tenant_id="A"))
    assert [event.type for event in seen.items] == ["reservation-grant.created", "reservation-grant.active"]
    known = (*TYPES, "budget.exhausted")
    asked_for = shown(await world.reads.events(confined, tenant_id="A", types=["budget.exhausted"], known=known))
    assert asked_for.items == ()
    everything = shown(await world.reads.events(both, tenant_id="A"))
    assert [event.type for event in everything.items][-1] == "budget.exhausted"


async def test_a_cursor_ahead_of_the_stream_is_nobodys(world: World) -> None:
    await world.grant(1, B, B + H)
    await world.relayed()
    last = shown(await world.reads.events(A, tenant_id="A")).end_cursor
    assert shown(await world.reads.events(A, tenant_id="A", after=last)).items == ()
    for seq in (3, 10**6):
        ahead = await world.reads.events(A, tenant_id="A", after=event_cursor("A", seq))
        assert isinstance(ahead, InvalidInput)
        assert (ahead.field, ahead.reason) == ("after", "cursor-ahead")
        stream = world.node.hub.subscribe("A", key_id="key", after=seq)
        with pytest.raises(SubscriptionClosed) as closed:
            await anext(stream)
        assert (closed.value.code, closed.value.cursor) == ("CURSOR_AHEAD", last)
