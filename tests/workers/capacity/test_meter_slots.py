"""Committed slots: one record a grant and ended hour, pro rata to the millisecond (R38..R42)."""

from __future__ import annotations

from fractions import Fraction

from domain.capacity.metering import GRANT_SLOT_HOURS as SLOTS
from domain.outcomes import Accepted, InvalidState
from storage.capacity.metering import HOURS_MAX, meter
from tests.capacity_world import caller_of
from tests.workers.capacity.world import (
    ACCOUNT,
    HOUR,
    MINUTE,
    OTHER_POOL,
    POOL,
    PROJECTS,
    RESERVATION,
    ROOT,
    START,
    World,
    key_of,
)

THIRD = Fraction(1, 3)


async def test_hours_are_written_once_they_are_over_and_cut_to_the_term(world: World) -> None:
    """T61."""
    await world.grant(4, START + 40 * MINUTE, START + 130 * MINUTE)
    await world.at(START + HOUR - 1).meter()
    assert await world.hours(SLOTS) == {}
    await world.at(START + HOUR).meter()
    assert await world.hours(SLOTS) == {0: 4 * THIRD}
    await world.at(START + 3 * HOUR - 1).meter()
    assert await world.hours(SLOTS) == {0: 4 * THIRD, 1: 4}
    await world.at(START + 3 * HOUR).meter()
    assert await world.hours(SLOTS) == {0: 4 * THIRD, 1: 4, 2: 2 * THIRD}
    assert sum((await world.hours(SLOTS)).values()) == 6


async def test_a_grant_that_ends_on_the_hour_is_metered_out_at_that_very_instant(world: World) -> None:
    """T62, R40: its last hour is the one before."""
    await world.grant(2, START, START + 3 * HOUR)
    owing = "select count(*) from capacity_grant where metered_through < ends_at"
    await world.at(START + 3 * HOUR - 1).meter()
    assert await world.value(owing) == 1
    await world.at(START + 3 * HOUR).meter()
    assert await world.value(owing) == 0
    assert await world.hours(SLOTS) == {0: 2, 1: 2, 2: 2}


async def test_ending_a_grant_stops_its_bill_at_that_moment(world: World) -> None:
    """T64."""
    grant = await world.grant(3, START, START + 10 * HOUR)
    await world.at(START + 90 * MINUTE).end(grant)
    await world.at(START + 5 * HOUR).meter()
    assert await world.hours(SLOTS) == {0: 3, 1: Fraction(3, 2)}
    ended_again = await world.end(grant)
    await world.at(START + 8 * HOUR).meter()
    assert ended_again.ends_at == START + 90 * MINUTE
    assert await world.hours(SLOTS) == {0: 3, 1: Fraction(3, 2)}


async def test_ending_a_grant_after_its_natural_end_changes_neither_bill_nor_story(world: World) -> None:
    """T65."""
    grant = await world.grant(2, START, START + HOUR)
    ended = await world.at(START + 2 * HOUR).end(grant)
    await world.meter()
    assert ended.ends_at == START + HOUR
    assert await world.hours(SLOTS) == {0: 2}
    assert await world.story(grant) == [("created", 0), ("active", 0), ("ended", 60)]


async def test_a_term_that_begins_in_an_hour_that_was_over_before_owes_those_minutes(world: World) -> None:
    """T67, D5: no mark of "the last hour done" may swallow them."""
    await world.at(START + MINUTE).meter()
    await world.at(START + 2 * MINUTE).grant(6, START - 3 * MINUTE, START + HOUR)
    await world.meter()
    assert await world.hours(SLOTS) == {-1: Fraction(3, 10)}
    await world.at(START + HOUR).meter()
    assert await world.hours(SLOTS) == {-1: Fraction(3, 10), 0: 6}


async def test_a_renewal_within_an_hour_bills_that_hour_once(world: World) -> None:
    """T68."""
    await world.grant(2, START, START + 20 * MINUTE)
    await world.grant(2, START + 20 * MINUTE, START + HOUR)
    await world.at(START + HOUR).meter()
    assert await world.hours(SLOTS) == {0: 2}


async def test_an_amendment_splits_the_bill_at_the_millisecond(world: World) -> None:
    grant = await world.grant(2, START, START + 3 * HOUR)
    await world.at(START + 30 * MINUTE).amend(grant, expected_version=1, slots=6)
    await world.at(START + HOUR).meter()
    assert await world.hours(SLOTS) == {0: 4}
    await world.at(START + 75 * MINUTE).amend(grant, expected_version=2, slots=1, ends_at=START + 4 * HOUR)
    await world.at(START + 200 * MINUTE).end(grant)
    await world.at(START + 5 * HOUR).meter()
    assert await world.hours(SLOTS) == {0: 4, 1: Fraction(9, 4), 2: 1, 3: THIRD}


async def test_a_scheduled_grant_that_was_moved_is_billed_for_where_it_went(world: World) -> None:
    grant = await world.grant(2, START + 2 * HOUR, START + 3 * HOUR)
    await world.amend(grant, expected_version=1, starts_at=START + 30 * MINUTE, ends_at=START + HOUR, slots=4)
    await world.at(START + 4 * HOUR).meter()
    assert await world.hours(SLOTS) == {0: 2}


async def test_cancelled_and_empty_terms_owe_nothing_and_are_metered_out(world: World) -> None:
    """R42."""
    cancelled = await world.grant(2, START + HOUR, START + 2 * HOUR)
    empty = await world.grant(2, START + 10 * MINUTE, START + 2 * HOUR)
    await world.end(cancelled)
    ended = await world.at(START + 10 * MINUTE).end(empty)
    assert ended.ends_at == ended.starts_at
    assert isinstance(await world.delete_account(), Accepted), "no pass has run, and none is needed"
    await world.at(START + 3 * HOUR).meter()
    assert await world.usage() == []


