"""Lifetimes, grace, extensions, expiry over the wire (section 3; scenarios 77 to 86)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.edges.cycles.world import ACME, ADMIN, TENANT, B, World, ok, refused, tokens

EXPIRED = (410, "RESERVATION_EXPIRED")
DAY = 86_400_000
HOUR = 3_600_000


@pytest.fixture(autouse=True)
async def _budget(world: World) -> None:
    await world.budget(TENANT, 10_000)


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"ttl_ms": 999}, 400),
        ({"ttl_ms": 1_000}, 200),
        ({"ttl_ms": DAY}, 200),
        ({"ttl_ms": DAY + 1}, 400),
        ({"grace_period_ms": -1}, 400),
        ({"grace_period_ms": 0}, 200),
        ({"grace_period_ms": 60_000}, 200),
        ({"grace_period_ms": 60_001}, 400),
        ({"ttl_ms": 5_000.0}, 400),
    ],
)
async def test_s77_lifetimes_have_their_ranges(world: World, changes: dict[str, Any], status: int) -> None:
    assert (await world.reserve(1, **changes)).status_code == status


@pytest.mark.parametrize(("by_ms", "status"), [(0, 400), (1, 200), (DAY, 200), (DAY + 1, 400), ("1", 400)])
async def test_s77_so_have_extensions(world: World, by_ms: Any, status: int) -> None:
    assert (await world.extend(await world.held(1), by_ms)).status_code == status


async def test_lifetimes_are_a_minute_and_an_hour_at_most_unless_told_otherwise(world: World) -> None:
    assert ok(await world.reserve(1))["remaining_ttl_ms"] == 60_000
    assert ok(await world.reserve(1, ttl_ms=DAY))["remaining_ttl_ms"] == HOUR


async def test_s79_the_tenants_maximum_cuts_silently(world: World) -> None:
    await world.set_tenant(max_reservation_ttl_ms=10_000)
    body = ok(await world.reserve(1, ttl_ms=60_000))
    assert (body["expires_at_ms"], body["remaining_ttl_ms"]) == (B + 10_000, 10_000)


async def test_s80_an_extension_is_in_time_to_the_millisecond(world: World) -> None:
    on_time, late = [await world.held(1, ttl_ms=10_000, grace_period_ms=60_000) for _ in range(2)]
    world.clock.advance(10_000)
    assert ok(await world.extend(on_time, 5_000)) == {
        "status": "ACTIVE",
        "expires_at_ms": B + 15_000,
        "remaining_ttl_ms": 5_000,
        "balances": [
            {
                "scope": TENANT,
                "scope_path": TENANT,
                "remaining": tokens(9_998),
                "reserved": tokens(2),
                "spent": tokens(0),
                "allocated": tokens(10_000),
            }
        ],
    }
    world.clock.advance(1)
    assert refused(await world.extend(late, 5_000)) == EXPIRED


@pytest.mark.parametrize("grace", [0, 5_000])
async def test_s82_settling_is_in_time_until_the_grace_is_over(world: World, grace: int) -> None:
    commits, releases, late = [await world.held(1, ttl_ms=10_000, grace_period_ms=grace) for _ in range(3)]
    world.clock.advance(10_000 + grace)
    ok(await world.commit(commits, 1))
    ok(await world.release(releases))
    world.clock.advance(1)
    assert refused(await world.commit(late, 1)) == EXPIRED
    assert refused(await world.release(late)) == EXPIRED


async def test_s83_an_extension_counts_from_where_the_expiry_stands(world: World) -> None:
    reservation_id = await world.held(1, ttl_ms=60_000)
    world.clock.advance(50_000)
    body = ok(await world.extend(reservation_id, 30_000))
    assert (body["expires_at_ms"], body["remaining_ttl_ms"]) == (B + 90_000, 40_000)


async def test_s85_extensions_are_counted_and_expiry_comes_first(world: World) -> None:
    await world.set_tenant(max_reservation_extensions=1)
    reservation_id = await world.held(1, ttl_ms=10_000)
    key = world.key()
    for _ in range(2):
        ok(await world.extend(reservation_id, 1, idempotency_key=key))
    assert refused(await world.extend(reservation_id, 1)) == (409, "MAX_EXTENSIONS_EXCEEDED")
    world.clock.advance(10_002)
    assert refused(await world.extend(reservation_id, 1)) == EXPIRED


async def test_s86_what_is_overdue_is_expired_before_anybody_swept_it(world: World) -> None:
    reservation_id = await world.held(100, ttl_ms=10_000)
    world.clock.advance(15_001)
    assert refused(await world.commit(reservation_id, 1)) == EXPIRED
    assert refused(await world.get(f"/v1/reservations/{reservation_id}")) == EXPIRED
    assert refused(await world.get(f"/v1/reservations/{reservation_id}", by=ADMIN)) == EXPIRED
    for status, expected in ((None, ["EXPIRED"]), ("EXPIRED", ["EXPIRED"]), ("ACTIVE", [])):
        params = {} if status is None else {"status": status}
        rows = ok(await world.get("/v1/reservations", **params))["reservations"]
        assert [row["status"] for row in rows] == expected
        assert all("finalized_at_ms" not in row for row in rows)


async def test_what_expired_makes_room_for_the_next(world: World) -> None:
    await world.held(10_000, ttl_ms=10_000)
    world.clock.advance(15_001)
    ok(await world.reserve(10_000))


async def test_a_lost_commit_is_recovered_as_a_debit_under_its_key(world: World) -> None:
    reservation_id = await world.held(100, ttl_ms=10_000)
    world.clock.advance(15_001)
    key = world.key()
    assert refused(await world.commit(reservation_id, 80, idempotency_key=key)) == EXPIRED
    metadata = {"recovered_reservation_id": reservation_id, "recovery_reason": "RESERVATION_EXPIRED"}
    changes = {"idempotency_key": key, "overage_policy": "ALLOW_IF_AVAILABLE", "metadata": metadata}
    ok(await world.debit(80, subject={"tenant": ACME}, **changes), 201)
    assert await world.numbers(TENANT, "spent", "reserved") == (80, 0)
