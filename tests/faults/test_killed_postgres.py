"""kill -9 of PostgreSQL in the middle of a load, with durability on: what was answered is there, once (T100)."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress

from domain.events import MIRROR, EventRecord
from storage.database import Connection, connect
from storage.embedded import EmbeddedPostgres
from storage.migrate import migrate
from tests.capacity_world import NO_ANSWER, POLL_S, CapacityNode, eventually, lay_out, running_node
from tests.faults.crowd import beside
from tests.faults.load import Load, check_all, now_ms
from tests.faults.serving import kill_postgres, turns_held_up
from tests.simulation.histories import Step
from tests.simulation.oracle_rows import Outcome
from tests.simulation.product import PRODUCT_WORLD, ProductWorld
from workers.events import SubscriptionClosed

CLIENTS = 12
JOBS_EVERY_S = 0.1


async def test_a_killed_postgres_loses_and_doubles_nothing(durable_postgres: EmbeddedPostgres) -> None:
    url = durable_postgres.dsn
    await migrate(url)
    async with running_node(url) as first, running_node(url) as second:
        await lay_out(first, PRODUCT_WORLD, at=now_ms())
        product = ProductWorld([first, second])
        told: list[EventRecord] = []

        async def send_once(step: Step, key: str, attempt: int) -> Outcome | None:
            with suppress(*NO_ANSWER):
                return (await product.play(step, key=key, node=attempt + len(load.sent))).outcome
            return None

        load = Load(send_once, seed=7)
        async with beside(follow(first, told)), beside(run_jobs(second)):
            async with load.running(clients=CLIENTS):
                for only_a_backend in (False, True):
                    await load.more_answers(80)
                    await kill_postgres(durable_postgres, only_a_backend=only_a_backend)
                await load.more_answers(80)
                async with turns_held_up(url, "capacity_reservation"):  # this one hits a turn for certain
                    await kill_postgres(durable_postgres)
                await load.more_answers(80)
            await load.repeat_all()
            connection = await connect(url)
            try:
                await check_all(connection, load)
                await everything_was_told(connection, told)
            finally:
                await connection.close()


async def run_jobs(node: CapacityNode) -> None:
    """As the scheduler does, which logs what fails and comes again."""
    while True:
        with suppress(*NO_ANSWER):
            await node.boundaries.run_once()
            await node.relay.sweep()
        await asyncio.sleep(JOBS_EVERY_S)


async def follow(node: CapacityNode, told: list[EventRecord]) -> None:
    """A subscriber to everything, which resumes where it was whenever its stream breaks."""
    while True:
        with suppress(*NO_ANSWER, SubscriptionClosed):
            after = told[-1].seq if told else 0
            async with aclosing(node.hub.subscribe(MIRROR, key_id="key", after=after)) as events:
                async for event in events:
                    told.append(event)  # noqa: PERF401 - there is no end to wait for
        await asyncio.sleep(POLL_S)


async def everything_was_told(connection: Connection, told: list[EventRecord]) -> None:
    last_seq: int = await connection.fetchval("select last_seq from event_stream where tenant_id = $1", MIRROR)

    async def has_all() -> bool:
        return len(told) >= last_seq

    await eventually(has_all)
    assert [event.seq for event in told[:last_seq]] == list(range(1, last_seq + 1))  # more may have come meanwhile
