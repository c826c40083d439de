"""Old events and old answers go, in small steps; what has a longer promise stays (D19, D47)."""

from __future__ import annotations

import asyncio

import pytest

from domain.events import MIRROR
from storage.events import read_stream, read_tail
from tests.capacity_world import running_node
from tests.workers.capacity.world import ACCOUNT, ROOT, START, World, open_world
from workers.retention import ROWS_MAX, RetentionJob

DAY = 24 * 3_600_000


def job_of(world: World) -> RetentionJob:
    return RetentionJob(world.database, world.clock)


async def stream_of(world: World, stream: str) -> tuple[int, int, list[int]]:
    """(oldest number said to be kept, last number, the numbers there are)."""
    async with world.database.acquire() as connection:
        first, last = await read_stream(connection, stream)
        return first, last, [event.seq for event in await read_tail(connection, stream, after=0, limit=100_000)]


async def test_events_go_after_thirty_days_and_their_numbers_do_not_come_back(database_url: str) -> None:
    async with open_world(database_url) as world:
        await world.grant(1, START + 60 * DAY, START + 90 * DAY)
        await world.events()
        await world.at(START + 10 * DAY).grant(1, START + 60 * DAY, START + 90 * DAY)
        await world.events()
        await world.at(START + 30 * DAY).node.boundaries.run_once()
        assert (await job_of(world).run_once()).counts["streams"] == 0, "not a moment before"
        world.clock.advance(1)
        assert (await job_of(world).run_once()).counts["streams"] == 2
        assert await stream_of(world, "A") == (2, 2, [2])
        assert await stream_of(world, MIRROR) == (2, 2, [2])
        await world.grant(1, START + 60 * DAY, START + 90 * DAY)
        await world.events()
        assert await stream_of(world, "A") == (2, 3, [2, 3])


async def test_a_long_stream_is_shortened_completely_in_small_steps(database_url: str) -> None:
    count = 2 * ROWS_MAX + 50
    async with open_world(database_url) as world:
        await world.value("insert into event_stream (tenant_id, last_seq) values ('A', $1)", count + 1)
        await world.value(
            """insert into event (tenant_id, seq, event_id, subject, type, occurred_at, recorded_at, payload)
            select 'A', n, 'evt-' || n, 'A', 'old', $1::bigint, $1::bigint + (n / ($2::integer + 1)), '{}'
            from generate_series(1, $2::integer + 1) n""",
            START,
            count,
        )  # fmt: skip
        await job_of(world.at(START + 30 * DAY + 1)).run_once()
        assert await stream_of(world, "A") == (count + 1, count + 1, [count + 1])


async def test_two_nodes_at_once_remove_the_same(database_url: str) -> None:
    async with open_world(database_url) as world, running_node(database_url, clock=world.clock) as other:
        for _ in range(5):
            await world.grant(1, START + 60 * DAY, START + 90 * DAY)
        await world.events()
        world.at(START + 31 * DAY)
        await asyncio.gather(job_of(world).run_once(), RetentionJob(other.database, world.clock).run_once())
        assert await stream_of(world, "A") == (6, 5, [])


async def test_answers_are_forgotten_except_those_that_made_a_grant(database_url: str) -> None:
    """D19: a key that made a grant is taken as long as the grant is there."""
    async with open_world(database_url) as world:
        grant = await world.grant(1, START, START + DAY)
        await world.amend(grant, expected_version=1, slots=2, idempotency_key="amend-1")
        operations = "select operation from answer order by operation"
        before = [row["operation"] for row in await world.rows(operations)]
        assert before == ["reservationGrants.amend", "reservationGrants.create"]
        assert (await job_of(world.at(START + 30 * DAY)).run_once()).counts["answers"] == 0
        assert (await job_of(world.at(START + 30 * DAY + 1)).run_once()).counts["answers"] == 1
        assert [row["operation"] for row in await world.rows(operations)] == ["reservationGrants.create"]


async def test_many_answers_are_forgotten_in_small_steps(database_url: str) -> None:
    async with open_world(database_url) as world:
        await world.value(
            """insert into answer (owner, operation, idempotency_key, fingerprint, subject_id, answered_at)
            select $1, 'instances.create', 'key-' || n, '', 'x', $2::bigint from generate_series(1, $3::integer) n""",
            ROOT,
            START,
            2 * ROWS_MAX + 1,
        )
        ran = await job_of(world.at(START + 31 * DAY)).run_once()
        assert ran.counts["answers"] == 2 * ROWS_MAX + 1


async def test_nothing_else_is_ever_removed(database_url: str) -> None:
    async with open_world(database_url) as world:
        await world.grant(1, START, START + 3_600_000)
        instance = await world.run()
        await world.delete(instance)
        await world.at(START + DAY).meter()
        tables = ("capacity_grant", "capacity_instance", "capacity_segment", "usage_record", "capacity_reservation")
        before = {table: await world.rows(f"select * from {table}") for table in tables}
        await job_of(world.at(START + 1_000 * DAY)).run_once()
        assert {table: await world.rows(f"select * from {table}") for table in tables} == before
        assert await world.value("select count(*) from provider_account where account_id = $1", ACCOUNT) == 1


async def test_events_cannot_be_kept_shorter_than_is_promised(database_url: str) -> None:
    """D47."""
    async with open_world(database_url) as world:
        with pytest.raises(ValueError, match="at least 7 days"):
            RetentionJob(world.database, world.clock, event_days=6)
        RetentionJob(world.database, world.clock, event_days=7)


async def test_the_audit_log_goes_after_a_year_and_strangers_sooner(database_url: str) -> None:
    entries = """insert into budget_audit (tenant_id, entry_id, recorded_at, operation, status, error_code, actor_type)
        select t, t || n, $1, 'getTenant', 404, 'NOT_FOUND', 'admin'
        from unnest(array['A', '__unauth__']) t, generate_series(1, $2::integer) n"""

    async def left(world: World) -> list[str]:
        rows = await world.rows("select distinct tenant_id from budget_audit where operation = 'getTenant' order by 1")
        return [row["tenant_id"] for row in rows]

    async with open_world(database_url) as world:
        await world.value(entries, START, ROWS_MAX + 1)
        assert (await job_of(world.at(START + 30 * DAY)).run_once()).counts["audit"] == 0
        assert (await job_of(world.at(START + 30 * DAY + 1)).run_once()).counts["audit"] == ROWS_MAX + 1
        assert await left(world) == ["A"]
        await job_of(world.at(START + 400 * DAY)).run_once()
        assert await left(world) == ["A"]
        await job_of(world.at(START + 400 * DAY + 1)).run_once()
        assert await left(world) == []
