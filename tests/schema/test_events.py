"""Events as pages and as subscriptions, in process: what is shown, from where it resumes, who may listen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.schema.world import BASE, HOUR, World, until

EVENTS = """query ($all: Boolean! = false, $types: [String!], $first: Int, $after: String) {
  events(all: $all, types: $types, first: $first, after: $after) {
    edges { cursor node { id seq type tenantId } } pageInfo { hasNextPage endCursor }
  }
}"""
LISTEN = """subscription ($all: Boolean! = false, $grant: ID, $types: [String!], $after: String) {
  grantEvents(all: $all, grantId: $grant, types: $types, after: $after) {
    id cursor seq type tenantId grantId occurredAt recordedAt poolId slots startsAt endsAt reason payload requestId traceId
  }
}"""
WATCH = "subscription ($id: ID!) { capacityReservationChanged(id: $id) { id total inUse free grants { totalCount } } }"


class Listener:
    """A subscription that is being read."""

    def __init__(self, results: Any) -> None:
        self._results = results

    async def next(self) -> dict[str, Any]:
        """The next value; it must come, and without errors."""
        result = await asyncio.wait_for(anext(self._results), timeout=60)
        assert result.errors is None, result.errors
        return next(iter(result.data.values()))

    async def failure(self) -> dict[str, Any]:
        """The extensions of the error that ends it."""
        result = await asyncio.wait_for(anext(self._results), timeout=60)
        assert result.errors is not None, result.data
        assert (result.data, len(result.errors)) == (None, 1)
        with pytest.raises(StopAsyncIteration):
            await asyncio.wait_for(anext(self._results), timeout=60)
        return result.errors[0].extensions


@asynccontextmanager
async def listening(world: World, document: str, *given: Any, **variables: Any) -> AsyncIterator[Listener]:
    results = await world.stream(document, *given, **variables)
    try:
        yield Listener(results)
    finally:
        await results.aclose()


async def relayed(world: World, count: int) -> list[dict[str, Any]]:
    """Every event about the grants of every tenant, once there are so many."""
    for _ in range(2_000):
        found = (await world.data(EVENTS, all=True, first=200))["events"]["edges"]
        found = [edge for edge in found if edge["node"]["type"].startswith("reservation-grant.")]
        if len(found) >= count:
            return found
        await asyncio.sleep(0.005)
    raise TimeoutError(f"{len(found)} of {count} events")


async def test_events_are_paged_oldest_first_and_filtered(world: World) -> None:
    await world.create_grant(endsAt=BASE + HOUR)
    await world.create_grant(grantTenantId="b", startsAt=BASE + HOUR)
    everything = await relayed(world, 3)
    of_a = (await world.data(EVENTS, world.callers["a"]))["events"]
    page = (await world.data(EVENTS, world.callers["a"], first=1))["events"]
    rest = (await world.data(EVENTS, world.callers["a"], after=page["pageInfo"]["endCursor"]))["events"]
    active = (await world.data(EVENTS, all=True, types=["reservation-grant.active"]))["events"]

    numbers = [int(edge["node"]["seq"]) for edge in everything]
    assert numbers == list(range(numbers[0], numbers[0] + 3))
    assert [edge["node"]["type"] for edge in of_a["edges"]] == ["reservation-grant.created", "reservation-grant.active"]
    assert (len(page["edges"]), page["pageInfo"]["hasNextPage"]) == (1, True)
    assert rest["edges"] == of_a["edges"][1:]
    assert [edge["node"]["tenantId"] for edge in active["edges"]] == ["a"]


FOUND = """query ($category: String, $scope: String, $correlation: String, $trace: String, $request: String,
    $from: Millis, $until: Millis, $search: String, $grant: ID) {
  events(all: true, category: $category, scope: $scope, correlationId: $correlation, traceId: $trace,
      requestId: $request, from: $from, until: $until, search: $search, grantId: $grant) {
    edges { node { type tenantId requestId traceId } }
  }
}"""


async def test_events_are_found_by_what_they_have_in_common(world: World) -> None:
    """The filters of the event log under /v1."""
    await world.create_grant(endsAt=BASE + HOUR)
    await world.mutate(
        "createBudget",
        {
            "tenantId": "a",
            "scope": "tenant:a/agent:x",
            "unit": "TOKENS",
            "allocated": {"unit": "TOKENS", "amount": "5"},
        },
    )
    world.clock.advance(HOUR)
    await world.create_grant(grantTenantId="b")
    await relayed(world, 5)

    async def types(**wanted: Any) -> list[str]:
        edges = (await world.data(FOUND, **wanted))["events"]["edges"]
        return [edge["node"]["type"] for edge in edges]

    assert await types(category="budget") == ["budget.created"]
    assert await types(scope="TENANT:a/agent") == ["budget.created"]
    assert await types(search="AGENT:X") == ["budget.created"]
    assert await types(scope="tenant:a/agent:xy") == []
    assert await types(category="reservation-grant", until=BASE) == [
        "reservation-grant.created",
        "reservation-grant.active",
    ]
    assert set(await types(trace="trace", category="reservation-grant")) >= {"reservation-grant.created"}
    assert await types(request="nobody's") == []
    assert await types(correlation="nobody's") == []


async def test_a_search_that_makes_no_sense_names_its_field(world: World) -> None:
    for wanted, field in (
        ({"from": 2, "until": 1}, "from"),
        ({"search": ""}, "search"),
        ({"scope": "x" * 1_025}, "scope"),
    ):
        result = await world.ask(FOUND, None, **wanted)
        assert result.errors is not None
        assert (result.errors[0].extensions or {})["field"] == field


async def test_only_root_sees_the_events_of_everybody(world: World) -> None:
    result = await world.ask(EVENTS, world.callers["a"], all=True)

    assert result.data == {"events": None}
    assert result.errors is not None
    assert (result.errors[0].extensions or {})["code"] == "ACCESS_DENIED"


async def test_a_subscriber_gets_what_happens_from_then_on(world: World) -> None:
    """R62."""
    await world.create_grant(slots=1)
    await relayed(world, 2)
    async with listening(world, LISTEN, world.callers["a"]) as listener:
        first = asyncio.create_task(listener.next())
        await _until_subscribed(world)
        made = await world.create_grant(slots=2, endsAt=BASE + HOUR)
        created, active = await first, await listener.next()

    assert [created["type"], active["type"]] == ["reservation-grant.created", "reservation-grant.active"]
    assert created == {
        "id": created["id"],
        "cursor": created["cursor"],
        "seq": "3",
        "type": "reservation-grant.created",
        "tenantId": "a",
        "grantId": made["id"],
        "occurredAt": BASE,
        "recordedAt": BASE,
        "poolId": "pool",
        "slots": 2,
        "startsAt": BASE,
        "endsAt": BASE + HOUR,
        "reason": None,
        "payload": {"grantId": made["id"], "poolId": "pool", "slots": 2, "startsAt": BASE, "endsAt": BASE + HOUR},
        "requestId": "req_root",
        "traceId": "trace",
    }


async def test_a_cursor_resumes_without_a_gap_or_a_double(world: World) -> None:
    """T91, D47: what was missed first, then what happens."""
    for _ in range(3):
        await world.create_grant(slots=1)
    everything = [edge["node"] for edge in await relayed(world, 6)]
    async with listening(world, LISTEN, world.callers["a"], after=(await _cursors(world))[1]) as listener:
        missed = [await listener.next() for _ in range(4)]
        await world.create_grant(slots=1)
        live = [await listener.next() for _ in range(2)]

    assert [event["id"] for event in missed] == [event["id"] for event in everything[2:]]
    assert [event["seq"] for event in missed + live] == ["3", "4", "5", "6", "7", "8"]


async def test_the_cursor_before_a_snapshot_begins_a_subscription_that_misses_nothing(world: World) -> None:
    """F10."""
    cursor = (await world.data("{ eventsCursor }", world.callers["a"]))["eventsCursor"]
    made = await world.create_grant(slots=1)
    async with listening(world, LISTEN, world.callers["a"], after=cursor) as listener:
        assert (await listener.next())["grantId"] == made["id"]


async def test_a_subscription_can_be_to_one_grant_or_to_some_types(world: World) -> None:
    cursor = (await world.data("{ eventsCursor(all: true) }"))["eventsCursor"]
    await world.create_grant(slots=1)
    second = await world.create_grant(slots=1)
    async with listening(world, LISTEN, all=True, grant=second["id"], after=cursor) as listener:
        of_one = [await listener.next() for _ in range(2)]
    async with listening(world, LISTEN, all=True, types=["reservation-grant.active"], after=cursor) as listener:
        of_type = [await listener.next() for _ in range(2)]

    assert {event["grantId"] for event in of_one} == {second["id"]}
    assert {event["type"] for event in of_type} == {"reservation-grant.active"}


async def test_root_hears_of_everybody_and_a_tenant_of_itself(world: World) -> None:
    async with (
        listening(
            world, LISTEN, all=True, after=(await world.data("{ eventsCursor(all: true) }"))["eventsCursor"]
        ) as root,
        listening(world, LISTEN, world.callers["b"], after=await _end(world, "b")) as of_b,
    ):
        await world.create_grant(slots=1)
        await world.create_grant(slots=1, grantTenantId="b")
        heard = [await root.next() for _ in range(4)]
        own = [await of_b.next() for _ in range(2)]

    assert [event["tenantId"] for event in heard] == ["a", "a", "b", "b"]
    assert {event["tenantId"] for event in own} == {"b"}
    assert [event["id"] for event in own] == [event["id"] for event in heard[2:]]


@pytest.mark.parametrize(
    ("document", "variables", "code"),
    [
        (LISTEN, {"all": True}, "ACCESS_DENIED"),
        (LISTEN, {"after": "nonsense"}, "INVALID_INPUT"),
        ('subscription { grantEvents(tenantId: "b") { id } }', {}, "ACCESS_DENIED"),
        (WATCH, {"id": "pacct_" + "0" * 26 + "/res"}, "ACCESS_DENIED"),
    ],
)
async def test_who_may_not_listen_is_told_before_anything_is_opened(
    world: World, document: str, variables: dict[str, Any], code: str
) -> None:
    async with listening(world, document, world.callers["a"], **variables) as listener:
        assert (await listener.failure())["code"] == code
    assert (world.runtime.hub.count, world.runtime.board.count) == (0, 0)


async def test_a_closing_server_ends_the_stream_with_a_cursor(world: World) -> None:
    await world.create_grant(slots=1)
    await relayed(world, 2)
    async with listening(world, LISTEN, world.callers["a"]) as listener:
        ending = asyncio.create_task(listener.failure())
        await _until_subscribed(world)
        world.runtime.end_streams()
        extensions = await ending

    assert extensions["code"] == "SHUTTING_DOWN"
    async with listening(world, LISTEN, world.callers["a"], after=extensions["cursor"]) as listener:
        await world.create_grant(slots=1)
        assert (await listener.next())["seq"] == "3"


async def test_a_revoked_key_ends_its_streams(world: World) -> None:
    key_id = world.callers["a"].principal.key_id
    async with listening(world, LISTEN, world.callers["a"]) as listener:
        ending = asyncio.create_task(listener.failure())
        await _until_subscribed(world)
        await world.mutate("revokeApiKey", {"keyId": key_id})
        assert (await ending)["code"] == "UNAUTHENTICATED"


async def test_a_client_that_leaves_leaves_nothing_behind(world: World) -> None:
    """T92, B27."""
    for document, variables in ((LISTEN, {"all": True}), (WATCH, {"id": f"{world.account_id}/res"})):
        async with listening(world, document, **variables) as listener:
            reading = asyncio.create_task(listener.next())
            await _until_subscribed(world)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        assert (world.runtime.hub.count, world.runtime.board.count) == (0, 0)


async def test_a_watched_capacity_reservation_is_shown_at_once_and_after_each_change(world: World) -> None:
    """Nested look-ups are made anew for each value."""
    async with listening(world, WATCH, id=f"{world.account_id}/res") as listener:
        first = await listener.next()
        await world.create_grant(slots=4)
        second = await listener.next()
        await world.run_instance("b")
        third = await listener.next()

    assert (first["free"], first["inUse"], first["grants"]["totalCount"]) == (10, 0, 0)
    assert (second["free"], second["inUse"], second["grants"]["totalCount"]) == (6, 0, 1)
    assert (third["free"], third["inUse"], third["grants"]["totalCount"]) == (5, 1, 1)


async def test_an_unknown_capacity_reservation_cannot_be_watched(world: World) -> None:
    async with listening(world, WATCH, id=f"{world.account_id}/nope") as listener:
        assert (await listener.failure())["code"] == "NOT_FOUND"


async def _cursors(world: World) -> list[str]:
    return [edge["cursor"] for edge in (await world.data(EVENTS, world.callers["a"]))["events"]["edges"]]


async def _end(world: World, tenant_id: str) -> str:
    return (await world.data("{ eventsCursor }", world.callers[tenant_id]))["eventsCursor"]


async def _until_subscribed(world: World) -> None:
    await until(lambda: world.runtime.hub.count + world.runtime.board.count)
