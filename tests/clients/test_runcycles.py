"""The official Python client, as its users install it, against a live server (section 13)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.live import Live, Relay, run, running
from tests.edges.cycles.world import ACME, BOT, TENANT, World, ok, tokens

pytestmark = pytest.mark.timeout(600)  # the first run installs the client

HEARTBEAT = {"CYCLES_CONNECT_TIMEOUT": "0.2", "CYCLES_READ_TIMEOUT": "0.8"}
"""With these its attempt takes 6 s at most and its retry reserve is 13 s: a lease of 14 s is extended after one."""


async def rows(world: World, status: str) -> list[str]:
    found = ok(await world.get("/v1/reservations", status=status))["reservations"]
    return [row["reservation_id"] for row in found]


async def test_every_call_is_understood_by_the_clients_strict_models(live: Live, client_python: Path) -> None:
    said = await run(client_python, "plain", live.environment())
    assert said["statuses"] == [200, 200, 200, 200, 200, 201, 200, 200, 200]
    assert (said["created"]["decision"], said["created"]["remaining_ttl_ms"]) == ("ALLOW", 30_000)
    assert said["created"]["affected_scopes"] == [TENANT, BOT]
    assert (said["extended"]["status"], said["extended"]["remaining_ttl_ms"]) == ("ACTIVE", 31_000)
    assert (said["committed"]["charged"], said["committed"]["released"]) == (tokens(3_000), tokens(2_000))
    assert said["released"]["released"] == tokens(10)
    assert said["decided"]["decision"] == "ALLOW"
    assert said["applied"]["status"] == "APPLIED"
    assert [row["scope_path"] for row in said["balances"]["balances"]] == [TENANT]
    assert said["found"]["committed"] == tokens(3_000)
    assert said["listed"] == [said["created"]["reservation_id"]]
    assert said["refused"][:2] == [409, "BUDGET_EXCEEDED"]
    assert said["unknown"] == [404, "NOT_FOUND"]
    assert (said["tenant"], said["limits"]) == (ACME, [None, None])
    assert said["request_id"]
    assert await live.world.numbers(TENANT, "spent", "reserved") == (3_007, 0)


async def test_the_asynchronous_client_lives_many_lives_at_once(live: Live, client_python: Path) -> None:
    said = await run(client_python, "asynchronous", live.environment())
    assert said == {"statuses": [200], "debit": 201}
    assert await live.world.numbers(TENANT, "spent", "reserved") == (sum(range(0, 20, 2)) + 5, 0)


async def test_decorated_functions_hold_and_settle(live: Live, client_python: Path) -> None:
    # The client cannot read a refusal that names its trace (0.5.3), and so tries a refused commit again in the background.
    said = await run(client_python, "decorated", live.environment(CYCLES_RETRY_FLUSH_TIMEOUT="0"))
    assert (said["found"], said["later"]) == (140, 30)
    assert said["held"] in await rows(live.world, "COMMITTED")
    assert said["too_much"] == ["BudgetExceededError", "BUDGET_EXCEEDED", 409]
    assert said["broken"] == ["RuntimeError", "the tool broke"]
    assert said["rehearsed"].endswith("ALLOW")
    assert len(await rows(live.world, "RELEASED")) == 1, "what broke has given its hold back"
    spent, reserved = await live.world.numbers(TENANT, "spent", "reserved")
    assert spent == 140 + 30 + 5
    assert reserved == 100, "what was refused at its end stays held until it expires"


async def test_streams_are_charged_by_what_they_used(live: Live, client_python: Path) -> None:
    said = await run(client_python, "streamed", live.environment())
    assert said["broken"] in await rows(live.world, "RELEASED")
    assert {said["streamed"], said["later"]} == set(await rows(live.world, "COMMITTED"))
    assert await live.world.numbers(TENANT, "spent", "reserved") == (650 + 20, 0)


async def test_a_long_stream_keeps_its_lease_by_heartbeats(live: Live, client_python: Path) -> None:
    said = await run(client_python, "heartbeat", live.environment(**HEARTBEAT), "14000")
    assert said["extended_by"] > 0
    assert (said["last"]["status"], said["last"]["committed"]) == ("COMMITTED", tokens(40))


async def test_a_lease_too_short_for_heartbeats_is_extended_at_once(live: Live, client_python: Path) -> None:
    said = await run(client_python, "heartbeat", live.environment(), "20000")
    assert said["extended_by"] > 0
    assert said["last"]["status"] == "COMMITTED"


@pytest.mark.parametrize("late", [False, True], ids=["in time", "too late"])
async def test_what_could_not_be_told_is_told_by_the_next_run(
    live: Live, relay: Relay, client_python: Path, late: bool
) -> None:
    environment = live.environment(CYCLES_BASE_URL=f"http://127.0.0.1:{relay.port}")
    async with running(client_python, "lost", environment, "lose") as program:
        assert await program.said() == {"state": "working"}
        (reservation_id,) = await rows(live.world, "ACTIVE")
        await relay.cut()
        await program.go_on()
        assert await program.said() == {"result": "done", "written": 1}
        await program.finished()
    assert await live.world.numbers(TENANT, "spent", "reserved") == (0, 1_000)
    if late:
        live.world.clock.advance(65_001)
    await relay.open()
    assert await run(client_python, "lost", environment, "recover") == {"written": 0}
    assert await live.world.numbers(TENANT, "spent", "reserved") == (700 + 1, 0)
    ended = "EXPIRED" if late else "COMMITTED"
    assert reservation_id in await rows(live.world, ended)
    assert await debits_of(live.world) == ([reservation_id] if late else [])


async def debits_of(world: World) -> list[str]:
    """The reservations whose spending was told as a direct debit."""
    async with world.node.database.acquire() as connection:
        found = await connection.fetch("select metadata ->> 'recovered_reservation_id' as name from budget_debit")
    return [row["name"] for row in found]
