"""What a node tells of itself: its database was lost and is back, turns have become slow (8.2)."""

from __future__ import annotations

from domain.events import EventRecord
from tests.capacity_world import eventually
from tests.webhook_world import WebhookWorld, webhook_world
from workers import measures
from workers.system_events import TURNS_LEAST

LISTENERS = "select pid from pg_stat_activity where query ilike 'listen%' and datname = current_database()"


async def system_events(world: WebhookWorld) -> list[EventRecord]:
    return [event for event in await world.events() if event.type.startswith("system.")]


async def test_a_lost_connection_is_told_of_once_it_is_back(database_url: str) -> None:
    async with webhook_world(database_url) as world:

        async def is_listening() -> bool:
            return world.node.listener.is_connected and await world.value(LISTENERS) is not None

        async def is_told() -> bool:
            return len(await system_events(world)) == 2

        await eventually(is_listening)
        assert await system_events(world) == []
        await world.value(f"select count(pg_terminate_backend(pid)) from ({LISTENERS}) listening")
        await eventually(is_told)
        lost, back = await system_events(world)
        assert (lost.type, back.type) == ("system.store_connection_lost", "system.store_connection_restored")
        assert (lost.tenant_id, lost.payload["data"]["severity"]) == ("__system__", "critical")
        assert back.payload["data"]["details"] == {"node": world.node.node, "lost_for_ms": 0}
        assert await world.events(stream="__system__") == []


async def test_slow_turns_are_told_of_when_they_begin(database_url: str) -> None:
    async with webhook_world(database_url) as world:
        look = world.node.system_events.run_once
        for slow in (TURNS_LEAST // 100, 5, 5, 0, 5):
            for number in range(TURNS_LEAST):
                measures.TURN_SECONDS.labels(context="budget").observe(2.0 if number < slow else 0.01)
            await look()
        told = await system_events(world)
        assert [event.type for event in told] == ["system.high_latency"] * 2
        assert told[0].payload["data"]["details"]["slow"] == 5
