"""Reads of metered usage on a real database, written by the meter itself (R38..R47)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from domain.authority import Permission
from domain.capacity.metering import GRANT_SLOT_HOURS, GRANT_USAGE_HOURS, RESERVED_INSTANCE_HOURS
from domain.capacity.views import GrantView
from domain.outcomes import AccessDenied, InvalidInput
from domain.paging import encode_cursor
from tests.capacity_reading import OF_B, ROOT_CALLER, A, B, H, M, World, member, reading_world, shown
from tests.simulation.world_plan import ROOT, project_id
from workers.request import Caller


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    async with reading_world(database_url) as made:
        yield made


async def test_records_and_totals_of_the_worked_example(world: World) -> None:
    grant = await world.grant(4, B + 40 * M, B + 130 * M)
    world.clock.now = B + 3 * H
    await world.node.meter.run_once()
    page = shown(await world.reads.usage_records(A, tenant_id="A"))
    assert [(record.hour_start, record.hours) for record in page.items] == [
        (B + 2 * H, "0.666667"),
        (B + H, "4.000000"),
        (B, "1.333333"),
    ]
    assert {record.meter for record in page.items} == {GRANT_SLOT_HOURS}
    total = shown(await world.reads.usage_totals(A, tenant_id="A"))
    assert [(one.meter, one.hours, one.records, one.hour_start) for one in total] == [
        (GRANT_SLOT_HOURS, "6.000000", 3, None)
    ]
    of_grant = shown(await world.reads.usage_totals(A, tenant_id="A", grant_id=grant.grant.grant_id, group_by=["hour"]))
    assert [(one.hour_start, one.quantity_ms) for one in of_grant] == [
        (B + 2 * H, 40 * M),
        (B + H, 4 * H),
        (B, 80 * M),
    ]


async def test_pages_of_records_lose_none_of_one_hour(world: World) -> None:
    await _metered(world)
    everything = shown(await world.reads.usage_records(A, tenant_id="A")).items
    seen: list[Any] = []
    after = None
    while True:
        page = shown(await world.reads.usage_records(A, tenant_id="A", first=2, after=after))
        seen += page.items
        if not page.has_more:
            break
        after = encode_cursor(page.positions[-1].created_at, page.positions[-1].id)
    assert tuple(seen) == everything
    assert len({record.source_key for record in seen}) == len(seen) == 6


async def test_filters_and_groups_of_usage_choose_what_they_say(world: World) -> None:
    grant = await _metered(world)

    async def quantities(caller: Caller = A, tenant_id: str = "A", **given: Any) -> dict[Any, int]:
        totals = shown(await world.reads.usage_totals(caller, tenant_id=tenant_id, **given))
        return {
            (one.meter, *filter(None, (one.tenant_id, one.project_id, one.grant_id, one.day_start))): one.quantity_ms
            for one in totals
        }

    slot, used, reserved = GRANT_SLOT_HOURS, GRANT_USAGE_HOURS, RESERVED_INSTANCE_HOURS
    assert await quantities() == {(slot,): 4 * H, (used,): 2 * H, (reserved,): 2 * H}
    assert await quantities(meters=[used]) == {(used,): 2 * H}
    assert await quantities(since=B + H, until=B + 2 * H) == {(slot,): 2 * H, (used,): H, (reserved,): H}
    assert await quantities(grant_id=grant.grant.grant_id, meters=[slot], group_by=["grant"]) == {
        (slot, grant.grant.grant_id): 4 * H
    }
    assert (slot, B - B % (24 * H)) in await quantities(group_by=["day"])
    assert await quantities(meters=[used], group_by=["project"]) == {(used, project_id("a")): 2 * H}
    everybody = await quantities(ROOT_CALLER, ROOT, all_tenants=True, group_by=["tenant"])
    assert everybody == {(slot, "A"): 4 * H, (used, "A"): 2 * H, (reserved, "A"): 2 * H, (reserved, "B"): 2 * H}
    assert await quantities(ROOT_CALLER, ROOT, of_tenant_id="B") == {(reserved,): 2 * H}
    assert await quantities(OF_B, "B") == {(reserved,): 2 * H}


async def test_usage_of_others_is_for_root_in_the_root_tenant(world: World) -> None:
    await _metered(world)
    others = shown(await world.reads.usage_records(ROOT_CALLER, tenant_id=ROOT, of_tenant_id="B"))
    assert {record.tenant_id for record in others.items} == {"B"}
    for caller, tenant_id in ((A, "A"), (ROOT_CALLER, "A"), (A, "B")):
        assert isinstance(await world.reads.usage_records(caller, tenant_id=tenant_id, of_tenant_id="B"), AccessDenied)
        for scope in ({"all_tenants": True}, {"of_tenant_id": "B"}):
            assert isinstance(await world.reads.usage_totals(caller, tenant_id=tenant_id, **scope), AccessDenied)
    poor = member("A", Permission.INSTANCES_READ)
    assert isinstance(await world.reads.usage_records(poor, tenant_id="A"), AccessDenied)


MALFORMED: list[tuple[str, dict[str, Any]]] = [
    ("meters", {"meters": "vm"}),
    ("meters", {"meters": ["x"] * 33}),
    ("groupBy", {"group_by": ["week"]}),
    ("to", {"since": B, "until": B}),
    ("from", {"since": "today"}),
    ("grantId", {"grant_id": "x"}),
]


async def test_a_malformed_question_about_usage_names_its_field(world: World) -> None:
    for field_name, given in MALFORMED:
        refusal = await world.reads.usage_totals(A, tenant_id="A", **given)
        assert isinstance(refusal, InvalidInput), given
        assert refusal.field == field_name, given


async def _metered(world: World) -> GrantView:
    """Two metered hours: A has a grant of two slots with one instance in it and one outside, B an instance outside."""
    outside = await world.attach("b")
    await world.stop(outside)
    grant = await world.grant(2, B, B + 5 * H, project_id=project_id("a"))
    await world.instance("a")
    await world.attach("b")
    await world.attach("c", of="B")
    world.clock.now = B + 2 * H
    await world.node.meter.run_once()
    return grant
