"""Running time: each millisecond of an instance under exactly one meter, split where the mode changes (R43..R45, D6)."""

from __future__ import annotations

from fractions import Fraction

from domain.capacity.metering import GRANT_SLOT_HOURS as SLOTS
from domain.capacity.metering import GRANT_USAGE_HOURS as USED
from domain.capacity.metering import ONDEMAND_INSTANCE_HOURS as ONDEMAND
from domain.capacity.metering import RESERVED_INSTANCE_HOURS as RESERVED
from tests.workers.capacity.world import (
    HOUR,
    MINUTE,
    OTHER_PROJECT,
    POOL,
    PROJECTS,
    RESERVATION,
    START,
    World,
)

HALF = Fraction(1, 2)


async def test_use_inside_a_grant_is_told_and_the_slots_are_paid(world: World) -> None:
    """T70, T76: an hour inside a grant has no other record of the instance."""
    grant = await world.grant(2, START, START + 3 * HOUR)
    instance = await world.at(START + 15 * MINUTE).run()
    await world.at(START + 45 * MINUTE).stop(instance)
    await world.at(START + 90 * MINUTE).start(instance)
    await world.at(START + 3 * HOUR).meter()
    assert await world.hours(USED, grant=grant) == {0: HALF, 1: HALF, 2: 1}
    assert sum((await world.hours(SLOTS, grant=grant)).values()) == 6
    assert await world.hours(RESERVED) == {}
    assert await world.hours(ONDEMAND) == {}


async def test_a_starting_grant_takes_in_the_oldest_and_splits_their_hour(world: World) -> None:
    """T52."""
    first, second, third = await world.run(), await world.run(), await world.run()
    grant = await world.grant(2, START + 30 * MINUTE, START + 5 * HOUR)
    await world.at(START + 30 * MINUTE - 1).apply_boundaries()
    assert await world.grants_of(first, second, third) == [None, None, None]
    await world.at(START + 30 * MINUTE).apply_boundaries()
    assert await world.grants_of(first, second, third) == [grant, grant, None]
    await world.at(START + HOUR).meter()
    assert await world.hours(RESERVED, instance=first) == {0: HALF}
    assert await world.hours(USED, instance=first) == {0: HALF}
    assert await world.hours(RESERVED, instance=third) == {0: 1}


async def test_a_renewal_takes_on_the_oldest_and_the_rest_pay_the_reservation_rate(world: World) -> None:
    """T53."""
    ending = await world.grant(5, START, START + HOUR)
    renewal = await world.grant(3, START + HOUR, START + 2 * HOUR)
    instances = [await world.at(START + minute * MINUTE).run() for minute in range(5)]
    await world.at(START + 2 * HOUR).meter()
    fifth = instances[4]
    assert await world.hours(USED, instance=fifth) == {0: Fraction(56, 60)}
    assert await world.hours(RESERVED, instance=fifth) == {1: 1}
    assert await world.hours(USED, grant=renewal) == {1: 3}
    assert await world.hours(USED, grant=ending) == {0: 5 - Fraction(0 + 1 + 2 + 3 + 4, 60)}
    assert await world.hours(RESERVED) == {1: 2}


async def test_hand_over_comes_before_an_older_outsider(world: World) -> None:
    """T55, R34."""
    await world.grant(1, START, START + HOUR, project=OTHER_PROJECT)
    renewal = await world.grant(1, START + HOUR, START + 2 * HOUR)
    older = await world.run(project=PROJECTS["A"])
    member = await world.at(START + MINUTE).run(project=OTHER_PROJECT)
    await world.at(START + 2 * HOUR).meter()
    assert await world.hours(USED, grant=renewal, instance=member) == {1: 1}
    assert await world.hours(RESERVED, instance=older) == {0: 1, 1: 1}


async def test_a_gap_of_one_millisecond_between_grants_is_billed_as_such(world: World) -> None:
    """R33."""
    await world.grant(1, START, START + HOUR)
    await world.grant(1, START + HOUR + 1, START + 2 * HOUR)
    instance = await world.run()
    await world.at(START + 2 * HOUR).meter()
    assert await world.hours(RESERVED, instance=instance) == {1: Fraction(1, HOUR)}
    assert await world.hours(USED, instance=instance) == {0: 1, 1: 1 - Fraction(1, HOUR)}


async def test_stopped_time_is_nobodys_and_a_deleted_instance_is_billed_to_its_end(world: World) -> None:
    instance = await world.run()
    await world.at(START + 20 * MINUTE).stop(instance)
    await world.at(START + 40 * MINUTE).start(instance)
    await world.at(START + 100 * MINUTE).delete(instance)
    await world.at(START + 10 * HOUR).meter()
    assert await world.hours(RESERVED, instance=instance) == {0: Fraction(2, 3), 1: Fraction(2, 3)}


