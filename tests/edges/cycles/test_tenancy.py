"""Whose key may do what: tenants, permissions, scope filters, closed and suspended tenants (section 7; scenarios 92 to 107)."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest

from tests.edges.cycles.world import ACME, ADMIN, BOT, OTHER, TENANT, World, ok, refused

FORBIDDEN = (403, "FORBIDDEN")
UNAUTHORIZED = (401, "UNAUTHORIZED")
CLOSED = (409, "TENANT_CLOSED")


@pytest.fixture(autouse=True)
async def _budget(world: World) -> None:
    await world.budget(TENANT, 10_000)


async def test_s92_nobody_reaches_into_another_tenant(world: World) -> None:
    await world.add_tenant(OTHER)
    reservation_id = await world.held(1)
    theirs = {"subject": {"tenant": ACME}, "by": OTHER}
    for answer in (
        await world.reserve(1, **theirs),
        await world.decide(1, **theirs),
        await world.debit(1, **theirs),
        await world.commit(reservation_id, 1, by=OTHER),
        await world.release(reservation_id, by=OTHER),
        await world.extend(reservation_id, 1, by=OTHER),
        await world.get(f"/v1/reservations/{reservation_id}", by=OTHER),
        await world.get("/v1/reservations", by=OTHER, tenant=ACME),
        await world.get("/v1/balances", by=OTHER, tenant=ACME),
    ):
        assert refused(answer) == FORBIDDEN
        assert answer.headers["x-cycles-tenant"] == OTHER
        assert "details" not in answer.json()


async def test_tenants_are_compared_as_they_are_sent(world: World) -> None:
    assert refused(await world.reserve(1, subject={"tenant": "Acme"})) == FORBIDDEN


@pytest.mark.parametrize("what", ["commit", "release", "extend", "get"])
async def test_s92_what_never_was_is_not_found(world: World, what: str) -> None:
    unknown = "rsv_of_nobody"
    answers = {
        "commit": lambda: world.commit(unknown, 1),
        "release": lambda: world.release(unknown),
        "extend": lambda: world.extend(unknown, 1),
        "get": lambda: world.get(f"/v1/reservations/{unknown}"),
    }
    assert refused(await answers[what]()) == (404, "NOT_FOUND")


@pytest.mark.parametrize(("length", "expected"), [(128, (404, "NOT_FOUND")), (129, (400, "INVALID_REQUEST"))])
async def test_s109_an_id_has_128_characters_at_most(world: World, length: int, expected: tuple[int, str]) -> None:
    name = "r" * length
    assert refused(await world.commit(name, 1)) == expected
    assert refused(await world.get(f"/v1/reservations/{name}")) == expected


@pytest.mark.parametrize("key", [None, "no-such-key-0123456789-0123456789-0123456789", "short", ""])
async def test_s94_without_a_valid_key_there_is_nothing(world: World, key: str | None) -> None:
    for answer in (
        await world.post("/v1/reservations", world.request(1), by=key),
        await world.get("/v1/reservations", by=key),
        await world.get("/v1/balances", by=key, tenant=ACME),
    ):
        assert refused(answer) == UNAUTHORIZED
        assert "x-cycles-tenant" not in answer.headers
        assert "X-Cycles-API-Key" in answer.json()["message"]


async def test_s94_a_revoked_key_is_none(world: World) -> None:
    made = await world.add_key("short-lived")
    ok(await world.get("/v1/reservations", by="short-lived"))
    ok(await world.ask("DELETE", f"/v1/admin/api-keys/{made['key_id']}", by=ADMIN))

    # A node remembers a key for half a second.
    answer = await world.until("/v1/reservations", lambda answer: answer.status_code == 401, by="short-lived")
    assert refused(answer) == UNAUTHORIZED


# -- the operator's key ------------------------------------------------------------------------------------------------


async def test_a_wrong_operators_key_is_not_made_up_for_by_a_tenants(world: World) -> None:
    reservation_id = await world.held(1)
    headers = {"X-Admin-API-Key": "wrong-key-0123456789-0123456789-0123456789"}
    for answer in (
        await world.get("/v1/reservations", headers=headers),
        await world.get(f"/v1/reservations/{reservation_id}", headers=headers),
        await world.ask(
            "POST", f"/v1/reservations/{reservation_id}/release", {"idempotency_key": "k"}, headers=headers
        ),
        await world.get("/v1/auth/introspect", headers=headers),
        await world.get("/v1/auth/introspect", headers={"X-Admin-API-Key": world.secrets[ACME]}),
    ):
        assert refused(answer) == UNAUTHORIZED
        assert "X-Cycles-API-Key" not in answer.json()["message"]


async def test_where_an_operators_key_is_not_taken_it_is_passed_over(world: World) -> None:
    both = {"X-Admin-API-Key": "wrong", "X-Cycles-API-Key": world.secrets[ACME]}
    ok(await world.post("/v1/reservations", world.request(1), by=None, headers=both))
    assert refused(await world.post("/v1/reservations", world.request(1), by=ADMIN)) == UNAUTHORIZED
    assert refused(await world.get("/v1/balances", by=ADMIN, tenant=ACME)) == UNAUTHORIZED


async def test_s101_an_operator_lists_one_tenants_reservations(world: World) -> None:
    reservation_id = await world.held(1)
    answer = await world.get("/v1/reservations", by=ADMIN)
    assert refused(answer) == (400, "INVALID_REQUEST")
    assert answer.json()["message"] == "tenant query parameter is required when using admin key authentication"
    rows = ok(await world.get("/v1/reservations", by=ADMIN, tenant=ACME))["reservations"]
    assert [row["reservation_id"] for row in rows] == [reservation_id]
    assert ok(await world.get("/v1/reservations", by=ADMIN, tenant="nobody-here"))["reservations"] == []
    shown = await world.get(f"/v1/reservations/{reservation_id}", by=ADMIN)
    assert ok(shown)["reservation_id"] == reservation_id
    assert shown.headers["x-cycles-tenant"] == ACME


async def test_s103_an_operators_release_is_on_record(world: World) -> None:
    reservation_id = await world.held(400)
    answer = await world.release(reservation_id, by=ADMIN, reason="[INCIDENT]\nhung")
    ok(answer)
    logs = ok(await world.get("/v1/admin/audit/logs", by=ADMIN, request_id=answer.headers["x-request-id"]))["logs"]
    (entry,) = logs
    assert (entry["operation"], entry["resource_id"], entry["tenant_id"]) == (
        "releaseReservation",
        reservation_id,
        ACME,
    )
    assert entry["metadata"]["actor_type"] == "admin_on_behalf_of"
    assert entry["metadata"]["reason"] == "[INCIDENT] hung"
    assert entry["trace_id"] == answer.headers["x-cycles-trace-id"]
    assert await world.numbers(TENANT, "reserved") == (0,)


async def test_s104_a_commit_and_an_operators_release_at_once_are_one_of_the_two(world: World) -> None:
    reservation_id = await world.held(100)
    answers = await asyncio.gather(world.commit(reservation_id, 100), world.release(reservation_id, by=ADMIN))
    assert sorted(answer.status_code for answer in answers) == [200, 409]
    spent, reserved = await world.numbers(TENANT, "spent", "reserved")
    assert (spent in (0, 100), reserved) == (True, 0)


# -- closed and suspended tenants --------------------------------------------------------------------------------------


async def close(world: World) -> None:
    """Close the tenant. Its keys are revoked with it; the node still knows them for a moment, as any node may."""
    await world.set_tenant(status="CLOSED")


async def test_s95_s100_nothing_of_a_closed_tenant_changes_any_more(world: World) -> None:
    held, committed = await world.held(100), await world.held(100)
    ok(await world.commit(committed, 100))
    await close(world)
    assert refused(await world.release(held, by=ADMIN)) == CLOSED
    assert refused(await world.release(committed, by=ADMIN)) == CLOSED, "before its own state"
    assert refused(await world.fund("CREDIT", 1)) == CLOSED
    shown = ok(await world.get(f"/v1/reservations/{held}", by=ADMIN))
    assert shown["status"] == "RELEASED"
    assert len(ok(await world.get("/v1/reservations", by=ADMIN, tenant=ACME))["reservations"]) == 2
    assert await world.numbers(TENANT, "reserved", "spent", "status") == (0, 100, "CLOSED")


async def test_s95_s97_a_key_that_a_node_still_remembers_changes_nothing_either(world: World) -> None:
    held = await world.held(100)
    ok(await world.get("/v1/reservations"))
    await close(world)
    answers = await asyncio.gather(
        world.reserve(1), world.commit(held, 1), world.extend(held, 1), world.release(held), world.debit(1)
    )
    for answer in answers:
        assert refused(answer) in (CLOSED, UNAUTHORIZED)
    for preview in await asyncio.gather(world.reserve(1, dry_run=True), world.decide(1)):
        if preview.status_code != 401:
            assert (ok(preview)["decision"], preview.json()["reason_code"]) == ("DENY", "TENANT_CLOSED")


async def test_closing_again_is_nothing_and_a_closed_tenant_stays_closed(world: World) -> None:
    await close(world)
    first = ok(await world.get(f"/v1/admin/tenants/{ACME}", by=ADMIN))
    world.clock.advance(1_000)
    await close(world)
    assert ok(await world.get(f"/v1/admin/tenants/{ACME}", by=ADMIN))["closed_at"] == first["closed_at"]
    answer = await world.ask("PATCH", f"/v1/admin/tenants/{ACME}", {"status": "ACTIVE"}, by=ADMIN)
    assert refused(answer) == CLOSED


async def test_a_suspended_tenant_settles_what_it_holds_and_starts_nothing(world: World) -> None:
    commits, releases, extends = [await world.held(100) for _ in range(3)]
    await world.set_tenant(status="SUSPENDED")
    for answer in (await world.reserve(1), await world.debit(1), await world.extend(extends, 1)):
        assert refused(answer) == FORBIDDEN
    for preview in (await world.reserve(1, dry_run=True), await world.decide(1)):
        assert (ok(preview)["decision"], preview.json()["reason_code"]) == ("DENY", "TENANT_SUSPENDED")
    ok(await world.commit(commits, 100))
    ok(await world.release(releases))
    ok(await world.get("/v1/reservations"))
    await world.set_tenant(status="ACTIVE")
    ok(await world.reserve(1))


async def test_s106_closing_among_reserves_leaves_nothing_held(world: World) -> None:
    closing = {"status": "CLOSED"}
    answers = await asyncio.gather(
        *(world.reserve(1) for _ in range(50)),
        world.ask("PATCH", f"/v1/admin/tenants/{ACME}", closing, by=ADMIN),
        *(world.reserve(1) for _ in range(50)),
    )
    assert {answer.status_code for answer in answers} <= {200, 401, 409}
    rows = ok(await world.get("/v1/reservations", by=ADMIN, tenant=ACME, status="ACTIVE"))["reservations"]
    assert rows == []
    assert await world.numbers(TENANT, "reserved") == (0,)


async def test_s107_a_subject_without_a_tenant_stays_inside_the_keys_own(world: World) -> None:
    await world.add_tenant(OTHER)
    await world.budget(f"tenant:{OTHER}", 10)
    body = await world.reserve(1, subject={"workspace": "prod"})
    assert refused(body) == (404, "NOT_FOUND")
    assert body.json()["message"].endswith(": workspace:prod")


# -- permissions and scope filters -------------------------------------------------------------------------------------

ASKS = {
    "reservations:create": ("reserve", "decide"),
    "reservations:commit": ("commit", "debit"),
    "reservations:release": ("release",),
    "reservations:extend": ("extend",),
    "reservations:list": ("list",),
    "balances:read": ("balances",),
}
"""Permission to what it allows. Whoever has one about reservations may look at a single one."""


async def _all_asks(world: World, reservation_id: str, by: str) -> dict[str, httpx2.Response]:
    return {
        "reserve": await world.reserve(1, by=by),
        "decide": await world.decide(1, by=by),
        "debit": await world.debit(1, by=by),
        "extend": await world.extend(reservation_id, 1, by=by),
        "list": await world.get("/v1/reservations", by=by),
        "balances": await world.get("/v1/balances", by=by, tenant=ACME),
        "get": await world.get(f"/v1/reservations/{reservation_id}", by=by),
        "commit": await world.commit(reservation_id, 1, by=by),
        "release": await world.release(await world.held(1), by=by),
    }


@pytest.mark.parametrize("permission", ASKS)
async def test_a_key_does_what_its_permissions_say_and_nothing_else(world: World, permission: str) -> None:
    await world.add_key("narrow", permissions=[permission])
    allowed = {*ASKS[permission], *(("get",) if permission.startswith("reservations:") else ())}
    answers = await _all_asks(world, await world.held(1), "narrow")
    for what, answer in answers.items():
        if what in allowed:
            assert answer.status_code in (200, 201), (what, answer.text)
        else:
            assert refused(answer) == FORBIDDEN, what


async def test_a_missing_permission_comes_before_a_malformed_body(world: World) -> None:
    await world.add_key("narrow", permissions=["balances:read"])
    assert refused(await world.post("/v1/reservations", {"nonsense": 1}, by="narrow")) == FORBIDDEN


@pytest.mark.parametrize("scope_filter", [["agent:bot"], ["agent:*"]])
async def test_a_confined_key_reaches_only_its_scopes(world: World, scope_filter: list[str]) -> None:
    await world.budget(BOT, 100)
    await world.add_key("confined", scope_filter=scope_filter)
    inside: dict[str, Any] = {"subject": {"tenant": ACME, "agent": "bot"}, "by": "confined"}
    reservation_id = await world.held(1, **inside)
    ok(await world.commit(reservation_id, 1, by="confined"))
    assert refused(await world.reserve(1, by="confined")) == FORBIDDEN
    elsewhere = await world.held(1)
    assert refused(await world.commit(elsewhere, 1, by="confined")) == FORBIDDEN
    assert refused(await world.get(f"/v1/reservations/{elsewhere}", by="confined")) == FORBIDDEN
    rows = ok(await world.get("/v1/reservations", by="confined"))["reservations"]
    assert [row["reservation_id"] for row in rows] == [reservation_id]
    balances = ok(await world.get("/v1/balances", by="confined", tenant=ACME))["balances"]
    assert [balance["scope_path"] for balance in balances] == [BOT]
