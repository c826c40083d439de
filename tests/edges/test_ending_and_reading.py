"""Ends, and what get and list show as time goes by (R13, R15, R48..R50, D7, D8, D21, D22, D49)."""

from __future__ import annotations

import asyncio

from tests.edges.edge import Edge, Refused
from tests.edges.world import DAY, HOUR, LARGE, MINUTE, ROOT, A, B, World, accepted


async def test_r48_before_its_start_a_grant_is_cancelled_and_keeps_its_term(world: World, edge: Edge) -> None:
    grant = await world.made(edge, startsAt=B + HOUR)
    world.clock.advance(HOUR - 1)
    cancelled = accepted(await world.end(edge, grant["grantId"]))
    assert cancelled == {**grant, "state": "cancelled"}
    assert await world.story(A) == [
        ("created", grant["grantId"], B),
        ("cancelled", grant["grantId"], B + HOUR - 1),
    ]


async def test_r50_at_the_instant_of_its_start_it_has_started(world: World, edge: Edge) -> None:
    grant = await world.made(edge, startsAt=B + HOUR)
    world.clock.advance(HOUR)
    ended = accepted(await world.end(edge, grant["grantId"]))
    assert (ended["state"], ended["startsAt"], ended["endsAt"]) == ("ended", B + HOUR, B + HOUR)
    assert [kind for kind, _, _ in await world.story(A)] == ["created", "active", "ended"]


async def test_d7_a_grant_can_end_in_the_millisecond_that_it_was_made(world: World, edge: Edge) -> None:
    grant = await world.made(edge)
    ended = accepted(await world.end(edge, grant["grantId"]))
    assert ended == {**grant, "state": "ended", "endsAt": B}


async def test_d8_a_term_that_has_passed_stays_as_it_was(world: World, edge: Edge) -> None:
    grant = await world.made(edge, endsAt=B + HOUR)
    world.clock.advance(5 * HOUR)
    assert accepted(await world.end(edge, grant["grantId"])) == {**grant, "state": "ended"}
    assert await world.story(A) == [
        ("created", grant["grantId"], B),
        ("active", grant["grantId"], B),
        ("ended", grant["grantId"], B + HOUR),
    ]


async def test_d9_ten_ends_at_once_are_one(world: World, edge: Edge) -> None:
    grant = await world.made(edge)
    world.clock.advance(MINUTE)
    answers = await asyncio.gather(*(world.end(edge, grant["grantId"]) for _ in range(10)))
    assert {accepted(answer)["endsAt"] for answer in answers} == {B + MINUTE}
    assert [kind for kind, _, _ in await world.story(A)] == ["created", "active", "ended"]


async def test_d49_reads_follow_the_clock_and_write_nothing(world: World, edge: Edge) -> None:
    grant = await world.made(edge, startsAt=B + HOUR, endsAt=B + 2 * HOUR)
    for later, state in ((-1, "scheduled"), (0, "active"), (HOUR - 1, "active"), (HOUR, "ended"), (DAY, "ended")):
        world.clock.now = B + HOUR + later
        assert accepted(await world.get(edge, grant["grantId"], by=A))["state"] == state
        (listed,) = accepted_list(await world.list_grants(edge, by=A))
        assert listed["state"] == state
    assert [kind for kind, _, _ in await world.story(A)] == ["created"]


async def test_t33_the_newest_come_first_also_within_one_millisecond(world: World, edge: Edge) -> None:
    made = []
    for number in range(60):
        made.append((await world.made(edge, reservationId=LARGE))["grantId"])
        if number % 20 == 19:
            world.clock.advance(1)
    assert await world.listed(edge, by=A) == made[::-1]


async def test_t34_a_list_has_what_is_over_too(world: World, edge: Edge) -> None:
    ended, cancelled, live = [(await world.made(edge, startsAt=starts_at))["grantId"] for starts_at in (B, B + HOUR, B)]
    for grant_id in (ended, cancelled):
        accepted(await world.end(edge, grant_id))
    listed = accepted_list(await world.list_grants(edge, by=A))
    assert {grant["grantId"]: grant["state"] for grant in listed} == {
        ended: "ended",
        cancelled: "cancelled",
        live: "active",
    }


async def test_d22_the_wires_list_is_cut_at_a_thousand_and_graphqls_pages_go_on(world: World) -> None:
    async with world.node.database.acquire() as connection:
        await connection.execute(_MANY, (await world.made(world.graphql))["grantId"])
    assert await world.count("capacity_grant") == 1_201
    newest = await world.listed(world.graphql, by=A)
    assert len(newest) == len(set(newest)) == 1_201
    assert await world.listed(world.edge("rest"), by=A) == newest[:1_000]
    assert len(await world.listed(world.edge("rest"), by=ROOT, all=True)) == 1_000


_MANY = """
insert into capacity_grant
select (jsonb_populate_record(g, jsonb_build_object('grant_id', 'rgrant_' || lpad(n::text, 26, '0')))).*
from capacity_grant g, generate_series(1, 1200) n where g.grant_id = $1
"""
"""Copies of one grant: made through the desk, 1200 would take seconds."""


def accepted_list(answer: object) -> list[dict[str, object]]:
    assert isinstance(answer, list), answer
    assert not isinstance(answer, Refused)
    return answer
