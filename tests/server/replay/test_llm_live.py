"""The llm replay over HTTP: against a real server, one whose books are damaged, one that lies and one that is hard to reach."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from storage.database import connect
from tests.databases import Databases
from tests.http_relay import Passed, relaying
from tests.server.conftest import ROOT_KEY
from tests.server.processes import Ended, Serving, earmark, serving
from tests.server.replay.llm_sample import REQUESTS, write, write_traces


@pytest.fixture(scope="module")
async def served_url(databases: Databases) -> AsyncIterator[str]:
    """The server's database."""
    address = await databases.create()
    yield address
    await databases.drop(address)


@pytest.fixture(scope="module")
async def server(served_url: str) -> AsyncIterator[Serving]:
    settings = {"EARMARK_DATABASE_URL": served_url, "EARMARK_ROOT_KEY": ROOT_KEY, "EARMARK_LOG_LEVEL": "info"}
    async with serving(settings=settings) as started:
        yield started


async def replay(url: str, path: Path, *arguments: str) -> Ended:
    return await earmark("replay", "llm", str(path), "--url", url, "--key", ROOT_KEY, "--json", *arguments)


def port_of(server: Serving) -> int:
    return int(server.address.rpartition(":")[2])


async def test_everything_happens_over_http_too_and_every_invariant_holds(server: Serving, tmp_path: Path) -> None:
    ended = await replay(server.address, write_traces(tmp_path), "--concurrency", "8")
    assert ended.code == 0, ended.err
    told = ended.json
    assert told["violations"] == []
    assert told["audited"] == ["I1", "I2", "I3", "I4", "I5", "others"]
    total = told["agents"]["all"]
    assert total["allowed"] + total["denied"] == REQUESTS
    assert total["committed"] + total["released"] + total["tooLate"] + total["left"] == total["allowed"]
    for what in ("capped", "denied", "inGrace", "refused", "extended", "released", "tooLate", "recovered", "left"):
        assert total[what] > 0, what
    assert total["charged"] == sum(each["spent"] + each["debt"] for each in told["ledger"].values()) // 2
    assert all(each["reserved"] == 0 for each in told["ledger"].values())
    assert 0 < told["latencyUs"]["reserve"]["p50"] <= told["latencyUs"]["reserve"]["p99"]
    assert told["askedAgain"]["to be told the same"] > 0


async def test_answers_that_are_lost_are_asked_for_again_and_nothing_is_done_twice(
    server: Serving, tmp_path: Path
) -> None:
    """Every fifth answer to something that changes anything never arrives."""
    count = itertools.count(1)

    async def lose(passed: Passed) -> bytes | None:
        return None if passed.method == "POST" and next(count) % 5 == 0 else passed.answer

    async with relaying(port_of(server), lose) as url:
        ended = await replay(url, write_traces(tmp_path))
    assert ended.code == 0, ended.err
    assert ended.json["askedAgain"]["no answer"] > 50


async def test_a_server_that_charges_otherwise_than_it_says_is_found_out(server: Serving, tmp_path: Path) -> None:
    lied = False

    async def lie(passed: Passed) -> bytes:
        """One commit is said to have cost a token less than it did."""
        nonlocal lied
        answer: dict[str, Any] = json.loads(passed.answer)
        if lied or passed.status != 200 or not passed.path.endswith("/commit"):
            return passed.answer
        lied = True
        answer["charged"]["amount"] -= 1
        return json.dumps(answer).encode()

    async with relaying(port_of(server), lie) as url:
        ended = await replay(url, write_traces(tmp_path), "--limit", "40")
    assert lied
    assert ended.code == 1
    assert any(text.startswith("I5 ") for text in ended.json["violations"]), ended.err


async def test_a_balance_that_contradicts_itself_is_found(server: Serving, tmp_path: Path) -> None:
    async def lie(passed: Passed) -> bytes:
        answer: dict[str, Any] = json.loads(passed.answer)
        for balance in answer.get("balances", []) if passed.path.startswith("/v1/balances") else []:
            balance["remaining"]["amount"] += 1
        return json.dumps(answer).encode()

    async with relaying(port_of(server), lie) as url:
        ended = await replay(url, write_traces(tmp_path), "--limit", "4")
    assert ended.code == 1
    assert any(text.startswith("I1 ") for text in ended.json["violations"])


DAMAGES = {
    "I2": "update budget set reserved = reserved + 7 where scope_path = $1",
    "I4": """
update budget_reservation set status = 'EXPIRED', charged = null, finalized_at = null where reservation_id = (
    select min(reservation_id) from budget_reservation
    where tenant_id = split_part(split_part($1, '/', 1), ':', 2) and status = 'COMMITTED'
)""",
    "I5": "update budget set spent = spent + 7 where scope_path = $1",
}


@pytest.mark.parametrize("rule", DAMAGES)
async def test_damaged_books_are_found(server: Serving, served_url: str, tmp_path: Path, rule: str) -> None:
    """Something changes them behind the server's back, right before they are looked at for the audit.

    The budget is the first agent's, when its last hold is released: no turn will come to it any more.
    """
    connection = await connect(served_url)
    damaged = False
    moment = "/v1/balances" if rule == "I4" else "/release"

    async def damage(passed: Passed) -> bytes:
        nonlocal damaged
        if not damaged and moment in passed.path:
            scope = json.loads(passed.answer)["balances"][1]["scope_path"]
            damaged = await connection.execute(DAMAGES[rule], scope) == "UPDATE 1"
            assert damaged, rule
        return passed.answer

    try:
        async with relaying(port_of(server), damage) as url:
            ended = await replay(url, write_traces(tmp_path), "--limit", "20")
    finally:
        await connection.close()
    assert damaged
    assert ended.code == 1
    assert any(text.startswith(f"{rule} ") for text in ended.json["violations"]), ended.err


async def test_what_cannot_be_replayed_is_said(server: Serving, tmp_path: Path) -> None:
    path = write(tmp_path / "only_conv.csv", ["2023-11-16 18:00:00,300,100"])
    wrong_key = await earmark("replay", "llm", str(path), "--url", server.address, "--key", "x" * 40)
    assert (wrong_key.code, "401" in wrong_key.err) == (1, True)
    no_key = await earmark("replay", "llm", str(path), "--url", server.address)
    assert (no_key.code, "EARMARK_ROOT_KEY" in no_key.err) == (2, True)
    no_address = await replay("ftp://127.0.0.1", path)
    assert (no_address.code, "an address such as" in no_address.err) == (1, True)
