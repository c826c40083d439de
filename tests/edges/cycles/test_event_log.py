"""The event log (operations 13 and 14, section 8.1): who sees what of it, its filters, orders and cursors."""

from __future__ import annotations

from typing import Any

import pytest

from domain.instants import show_instant
from tests.edges.cycles.world import ACME, ADMIN, BOT, OTHER, TENANT, TOKENS, B, World, ok, refused

OWN = "/v1/events"
ALL = "/v1/admin/events"
INVALID = (400, "INVALID_REQUEST")
SECOND = 1_000
TRACE = "0af7651916cd43dd8448eb211c80319c"
READER = "reader"


@pytest.fixture(autouse=True)
async def _events(world: World) -> None:
    """acme: created, budget created, 90 of 100 held, a denial, another tenant with a budget."""
    await world.add_key(READER, permissions=["events:read"])
    await world.budget(TENANT, 100)
    world.clock.advance(SECOND)
    await world.held(90)
    world.clock.advance(SECOND)
    assert refused(await world.reserve(20, subject={"tenant": ACME, "agent": "bot"})) == (409, "BUDGET_EXCEEDED")
    world.clock.advance(SECOND)
    await world.add_tenant(OTHER)
    await world.budget(f"tenant:{OTHER}", 5)
    await world.node.relay.flush()


async def types(world: World, path: str = OWN, *, by: str = READER, **params: Any) -> list[str]:
    """In the order of the list, over all its pages."""
    return [event["event_type"] for event in await listed(world, path, by=by, **params)]


async def listed(world: World, path: str = OWN, *, by: str = READER, **params: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    while True:
        body = ok(await world.get(path, by=by, **params, **cursor))
        found += body["events"]
        assert body["has_more"] is ("next_cursor" in body)
        if not body["has_more"]:
            return found
        cursor = {"cursor": body["next_cursor"]}


@pytest.mark.parametrize("limit", [1, 2, 100])
async def test_a_tenant_sees_its_own_events_newest_first_whatever_the_page(world: World, limit: int) -> None:
    seen = await types(world, limit=limit)
    assert seen[0] == "reservation.denied"
    assert set(seen) >= {"budget.created", "budget.threshold_crossed"}
    assert {event["tenant_id"] for event in await listed(world, limit=limit)} == {ACME}


async def test_a_tenant_never_sees_types_that_are_operators(world: World) -> None:
    assert [
        kind for kind in await types(world) if kind.partition(".")[0] not in ("budget", "reservation", "tenant")
    ] == []
    assert await types(world, category="api_key") == []
    assert await types(world, event_type="policy.created") == []


async def test_the_list_needs_its_own_permission(world: World) -> None:
    assert refused(await world.get(OWN)) == (403, "INSUFFICIENT_PERMISSIONS")


async def test_an_operator_sees_everybody(world: World) -> None:
    events = await listed(world, ALL, by=ADMIN)
    assert {event["tenant_id"] for event in events} >= {ACME, OTHER}
    assert {event["tenant_id"] for event in await listed(world, ALL, by=ADMIN, tenant_id=OTHER)} == {OTHER}


async def test_one_event_is_shown_as_the_list_shows_it(world: World) -> None:
    event = (await listed(world, ALL, by=ADMIN, event_type="reservation.denied"))[0]
    assert ok(await world.get(f"{ALL}/{event['event_id']}", by=ADMIN)) == event
    assert refused(await world.get(f"{ALL}/evt_nothing", by=ADMIN)) == (404, "EVENT_NOT_FOUND")
    assert refused(await world.get(f"{ALL}/{event['event_id']}", by=READER)) == (401, "UNAUTHORIZED")


async def test_the_envelope_of_a_denial(world: World) -> None:
    (event,) = await listed(world, event_type="reservation.denied")
    assert event["timestamp"] == show_instant(B + 2 * SECOND)
    assert (event["category"], event["source"], event["scope"]) == ("reservation", "cycles-server", TENANT)
    assert event["actor"]["type"] == "api_key"
    assert event["data"]["reason_code"] == "BUDGET_EXCEEDED"
    assert (event["data"]["requested_amount"], event["data"]["remaining"], event["data"]["unit"]) == (20, 10, TOKENS)


async def test_ratios_are_fractions_on_the_wire(world: World) -> None:
    crossed = await listed(world, event_type="budget.threshold_crossed")
    assert {event["data"]["utilization"] for event in crossed} == {0.9}
    assert max(event["data"]["threshold"] for event in crossed) <= 0.9


async def test_what_tells_of_one_ledger_running_out_has_one_correlation(world: World) -> None:
    chain = (await listed(world, event_type="reservation.denied"))[0]["correlation_id"]
    linked = await types(world, correlation_id=chain)
    assert set(linked) == {"reservation.denied", "budget.threshold_crossed"}


async def test_events_are_found_by_the_request_and_the_trace_that_caused_them(world: World) -> None:
    traced = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
    answer = await world.post("/v1/reservations", world.request(1), headers=traced)
    denied = await world.post("/v1/reservations", world.request(50), headers=traced)
    assert refused(denied) == (409, "BUDGET_EXCEEDED")
    await world.node.relay.flush()
    assert ok(answer)["decision"] == "ALLOW"
    (event,) = await listed(world, ALL, by=ADMIN, trace_id=TRACE)
    assert (event["event_type"], event["trace_id"]) == ("reservation.denied", TRACE)
    assert await listed(world, ALL, by=ADMIN, request_id=event["request_id"]) == [event]
    assert refused(await world.get(ALL, by=ADMIN, trace_id=TRACE.upper())) == INVALID


async def test_scope_is_a_prefix_and_search_looks_inside(world: World) -> None:
    await world.budget(BOT, 10)
    await world.node.relay.flush()
    assert await types(world, scope=f"{TENANT}/agent") == ["budget.created"]
    assert await types(world, ALL, by=ADMIN, search="AGENT:BOT") == ["budget.created"]
    assert await types(world, ALL, by=ADMIN, search="%") == []


async def test_a_window_has_both_its_ends(world: World) -> None:
    at = show_instant(B + 2 * SECOND)
    assert await types(world, from_=at, to=at) == ["reservation.denied"]
    assert refused(await world.get(OWN, by=READER, from_=show_instant(B + SECOND), to=show_instant(B))) == INVALID


@pytest.mark.parametrize("order", ["event_type", "category", "scope", "tenant_id", "timestamp"])
@pytest.mark.parametrize("direction", ["asc", "desc"])
async def test_every_order_is_the_whole_list_once(world: World, order: str, direction: str) -> None:
    events = await listed(world, ALL, by=ADMIN, sort_by=order, sort_dir=direction, limit=2)
    values = [event.get(order, "") for event in events]
    assert values == sorted(values, reverse=direction == "desc")
    assert len({event["event_id"] for event in events}) == len(events) > 4


async def test_unknown_words_and_foreign_cursors_are_refused(world: World) -> None:
    assert refused(await world.get(OWN, by=READER, event_type="budget.unheard_of")) == INVALID
    assert refused(await world.get(OWN, by=READER, category="weather")) == INVALID
    cursor = ok(await world.get(OWN, by=READER, limit=1))["next_cursor"]
    assert refused(await world.get(OWN, by=READER, category="budget", cursor=cursor)) == INVALID


async def test_a_key_confined_to_scopes_sees_the_events_of_those(world: World) -> None:
    await world.budget(BOT, 10)
    await world.add_key("bot-reader", permissions=["events:read"], scope_filter=["agent:bot"])
    await world.node.relay.flush()
    assert await types(world, by="bot-reader") == ["budget.created"]
