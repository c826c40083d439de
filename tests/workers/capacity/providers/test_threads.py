"""Blocking calls with a limit: stuck ones are left behind, one a key, and told that nobody waits for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from workers.capacity.providers.threads import BlockingCalls, StillRunningError


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


async def test_a_call_gives_what_its_work_returns_or_raises() -> None:
    calls = BlockingCalls()

    def fail(abandoned: threading.Event) -> int:
        raise ValueError("from the thread")

    assert await calls.call("a", lambda _: threading.current_thread().daemon, limit_ms=5_000)
    with pytest.raises(ValueError, match="from the thread"):
        await calls.call("a", fail, limit_ms=5_000)
    assert await calls.call("a", lambda _: 3, limit_ms=5_000) == 3


async def test_a_stuck_call_ends_with_its_limit_and_is_the_only_one_of_its_key(gate: threading.Event) -> None:
    calls = BlockingCalls()
    told: list[bool] = []

    def stuck(abandoned: threading.Event) -> None:
        gate.wait(30)
        told.append(abandoned.is_set())

    with pytest.raises(TimeoutError):
        await calls.call("a", stuck, limit_ms=20)
    with pytest.raises(StillRunningError):
        await calls.call("a", lambda _: 1, limit_ms=5_000)
    assert await calls.call("b", lambda _: 2, limit_ms=5_000) == 2

    gate.set()
    assert await first_free(calls, "a") == 3
    assert told == [True]


async def test_a_cancelled_call_tells_its_thread(gate: threading.Event) -> None:
    calls = BlockingCalls()
    started, told = threading.Event(), threading.Event()

    def until_abandoned(abandoned: threading.Event) -> None:
        started.set()
        if abandoned.wait(30):
            told.set()

    running = asyncio.ensure_future(calls.call("a", until_abandoned, limit_ms=60_000))
    assert await asyncio.to_thread(started.wait, 10)
    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running
    assert await asyncio.to_thread(told.wait, 10)
    assert await first_free(calls, "a") == 3


async def first_free(calls: BlockingCalls, key: str) -> int:
    """3, as soon as the key is free again."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await calls.call(key, lambda _: 3, limit_ms=5_000)
            except StillRunningError:
                await asyncio.sleep(0.005)