async def test_a_gone_reservation_bills_everything_on_demand_from_that_moment(world: World) -> None:
    """T83, R56."""
    active = await world.grant(3, START, START + 5 * HOUR)
    scheduled = await world.grant(3, START + 2 * HOUR, START + 5 * HOUR)
    inside, outside = await world.run(), await world.run("B")
    await world.at(START + 90 * MINUTE).report({})
    await world.at(START + 3 * HOUR).meter()
    assert await world.hours(SLOTS) == {0: 3, 1: Fraction(3, 2)}
    assert await world.hours(USED, instance=inside) == {0: 1, 1: HALF}
    assert await world.hours(RESERVED, instance=outside) == {0: 1, 1: HALF}
    for instance in (inside, outside):
        assert await world.hours(ONDEMAND, instance=instance) == {1: HALF, 2: 1}
    assert await world.story(active) == [("created", 0), ("active", 0), ("ended", 90)]
    assert await world.story(scheduled) == [("created", 0), ("cancelled", 90)]


async def test_an_instance_that_is_billed_to_nobody_leaves_no_record(world: World) -> None:
    """R31, R44."""
    await world.attach(billing="none")
    await world.grant(2, START + MINUTE, START + HOUR)
    await world.at(START + 2 * HOUR).meter()
    assert {record["meter"] for record in await world.usage()} == {SLOTS}
    assert (await world.meter()).counts["reservations"] == 0


async def test_an_adoption_in_the_past_takes_back_what_the_reservation_rate_was_billed_for(world: World) -> None:
    """D6: the hour was over and on record when the grant came, with a start three minutes earlier."""
    instance = await world.run()
    await world.at(START + HOUR).meter()
    before = await world.usage()
    grant = await world.at(START + HOUR + 2 * MINUTE).grant(1, START + 57 * MINUTE, START + 3 * HOUR)
    await world.meter()
    assert await world.hours(RESERVED, instance=instance) == {0: Fraction(57, 60)}
    assert await world.hours(USED, instance=instance) == {0: Fraction(3, 60)}
    assert await world.hours(SLOTS, grant=grant) == {0: Fraction(3, 60)}
    after = {record["source_key"]: record for record in await world.usage()}
    assert [after[record["source_key"]] for record in before] == before, "records are never edited"
    (correction,) = [record for record in after.values() if record["quantity_ms"] < 0]
    assert correction["source_key"] == f"inst:{instance}:0:{RESERVED}:{START}:cut:{START + 57 * MINUTE}"
    assert correction["quantity_ms"] == -3 * MINUTE
    await world.at(START + 3 * HOUR).meter()
    assert await world.hours(USED, instance=instance) == {0: Fraction(3, 60), 1: 1, 2: 1}
    assert await world.hours(RESERVED, instance=instance) == {0: Fraction(57, 60)}


async def test_an_adoption_in_the_past_is_corrected_once_however_often_the_meter_runs(world: World) -> None:
    await world.run()
    await world.at(START + HOUR).meter()
    await world.at(START + HOUR + MINUTE).grant(1, START + 58 * MINUTE, START + 3 * HOUR)
    await world.meter()
    records = await world.usage()
    await world.meter()
    await world.at(START + 2 * HOUR - 1).meter()
    assert await world.usage() == records


async def test_an_adoption_that_reaches_back_to_the_first_moment_leaves_nothing_at_the_old_rate(world: World) -> None:
    instance = await world.at(START + 58 * MINUTE).run()
    await world.at(START + HOUR).meter()
    await world.at(START + HOUR + MINUTE).grant(1, START + 57 * MINUTE, START + 3 * HOUR)
    await world.at(START + 2 * HOUR).meter()
    assert await world.hours(RESERVED, instance=instance) == {}
    assert await world.hours(USED, instance=instance) == {0: Fraction(2, 60), 1: 1}


async def test_records_carry_whose_and_where(world: World) -> None:
    grant = await world.grant(1, START + 30 * MINUTE, START + HOUR)
    instance = await world.run()
    await world.at(START + HOUR).meter()
    records = {record["meter"]: record for record in await world.usage()}
    place = {"flavor": f"flavor-{RESERVATION}", "region": "region-1", "pool": POOL, "provider": "gcp"}
    assert records[RESERVED]["tags"] == {**place, "instanceId": instance}
    assert records[USED]["tags"] == {**place, "instanceId": instance, "grantId": grant}
    for meter, record in records.items():
        if meter != SLOTS:
            assert (record["tenant_id"], record["project_id"]) == ("A", PROJECTS["A"])
            assert record["instance_id"] == instance
    assert records[USED]["grant_id"] == grant
    assert records[RESERVED]["grant_id"] is None


async def test_the_last_use_inside_a_grant_bears_the_pool_it_was_made_in(world: World) -> None:
    """R14: unbinding does not wait for the meter."""
    await world.grant(1, START, START + 30 * MINUTE)
    instance = await world.run()
    await world.at(START + 29 * MINUTE).stop(instance)
    await world.at(START + 31 * MINUTE).unbind()
    await world.at(START + HOUR).meter()
    (used,) = [record for record in await world.usage() if record["meter"] == USED]
    assert used["tags"]["pool"] == POOL
