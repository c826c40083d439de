"""Notices ahead of starts and ends: wanted, given once, with what a renewal would take over (F6)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from domain.capacity.notices import Notice
from domain.outcomes import Accepted, AccessDenied, InvalidInput, NotFound
from tests.capacity_world import caller_of
from tests.workers.capacity.world import HOUR, MINUTE, OTHER_PROJECT, PROJECTS, START, World
from workers.capacity.notices import NoticeDesk, NoticeJob
from workers.registry import Registrar

A = caller_of("A")


def desk(world: World) -> NoticeDesk:
    return NoticeDesk(Registrar(world.database, world.clock))


async def look(world: World) -> int:
    return (await NoticeJob(world.node.asker, Registrar(world.database, world.clock)).run_once()).counts["notices"]


async def want(
    world: World, *, starting_ms: int | None = None, ending_ms: int | None = None, tenant: str = "A"
) -> None:
    outcome = await desk(world).set_leads(
        caller_of(tenant), tenant_id=tenant, starting_ms=starting_ms, ending_ms=ending_ms
    )
    assert isinstance(outcome, Accepted)


async def notices(world: World, tenant: str = "A") -> list[tuple[str, int, dict[str, Any]]]:
    events = [event for event in await world.events() if event.tenant_id == tenant]
    kinds = {kind.value for kind in Notice}
    return [(event.type, event.occurred_at, dict(event.payload)) for event in events if event.type in kinds]


async def test_nobody_is_told_who_did_not_ask(world: World) -> None:
    await world.grant(4, START + MINUTE, START + HOUR)
    assert await look(world) == 0
    assert await notices(world) == []


async def test_a_start_and_an_end_are_announced_when_they_come_within_the_lead_and_once(world: World) -> None:
    await want(world, starting_ms=10 * MINUTE, ending_ms=5 * MINUTE)
    grant_id = await world.grant(4, START + HOUR, START + 2 * HOUR)
    await world.events()
    assert await look(world) == 0
    assert await look(world.at(START + 50 * MINUTE)) == 1
    assert await look(world.at(START + 51 * MINUTE)) == 0
    await world.at(START + HOUR).apply_boundaries()
    await world.events()
    assert await look(world.at(START + 2 * HOUR - 5 * MINUTE)) == 1
    assert await look(world.at(START + 2 * HOUR - 4 * MINUTE)) == 0
    base = {
        "grantId": grant_id,
        "poolId": "pool-1",
        "slots": 4,
        "startsAt": START + HOUR,
        "endsAt": START + 2 * HOUR,
    }
    assert await notices(world) == [
        ("reservation-grant.starting-soon", START + 50 * MINUTE, {**base, "leadMs": 10 * MINUTE}),
        (
            "reservation-grant.ending-soon",
            START + 2 * HOUR - 5 * MINUTE,
            {**base, "leadMs": 5 * MINUTE, "hasRenewal": False, "runningInstances": 0, "instancesToReservedRate": 0},
        ),
    ]


async def test_an_end_tells_how_many_instances_no_renewal_would_take(world: World) -> None:
    """R32, R27: the restricted renewal takes its own project's, the open one the oldest of the rest."""
    await want(world, ending_ms=10 * MINUTE)
    await world.grant(5, START, START + HOUR)
    for project in (PROJECTS["A"], PROJECTS["A"], OTHER_PROJECT, OTHER_PROJECT, PROJECTS["A"]):
        await world.run("A", project=project)
    await world.grant(1, START + HOUR, START + 2 * HOUR, project=OTHER_PROJECT)
    await world.grant(2, START + HOUR, START + 2 * HOUR)
    await world.grant(3, START + HOUR + 1, START + 2 * HOUR)
    await world.events()
    assert await look(world.at(START + 55 * MINUTE)) == 1
    ((_, _, payload),) = await notices(world)
    assert (payload["hasRenewal"], payload["runningInstances"], payload["instancesToReservedRate"]) == (True, 5, 2)


async def test_an_amended_end_is_announced_again_and_an_ended_grant_no_more(world: World) -> None:
    await want(world, ending_ms=10 * MINUTE)
    grant_id = await world.grant(4, START, START + HOUR)
    other_id = await world.grant(1, START, START + HOUR)
    await world.events()
    await world.at(START + 55 * MINUTE).end(other_id)
    await world.events()
    assert await look(world) == 1
    await world.amend(grant_id, ends_at=START + 2 * HOUR, expected_version=1)
    await world.events()
    assert await look(world) == 0
    assert await look(world.at(START + 2 * HOUR - 10 * MINUTE)) == 1
    told = [(payload["grantId"], payload["endsAt"]) for _, _, payload in await notices(world)]
    assert told == [(grant_id, START + HOUR), (grant_id, START + 2 * HOUR)]


async def test_two_nodes_at_once_give_each_notice_once(world: World) -> None:
    await want(world, starting_ms=HOUR)
    for number in range(5):
        await world.grant(1, START + MINUTE + number, START + HOUR)
    await world.events()
    assert sum(await asyncio.gather(*(look(world) for _ in range(4)))) == 5
    assert len(await notices(world)) == 5


async def test_a_notice_does_not_overtake_the_news_of_the_grant(world: World) -> None:
    await want(world, starting_ms=HOUR)
    await world.grant(1, START + MINUTE, START + HOUR)
    for _ in range(3):
        await look(world)
    await world.events()
    await look(world)
    types = [event.type for event in await world.events()]
    assert types == ["reservation-grant.created", "reservation-grant.starting-soon"]


@pytest.mark.parametrize("lead", [0, MINUTE - 1, 90 * 24 * HOUR + 1, True, "60000"])
async def test_a_lead_is_a_minute_to_ninety_days(world: World, lead: Any) -> None:
    outcome = await desk(world).set_leads(A, tenant_id="A", starting_ms=None, ending_ms=lead)
    assert isinstance(outcome, InvalidInput)
    assert outcome.field == "endingSoonMs"


async def test_a_tenant_says_and_sees_its_own_alone(world: World) -> None:
    outcome = await desk(world).set_leads(A, tenant_id="B", starting_ms=None, ending_ms=HOUR)
    assert isinstance(outcome, AccessDenied)
    await want(world, ending_ms=HOUR, tenant="B")
    assert isinstance(await desk(world).leads(A, tenant_id="B"), NotFound)
    seen = await desk(world).leads(caller_of("root"), tenant_id="B")
    assert isinstance(seen, Accepted)
    assert (seen.answer.starting_ms, seen.answer.ending_ms) == (None, HOUR)
