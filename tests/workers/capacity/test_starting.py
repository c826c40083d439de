"""Stopped instances that start again: in place, or placed afresh over all reservations of their flavor (R36, D27, D32)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from fractions import Fraction
from typing import Any

import pytest

from domain.capacity.commands import AttachInstance, DeleteInstance, StopInstance
from domain.capacity.metering import GRANT_USAGE_HOURS, RESERVED_INSTANCE_HOURS
from domain.capacity.placement import NO_SLOT
from domain.capacity.scan import ReportedReservation, ScanReport
from domain.capacity.state import Billing, RunState
from domain.capacity.views import InstanceView, ReservationView
from domain.outcomes import Accepted, Conflict, InvalidInput, NotFound, Outcome
from server.replay.audit import audit_database
from tests.capacity_world import answer_of, caller_of
from tests.workers.capacity.world import (
    ACCOUNT,
    HOUR,
    MINUTE,
    OTHER_POOL,
    OTHER_PROJECT,
    PROJECTS,
    ROOT,
    START,
    World,
    key_of,
)

FLAVOR = "alike"
FIRST, SECOND, THIRD = "res-a", "res-b", "res-c"


class Alike:
    """Reservations of one flavor in one pool; instances of A and B on them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.instances = world.node.instances

    async def report(self, totals: Mapping[str, int]) -> None:
        reported = tuple(
            ReportedReservation(reservation_id=name, flavor=FLAVOR, region=f"region-{name}", total=total)
            for name, total in totals.items()
        )
        await self.world.node.reservations.take_report(ACCOUNT, "gcp", ScanReport(reservations=reported, complete=True))

    async def create(self, tenant: str = "A", **more: Any) -> str:
        wanted = {"project_id": PROJECTS[tenant], "flavor": FLAVOR, "name": "one", **more}
        view = answer_of(await self.instances.create(caller_of(tenant), tenant_id=tenant, **wanted))
        return str(view.instance.instance_id)

    async def start(self, instance_id: str, tenant: str = "A", **more: Any) -> Outcome[InstanceView]:
        return await self.instances.start(caller_of(tenant), tenant_id=tenant, instance_id=instance_id, **more)

    async def change(self, instance_id: str, project_id: str, **more: Any) -> Outcome[InstanceView]:
        named = {"instance_id": instance_id, "project_id": project_id}
        return await self.instances.change_project(caller_of("A"), tenant_id="A", **named, **more)

    async def stopped(self, tenant: str = "A", **more: Any) -> str:
        instance_id = await self.create(tenant, **more)
        await self.world.stop(instance_id, tenant)
        return instance_id

    async def place_of(self, instance_id: str) -> str:
        """The reservation that its one living row is on, which is where it is looked for."""
        (row,) = await self.world.rows(
            "select key from capacity_instance where instance_id = $1 and moved_to is null", instance_id
        )
        located = await self.world.value("select key from capacity_locator where id = $1", instance_id)
        assert located == row["key"]
        return str(located.rpartition("/")[2])

    async def rows_of(self, instance_id: str) -> list[dict[str, Any]]:
        tables = ("capacity_instance", "capacity_segment")
        found = [
            await self.world.rows(f"select * from {table} where instance_id = $1 order by key", instance_id)
            for table in tables
        ]
        return [row for rows in found for row in rows]

    async def free(self, reservation: str) -> int:
        view = await self.world.node.reads.reservation(
            caller_of(ROOT), tenant_id=ROOT, account_id=ACCOUNT, reservation_id=reservation
        )
        assert isinstance(view, ReservationView)
        return view.free


@pytest.fixture
async def alike(world: World) -> AsyncIterator[Alike]:
    """`FIRST` and `SECOND` with one slot each."""
    opened = Alike(world)
    await opened.report({FIRST: 1, SECOND: 1})
    for name in (FIRST, SECOND):
        await world.bind(name)
    yield opened
    world.at(START + 1_000 * HOUR)
    await world.apply_boundaries()
    await world.meter()
    await world.events()
    assert await audit_database(world.database) == []


