"""Making grants, over both edges: terms, capacity, and what a reservation must be (T1..T20, R7..R10, R13)."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from domain.identity import GRANT_ID
from tests.edges.edge import Edge, Refused
from tests.edges.world import (
    CLOSED_POOL,
    DAY,
    ELSEWHERE,
    GONE,
    HOUR,
    LARGE,
    NOBODYS_ACCOUNT,
    NOBODYS_PROJECT,
    NOT_READY,
    OTHER,
    POOL,
    RESERVATION,
    STRANGER,
    UNBOUND,
    UNOFFERED,
    A,
    B,
    World,
    accepted,
    refused,
)


def no_room(*, total: int, granted: int) -> Refused:
    return Refused("CAPACITY_UNAVAILABLE", {"total": total, "granted": granted})


async def test_t1_a_grant_that_has_begun_is_active_at_once(world: World, edge: Edge) -> None:
    grant = await world.made(edge, slots=10, endsAt=B + DAY)
    assert grant == {
        "grantId": grant["grantId"],
        "tenantId": A,
        "accountId": world.account_id,
        "reservationId": RESERVATION,
        "poolId": POOL,
        "slots": 10,
        "startsAt": B,
        "endsAt": B + DAY,
        "state": "active",
        "createdAt": B,
    }
    assert await world.story(A) == [("created", grant["grantId"], B), ("active", grant["grantId"], B)]


async def test_a_grant_ahead_is_scheduled_and_only_created(world: World, edge: Edge) -> None:
    grant = await world.made(edge, startsAt=B + 1, projectId=world.projects[A])
    assert (grant["state"], grant["projectId"]) == ("scheduled", world.projects[A])
    assert await world.story(A) == [("created", grant["grantId"], B)]


async def test_t2_a_full_reservation_has_no_room_at_any_time_of_the_term(world: World, edge: Edge) -> None:
    await world.made(edge, slots=10, endsAt=B + DAY)
    answer = await world.create(edge, slots=1, startsAt=B + HOUR, endsAt=B + 2 * HOUR)
    assert answer == no_room(total=10, granted=10)


async def test_t3_a_term_may_begin_in_the_millisecond_that_another_ends(world: World, edge: Edge) -> None:
    await world.made(edge, slots=10, endsAt=B + HOUR)
    await world.made(edge, slots=10, startsAt=B + HOUR, endsAt=B + 2 * HOUR)


async def test_t4_one_shared_millisecond_is_too_much(world: World, edge: Edge) -> None:
    await world.made(edge, slots=10, endsAt=B + 2 * HOUR)
    answer = await world.create(edge, slots=10, startsAt=B + 2 * HOUR - 1, endsAt=B + 4 * HOUR)
    assert answer == no_room(total=10, granted=10)


async def test_t5_it_is_the_peak_that_counts_and_not_the_sum(world: World, edge: Edge) -> None:
    await world.made(edge, slots=6, endsAt=B + 2 * HOUR)
    await world.made(edge, slots=6, startsAt=B + 2 * HOUR, endsAt=B + 4 * HOUR)
    across: dict[str, Any] = {"startsAt": B + HOUR, "endsAt": B + 3 * HOUR}
    assert await world.create(edge, slots=5, **across) == no_room(total=10, granted=6)
    await world.made(edge, slots=4, **across)


async def test_t10_a_cancelled_grant_keeps_its_term_and_takes_no_room(world: World, edge: Edge) -> None:
    term = {"slots": 10, "startsAt": B + HOUR, "endsAt": B + 2 * HOUR}
    grant = await world.made(edge, **term)
    ended = accepted(await world.end(edge, grant["grantId"]))
    assert (ended["state"], ended["startsAt"], ended["endsAt"]) == ("cancelled", B + HOUR, B + 2 * HOUR)
    await world.made(edge, **term)


async def test_t11_more_slots_than_there_are_is_a_lack_of_room_and_no_wrong_input(world: World, edge: Edge) -> None:
    answer = await world.create(edge, reservationId=LARGE, slots=100_000)
    assert answer == no_room(total=99_999, granted=0)


async def test_t13_seven_times_three_slots_of_ten(world: World, edge: Edge) -> None:
    answers = [await world.create(edge, slots=3) for _ in range(7)]
    assert all(not isinstance(answer, Refused) for answer in answers[:3])
    assert answers[3:] == [no_room(total=10, granted=9)] * 4


async def test_t14_seven_times_three_slots_of_ten_at_the_same_time(world: World, edge: Edge) -> None:
    answers = await asyncio.gather(*(world.create(edge, slots=3) for _ in range(7)))
    assert [answer for answer in answers if isinstance(answer, Refused)] == [no_room(total=10, granted=9)] * 4
    assert len(await world.listed(edge, by=A)) == 3


async def test_t16_two_reservations_fill_up_beside_each_other(world: World, edge: Edge) -> None:
    on_other: dict[str, Any] = {"accountId": world.other_account_id, "reservationId": ELSEWHERE}
    asked = [world.create(edge, **({} if number % 2 else on_other)) for number in range(100)]
    answers = await asyncio.wait_for(asyncio.gather(*asked), timeout=60)
    for place, answered in (("main", answers[1::2]), ("elsewhere", answers[::2])):
        lacking = [answer for answer in answered if isinstance(answer, Refused)]
        assert lacking == [no_room(total=10, granted=10)] * 40, place


async def test_t19_ids_of_grants_have_their_form(world: World, edge: Edge) -> None:
    grants = [await world.made(edge) for _ in range(3)]
    for grant in grants:
        assert GRANT_ID.fullmatch(grant["grantId"])
        assert len(grant["grantId"]) == 33
    assert grants == sorted(grants, key=lambda grant: str(grant["grantId"])), "ids sort by creation"
    answer = refused(await world.get(edge, grants[0]["grantId"] + "\n", by=A))
    assert answer == Refused("INVALID_INPUT", {"field": "grantId", "reason": "malformed"})


TERMS = (
    (B - 300_000, B + HOUR, None),
    (B - 300_001, B + HOUR, ("startsAt", "starts-too-early")),
    (B + HOUR, B + HOUR, ("endsAt", "ends-not-after-start")),
    (B + HOUR, B + HOUR - 1, ("endsAt", "ends-not-after-start")),
    (B + HOUR, B + HOUR + 1, None),
    (B - 2, B, ("endsAt", "term-over")),
    (B - 2, B + 1, None),
    (0, 2**53 - 1, ("startsAt", "starts-too-early")),
    (B, 2**53 - 1, None),
)


async def test_t7_t8_terms(world: World, edge: Edge) -> None:
    for starts_at, ends_at, wrong in TERMS:
        answer = await world.create(edge, startsAt=starts_at, endsAt=ends_at)
        if wrong is None:
            grant = accepted(answer)
            assert (grant["startsAt"], grant["endsAt"]) == (starts_at, ends_at)
        else:
            assert answer == Refused("INVALID_INPUT", {"field": wrong[0], "reason": wrong[1]}), (starts_at, ends_at)
    assert await world.count("capacity_grant") == 4


NOT_OFFERED = Refused("INVALID_INPUT", {"field": "grantTenantId", "reason": "pool-not-offered"})
NOT_THE_GRANTEES = Refused("INVALID_INPUT", {"field": "projectId", "reason": "project-not-grantee"})
T17_T18: tuple[tuple[dict[str, str], Refused], ...] = (
    ({"reservationId": ELSEWHERE}, Refused("NOT_FOUND")),
    ({"reservationId": "nowhere"}, Refused("NOT_FOUND")),
    ({"accountId": NOBODYS_ACCOUNT}, Refused("NOT_FOUND")),
    ({"reservationId": NOT_READY}, Refused("INVALID_STATE", {"state": "not_ready"})),
    ({"reservationId": GONE}, Refused("INVALID_STATE", {"state": "gone"})),
    ({"reservationId": UNBOUND}, Refused("INVALID_STATE", {"state": "unbound"})),
    ({"reservationId": UNOFFERED}, NOT_OFFERED),
    ({"grantTenantId": STRANGER}, NOT_OFFERED),
    ({"grantTenantId": "nobody"}, NOT_OFFERED),
    ({"projectId": NOBODYS_PROJECT}, NOT_THE_GRANTEES),
)


async def test_t17_t18_what_a_reservation_and_a_grantee_must_be(world: World, edge: Edge) -> None:
    for changes, wanted in (*T17_T18, ({"projectId": world.projects[OTHER]}, NOT_THE_GRANTEES)):
        assert await world.create(edge, **changes) == wanted, changes
    assert await world.count("capacity_grant") == 0


async def test_r64_refusals_come_in_the_documented_order(world: World, edge: Edge) -> None:
    """A request in which everything is wrong, mended one thing at a time: each time the next one is told."""
    await world.made(edge, slots=9, endsAt=B + DAY)
    await world.made(edge, idempotencyKey="used", startsAt=B + 2 * DAY, endsAt=B + 3 * DAY)
    wrong: dict[str, Any] = {
        "slots": 0,
        "idempotencyKey": "used",
        "startsAt": B - 300_001,
        "endsAt": B + HOUR,
        "reservationId": "nowhere",
        "grantTenantId": STRANGER,
        "projectId": NOBODYS_PROJECT,
    }
    steps: list[tuple[str, Any, str, str, dict[str, Any]]] = [
        ("slots", 2, A, "INVALID_INPUT", {"field": "slots", "reason": "out-of-range"}),
        ("by", None, A, "ACCESS_DENIED", {}),
        ("idempotencyKey", "fresh", "root", "CONFLICT", {"reason": "idempotency-key-reused"}),
        ("startsAt", B, "root", "INVALID_INPUT", {"field": "startsAt", "reason": "starts-too-early"}),
        ("reservationId", UNBOUND, "root", "NOT_FOUND", {}),
        ("reservationId", RESERVATION, "root", "INVALID_STATE", {"state": "unbound"}),
        ("grantTenantId", A, "root", "INVALID_INPUT", {"field": "grantTenantId", "reason": "pool-not-offered"}),
        ("projectId", ..., "root", "INVALID_INPUT", {"field": "projectId", "reason": "project-not-grantee"}),
        ("slots", 1, "root", "CAPACITY_UNAVAILABLE", {"total": 10, "granted": 9}),
    ]
    for name, mended, by, code, details in steps:
        answer = refused(await world.create(edge, by=by, **wrong))
        assert answer.code == code, name
        assert details.items() <= answer.details.items(), name
        wrong |= {} if name == "by" else {name: mended}
    await world.made(edge, **wrong)


async def test_a_refused_request_changes_nothing_and_burns_no_key(world: World, edge: Edge) -> None:
    full = await world.made(edge, slots=10)
    refused(await world.create(edge, idempotencyKey="again"))
    before = await world.story(A)
    accepted(await world.end(edge, full["grantId"]))
    await world.made(edge, idempotencyKey="again")
    assert before == (await world.story(A))[:2]


async def test_the_messages_say_what_is_wrong_in_words(world: World) -> None:
    response = await world.client.post(
        "/api/compute/reservationGrants/create",
        json=world.creation(slots=11),
        headers={"X-API-Key": world.secrets["root"]},
    )
    assert response.status_code == 409
    assert re.search(r"11 slots do not fit: 0 of 10", response.json()["error"]["message"])
    assert CLOSED_POOL not in response.text
