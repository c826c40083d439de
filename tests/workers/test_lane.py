"""What a lane does with batches, whatever a turn is about: here it adds numbers, and the database is asked in earnest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from storage.database import AnyConnection, connect
from workers.actor import Actor, Directory, Stopped
from workers.lane import SPLIT_LEAST, Lane
from workers.request import NOBODY
from workers.turns import Answers, Prepared, TurnResult, Work, count_of


@dataclass
class Adding:
    """A turn whose books are sums. Decided from memory once there is a sum; `agrees` says what the database answers."""

    name: str = "adding"
    stored: dict[str, int] = field(default_factory=dict)
    """What is durable, by key."""
    agrees: list[bool | Exception] = field(default_factory=list)
    """What comes of the next turns from memory; afterwards they all stand."""
    log: list[str] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    """While it is not set, nothing that was decided from memory is written."""

    def prepare(self, work: Work, *, under_way: Answers) -> tuple[Prepared | None, Work]:
        ready = [(actor, asks) for actor, asks in work if actor.state is not None]
        rest = [(actor, asks) for actor, asks in work if actor.state is None]
        if not ready:
            return None, rest
        self.log.append(f"decide {count_of(ready)}")
        return Prepared(work=ready, result=self._decide(ready)), rest

    async def settle(self, connection: AnyConnection, prepared: Prepared) -> bool:
        sums = {actor.key: actor.state for actor, _ in prepared.work}
        await self.gate.wait()
        await connection.fetchval("select 1")
        agrees = self.agrees.pop(0) if self.agrees else True
        self.log.append(f"settle {count_of(prepared.work)}: {'yes' if agrees is True else 'no'}")
        if isinstance(agrees, Exception):
            raise agrees
        if agrees:
            self.stored.update({key: total for key, total in sums.items() if total is not None})
        return agrees

    async def run(self, connection: AnyConnection, work: Work) -> TurnResult:
        await connection.fetchval("select 1")
        for actor, _ in work:
            actor.state = self.stored.get(actor.key, 0)
        result = self._decide(work)
        self.log.append(f"lock {count_of(work)}")
        self.stored.update({actor.key: actor.state for actor, _ in work})
        return result

    def committed(self, result: TurnResult) -> None:
        self.log.append(f"told {len(result.replies)}")

    def forget(self, actors: Iterable[Actor[Any]]) -> None:
        for actor in actors:
            actor.state = None

    def _decide(self, work: Work) -> TurnResult:
        result = TurnResult()
        for actor, asks in work:
            for ask in asks:
                actor.state += ask.command
                result.replies.append((ask, actor.state))
        return result


@asynccontextmanager
async def lane_of(url: str, turn: Adding, *, is_cached: bool = True) -> AsyncIterator[tuple[Lane, Directory[int]]]:
    """A running lane, and its actors."""
    lane = Lane("adding", turn, connect=lambda: connect(url), committed=lambda _: None, is_cached=is_cached)
    directory: Directory[int] = Directory(lambda _: lane)
    running = asyncio.create_task(lane.run())
    try:
        yield lane, directory
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def add(directory: Directory[int], number: int = 1, *, key: str = "a") -> asyncio.Task[int]:
    return asyncio.create_task(directory.actor(key).ask(number, NOBODY))


async def waiting(directory: Directory[int], count: int, *, key: str = "a") -> list[asyncio.Task[int]]:
    """So many commands, all of them in the mailbox or further."""
    asks = [add(directory, key=key) for _ in range(count)]
    await asyncio.sleep(0)
    return asks


async def all_idle() -> None:
    """Everybody has done what can be done without the database."""
    for _ in range(50):
        await asyncio.sleep(0)


async def until(turn: Adding, said: str) -> None:
    async with asyncio.timeout(60):
        while said not in turn.log:  # noqa: ASYNC110 - it is said by somebody else's step
            await asyncio.sleep(0.001)


async def test_half_of_many_is_written_while_the_other_half_is_decided(database_url: str) -> None:
    turn = Adding()
    async with lane_of(database_url, turn) as (_, directory):
        assert await add(directory) == 1
        asks = await waiting(directory, SPLIT_LEAST)
        half = SPLIT_LEAST // 2
        await all_idle()
        assert turn.log == ["lock 1", "told 1", f"decide {half}", f"decide {half}"], "nothing is written yet"
        turn.gate.set()
        assert await asyncio.gather(*asks) == list(range(2, SPLIT_LEAST + 2))
        assert turn.log[4:] == [f"settle {half}: yes", f"told {half}"] * 2


async def test_few_that_come_meanwhile_wait_for_one_another(database_url: str) -> None:
    turn = Adding()
    async with lane_of(database_url, turn) as (_, directory):
        await add(directory)
        first = await waiting(directory, 10)
        await until(turn, "decide 10")
        few = await waiting(directory, 4)
        await all_idle()
        assert turn.log[-1] == "decide 10", "four are not worth a batch while ten are under way"
        fifth = await waiting(directory, 1)
        await until(turn, "decide 5")
        turn.gate.set()
        assert await asyncio.gather(*first, *few, *fifth) == list(range(2, 17))


async def test_what_was_decided_on_top_of_what_did_not_stand_is_decided_anew(database_url: str) -> None:
    turn = Adding(agrees=[False])
    async with lane_of(database_url, turn) as (_, directory):
        await add(directory, key="a")
        await add(directory, key="b")
        first = await waiting(directory, 3)
        await until(turn, "decide 3")
        turn.stored["a"] = 100  # another node was here
        second = [add(directory, key=key) for key in ("a", "a", "b", "b")]
        await until(turn, "decide 4")
        turn.gate.set()
        assert await asyncio.gather(*first) == [101, 102, 103]
        assert await asyncio.gather(*second) == [104, 105, 2, 3]
        assert turn.log[6:] == ["settle 3: no", "lock 3", "told 3", "lock 4", "told 4"]
        assert turn.stored == {"a": 105, "b": 3}


async def test_an_actor_whose_decisions_did_not_stand_stays_under_the_lock_for_a_while(database_url: str) -> None:
    turn = Adding(agrees=[False])
    turn.gate.set()
    async with lane_of(database_url, turn) as (_, directory):
        for key in ("a", "b"):
            await add(directory, key=key)
        await add(directory)
        turn.log.clear()
        await add(directory)
        await add(directory, key="b")
        assert turn.log == ["lock 1", "told 1", "decide 1", "settle 1: yes", "told 1"]


async def test_a_connection_that_is_lost_under_way_is_opened_again(database_url: str) -> None:
    turn = Adding(agrees=[ConnectionResetError("cut")])
    turn.gate.set()
    async with lane_of(database_url, turn) as (_, directory):
        await add(directory)
        assert await add(directory) == 2
        assert turn.log[-3:] == ["settle 1: no", "lock 1", "told 1"]


async def test_a_command_that_memory_cannot_digest_fails_alone(database_url: str) -> None:
    turn = Adding()
    turn.gate.set()
    async with lane_of(database_url, turn) as (_, directory):
        await add(directory)
        poisoned = asyncio.create_task(directory.actor("a").ask("poison", NOBODY))
        others = await waiting(directory, 3)
        with pytest.raises(TypeError):
            await poisoned
        assert await asyncio.gather(*others) == [2, 3, 4]


async def test_nobody_waits_for_a_lane_that_ends(database_url: str) -> None:
    turn = Adding()
    async with lane_of(database_url, turn) as (lane, directory):
        await add(directory)
        asks = [*await waiting(directory, 10)]
        await until(turn, "decide 10")
        asks += await waiting(directory, 5)  # decided on top
        asks += await waiting(directory, 1)  # in the mailbox
        stopping = asyncio.create_task(lane.stop(within_s=0.1))
        await stopping
        assert not any(ask.done() for ask in asks[:15])
    told = await asyncio.gather(*asks, return_exceptions=True)
    assert [type(each) for each in told] == [Stopped] * 16


async def test_stopping_waits_for_what_is_under_way(database_url: str) -> None:
    turn = Adding()
    async with lane_of(database_url, turn) as (lane, directory):
        await add(directory)
        asks = await waiting(directory, 5)
        await until(turn, "decide 5")
        stopping = asyncio.create_task(lane.stop(within_s=60))
        await asyncio.sleep(0)
        turn.gate.set()
        await stopping
        assert [ask.done() for ask in asks] == [True] * 5


async def test_without_the_cached_mode_everything_runs_under_locks(database_url: str) -> None:
    turn = Adding()
    async with lane_of(database_url, turn, is_cached=False) as (_, directory):
        assert [await add(directory) for _ in range(3)] == [1, 2, 3]
        assert turn.log == ["lock 1", "told 1"] * 3