async def test_a_start_goes_to_whatever_reservation_has_room(alike: Alike) -> None:
    """D27: what it ran is billed where it ran, to the millisecond; its time goes on where it is now."""
    moving = await alike.create()
    alike.world.at(START + 20 * MINUTE)
    await alike.world.stop(moving)
    await alike.create("B")
    alike.world.at(START + 30 * MINUTE)
    started = answer_of(await alike.start(moving))
    assert (started.key, started.instance.run_state, started.instance.grant_id) == (
        key_of(SECOND),
        RunState.RUNNING,
        None,
    )
    assert (await alike.place_of(moving), await alike.free(FIRST), await alike.free(SECOND)) == (SECOND, 0, 0)
    alike.world.at(START + HOUR)
    await alike.world.meter()
    used = await alike.world.rows(
        "select tags ->> 'region' as region, quantity_ms from usage_record where instance_id = $1 order by 1", moving
    )
    assert used == [
        {"region": f"region-{FIRST}", "quantity_ms": 20 * MINUTE},
        {"region": f"region-{SECOND}", "quantity_ms": 30 * MINUTE},
    ]
    assert await alike.world.hours(RESERVED_INSTANCE_HOURS, instance=moving) == {0: Fraction(50, 60)}


async def test_whoever_finds_no_room_anywhere_is_refused_and_stays_as_it_is(alike: Alike) -> None:
    """B6."""
    stopped = await alike.stopped()
    for _ in range(2):
        await alike.create("B")
    before = await alike.rows_of(stopped)
    alike.world.at(START + MINUTE)
    assert await alike.start(stopped) == NO_SLOT
    assert await alike.rows_of(stopped) == before


async def test_a_reservation_that_was_unbound_is_not_offered_to_a_start(alike: Alike) -> None:
    """It has a free slot, and belongs to no pool any more."""
    stopped = await alike.stopped()
    for name in (FIRST, SECOND):
        await alike.world.unbind(name)
    assert await alike.start(stopped) == NO_SLOT
    await alike.world.bind(SECOND)
    assert answer_of(await alike.start(stopped)).key == key_of(SECOND)


async def test_an_offer_that_was_withdrawn_is_no_offer_to_a_start(alike: Alike) -> None:
    world = alike.world
    stopped = await alike.stopped()
    place = {"tenant_id": ROOT, "pool_id": "pool-1", "offered_to": "*"}
    answer_of(await world.node.guards.withdraw_pool(caller_of(ROOT), **place))
    assert await alike.start(stopped) == NO_SLOT
    answer_of(await world.node.accounts.offer_pool(caller_of(ROOT), pool_id="pool-1", offered_to="A"))
    assert answer_of(await alike.start(stopped)).key == key_of(FIRST)


async def test_a_reservation_that_is_not_ready_takes_no_start(alike: Alike) -> None:
    stopped = await alike.stopped()
    reported = [
        ReportedReservation(reservation_id=name, flavor=FLAVOR, region="r", total=1, ready=name == SECOND)
        for name in (FIRST, SECOND)
    ]
    report = ScanReport(reservations=tuple(reported), complete=True)
    await alike.world.node.reservations.take_report(ACCOUNT, "gcp", report)
    assert answer_of(await alike.start(stopped)).key == key_of(SECOND)


async def test_an_own_slot_on_any_reservation_comes_before_an_ordinary_one(alike: Alike) -> None:
    """D32: the reservation where it was has room, and the other one a grant."""
    stopped = await alike.stopped()
    grant = await alike.world.grant(1, START, START + HOUR, reservation=SECOND)
    started = answer_of(await alike.start(stopped))
    assert (started.key, started.instance.grant_id) == (key_of(SECOND), grant)
    alike.world.at(START + 2 * HOUR)
    await alike.world.meter()
    assert await alike.world.hours(GRANT_USAGE_HOURS, grant=grant) == {0: 1}


async def test_ordinary_slots_are_tried_by_reservation_id_wherever_it_was(alike: Alike) -> None:
    """D32 again: a placement knows nothing of the one before."""
    first = await alike.create("B")
    stopped = await alike.stopped()
    assert await alike.place_of(stopped) == SECOND
    await alike.world.delete(first, "B")
    assert answer_of(await alike.start(stopped)).key == key_of(FIRST)


