"""Many at once over HTTP, on two nodes: nothing is promised twice, and time is kept to the millisecond where ends meet."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from tests.databases import Databases
from tests.faults.cycles_load import SPENDERS, Call, Reply, tokens
from tests.faults.stage import Stage, staged

CROWD = 200
RACER, CROWDED = SPENDERS
TTL_MS = 1_000
AROUND_MS = range(-150, 50, 5)
"""When settlements are sent, from the end of a hold: one that is sent takes its time to come."""


@pytest.fixture(scope="module")
async def stage(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """One for all tests here, since a start is dear. Each has a tenant or keys of its own."""
    address = await databases.create()
    async with staged(address, tmp_path_factory.mktemp("crowd"), seed=23) as made:
        yield made
    await databases.drop(address)


def reserve(key: str, amount: int, *, ttl_ms: int, grace_ms: int = 0, tenant_id: str = RACER) -> Call:
    body = {
        "idempotency_key": key,
        "subject": {"tenant": tenant_id, "agent": "x"},
        "action": {"kind": "llm.completion", "name": "model"},
        "estimate": tokens(amount),
        "ttl_ms": ttl_ms,
        "grace_period_ms": grace_ms,
    }
    return Call(tenant_id=tenant_id, operation="budget.reserve", path="/v1/reservations", body=body)


def ending(action: str, hold: str, *, tenant_id: str = RACER, **body: object) -> Call:
    sent = {"idempotency_key": f"{action}-{hold}", **body}
    path = f"/v1/reservations/{hold}/{action}"
    return Call(tenant_id=tenant_id, operation=f"budget.{action}/{hold}", path=path, body=sent, hold=hold)


async def at(instant: float) -> None:
    """Return at this instant of the loop's clock."""
    loop = asyncio.get_running_loop()
    reached = loop.create_future()
    loop.call_at(instant, reached.set_result, None)
    await reached


@pytest.mark.timeout(300)
async def test_two_hundred_reserves_at_once_over_http_never_oversubscribe(stage: Stage) -> None:
    """The agent's budget is 300, its tenant's 500: there is room for thirty, whichever node is asked."""
    replies = await asyncio.gather(
        *(
            stage.budgets.ask(reserve(f"crowd-{number}", 10, ttl_ms=60_000, tenant_id=CROWDED))
            for number in range(CROWD)
        )
    )
    told = Counter((reply.status, reply.body.get("error")) for reply in replies)
    assert told == {(200, None): 30, (409, "BUDGET_EXCEEDED"): CROWD - 30}
    held = [reply.body["reservation_id"] for reply in replies if reply.is_accepted]
    assert len(set(held)) == 30
    released = await asyncio.gather(*(stage.budgets.ask(ending("release", hold, tenant_id=CROWDED)) for hold in held))
    assert {reply.status for reply in released} == {200}
    await stage.check()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("grace_ms", [0, 300])
async def test_settlements_about_the_end_of_a_hold_are_in_time_or_too_late_and_never_both(
    stage: Stage, grace_ms: int
) -> None:
    """Real clocks, real expiry on both nodes. What each was told is what is there (`stage.check`)."""
    chance = random.Random(grace_ms)

    async def race(number: int, around_ms: int) -> list[Reply]:
        reply = await stage.budgets.ask(reserve(f"race-{grace_ms}-{number}", 1, ttl_ms=TTL_MS, grace_ms=grace_ms))
        hold, left_ms = reply.body["reservation_id"], reply.body["remaining_ttl_ms"]
        over_in_s = (left_ms + grace_ms + around_ms) / 1_000
        calls = [ending("commit", hold, actual=tokens(1)), ending("release", hold)]
        await at(asyncio.get_running_loop().time() + over_in_s)
        return list(await asyncio.gather(*map(stage.budgets.ask, chance.sample(calls, 2))))

    replies = await asyncio.gather(*(race(number, around_ms) for number, around_ms in enumerate(AROUND_MS)))
    for pair in replies:
        assert sorted(reply.status for reply in pair) in ([200, 409], [410, 410]), pair
    await stage.check()


@pytest.mark.timeout(300)
async def test_an_extension_about_the_end_of_a_hold_prolongs_it_or_comes_too_late(stage: Stage) -> None:
    """Prolonged, it can be settled after its first end; too late, not any more, though the grace is not over."""

    async def race(number: int, around_ms: int) -> tuple[Reply, Reply]:
        reply = await stage.budgets.ask(reserve(f"extend-{number}", 1, ttl_ms=TTL_MS, grace_ms=60_000))
        hold, left_ms = reply.body["reservation_id"], reply.body["remaining_ttl_ms"]
        await at(asyncio.get_running_loop().time() + (left_ms + around_ms) / 1_000)
        extended = await stage.budgets.ask(ending("extend", hold, extend_by_ms=30_000))
        return extended, await stage.budgets.ask(ending("commit", hold, actual=tokens(1)))

    for extended, committed in await asyncio.gather(
        *(race(number, around_ms) for number, around_ms in enumerate(AROUND_MS))
    ):
        assert extended.status in (200, 410), extended
        assert committed.status == 200, "its grace is long"
    await stage.check()
