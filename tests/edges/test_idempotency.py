"""The same key: the same grant, however often, from wherever and over whichever edge it is asked (T23..T29, R5, R6)."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.edges.edge import Edge, Refused
from tests.edges.world import ELSEWHERE, HOUR, LARGE, MINUTE, OTHER, ROOT, A, B, World, accepted, refused


def reused(grant_id: str) -> Refused:
    return Refused("CONFLICT", {"reason": "idempotency-key-reused", "grantId": grant_id})


async def test_t23_a_retry_gets_the_grant_also_when_it_could_not_be_made_any_more(world: World, edge: Edge) -> None:
    given = world.creation(idempotencyKey="k", slots=5)
    secret = world.secrets[ROOT]
    first = accepted(await edge.create(given, secret=secret))
    await world.made(edge, slots=5)
    world.clock.advance(6 * MINUTE)
    assert accepted(await edge.create(given, secret=secret)) == first, "the term began 6 minutes ago, nothing is free"
    assert await edge.create({**given, "slots": 6}, secret=secret) == reused(first["grantId"])
    assert [kind for kind, grant_id, _ in await world.story(A) if grant_id == first["grantId"]] == ["created", "active"]
    assert await world.count("capacity_grant") == 2


async def test_t24_one_request_twenty_times_at_once_is_one_grant(world: World, edge: Edge) -> None:
    given = world.creation(slots=10)
    answers = await asyncio.gather(*(edge.create(given, secret=world.secrets[ROOT]) for _ in range(20)))
    assert len({accepted(answer)["grantId"] for answer in answers}) == 1
    assert [kind for kind, _, _ in await world.story(A)] == ["created", "active"]


async def test_t25_twenty_requests_under_one_key_are_one_grant_and_nineteen_conflicts(world: World, edge: Edge) -> None:
    asked = [world.creation(idempotencyKey="k", slots=slots, reservationId=LARGE) for slots in range(1, 21)]
    answers = await asyncio.gather(*(edge.create(given, secret=world.secrets[ROOT]) for given in asked))
    (grant,) = [answer for answer in answers if not isinstance(answer, Refused)]
    assert [answer for answer in answers if isinstance(answer, Refused)] == [reused(grant["grantId"])] * 19


async def test_t26_one_key_on_two_reservations_at_once(world: World, edge: Edge) -> None:
    """They are in different rows and perhaps in different lanes; one of them gets the key, and nothing hangs."""
    on_other: dict[str, Any] = {"accountId": world.other_account_id, "reservationId": ELSEWHERE}
    for number in range(5):
        asked = [world.creation(idempotencyKey=f"k{number}", **place) for place in ({}, on_other)]
        creations = [edge.create(given, secret=world.secrets[ROOT]) for given in asked]
        answers = await asyncio.wait_for(asyncio.gather(*creations), timeout=60)
        (grant,) = [answer for answer in answers if not isinstance(answer, Refused)]
        (refusal,) = [answer for answer in answers if isinstance(answer, Refused)]
        assert refusal == reused(grant["grantId"])


async def test_t28_a_retry_after_the_end_gets_the_ended_grant_and_nothing_new(world: World, edge: Edge) -> None:
    given = world.creation(idempotencyKey="k")
    grant = accepted(await edge.create(given, secret=world.secrets[ROOT]))
    world.clock.advance(HOUR)
    ended = accepted(await world.end(edge, grant["grantId"]))
    assert (ended["state"], ended["endsAt"]) == ("ended", B + HOUR)
    assert accepted(await edge.create(given, secret=world.secrets[ROOT])) == ended
    assert [kind for kind, _, _ in await world.story(A)] == ["created", "active", "ended"]


async def test_t29_an_absent_project_and_a_null_one_are_the_same_request(world: World, edge: Edge) -> None:
    absent = await world.made(edge, idempotencyKey="k")
    assert await world.made(edge, idempotencyKey="k", projectId=None) == absent
    with_project = await world.create(edge, idempotencyKey="k", projectId=world.projects[A])
    assert with_project == reused(absent["grantId"])


async def test_every_part_of_the_request_is_part_of_what_the_key_stands_for(world: World, edge: Edge) -> None:
    given = world.creation(idempotencyKey="k", endsAt=B + HOUR)
    grant = accepted(await edge.create(given, secret=world.secrets[ROOT]))
    other: dict[str, Any] = {
        "accountId": world.other_account_id,
        "reservationId": LARGE,
        "grantTenantId": OTHER,
        "projectId": world.projects[A],
        "slots": 2,
        "startsAt": B + 1,
        "endsAt": B + HOUR + 1,
    }
    for name, value in other.items():
        answer = await edge.create({**given, name: value}, secret=world.secrets[ROOT])
        assert answer == reused(grant["grantId"]), name
    assert accepted(await edge.create({**given, "slots": 1.0}, secret=world.secrets[ROOT])) == grant


async def test_a_key_belongs_to_the_tenant_and_not_to_who_used_it(world: World, edge: Edge) -> None:
    """Another API key of root's that may do the same gets the same grant; a tenant never gets as far as the key."""
    grant = await world.made(edge, idempotencyKey="k")
    await world.add_key("second-root", ROOT, permissions=["compute:providers:manage"])
    assert accepted(await world.create(edge, by="second-root", idempotencyKey="k")) == grant
    assert await world.create(edge, by=A, idempotencyKey="k") == Refused("ACCESS_DENIED")
    assert await world.create(edge, by=A, tenantId=A, idempotencyKey="k") == Refused("ACCESS_DENIED")


async def test_a_retry_over_the_other_edge_is_a_retry(world: World) -> None:
    for first, second in (("graphql", "rest"), ("rest", "graphql")):
        given = world.creation(idempotencyKey=f"{first}-first", slots=2)
        made = accepted(await world.edge(first).create(given, secret=world.secrets[ROOT]))
        again = accepted(await world.edge(second).create(given, secret=world.secrets[ROOT]))
        assert again == made
        other = await world.edge(second).create({**given, "slots": 3}, secret=world.secrets[ROOT])
        assert other == reused(made["grantId"])
    assert await world.count("capacity_grant") == 2


async def test_both_edges_at_once_under_one_key_make_one_grant(world: World) -> None:
    given = world.creation(slots=10)
    asked = [world.edge(name).create(given, secret=world.secrets[ROOT]) for name in ("rest", "graphql") * 5]
    answers = await asyncio.gather(*asked)
    assert len({accepted(answer)["grantId"] for answer in answers}) == 1


async def test_end_takes_a_key_over_graphql_and_is_harmless_twice_everywhere(world: World, edge: Edge) -> None:
    first, second = await world.made(edge), await world.made(edge)
    ended = accepted(await world.end(edge, first["grantId"]))
    world.clock.advance(HOUR)
    assert accepted(await world.end(edge, first["grantId"])) == ended
    if edge.name == "graphql":
        again = accepted(await world.end(edge, second["grantId"], idempotencyKey="end"))
        assert accepted(await world.end(edge, second["grantId"], idempotencyKey="end")) == again
        refusal = refused(await world.end(edge, first["grantId"], idempotencyKey="end"))
        assert refusal.code == "CONFLICT"