async def test_there_and_back_again_leaves_one_life(alike: Alike) -> None:
    """Its segments keep their numbers wherever they lie, so nothing is on record twice."""
    moving = await alike.create()
    for number, place in enumerate((SECOND, FIRST, SECOND), start=1):
        alike.world.at(START + number * 10 * MINUTE)
        await alike.world.stop(moving)
        stranger = await alike.create("B")
        if place == FIRST:  # so that the stranger is on the other one
            await alike.world.delete(stranger, "B")
            await alike.report({FIRST: 1, SECOND: 0})
        else:
            await alike.report({FIRST: 1, SECOND: 1})
        assert answer_of(await alike.start(moving)).key == key_of(place)
        if place == SECOND:
            await alike.world.delete(stranger, "B")
    alike.world.at(START + HOUR)
    await alike.world.delete(moving)
    await alike.world.meter()
    assert await alike.world.hours(RESERVED_INSTANCE_HOURS, instance=moving) == {0: 1}
    segments = await alike.world.rows(
        "select number, key from capacity_segment where instance_id = $1 order by number", moving
    )
    assert [(row["number"], row["key"].rpartition("/")[2]) for row in segments] == list(
        enumerate([FIRST, SECOND, FIRST, SECOND])
    )


async def test_a_pool_that_was_asked_for_is_kept_to(alike: Alike) -> None:
    await alike.world.unbind(SECOND)
    await alike.world.bind(SECOND, pool_id=OTHER_POOL)
    asked, indifferent = [await alike.stopped(pool_id=pool_id) for pool_id in ("pool-1", None)]
    await alike.create("B", pool_id="pool-1")
    assert await alike.start(asked) == NO_SLOT
    assert answer_of(await alike.start(indifferent)).key == key_of(SECOND)


async def test_a_retry_by_key_shows_what_became_of_it_and_starts_nothing(alike: Alike) -> None:
    """R5: also once it has stopped again and there is no room anywhere."""
    moving = await alike.stopped()
    stranger = await alike.create("B")
    assert answer_of(await alike.start(moving, idempotency_key="k")).key == key_of(SECOND)
    assert answer_of(await alike.start(moving, idempotency_key="k")).instance.is_running
    await alike.world.stop(moving)
    await alike.create("B")
    again = answer_of(await alike.start(moving, idempotency_key="k"))
    assert (again.key, again.instance.run_state) == (key_of(SECOND), RunState.STOPPED)
    await alike.world.delete(stranger, "B")
    other = await alike.stopped()
    assert isinstance(await alike.start(other, idempotency_key="k"), Conflict)
    assert await alike.place_of(other) == FIRST


async def test_what_is_billed_to_nobody_moves_and_enters_no_grant(alike: Alike) -> None:
    """R31."""
    attached = await alike.instances.attach(
        caller_of(ROOT),
        tenant_id=ROOT,
        account_id=ACCOUNT,
        reservation_id=FIRST,
        owner_tenant_id="A",
        project_id=PROJECTS["A"],
        name="one",
        billing="none",
    )
    instance_id = answer_of(attached).instance.instance_id
    await alike.world.stop(instance_id)
    await alike.create("B")
    await alike.report({FIRST: 1, SECOND: 2})
    await alike.world.grant(1, START, START + HOUR, reservation=SECOND)
    started = answer_of(await alike.start(instance_id))
    assert (started.key, started.instance.grant_id, started.instance.billing) == (key_of(SECOND), None, Billing.NONE)


async def test_it_keeps_its_age_where_it_goes(alike: Alike) -> None:
    """R30: the oldest enters first, however lately it came."""
    moving = await alike.stopped()
    await alike.create("B")
    alike.world.at(START + MINUTE)
    await alike.report({FIRST: 1, SECOND: 2})
    younger = await alike.create()
    answer_of(await alike.start(moving))
    grant = await alike.world.grant(1, START + HOUR, START + 2 * HOUR, reservation=SECOND)
    alike.world.at(START + HOUR)
    await alike.world.apply_boundaries()
    inside = await alike.world.rows("select instance_id from capacity_instance where grant_id = $1", grant)
    assert [row["instance_id"] for row in inside] == [moving] != [younger]


