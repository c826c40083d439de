"""What the registry tells of: tenants and keys, in the transaction of the change, once, with who asked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from domain.events import MIRROR, EventRecord, NewEvent
from storage.events import append_events, read_stream, read_tail
from tests.registry_desks import ROOT, Desks, T, accepted, make_tenants

HOUR = 3_600_000


async def told(desks: Desks, stream: str) -> list[EventRecord]:
    async with desks.database.acquire() as connection:
        return await read_tail(connection, stream, after=0, limit=1_000)


async def test_a_tenant_tells_of_its_beginning_and_its_end(desks: Desks) -> None:
    await accepted(desks.tenancy.create_tenant(ROOT, tenant_id="a", name="A", idempotency_key="k"))
    await accepted(desks.tenancy.create_tenant(ROOT, tenant_id="a", name="A", idempotency_key="k"))
    await accepted(desks.tenancy.delete_tenant(ROOT, tenant_id="a"))
    await accepted(desks.tenancy.delete_tenant(ROOT, tenant_id="a"))
    events = await told(desks, MIRROR)
    assert [(event.seq, event.type) for event in events] == [(1, "tenant.created"), (2, "tenant.closed")]
    assert events[1].payload == {
        "category": "tenant",
        "source": "request",
        "actor": {"type": "admin", "key_id": ROOT.principal.key_id},
        "data": {
            "tenant_id": "a",
            "previous_status": "ACTIVE",
            "new_status": "CLOSED",
            "changed_fields": ["status"],
        },
    }
    (own,) = await told(desks, "a")
    assert (own.seq, own.event_id) == (1, events[1].event_id)


async def test_a_key_tells_of_every_change_once(desks: Desks) -> None:
    await make_tenants(desks, "a")
    issued = await accepted(desks.keys.create_api_key(ROOT, tenant_id="a", name="ci", permissions=["balances:read"]))
    key_id = issued.key.key_id
    await accepted(desks.keys.update_api_key(ROOT, key_id=key_id, name="renamed"))
    await accepted(desks.keys.update_api_key(ROOT, key_id=key_id, permissions=["events:read"]))
    await accepted(desks.keys.revoke_api_key(ROOT, key_id=key_id))
    await accepted(desks.keys.revoke_api_key(ROOT, key_id=key_id))
    events = [event for event in await told(desks, MIRROR) if event.type.startswith("api_key.")]
    facts = [(event.type, event.payload["data"]["key_name"], event.payload["data"]["new_status"]) for event in events]
    assert facts == [
        ("api_key.created", "ci", "ACTIVE"),
        ("api_key.permissions_changed", "renamed", "ACTIVE"),
        ("api_key.revoked", "renamed", "REVOKED"),
    ]
    assert "secret" not in str([event.payload for event in events])
    assert issued.secret is not None
    assert issued.secret not in str([event.payload for event in events])


async def test_an_expired_key_is_told_of_once_by_whichever_node_looks(desks: Desks) -> None:
    await make_tenants(desks, "a")
    for number in range(3):
        given: dict[str, Any] = {"tenant_id": "a", "name": f"k{number}", "expires_at": T + HOUR}
        issued = await accepted(desks.keys.create_api_key(ROOT, **given))
    await accepted(desks.keys.revoke_api_key(ROOT, key_id=issued.key.key_id))
    assert await desks.keys.tell_of_expired_keys() == 0
    desks.clock.advance(HOUR)
    counts = await asyncio.gather(*(desks.keys.tell_of_expired_keys() for _ in range(4)))
    assert sum(counts) == 2
    assert await desks.keys.tell_of_expired_keys() == 0
    expired = [event for event in await told(desks, MIRROR) if event.type == "api_key.expired"]
    assert sorted(event.payload["data"]["key_name"] for event in expired) == ["k0", "k1"]


async def test_a_refused_change_tells_of_nothing(desks: Desks) -> None:
    await make_tenants(desks, "a")
    before = await told(desks, MIRROR)
    assert (await desks.tenancy.create_tenant(ROOT, tenant_id="a", name="A")).__class__.__name__ == "Conflict"
    assert await told(desks, MIRROR) == before


@pytest.mark.parametrize("batch", [1, 3])
async def test_many_at_once_are_numbered_without_a_gap_in_every_stream(desks: Desks, batch: int) -> None:
    """Streams are locked in one order, so nobody waits in a circle."""

    async def append(number: int) -> None:
        owners = ["c", "a", "b"] if number % 2 else ["a", "b", "c"]
        events = [
            NewEvent(event_id=f"evt_{number}_{each}_{owner}", tenant_id=owner, type="x.y", occurred_at=T, payload={})
            for owner in owners
            for each in range(batch)
        ]
        async with desks.database.transaction() as connection:
            await append_events(connection, events, recorded_at=T)

    await asyncio.gather(*(append(number) for number in range(16)))
    for stream, count in (("a", 16 * batch), ("b", 16 * batch), ("c", 16 * batch), (MIRROR, 48 * batch)):
        events = await told(desks, stream)
        assert [event.seq for event in events] == list(range(1, count + 1))
        async with desks.database.acquire() as connection:
            assert await read_stream(connection, stream) == (1, count)