async def test_an_empty_term_is_marked_and_looked_at_no_more(world: World) -> None:
    grant = await world.grant(2, START + 10 * MINUTE, START + 2 * HOUR)
    await world.at(START + 10 * MINUTE).end(grant)
    await world.at(START + HOUR).meter()
    assert (await world.at(START + 2 * HOUR).meter()).counts["reservations"] == 0


async def test_tags_are_those_of_the_grant_at_create_whatever_became_of_the_reservation(world: World) -> None:
    """T74, R14, R38."""
    grant = await world.grant(1, START, START + 30 * MINUTE, project=PROJECTS["A"])
    await world.at(START + 31 * MINUTE).unbind()
    await world.bind(pool_id=OTHER_POOL)
    await world.at(START + HOUR).meter()
    (record,) = await world.usage()
    assert record["tags"] == {
        "region": "region-1", "pool": POOL, "provider": "gcp", "grantId": grant, "projectId": PROJECTS["A"]
    }  # fmt: skip
    assert (record["tenant_id"], record["project_id"], record["meter"]) == ("A", PROJECTS["A"], SLOTS)
    assert record["source_key"] == f"slot:{grant}:{START}"
    assert (record["hour_start"], record["written_at"]) == (START, START + HOUR)


async def test_an_account_is_deleted_right_after_the_pass_over_the_last_hour(world: World) -> None:
    """T79, R52: and the usage stays (R46)."""
    grant = await world.grant(2, START, START + 3 * HOUR)
    refused = await world.at(START + 3 * HOUR).delete_account()
    assert isinstance(refused, InvalidState)
    assert refused.grant_ids == (grant,)
    await world.at(START + 3 * HOUR + 500).meter()
    assert await world.delete_account() == Accepted(ACCOUNT)
    assert await world.rows("select 1 from capacity_grant") == []
    assert await world.hours(SLOTS) == {0: 2, 1: 2, 2: 2}


async def test_the_last_hours_of_a_deleted_tenant_are_still_written(world: World) -> None:
    """R46, R53: its grant ended when it was deleted."""
    grant = await world.grant(4, START, START + 10 * HOUR)
    world.at(START + 75 * MINUTE)
    deleted = await world.node.tenancy.delete_tenant(caller_of(ROOT), tenant_id="A")
    assert isinstance(deleted, Accepted)
    await world.at(START + 5 * HOUR).meter()
    assert await world.hours(SLOTS, grant=grant) == {0: 4, 1: 1}
    assert {record["tenant_id"] for record in await world.usage()} == {"A"}


async def test_an_hour_on_record_stays_decided_when_the_clock_goes_back(world: World) -> None:
    """R42, D15: after a failover to a server whose clock is behind, nothing is decided inside a written hour."""
    grant = await world.grant(3, START, START + 10 * HOUR)
    await world.run()
    await world.at(START + HOUR + MINUTE).meter()
    ended = await world.at(START + 50 * MINUTE).end(grant)
    assert ended.ends_at == START + HOUR
    await world.at(START + 2 * HOUR).meter()
    assert await world.hours(SLOTS) == {0: 3}


async def test_a_reservation_whose_hour_is_not_over_is_left_alone_though_others_are_further(world: World) -> None:
    """R3: the floor of one reservation says nothing about another, when the clock is behind both."""
    await world.report({RESERVATION: 10, "res-2": 10})
    await world.bind("res-2")
    await world.grant(1, START, START + 10 * HOUR)
    further = await world.at(START + HOUR + MINUTE).grant(1, START + HOUR, START + 10 * HOUR, reservation="res-2")
    async with world.database.transaction() as connection:
        metered = await meter(
            connection,
            [key_of(), key_of("res-2")],
            hour_end=START + 2 * HOUR,
            instant=lambda _: START + HOUR + 30 * MINUTE,
        )
    assert metered.waiting == (key_of(), key_of("res-2"))
    await world.at(START + 2 * HOUR).end(further)
    async with world.database.transaction() as connection:
        metered = await meter(
            connection,
            [key_of(), key_of("res-2")],
            hour_end=START + 2 * HOUR,
            instant=lambda _: START + HOUR + 30 * MINUTE,
        )
    assert metered.waiting == (key_of(),)
    assert await world.hours(SLOTS) == {1: 1}


async def test_one_grant_may_owe_more_hours_than_a_transaction_writes(world: World) -> None:
    hours = 2 * HOURS_MAX + 7
    await world.grant(2, START, START + hours * HOUR + MINUTE)
    ran = await world.at(START + (hours + 1) * HOUR).meter()
    assert ran.counts["records"] == hours + 1
    assert await world.hours(SLOTS) == {**dict.fromkeys(range(hours), Fraction(2)), hours: Fraction(1, 30)}


async def test_one_reservation_may_have_more_grants_than_a_transaction_writes(world: World) -> None:
    grants = HOURS_MAX + 5
    await world.value(
        """
        insert into capacity_grant
        select $1, 'grant-' || n, 'A', null, 1, $2::bigint, $2::bigint + $3::bigint, $2::bigint, 'key', 'pool', 'region',
            'gcp', null, null, true, true, null, 1, 0
        from generate_series(1, $4::integer) n
        """,
        key_of(),
        START,
        2 * HOUR,
        grants,
    )
    ran = await world.at(START + 2 * HOUR).meter()
    assert ran.counts["records"] == 2 * grants
    assert await world.hours(SLOTS) == {0: grants, 1: grants}