async def test_the_claim_that_a_grant_leaves_behind_is_placed_afresh_everywhere(alike: Alike) -> None:
    """R36, T44: its grant is over, which no turn has noticed yet, and somebody else is faster at its reservation."""
    await alike.report({FIRST: 1})
    await alike.world.grant(1, START, START + HOUR, reservation=FIRST)
    await alike.report({FIRST: 1, SECOND: 1})
    inside = await alike.stopped()
    alike.world.at(START + HOUR)
    own = await alike.world.grant(1, START + HOUR, START + 2 * HOUR, reservation=SECOND)
    started = answer_of(await alike.start(inside))
    assert (started.key, started.instance.grant_id) == (key_of(SECOND), own)


async def test_a_member_of_a_grant_starts_where_it_is(alike: Alike) -> None:
    """R23, D28: although the other reservation has a grant that comes first."""
    mine = await alike.world.grant(1, START, START + HOUR, reservation=FIRST)
    stopped = await alike.stopped()
    await alike.world.grant(1, START, START + 2 * HOUR, reservation=SECOND, project=PROJECTS["A"])
    started = answer_of(await alike.start(stopped))
    assert (started.key, started.instance.grant_id) == (key_of(FIRST), mine)


async def test_what_moved_is_listed_once_and_where_it_is(alike: Alike) -> None:
    moving = await alike.stopped()
    await alike.create("B")
    answer_of(await alike.start(moving))
    reads = alike.world.node.reads
    page = await reads.instances(caller_of("A"), tenant_id="A")
    assert [view.instance.instance_id for view in page.items] == [moving]
    assert await reads.count_instances(caller_of("A"), tenant_id="A") == 1
    for name, count in ((FIRST, 1), (SECOND, 1)):
        place = {"account_id": ACCOUNT, "reservation_id": name}
        page = await reads.instances(caller_of(ROOT), tenant_id=ROOT, all_tenants=True, **place)
        assert len(page.items) == count
        assert (moving in [view.instance.instance_id for view in page.items]) == (name == SECOND)
    shown = await reads.instance(caller_of("A"), tenant_id="A", instance_id=moving)
    assert (shown.key, shown.instance.is_running) == (key_of(SECOND), True)


async def test_the_reservation_that_it_left_knows_nothing_of_it(alike: Alike) -> None:
    """Whoever looked it up before it moved is told to look again, and nothing is made in its name."""
    moving = await alike.stopped()
    await alike.create("B")
    answer_of(await alike.start(moving))
    attach = AttachInstance(
        instance_id=moving, tenant_id="A", project_id=PROJECTS["A"], name="one", billing=Billing.NORMAL
    )
    for command in (StopInstance(instance_id=moving), DeleteInstance(instance_id=moving), attach):
        reply = await alike.world.node.asker.ask(key_of(FIRST), command)
        assert isinstance(reply.outcome, NotFound), command
    await alike.world.stop(moving)
    await alike.world.delete(moving)
    assert await alike.place_of(moving) == SECOND


async def test_once_its_new_reservation_is_gone_it_comes_back_to_that_one(alike: Alike) -> None:
    """D14, R56."""
    moving = await alike.stopped()
    await alike.create("B")
    answer_of(await alike.start(moving))
    await alike.report({FIRST: 1})
    await alike.report({FIRST: 2, SECOND: 1})
    for name, outcome in ((FIRST, NotFound), (SECOND, Accepted)):
        attached = await alike.instances.attach(
            caller_of(ROOT),
            tenant_id=ROOT,
            account_id=ACCOUNT,
            reservation_id=name,
            owner_tenant_id="A",
            project_id=PROJECTS["A"],
            name="one",
            instance_id=moving,
        )
        assert isinstance(attached, outcome)


