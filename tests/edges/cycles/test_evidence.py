"""Signed evidence over the wire: what has it, what is in it, how it is fetched and checked (section 9; scenario 134)."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any

import pytest
import rfc8785
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from domain.terms import DAY_MS
from server.rest.cycles.throttle import PUBLIC_A_MINUTE
from tests.conftest import MakeDatabase
from tests.edges.cycles.contract import judge_envelope
from tests.edges.cycles.world import (
    ACME,
    ADMIN,
    BOT,
    TENANT,
    TOKENS,
    B,
    World,
    furnished_world_on,
    ok,
    refused,
    tokens,
    usd,
    world_on,
)
from workers.budget.evidence import RETIRED_AFTER_MS, VALID_AFTER_USE_MS
from workers.recent import RECENT_MS
from workers.retention import RetentionJob

SERVER = "https://cycles.example.com/v1"
SEED = b"a signing key for tests, 32 bytes"[:32]
JWKS = "/v1/.well-known/cycles-jwks.json"


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    """One that gives evidence."""
    async with furnished_world_on(database_url, evidence_server_id=SERVER, evidence_seed=SEED) as opened:
        await opened.budget(TENANT, 1_000)
        yield opened


async def fetched(world: World, answer: dict[str, Any]) -> dict[str, Any]:
    """The envelope that an answer refers to, checked by the rules (section 9)."""
    reference = answer["cycles_evidence"]
    evidence_id = reference["evidence_id"]
    assert reference == {"evidence_id": evidence_id, "cycles_evidence_url": f"{SERVER}/evidence/{evidence_id}"}
    response = await world.get(f"/v1/evidence/{evidence_id}", by=None)
    envelope: dict[str, Any] = ok(response)
    assert response.headers["cache-control"] == "public, immutable"
    assert response.content == rfc8785.dumps(envelope)
    bare = rfc8785.dumps({**envelope, "evidence_id": "", "signature": ""})
    assert sha256(bare).hexdigest() == evidence_id == envelope["evidence_id"]
    (key,) = ok(await world.get(JWKS, by=None))["keys"]
    assert base64.urlsafe_b64decode(key["x"] + "=").hex() == envelope["signer_did"]
    assert key["cycles_nbf_ms"] <= envelope["issued_at_ms"] < key.get("cycles_exp_ms", envelope["issued_at_ms"] + 1)
    signed = rfc8785.dumps({**envelope, "signature": ""})
    public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(envelope["signer_did"]))
    public.verify(bytes.fromhex(envelope["signature"]), signed)
    assert (envelope["server_id"], list(envelope["payload"])) == (SERVER, [envelope["artifact_type"]])
    judge_envelope(envelope)
    return envelope


def attested(envelope: dict[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = envelope["payload"][envelope["artifact_type"]]
    return content


def without(answer: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name not in ("cycles_evidence", *names)}


# -- what has evidence -------------------------------------------------------------------------------------------------


async def test_a_reserve_attests_what_was_asked_and_answered(world: World) -> None:
    body = world.request(100, ttl_ms=5_000, metadata={"run": [1.5, None], "né": "ü"}, overage_policy=None)
    response = await world.post("/v1/reservations", body)
    envelope = await fetched(world, ok(response))
    assert (envelope["artifact_type"], envelope["issued_at_ms"]) == ("reserve", B)
    assert envelope["trace_id"] == response.headers["x-cycles-trace-id"]
    assert attested(envelope) == {
        "request": without(body, "overage_policy"),
        "response": without(response.json(), "remaining_ttl_ms"),
    }


async def test_a_settlement_names_its_reservation(world: World) -> None:
    for settle, kind in ((world.commit, "commit"), (world.release, "release")):
        held = await world.held(100)
        settled = ok(await (settle(held, 60) if kind == "commit" else settle(held, reason="done")))
        envelope = await fetched(world, settled)
        assert (envelope["artifact_type"], attested(envelope)["reservation_id"]) == (kind, held)
        assert attested(envelope)["response"] == without(settled)
        shown = ok(await world.get(f"/v1/reservations/{held}"))["evidence"]
        assert (set(shown), shown[kind]) == ({"reserve", kind}, settled["cycles_evidence"])
        await fetched(world, {"cycles_evidence": shown["reserve"]})


async def test_decisions_without_a_hold_are_attested_whatever_they_are(world: World) -> None:
    for amount in (1, 2_000):
        decided = ok(await world.decide(amount))
        assert attested(await fetched(world, decided))["response"] == without(decided)
        tried = ok(await world.reserve(amount, dry_run=True))
        envelope = await fetched(world, tried)
        assert (envelope["artifact_type"], attested(envelope)["response"]) == ("reserve", without(tried))


async def test_a_denial_is_attested_as_the_error_it_was(world: World) -> None:
    body = world.request(2_000)
    answer = await world.post("/v1/reservations", body)
    assert refused(answer) == (409, "BUDGET_EXCEEDED")
    envelope = await fetched(world, answer.json())
    assert attested(envelope) == {
        "endpoint": "POST /v1/reservations",
        "http_status": 409,
        "request": body,
        "response": without(answer.json()),
    }


async def test_an_error_about_a_reservation_names_it(world: World) -> None:
    held = await world.held(1)
    ok(await world.release(held))
    answer = await world.commit(held, 1)
    assert refused(answer) == (409, "RESERVATION_FINALIZED")
    content = attested(await fetched(world, answer.json()))
    assert (content["endpoint"], content["reservation_id"]) == ("POST /v1/reservations/{reservation_id}/commit", held)
    assert set(ok(await world.get(f"/v1/reservations/{held}"))["evidence"]) == {"reserve", "release"}


@pytest.mark.parametrize("error", ["UNIT_MISMATCH", "BUDGET_FROZEN", "BUDGET_CLOSED", "OVERDRAFT_LIMIT_EXCEEDED"])
async def test_every_decision_against_a_reserve_is_attested(world: World, error: str) -> None:
    amount: Any = 1
    if error == "UNIT_MISMATCH":
        amount = usd(1)
    elif error == "BUDGET_FROZEN":
        ok(await world.post("/v1/admin/budgets/freeze", {}, by=ADMIN, scope=TENANT, unit=TOKENS))
    elif error == "OVERDRAFT_LIMIT_EXCEEDED":
        ok(await world.debit(2_000), 201)
    else:
        async with world.node.database.acquire() as connection:
            await connection.execute("update budget set status = 'CLOSED', closed_at = 0")
            await connection.execute("update budget_tenant set version = version + 1")
    answer = await world.reserve(amount)
    assert refused(answer)[1] == error
    await fetched(world, answer.json())


async def test_a_closed_tenant_is_a_reason_that_is_attested(world: World) -> None:
    held = await world.held(1)
    async with world.node.database.acquire() as connection:
        await connection.execute("update budget_tenant set status = 'CLOSED', closed_at = 0, version = version + 1")
    for answer in (await world.reserve(1), await world.commit(held, 1), await world.release(held)):
        assert refused(answer) == (409, "TENANT_CLOSED")
        await fetched(world, answer.json())


async def test_an_operators_release_is_evidence_of_the_tenant(world: World) -> None:
    held = await world.held(1)
    body = {"idempotency_key": "admin", "reason": "stuck"}
    released = ok(await world.post(f"/v1/reservations/{held}/release", body, by=ADMIN))
    assert attested(await fetched(world, released))["request"] == body
    again = ok(await world.post(f"/v1/reservations/{held}/release", body, by=ADMIN))
    assert again["cycles_evidence"] == released["cycles_evidence"]
    other = await world.post(f"/v1/reservations/{held}/release", {"idempotency_key": "other"}, by=ADMIN)
    assert refused(other) == (409, "RESERVATION_FINALIZED")
    await fetched(world, other.json())
    (row,) = ok(await world.get("/v1/reservations", by=ADMIN, tenant=ACME, include="evidence"))["reservations"]
    assert row["evidence"]["release"] == released["cycles_evidence"]


async def test_what_decides_nothing_has_no_evidence(world: World) -> None:
    held = await world.held(1)
    extended = await world.extend(held, 1_000)
    debited = await world.debit(1)
    mismatch = [await world.reserve(amount, idempotency_key="same") for amount in (1, 2)][1]
    assert refused(mismatch) == (409, "IDEMPOTENCY_MISMATCH")
    nobody = await world.reserve(1, by="nobody" * 8)
    unknown = await world.commit("rsv_unknown", 1)
    malformed = await world.reserve(-1)
    funded = await world.fund("DEBIT", 10_000)
    for answer in (extended, debited, mismatch, nobody, unknown, malformed, funded):
        assert "cycles_evidence" not in answer.json()


async def test_a_list_shows_references_only_when_asked(world: World) -> None:
    await world.held(1)
    assert "evidence" not in ok(await world.get("/v1/reservations"))["reservations"][0]
    (row,) = ok(await world.get("/v1/reservations", include="evidence"))["reservations"]
    await fetched(world, {"cycles_evidence": row["evidence"]["reserve"]})


async def test_numbers_that_canonical_json_cannot_carry_have_no_evidence_and_hold_all_the_same(world: World) -> None:
    await world.budget(BOT, 2**60)
    answer = ok(await world.decide(2**53, subject={"agent": "bot"}))
    assert answer["decision"] == "DENY"
    assert "cycles_evidence" not in answer


# -- repetitions -------------------------------------------------------------------------------------------------------


async def test_a_repetition_has_the_first_ones_evidence(world: World) -> None:
    body = world.request(1)
    first = ok(await world.post("/v1/reservations", body))
    world.clock.advance(1_000)
    again = ok(await world.post("/v1/reservations", body))
    assert (again["cycles_evidence"], again["remaining_ttl_ms"]) == (first["cycles_evidence"], 59_000)
    committed = [ok(await world.commit(first["reservation_id"], 1, idempotency_key="c")) for _ in range(3)]
    assert len({answer["cycles_evidence"]["evidence_id"] for answer in committed}) == 1
    async with world.node.database.acquire() as connection:
        assert await connection.fetchval("select count(*) from budget_evidence") == 2


async def test_many_at_once_under_one_key_have_one_evidence(world: World) -> None:
    body = world.request(1)
    answers = await asyncio.gather(*(world.post("/v1/reservations", body) for _ in range(8)))
    assert len({ok(answer)["cycles_evidence"]["evidence_id"] for answer in answers}) == 1
    async with world.node.database.acquire() as connection:
        assert await connection.fetchval("select count(*) from budget_evidence") == 1


async def test_evidence_that_was_lost_with_its_node_is_given_at_the_repetition(world: World) -> None:
    body = world.request(1)
    ok(await world.post("/v1/reservations", body))
    async with world.node.database.acquire() as connection:
        await connection.execute("delete from budget_evidence_of")
        await connection.execute("delete from budget_evidence")
    again = ok(await world.post("/v1/reservations", body))
    assert attested(await fetched(world, again))["response"]["reservation_id"] == again["reservation_id"]


async def test_a_key_that_is_forgotten_may_be_used_again(world: World) -> None:
    first = ok(await world.decide(1, idempotency_key="k"))
    async with world.node.database.acquire() as connection:
        await connection.execute("delete from budget_answer")
    world.clock.advance(RECENT_MS + 1)
    second = ok(await world.decide(2, idempotency_key="k"))
    assert first["cycles_evidence"] != second["cycles_evidence"]
    await fetched(world, first)
    await fetched(world, second)


# -- fetching ----------------------------------------------------------------------------------------------------------


async def test_evidence_is_anybodys_who_has_its_id(world: World) -> None:
    answer = ok(await world.decide(1))
    path = f"/v1/evidence/{answer['cycles_evidence']['evidence_id']}"
    bogus = {"X-Cycles-API-Key": "bogus", "X-Admin-API-Key": "bogus"}
    response = await world.get(path, by=None, headers=bogus)
    assert json.loads(response.text)["artifact_type"] == "decide"
    assert "x-cycles-tenant" not in response.headers
    for evidence_id, expected in (
        ("0" * 64, (404, "NOT_FOUND")),
        ("0" * 63, (400, "INVALID_REQUEST")),
        ("A" * 64, (400, "INVALID_REQUEST")),
        ("0" * 65, (400, "INVALID_REQUEST")),
    ):
        assert refused(await world.get(f"/v1/evidence/{evidence_id}", by=None, headers=bogus)) == expected
    assert ok(await world.get(JWKS, by=None, headers=bogus))["keys"]


async def test_old_evidence_goes_when_no_answer_refers_to_it_any_more(world: World) -> None:
    job = RetentionJob(world.node.database, world.clock, evidence_days=1)
    answer = ok(await world.reserve(5, idempotency_key="first"))
    ok(await world.decide(5_000))
    refused(await world.reserve(5_000))
    world.clock.advance(DAY_MS)
    assert (await job.run_once()).counts["evidence"] == 0, "not a moment before"
    world.clock.advance(1)
    assert (await job.run_once()).counts["evidence"] == 1, "no answer is remembered that was an error"
    assert ok(await world.reserve(5, idempotency_key="first"))["cycles_evidence"] == answer["cycles_evidence"]
    await fetched(world, answer)
    world.clock.advance(30 * DAY_MS)
    assert (await job.run_once()).counts["evidence"] == 2
    gone = await world.get(f"/v1/evidence/{answer['cycles_evidence']['evidence_id']}", by=None)
    assert refused(gone) == (404, "NOT_FOUND")
    (row,) = ok(await world.get("/v1/reservations", include="evidence"))["reservations"]
    assert "evidence" not in row, "nobody is sent where there is nothing"
    assert len(ok(await world.get(JWKS, by=None))["keys"]) == 1, "copies can be checked"


async def test_what_anybody_may_fetch_is_limited_an_address(world: World) -> None:
    path = f"/v1/evidence/{'0' * 64}"
    for _ in range(PUBLIC_A_MINUTE - 1):
        await world.client.get(path)
    assert refused(await world.get(path, by=None)) == (404, "NOT_FOUND")
    world.clock.advance(15_000)
    answer = await world.get(JWKS, by=None)
    assert refused(answer) == (429, "LIMIT_EXCEEDED")
    assert (answer.headers["retry-after"], answer.headers["x-ratelimit-reset"]) == ("45", str((B + 60_000) // 1_000))
    world.clock.advance(45_000)
    assert refused(await world.get(path, by=None)) == (404, "NOT_FOUND")


async def test_a_key_that_is_used_no_more_is_retired_and_stays(make_database: MakeDatabase) -> None:
    url = await make_database()
    async with world_of(url, seed=b"1" * 32) as old:
        first = ok(await old.decide(1, idempotency_key="first"))
    async with world_of(url, seed=b"2" * 32) as new:
        new.clock.advance(RETIRED_AFTER_MS + 1)
        ok(await new.decide(1, idempotency_key="second"))
        retired, active = ok(await new.get(JWKS, by=None))["keys"]
        assert (retired["status"], retired["cycles_exp_ms"]) == ("retired", B + VALID_AFTER_USE_MS)
        assert (active["status"], "cycles_exp_ms" in active) == ("active", False)
        kept = ok(await new.get(f"/v1/evidence/{first['cycles_evidence']['evidence_id']}", by=None))
        assert base64.urlsafe_b64decode(retired["x"] + "=").hex() == kept["signer_did"]
        assert retired["cycles_nbf_ms"] <= kept["issued_at_ms"] < retired["cycles_exp_ms"]


@asynccontextmanager
async def world_of(url: str, *, seed: bytes) -> AsyncIterator[World]:
    async with world_on(url, evidence_server_id=SERVER, evidence_seed=seed) as world:
        answer = await world.post("/v1/admin/tenants", {"tenant_id": ACME, "name": ACME}, by=ADMIN)
        await world.add_key(ACME, ACME)
        if answer.status_code == 201:
            await world.budget(TENANT, 100)
        yield world


# -- where nobody wants it ---------------------------------------------------------------------------------------------


async def test_without_the_setting_there_is_none(database_url: str) -> None:
    async with furnished_world_on(database_url) as world:
        await world.budget(TENANT, 100)
        held = ok(await world.reserve(1))
        denied = await world.reserve(1_000)
        assert "cycles_evidence" not in held
        assert "cycles_evidence" not in denied.json()
        assert "evidence" not in ok(await world.get(f"/v1/reservations/{held['reservation_id']}"))
        assert refused(await world.get(JWKS, by=None)) == (404, "NOT_FOUND")
        assert refused(await world.get(f"/v1/evidence/{'0' * 64}", by=None)) == (404, "NOT_FOUND")
        assert tokens(1) == held["reserved"]
        async with world.node.database.acquire() as connection:
            assert await connection.fetchval("select count(*) from budget_evidence") == 0
