"""Keys that are not valid: told of with who sent them and why they failed, never with the key, and counted (8.2)."""

from __future__ import annotations

from typing import Any

from domain.credentials import UNKNOWN
from domain.events import MIRROR, EventRecord
from domain.identity import SYSTEM
from domain.terms import MINUTE_MS
from storage.attempts import read_attempts
from storage.database import Database
from storage.events import read_tail
from tests.registry_desks import ROOT, Desks, T, accepted, make_tenants
from workers.attempts import TOLD_A_MINUTE, Attempt, AttemptLog
from workers.authority import Authenticator, new_secret
from workers.clock import ManualClock
from workers.ids import IdSource

ATTEMPT = Attempt(request_id="req_1", trace_id="0" * 31 + "1", source_ip="192.0.2.1", trace_flags="00")


async def told(database: Database) -> list[EventRecord]:
    async with database.acquire() as connection:
        events = await read_tail(connection, MIRROR, after=0, limit=1_000)
    return [event for event in events if event.type == "api_key.auth_failed"]


async def test_a_failure_is_told_with_its_reason_and_the_request(desks: Desks) -> None:
    await make_tenants(desks, "a")
    ids = IdSource(ManualClock(T))
    authenticator = Authenticator(desks.database, ManualClock(T))
    valid = await accepted(desks.keys.create_api_key(ROOT, tenant_id="a", name="ci", permissions=["balances:read"]))
    revoked = await accepted(desks.keys.create_api_key(ROOT, tenant_id="a", name="old", permissions=["balances:read"]))
    await accepted(desks.keys.revoke_api_key(ROOT, key_id=revoked.key.key_id))
    wrong = valid.secret[:-1] + ("0" if valid.secret[-1] != "0" else "1")
    for secret in (valid.secret, revoked.secret, revoked.secret, new_secret(), wrong, "short"):
        await authenticator.authenticate(secret, ATTEMPT)
    await authenticator.authenticate("nobody asked for this on a request")
    ran = await authenticator.attempts.flush(desks.database, ids)
    assert ran.counts == {"failures": 5}
    events = await told(desks.database)
    assert [(event.tenant_id, event.payload["data"]["failure_reason"]) for event in events] == [
        ("a", "key_revoked"),
        ("a", "key_revoked"),
        (SYSTEM, "key_not_found"),
        (SYSTEM, "key_not_found"),
        (SYSTEM, "invalid_format"),
    ]
    first: Any = events[0]
    assert (first.request_id, first.trace_id, first.payload["trace_flags"]) == ("req_1", ATTEMPT.trace_id, "00")
    assert first.payload["data"] == {
        "key_id": revoked.key.key_id,
        "key_name": "old",
        "failure_reason": "key_revoked",
        "source_ip": "192.0.2.1",
    }
    assert first.payload["actor"] == {"type": "api_key", "key_id": revoked.key.key_id, "source_ip": "192.0.2.1"}
    async with desks.database.acquire() as connection:
        own = await read_tail(connection, "a", after=0, limit=100)
        counted = await read_attempts(connection, since=0, until=2 * T, tenant_ids=None)
    assert own == []
    assert counted == {"a": (1, 2), SYSTEM: (1, 5)}
    assert (await authenticator.attempts.flush(desks.database, ids)).counts == {"failures": 0}


async def test_a_flood_is_counted_but_not_told_of_one_by_one(desks: Desks) -> None:
    clock = ManualClock(T - T % MINUTE_MS)
    log = AttemptLog(clock)
    for _ in range(TOLD_A_MINUTE + 40):
        log.failed(UNKNOWN, ATTEMPT)
    clock.advance(MINUTE_MS)
    log.failed(UNKNOWN, ATTEMPT)
    assert (await log.flush(desks.database, IdSource(clock))).counts == {"failures": TOLD_A_MINUTE + 1}
    async with desks.database.acquire() as connection:
        counted = await read_attempts(connection, since=0, until=2 * T, tenant_ids=None)
    assert counted == {SYSTEM: (0, TOLD_A_MINUTE + 41)}
