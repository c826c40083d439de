"""Idempotency over the wire (section 4; scenarios 55 to 76)."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest

from tests.edges.cycles.world import ACME, ADMIN, OTHER, TENANT, TOKENS, World, ok, refused, tokens

MISMATCH = (409, "IDEMPOTENCY_MISMATCH")


@pytest.fixture(autouse=True)
async def _budget(world: World) -> None:
    await world.budget(TENANT, 10_000)


def without_lead(response: httpx2.Response) -> dict[str, Any]:
    """All that a repetition may not change."""
    return {name: value for name, value in response.json().items() if name != "remaining_ttl_ms"}


async def test_s55_a_repeated_reserve_holds_once_and_tells_the_lead_anew(world: World) -> None:
    request = world.request(100, ttl_ms=30_000)
    first = await world.post("/v1/reservations", request)
    world.clock.advance(4_000)
    second = await world.post("/v1/reservations", request)
    assert without_lead(first) == without_lead(second)
    assert (ok(first)["remaining_ttl_ms"], ok(second)["remaining_ttl_ms"]) == (30_000, 26_000)
    assert await world.numbers(TENANT, "reserved") == (100,)


CHANGED: dict[str, dict[str, Any]] = {
    "the amount": {"estimate": tokens(101)},
    "the subject": {"subject": {"tenant": ACME, "agent": "bot"}},
    "the case of a name": {"subject": {"tenant": ACME, "agent": "Bot"}},
    "the lifetime": {"ttl_ms": 59_999},
    "the metadata": {"metadata": {"x": 1}},
    "a dry run": {"dry_run": True},
}


@pytest.mark.parametrize("what", CHANGED)
async def test_s56_s58_the_same_key_is_the_same_request(world: World, what: str) -> None:
    request = world.request(100)
    ok(await world.post("/v1/reservations", request))
    assert refused(await world.post("/v1/reservations", {**request, **CHANGED[what]})) == MISMATCH


async def test_s58_a_dry_run_takes_the_key_too(world: World) -> None:
    request = world.request(100)
    ok(await world.post("/v1/reservations", {**request, "dry_run": True}))
    assert refused(await world.post("/v1/reservations", request)) == MISMATCH


async def test_defaults_and_the_order_of_names_make_no_other_request(world: World) -> None:
    request = world.request(100, metadata={"a": 1, "b": 2})
    first = ok(await world.post("/v1/reservations", request))
    spelled = {
        **dict(reversed(request.items())),
        "dry_run": False,
        "grace_period_ms": 5_000,
        "metadata": {"b": 2, "a": 1},
    }
    second = ok(await world.post("/v1/reservations", {**spelled, "overage_policy": None}))
    assert first["reservation_id"] == second["reservation_id"]


async def test_s59_s74_operations_have_keys_of_their_own(world: World) -> None:
    key = world.key()
    ok(await world.decide(1, idempotency_key=key))
    reservation_id = await world.held(1, idempotency_key=key)
    ok(await world.extend(reservation_id, 1, idempotency_key=key))
    ok(await world.commit(reservation_id, 1, idempotency_key=key))
    ok(await world.debit(1, idempotency_key=key), 201)


async def test_s61_a_refusal_takes_no_key(world: World) -> None:
    request = world.request(10_001)
    assert refused(await world.post("/v1/reservations", request)) == (409, "BUDGET_EXCEEDED")
    ok(await world.fund("CREDIT", 1))
    ok(await world.post("/v1/reservations", request))


async def test_a_denial_of_a_preview_is_remembered(world: World) -> None:
    request = world.request(10_001)
    first = await world.post("/v1/decide", request)
    ok(await world.fund("CREDIT", 1))
    assert (await world.post("/v1/decide", request)).content == first.content
    assert first.json()["decision"] == "DENY"


async def test_s62_a_repeated_commit_is_the_first_answer_to_the_byte(world: World) -> None:
    reservation_id = await world.held(100)
    key = world.key()
    first = await world.commit(reservation_id, 40, idempotency_key=key)
    ok(await world.debit(500), 201)
    second = await world.commit(reservation_id, 40, idempotency_key=key)
    assert (first.status_code, first.content) == (second.status_code, second.content)
    assert refused(await world.commit(reservation_id, 41, idempotency_key=key)) == MISMATCH


async def test_s64_a_repeated_release_is_one_and_another_key_is_too_late(world: World) -> None:
    reservation_id = await world.held(100)
    key = world.key()
    first = await world.release(reservation_id, idempotency_key=key)
    assert (await world.release(reservation_id, idempotency_key=key)).content == first.content
    assert refused(await world.release(reservation_id)) == (409, "RESERVATION_FINALIZED")


async def test_s65_s67_once_the_hold_is_over_a_repetition_has_no_lead(world: World) -> None:
    request = world.request(100)
    created = await world.post("/v1/reservations", request)
    reservation_id = created.json()["reservation_id"]
    extension = {"idempotency_key": world.key(), "extend_by_ms": 1_000}
    extended = await world.post(f"/v1/reservations/{reservation_id}/extend", extension)
    ok(await world.release(reservation_id))
    for path, body, first in (
        ("/v1/reservations", request, created),
        (f"/v1/reservations/{reservation_id}/extend", extension, extended),
    ):
        again = await world.post(path, body)
        assert ok(again)["remaining_ttl_ms"] == 0
        assert without_lead(again) == without_lead(first)


async def test_s68_an_extension_is_one_for_its_reservation(world: World) -> None:
    one, other = await world.held(1), await world.held(1)
    key = world.key()
    ok(await world.extend(one, 1_000, idempotency_key=key))
    assert refused(await world.extend(one, 1_001, idempotency_key=key)) == MISMATCH
    ok(await world.extend(other, 1_001, idempotency_key=key))


async def test_s70_32_at_once_are_one(world: World) -> None:
    request = world.request(100)
    answers = await asyncio.gather(*(world.post("/v1/reservations", request) for _ in range(32)))
    assert len({ok(answer)["reservation_id"] for answer in answers}) == 1
    assert await world.numbers(TENANT, "reserved") == (100,)


@pytest.mark.parametrize(("key", "status"), [("k" * 257, 400), ("k" * 256, 200), ("", 400), (None, 400), (..., 400)])
async def test_s71_a_key_has_1_to_256_characters(world: World, key: Any, status: int) -> None:
    assert (await world.reserve(1, idempotency_key=key)).status_code == status


async def test_s73_tenants_have_keys_of_their_own(world: World) -> None:
    await world.add_tenant(OTHER)
    await world.budget(f"tenant:{OTHER}", 10)
    key = world.key()
    mine = await world.held(1, idempotency_key=key)
    theirs = await world.held(2, idempotency_key=key, subject={"tenant": OTHER}, by=OTHER)
    assert mine != theirs


async def test_s52_a_repeated_debit_is_a_201_with_the_same_id(world: World) -> None:
    request = world.request(100, what="actual")
    first = await world.post("/v1/events", request)
    again = await world.post("/v1/events", request)
    assert (again.status_code, again.content) == (201, first.content)
    assert await world.numbers(TENANT, "spent") == (100,)


async def test_funding_is_repeated_by_its_key_and_not_without_one(world: World) -> None:
    key = world.key()
    first = await world.fund("CREDIT", 5, idempotency_key=key)
    assert (await world.fund("CREDIT", 5, idempotency_key=key)).content == first.content
    assert refused(await world.fund("CREDIT", 6, idempotency_key=key)) == MISMATCH
    body = {"operation": "CREDIT", "amount": tokens(1)}
    for _ in range(2):
        ok(await world.post("/v1/admin/budgets/fund", body, by=ADMIN, scope=TENANT, unit=TOKENS, tenant_id=ACME))
    assert await world.numbers(TENANT, "allocated") == (10_007,)


@pytest.mark.parametrize("header", ["other", "", " "])
async def test_a_key_in_the_header_is_the_bodys(world: World, header: str) -> None:
    request = world.request(1)
    answer = await world.post("/v1/reservations", request, headers={"X-Idempotency-Key": header})
    assert refused(answer) == (400, "INVALID_REQUEST")
    ok(await world.post("/v1/reservations", request, headers={"X-Idempotency-Key": request["idempotency_key"]}))


async def test_the_ends_of_a_key_may_be_lost_in_a_header(world: World) -> None:
    request = world.request(1, idempotency_key=" spaced out ")
    ok(await world.post("/v1/reservations", request, headers={"X-Idempotency-Key": " spaced out "}))


async def test_a_key_of_other_letters_is_understood_in_the_header(world: World) -> None:
    request = world.request(1, idempotency_key="cl\u00e9")
    sent = {"X-Idempotency-Key": "cl\u00e9".encode()}
    ok(await world.ask("POST", "/v1/reservations", request, headers=sent))
    assert refused(await world.ask("POST", "/v1/reservations", request, headers={"X-Idempotency-Key": "cle"})) == (
        400,
        "INVALID_REQUEST",
    )


async def test_a_key_in_the_header_alone_is_not_enough(world: World) -> None:
    request = world.request(1, idempotency_key=...)
    answer = await world.post("/v1/reservations", request, headers={"X-Idempotency-Key": "k"})
    assert refused(answer) == (400, "INVALID_REQUEST")


async def test_the_key_is_compared_before_the_tenant(world: World) -> None:
    request = world.request(1, subject={"tenant": OTHER})
    answer = await world.post("/v1/reservations", request, headers={"X-Idempotency-Key": "other"})
    assert refused(answer) == (400, "INVALID_REQUEST")