async def test_a_start_of_a_deleted_project_is_refused_whatever_there_is(alike: Alike) -> None:
    stopped = await alike.stopped()
    await alike.create("B")
    answer_of(await alike.world.node.tenancy.delete_project(caller_of(ROOT), project_id=PROJECTS["A"]))
    refused = await alike.start(stopped)
    assert isinstance(refused, InvalidInput)
    assert refused.reason == "project-not-tenant"


# -- change of project -------------------------------------------------------------------------------------------------


async def test_d39_a_grant_that_does_not_serve_the_new_project_is_left_now(alike: Alike) -> None:
    """What ran before stays the former project's, on the record too."""
    world = alike.world
    restricted = await world.grant(1, START, START + HOUR, reservation=FIRST, project=PROJECTS["A"])
    instance_id = await alike.create()
    world.at(START + 15 * MINUTE)
    changed = answer_of(await alike.change(instance_id, OTHER_PROJECT)).instance
    assert (changed.project_id, changed.grant_id, changed.run_state) == (OTHER_PROJECT, None, RunState.RUNNING)
    world.at(START + HOUR)
    await world.meter()
    used = await world.rows(
        "select project_id, grant_id, quantity_ms from usage_record where instance_id = $1 order by quantity_ms",
        instance_id,
    )
    assert used == [
        {"project_id": PROJECTS["A"], "grant_id": restricted, "quantity_ms": 15 * MINUTE},
        {"project_id": OTHER_PROJECT, "grant_id": None, "quantity_ms": 45 * MINUTE},
    ]


async def test_d39_a_grant_that_serves_the_new_project_is_entered_at_its_next_boundary(alike: Alike) -> None:
    world = alike.world
    await alike.report({FIRST: 3, SECOND: 1})
    await world.grant(1, START, START + HOUR, reservation=FIRST, project=OTHER_PROJECT)
    instance_id = await alike.create()
    later = await world.grant(1, START + HOUR, START + 2 * HOUR, reservation=FIRST, project=OTHER_PROJECT)
    assert answer_of(await alike.change(instance_id, OTHER_PROJECT)).instance.grant_id is None
    world.at(START + HOUR)
    await world.apply_boundaries()
    assert await world.grants_of(instance_id) == [later]


async def test_d39_a_grant_of_the_whole_tenant_is_not_left(alike: Alike) -> None:
    wide = await alike.world.grant(1, START, START + HOUR, reservation=FIRST)
    instance_id = await alike.create()
    assert answer_of(await alike.change(instance_id, OTHER_PROJECT)).instance.grant_id == wide


async def test_a_change_to_somebody_elses_project_is_refused(alike: Alike) -> None:
    instance_id = await alike.create()
    before = await alike.rows_of(instance_id)
    refused = await alike.change(instance_id, PROJECTS["B"])
    assert isinstance(refused, InvalidInput)
    assert (refused.field, refused.reason) == ("projectId", "project-not-tenant")
    assert await alike.rows_of(instance_id) == before


async def test_b23_a_change_of_project_and_a_start_are_one(alike: Alike) -> None:
    """Refused it stays in its grant and its project; with room elsewhere it leaves both and runs there."""
    grant = await alike.world.grant(1, START, START + HOUR, reservation=FIRST, project=PROJECTS["A"])
    instance_id = await alike.stopped()
    stranger = await alike.create("B")
    before = await alike.rows_of(instance_id)
    assert await alike.change(instance_id, OTHER_PROJECT, start=True) == NO_SLOT
    assert await alike.rows_of(instance_id) == before
    await alike.world.delete(stranger, "B")
    started = answer_of(await alike.change(instance_id, OTHER_PROJECT, start=True, idempotency_key="k"))
    assert (started.key, started.instance.project_id, started.instance.grant_id) == (
        key_of(SECOND),
        OTHER_PROJECT,
        None,
    )
    assert answer_of(await alike.change(instance_id, OTHER_PROJECT, start=True, idempotency_key="k")) == started
    assert isinstance(await alike.change(instance_id, PROJECTS["A"], start=True, idempotency_key="k"), Conflict)
    assert await alike.world.value("select count(*) from capacity_instance where grant_id = $1", grant) == 0
