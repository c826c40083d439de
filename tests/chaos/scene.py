"""Where an act of chaos takes place: two loaded nodes over a durable PostgreSQL, and a way to say what is done."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from storage.embedded import EmbeddedPostgres
from tests.cutting import CuttingWire
from tests.faults.crowd import Crowd
from tests.faults.stage import Stage

CLIENTS = 6
"""Of each context."""


class Log:
    """Prints what is done, with the time since the beginning."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._began = time.monotonic()

    def __call__(self, text: str) -> None:
        self._write(f"{time.monotonic() - self._began:7.1f} s  {text}")


@dataclass(slots=True, kw_only=True)
class Scene:
    stage: Stage
    postgres: EmbeddedPostgres
    chance: random.Random
    say: Log
    is_short: bool
    wire: CuttingWire | None = None
    """Between the nodes and the database, where an act wants one."""
    tools: dict[str, Any] = field(default_factory=dict)
    """What else the place has."""

    def size(self, *, short: int, long: int) -> int:
        return short if self.is_short else long

    @asynccontextmanager
    async def loaded(self, *, clients: int = CLIENTS) -> AsyncIterator[None]:
        """Clients of both contexts ask while the block runs."""
        async with self.stage.loaded(capacity=clients, budgets=clients):
            yield

    async def more_answers(self) -> None:
        """Let some work be done."""
        await self.stage.more_answers(self.size(short=40, long=400))

    async def compare_latency(self, what: str, during: Callable[[], Awaitable[None]]) -> None:
        """Say what answers take before and while something is the matter."""
        await self.more_answers()
        before = self._new_latencies()
        await during()
        after = self._new_latencies()
        for name in before:
            self.say(f"         {name}: {shown(before[name])} before, {shown(after[name])} {what}")

    def _new_latencies(self) -> dict[str, list[float]]:
        """Since the last time."""
        loads: dict[str, Crowd] = {"grants and instances": self.stage.capacity, "budgets": self.stage.budgets}
        taken = {name: list(load.latencies_ms) for name, load in loads.items()}
        for load in loads.values():
            load.latencies_ms.clear()
        return taken


def shown(latencies_ms: list[float]) -> str:
    if not latencies_ms:
        return "no answer"
    return f"p50 {percentile(latencies_ms, 50):.1f} ms, p99 {percentile(latencies_ms, 99):.1f} ms"


def percentile(values: list[float], percent: int) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


async def pause(seconds: float) -> None:
    """How long something lasts. Nothing is decided by it: whatever must come about is waited for."""
    await asyncio.sleep(seconds)
