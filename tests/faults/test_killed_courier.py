"""kill -9 of the node that is delivering: what it had on its way is delivered by another one, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from storage.database import connect
from tests.capacity_world import eventually
from tests.faults.serving import Served
from tests.ports import reserved_port
from tests.receiver import Got, Receiver, receiving
from workers.authority import new_secret

SUBSCRIBERS, EVENTS = 6, 20
SETTINGS = {
    "secret_key": "the key of both nodes, which they have alike",
    "webhook_private_addresses": "on",
}


@pytest.mark.timeout(300)
async def test_what_a_killed_node_was_delivering_arrives_through_another(database_url: str, tmp_path: Path) -> None:
    root_key = new_secret()
    first, second = (
        Served(database_url, root_key=root_key, port=reserved_port(), folder=tmp_path, **SETTINGS) for _ in range(2)
    )
    never = asyncio.Event()

    async def hang(_got: Got) -> int:
        await never.wait()
        return 200

    try:
        async with httpx.AsyncClient(timeout=30) as http, receiving() as receiver:
            first.start()
            await first.ready(http)
            secrets = await subscribe(http, first, root_key, receiver)
            receiver.usually = hang
            await spend(http, first, root_key)
            await receiver.until(SUBSCRIBERS)
            first.kill()
            unanswered = {arrival(got) for got in receiver.got}
            never.set()
            receiver.usually = 200
            await let_leases_run_out(database_url)
            second.start()
            await second.ready(http)
            await all_delivered(database_url)
            check(receiver, secrets, unanswered)
    finally:
        first.kill()
        second.kill()


async def subscribe(http: httpx.AsyncClient, server: Served, root_key: str, receiver: Receiver) -> dict[str, str]:
    """Path to secret."""
    await admin(http, server, root_key, "tenants", {"tenant_id": "acme", "name": "acme"})
    allocated = {"unit": "TOKENS", "amount": 1_000}
    budget = {"tenant_id": "acme", "scope": "tenant:acme", "unit": "TOKENS", "allocated": allocated}
    await admin(http, server, root_key, "budgets", budget)
    secrets = {}
    for number in range(SUBSCRIBERS):
        wanted = {"url": receiver.url(f"/{number}"), "event_types": ["budget.funded"]}
        made = await admin(http, server, root_key, "webhooks?tenant_id=acme", wanted)
        secrets[f"/{number}"] = made["signing_secret"]
    return secrets


async def spend(http: httpx.AsyncClient, server: Served, root_key: str) -> None:
    for number in range(EVENTS):
        amount = {"unit": "TOKENS", "amount": 1}
        body = {"operation": "CREDIT", "amount": amount, "idempotency_key": f"k{number}"}
        place = "budgets/fund?scope=tenant:acme&unit=TOKENS&tenant_id=acme"
        await admin(http, server, root_key, place, body)


async def admin(http: httpx.AsyncClient, server: Served, root_key: str, path: str, body: Any) -> Any:
    headers = {"X-Admin-API-Key": root_key}
    response = await http.post(f"{server.address}/v1/admin/{path}", json=body, headers=headers)
    assert response.status_code in (200, 201), response.text
    return response.json()


def arrival(got: Got) -> tuple[str, str]:
    """What came where."""
    return got.path, got.header("X-Cycles-Event-Id")


async def let_leases_run_out(database_url: str) -> None:
    """What a quarter of a minute does by itself."""
    connection = await connect(database_url)
    try:
        assert await connection.fetchval("select count(*) from webhook_head where leased_until > 0") == SUBSCRIBERS
        await connection.execute("update webhook_head set leased_until = 0")
    finally:
        await connection.close()


async def all_delivered(database_url: str) -> None:
    connection = await connect(database_url)

    async def are_all_there() -> bool:
        count = "select count(*) from webhook_delivery where status = 'SUCCESS'"
        return bool(await connection.fetchval(count) == SUBSCRIBERS * EVENTS)

    try:
        await eventually(are_all_there, timeout_ms=90_000)
        assert await connection.fetchval("select count(*) from webhook_delivery") == SUBSCRIBERS * EVENTS
    finally:
        await connection.close()


def check(receiver: Receiver, secrets: dict[str, str], unanswered: set[tuple[str, str]]) -> None:
    """Everything at least once, and again only what was on its way when the node died."""
    assert {path for path, _ in unanswered} == set(secrets)
    times = Counter(map(arrival, receiver.got))
    for path, secret in secrets.items():
        got = [each for each in receiver.got if each.path == path]
        assert all(each.is_signed_with(secret) for each in got)
        assert len({each.header("X-Cycles-Event-Id") for each in got}) == EVENTS
    assert all((count > 1) == (arrived in unanswered) for arrived, count in times.items())
