"""The meter run twice, late, in parallel or beside trouble: always the same bill (R41, T71, T73, P12..P14)."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

from domain.capacity.metering import GRANT_SLOT_HOURS as SLOTS
from domain.outcomes import Accepted
from storage.database import SESSION
from tests.capacity_world import running_node
from tests.conftest import MakeDatabase
from tests.simulation.auditor_usage import audit_p5, audit_p6, audit_usage
from tests.workers.capacity.world import (
    HOUR,
    MINUTE,
    OTHER_PROJECT,
    PROJECTS,
    RESERVATION,
    START,
    World,
    key_of,
    open_world,
)

Bill = Counter[tuple[str, str, int]]


async def bill_of(world: World, *, shifted_ms: int = 0) -> Bill:
    """What each tenant owes: (tenant, meter, hour) to milliseconds; hours moved back by `shifted_ms`."""
    bill: Bill = Counter()
    for record in await world.usage():
        bill[record["tenant_id"], record["meter"], record["hour_start"] - shifted_ms] += record["quantity_ms"]
    return bill


async def test_five_runs_over_one_hour_write_it_once(world: World) -> None:
    """T71, P12."""
    await world.grant(2, START, START + 5 * HOUR)
    await world.run()
    await world.run("B")
    await world.at(START + HOUR).meter()
    records = await world.usage()
    for _ in range(4):
        assert (await world.meter()).counts["records"] == 0
    assert await world.usage() == records
    assert len(records) == 3


async def test_two_nodes_at_once_write_each_hour_once(world: World, database_url: str) -> None:
    """T71: with boundaries of many reservations to apply on the way."""
    names = [f"res-{number}" for number in range(30)]
    await world.report(dict.fromkeys([RESERVATION, *names], 10))
    for name in names:
        await world.bind(name)
        await world.grant(2, START + 30 * MINUTE, START + 90 * MINUTE, reservation=name)
        await world.run(reservation=name)
    world.at(START + 3 * HOUR)
    async with running_node(database_url, clock=world.clock) as other:
        nodes = [world.node, other]
        await asyncio.gather(*(node.meter.run_once() for node in nodes for _ in range(2)))
    bill = await bill_of(world)
    assert bill["A", SLOTS, START] == 30 * HOUR
    assert bill["A", SLOTS, START + HOUR] == 30 * HOUR
    # In each of three hours an instance ran an hour, inside its grant or outside: four records, split at start and end.
    assert sum(bill.values()) == 30 * (2 * HOUR + 3 * HOUR)
    assert len(await world.usage()) == 30 * (2 + 5)


async def test_three_days_of_silence_end_in_the_bill_of_an_undisturbed_twin(make_database: MakeDatabase) -> None:
    """T73: neither a boundary nor an hour was seen to for 72 hours."""

    async def lay_out(world: World) -> list[str]:
        """What is arranged before the silence; the ids, in order."""
        made = [
            await world.grant(3, START, START + 100 * HOUR),
            await world.grant(2, START + 10 * HOUR + 7, START + 40 * HOUR + 11),
            await world.grant(1, START + 40 * HOUR + 11, START + 72 * HOUR),
        ]
        for _ in range(4):
            world.clock.advance(MINUTE)
            made.append(await world.run())
        made.append(await world.run("B"))
        return made

    async def records_of(world: World, made: list[str]) -> list[str]:
        """The records with labels in place of ids, and without the time of writing."""
        records = []
        for record in await world.usage():
            text = repr({name: value for name, value in record.items() if name != "written_at"})
            for number, thing_id in enumerate(made):
                text = text.replace(thing_id, f"thing-{number}")
            records.append(text)
        return sorted(records)

    async with open_world(await make_database()) as twin, open_world(await make_database()) as silent:
        twin_ids, silent_ids = await lay_out(twin), await lay_out(silent)
        for hour in range(1, 73):
            twin.at(START + hour * HOUR)
            await twin.apply_boundaries()
            await twin.meter()
        ran = await silent.at(START + 72 * HOUR).meter()
        assert await records_of(silent, silent_ids) == await records_of(twin, twin_ids)
        slots = [record for record in await silent.usage() if record["meter"] == SLOTS]
        assert Counter(record["grant_id"] for record in slots) == dict(zip(silent_ids, (72, 31, 32), strict=False))
        assert ran.counts["waiting"] == 0


@pytest.mark.parametrize("cut_at", [START + 90 * MINUTE, START + 2 * HOUR, START + 2 * HOUR + 1])
async def test_one_grant_cut_in_two_is_billed_the_same(make_database: MakeDatabase, cut_at: int) -> None:
    """P13."""
    end_at = START + 3 * HOUR + 13
    async with open_world(await make_database()) as whole, open_world(await make_database()) as parts:
        await whole.grant(3, START + 5 * MINUTE, end_at)
        await parts.grant(3, START + 5 * MINUTE, cut_at)
        await parts.grant(3, cut_at, end_at)
        for world in (whole, parts):
            await world.run()
            stopped = await world.run()
            await world.at(START + 70 * MINUTE).stop(stopped)
            await world.at(START + 5 * HOUR).meter()
        assert await bill_of(whole) == await bill_of(parts)


async def test_everything_some_hours_later_is_the_same_bill_some_hours_later(make_database: MakeDatabase) -> None:
    """P14."""
    bills = []
    for shift_ms in (0, 7 * HOUR, 1000 * HOUR):
        async with open_world(await make_database(), now=START + shift_ms) as world:
            began_at = START + shift_ms
            grant = await world.grant(4, began_at + 20 * MINUTE, began_at + 9 * HOUR)
            await world.run()
            await world.at(began_at + 100 * MINUTE).amend(grant, expected_version=1, slots=2)
            await world.run("B")
            await world.at(began_at + 4 * HOUR + 3).end(grant)
            await world.at(began_at + 6 * HOUR).meter()
            bills.append(await bill_of(world, shifted_ms=shift_ms))
    assert bills[0] == bills[1] == bills[2]
    assert len(bills[0]) > 10


async def test_a_key_whose_boundary_cannot_be_applied_waits_for_the_next_run(world: World, database_url: str) -> None:
    """A mode that changed within the hour must not be billed as if it had not."""
    await world.run()
    await world.grant(1, START + 30 * MINUTE, START + 5 * HOUR)
    world.at(START + HOUR)
    async with running_node(database_url, clock=world.clock) as closing:
        await closing.stop()
        ran = await closing.meter.run_once()
    assert ran.counts["waiting"] == 1
    assert await world.usage() == []
    await world.meter()
    assert len(await world.usage()) == 3


async def test_a_reservation_that_somebody_holds_does_not_keep_the_others(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SESSION, "lock_timeout", "100")
    async with open_world(database_url) as world:
        await world.report({RESERVATION: 10, "res-2": 10})
        await world.bind("res-2")
        held = await world.grant(1, START, START + HOUR)
        free = await world.grant(1, START, START + HOUR, reservation="res-2")
        world.at(START + HOUR)
        await world.apply_boundaries()
        async with world.database.transaction() as connection:
            await connection.execute("select 1 from capacity_reservation where key = $1 for update", key_of())
            ran = await world.meter()
        assert ran.counts["failed"] == 1
        assert await world.hours(SLOTS, grant=free) == {0: 1}
        assert await world.hours(SLOTS, grant=held) == {}
        await world.meter()
        assert await world.hours(SLOTS, grant=held) == {0: 1}


@pytest.mark.parametrize("seed", range(4))
async def test_after_any_history_the_records_are_what_grants_and_segments_say(world: World, seed: int) -> None:
    """P5, P6, P7, R41..R45: passes at random moments, starts in the past, ends, amendments, gone and back."""
    chance = random.Random(seed)
    grants: list[str] = []
    running: dict[str, str] = {}
    for _ in range(70):
        to_the_hour = HOUR - world.clock.now % HOUR
        world.clock.advance(chance.choice([1, MINUTE, 19 * MINUTE, to_the_hour, to_the_hour + MINUTE]))
        if chance.random() < 0.5:
            await world.meter()  # often right after the hour, where a start in the past reaches behind the pass (D6)
        await act(world, chance, grants, running)
    await world.apply_boundaries()
    await world.meter()
    rows = await audited(world)
    assert audit_p5(rows) + audit_p6(rows) + audit_usage(rows) == []
    assert len(rows["usage"]) > 20


async def act(world: World, chance: random.Random, grants: list[str], running: dict[str, str]) -> None:
    """One random step; refusals are fine."""
    now, tenant = world.clock.now, chance.choice("AB")
    match chance.choice(["grant", "grant", "run", "run", "run", "stop", "end", "amend", "gone"]):
        case "grant":
            starts_at = now + chance.choice([-4, -2, 0, 0, 10, 50]) * MINUTE
            ends_at = starts_at + chance.choice([5, 30, 60, 150]) * MINUTE
            project = chance.choice([None, OTHER_PROJECT]) if tenant == "A" else None
            outcome = await world.try_grant(chance.randint(1, 4), starts_at, ends_at, tenant=tenant, project=project)
            if isinstance(outcome, Accepted):
                grants.append(outcome.answer.grant.grant_id)
        case "run":
            project = chance.choice([PROJECTS["A"], OTHER_PROJECT]) if tenant == "A" else PROJECTS["B"]
            placed = await world.try_run(tenant, project=project)
            if isinstance(placed, Accepted):
                running[placed.answer.instance.instance_id] = tenant
        case "stop" if running:
            instance_id = chance.choice(list(running))
            await world.stop(instance_id, running.pop(instance_id))
        case "end" if grants:
            await world.end(grants.pop(chance.randrange(len(grants))))
        case "amend" if grants:
            await world.try_amend(chance.choice(grants), expected_version=1, slots=chance.randint(1, 5))
        case "gone" if chance.random() < 0.3:
            await world.report({})
            world.clock.advance(3 * MINUTE)
            await world.report({RESERVATION: 10})


async def audited(world: World) -> dict[str, Any]:
    """The rows in the auditor's shape."""
    grants = await world.rows("select * from capacity_grant")
    segments = await world.rows("select * from capacity_segment")
    return {
        "now": world.clock.now,
        "metered_at": world.clock.now,
        "grants": [
            {**grant, "pieces": grant["commitments"] or [[grant["starts_at"], grant["slots"]]]} for grant in grants
        ],
        "segments": [{**segment, "from_ms": segment["from_at"], "to_ms": segment["to_at"]} for segment in segments],
        "instances": await world.rows("select * from capacity_instance"),
        "usage": await world.usage(),
    }
