"""A soak: one server with a large world in memory, thousands of subscribers, and commands of both contexts, for a time or a
number of commands. Prints memory over time, latencies, and what became of every event.

soak.py [--minutes M] [--commands N] [--subscribers N] [--clients N] [--rate EVENTS_PER_S] [--small]

At the end one subscriber that had stopped reading resumes, and the server is restarted beneath all the others. Exits with 1
when an event was lost or doubled, or memory is above its goal.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final

import psutil
import uvloop

from domain.events import MIRROR as EVERYBODYS
from domain.events import encode_cursor
from storage.database import Connection, connect
from tests.bench.fanout import APPEND
from tests.bench.place import Place
from tests.bench.serving import ROOT_KEY, KeepAlive, Served, served_earmark
from tests.bench.soak_listeners import (
    BUDGET_EVENTS,
    GRANT_EVENTS,
    MIRROR,
    SlowReader,
    Subscriber,
    count_since,
    last_seq,
    percentiles,
)
from tests.bench.soak_load import TERM_MS, Load
from tests.bench.soak_world import Size, World, lay_out, tenant_of
from tests.databases import durable_server

MEGABYTE: Final = 1 << 20
IDLE_GOAL_MB: Final = 150
FULL_GOAL_MB: Final = 400
DELAY_GOAL_MS: Final = 250
LOOK_S: Final = 5.0
PRINT_EVERY: Final = 6
"""Looks."""
WATCHED: Final = 80
"""Tenants with subscribers, half of them for grants and half for budgets."""
OPEN_AT_ONCE: Final = 50
WITHIN_S: Final = 180.0
POLL_S: Final = 0.05
KEPT_EVERY: Final = 20
"""Commands of which one's time is kept for the end."""
SMALL: Final = Size(reservations=20, grants_each=20, tenants=100, budgets_each=20)


@dataclass(slots=True)
class Watch:
    """One subscription that is open: whose events it gets, and from which number on."""

    subscriber: Subscriber
    tenant: int
    about_grants: bool
    since: int = 0

    @property
    def cursor(self) -> str:
        """What it resumes with."""
        return self.subscriber.cursor or encode_cursor(tenant_of(self.tenant), self.since)


@dataclass(slots=True)
class Findings:
    wrong: list[str] = field(default_factory=list)
    memory: list[tuple[float, float]] = field(default_factory=list)
    """(seconds, MB) of the server under load."""

    def note(self, text: str) -> None:
        print(text, flush=True)

    def expect(self, condition: bool, text: str) -> None:
        self.note(text if condition else f"WRONG: {text}")
        if not condition:
            self.wrong.append(text)


class Soak:
    def __init__(self, given: argparse.Namespace, findings: Findings) -> None:
        self._given = given
        self._findings = findings
        self._served: Served | None = None
        self._watches: list[Watch] = []
        self._delays: list[float] = []
        self._slow_since = 0

    async def run(self, place: Place) -> None:
        async with AsyncExitStack() as stack:
            url = await stack.enter_async_context(place.database())
            size = SMALL if self._given.small else Size()
            began = time.monotonic()
            world = await lay_out(url, size)
            self._findings.note(
                f"laid out in {time.monotonic() - began:.0f} s: {size.reservations:,} reservations, {size.grants:,} grants, "
                f"{size.budgets:,} budgets"
            )
            connection = await connect(url)
            stack.push_async_callback(connection.close)
            serving = await stack.enter_async_context(AsyncExitStack())
            self._served = await serving.enter_async_context(served_earmark(url))
            await asyncio.sleep(LOOK_S)
            idle = self.memory()
            self._findings.expect(idle < IDLE_GOAL_MB, f"idle: {idle:.0f} MB, goal {IDLE_GOAL_MB} MB")
            load = Load(world, lambda: self.served.port, watched=WATCHED)
            began = time.monotonic()
            await load.touch_everything()
            self._findings.note(
                f"touched in {time.monotonic() - began:.0f} s: {load.count:,} commands, {self.memory():.0f} MB"
            )
            await self._open_all(connection, world)
            self._findings.note(f"{len(self._watches):,} subscribers: {self.memory():.0f} MB")
            await _settled(connection)
            slow = await self._open_slow(connection)
            await self._under_load(load)
            await self._check_all(connection, "under load")
            await self._resume_slow(connection, slow)
            await serving.aclose()
            await self._miss_some(connection)
            self._served = await stack.enter_async_context(served_earmark(url))
            await self._resume_all(world)
            await self._check_all(connection, "with a restart between")

    @property
    def served(self) -> Served:
        assert self._served is not None, "it runs"
        return self._served

    def memory(self) -> float:
        """MB of the server, resident."""
        return float(psutil.Process(self.served.process.pid).memory_info().rss) / MEGABYTE

    # -- load ------------------------------------------------------------------------------------------------------

    async def _under_load(self, load: Load) -> None:
        began, first = time.monotonic(), load.count
        until, most = began + self._given.minutes * 60, first + self._given.commands

        def goes_on() -> bool:
            return time.monotonic() < until and load.count < most

        running = asyncio.create_task(load.run(self._given.clients, told_every_s=2 / self._given.rate, goes_on=goes_on))
        looks = 0
        before, at = load.count, began
        while not running.done():
            await asyncio.wait([running], timeout=LOOK_S)
            now = time.monotonic()
            self._findings.memory.append((now - began, self.memory()))
            looks += 1
            if looks % PRINT_EVERY == 0 or running.done():
                self._print(load, now - began, (load.count - before) / (now - at))
                before, at = load.count, now
        await running
        self._conclude(load.count - first, load)

    def _print(self, load: Load, seconds: float, rate: float) -> None:
        p50, p99 = percentiles(load.delays, 0.5, 0.99)
        self._delays += load.delays[::KEPT_EVERY]
        load.delays.clear()
        told = sum(watch.subscriber.count for watch in self._watches)
        delays = [delay for watch in self._watches for delay in watch.subscriber.delays[-20:]]
        late50, late95 = percentiles(delays, 0.5, 0.95)
        self._findings.note(
            f"{seconds:6.0f} s {self.memory():6.0f} MB {load.count:11,} commands {rate:7,.0f}/s "
            f"p50 {p50:5.1f} p99 {p99:6.1f} ms  {told:10,} messages, event to socket p50 {late50:4.0f} p95 {late95:4.0f} ms"
        )

    def _conclude(self, commands: int, load: Load) -> None:
        findings = self._findings
        delays = [delay for watch in self._watches for delay in watch.subscriber.delays]
        late = percentiles(delays, 0.5, 0.95, 0.99)
        took = percentiles(self._delays, 0.5, 0.95, 0.99)
        findings.note(f"{commands:,} commands; answers by kind: {dict(load.kinds)}")
        findings.note(f"commands: p50 {took[0]:.1f} p95 {took[1]:.1f} p99 {took[2]:.1f} ms")
        findings.note(
            f"event to socket over {len(delays):,} samples: p50 {late[0]:.0f} p95 {late[1]:.0f} p99 {late[2]:.0f} ms, "
            f"goal p95 {DELAY_GOAL_MS} ms"
        )
        most = max(megabytes for _, megabytes in findings.memory)
        findings.expect(most < FULL_GOAL_MB, f"most memory: {most:.0f} MB, goal {FULL_GOAL_MB} MB")
        early, last = _halves(findings.memory)
        findings.note(
            f"memory over the last two thirds: {early:.0f} MB in their first half, {last:.0f} MB in their second"
        )

    # -- subscribers -----------------------------------------------------------------------------------------------

    async def _open_all(self, connection: Connection, world: World) -> None:
        wanted = self._given.subscribers
        plan = [(number % WATCHED, number % WATCHED < WATCHED // 2) for number in range(wanted)]
        for start in range(0, wanted, OPEN_AT_ONCE):
            page = plan[start : start + OPEN_AT_ONCE]
            opened = await asyncio.gather(
                *(Subscriber.open(self.served.port, world.secrets[tenant]) for tenant, _ in page)
            )
            for subscriber, (tenant, about_grants) in zip(opened, page, strict=True):
                subscriber.subscribe("s", GRANT_EVENTS if about_grants else BUDGET_EVENTS)
                self._watches.append(Watch(subscriber, tenant, about_grants))
        await self._until_open(wanted)
        for watch in self._watches:
            watch.since = await last_seq(connection, tenant_of(watch.tenant))

    async def _resume_all(self, world: World) -> None:
        """Each with the cursor of the last event that it got; who got none begins where it began before."""
        for start in range(0, len(self._watches), OPEN_AT_ONCE):
            page = self._watches[start : start + OPEN_AT_ONCE]
            opened = await asyncio.gather(
                *(Subscriber.open(self.served.port, world.secrets[watch.tenant]) for watch in page)
            )
            for watch, subscriber in zip(page, opened, strict=True):
                subscriber.count = watch.subscriber.count
                document = GRANT_EVENTS if watch.about_grants else BUDGET_EVENTS
                subscriber.subscribe("s", document, after=watch.cursor)
                watch.subscriber = subscriber
        await self._until_open(len(self._watches))

    async def _until_open(self, count: int) -> None:
        deadline = time.monotonic() + WITHIN_S
        while (seen := await self._metric("earmark_subscribers")) < count:
            if time.monotonic() > deadline:
                ends = [watch.subscriber.end() for watch in self._watches if watch.subscriber.end()]
                raise TimeoutError(f"{seen:.0f} of {count} subscribers are open; ended: {ends[:5]}")
            await asyncio.sleep(POLL_S * 4)

    async def _check_all(self, connection: Connection, when: str) -> None:
        """Every subscriber has got as many events as its stream has, no less and no more."""
        await _settled(connection)
        expected: dict[tuple[int, bool], int] = {}
        for watch in self._watches:
            which = (watch.tenant, watch.about_grants)
            if which not in expected:
                stream = tenant_of(watch.tenant)
                expected[which] = await count_since(connection, stream, watch.since, about_grants=watch.about_grants)
        wanted = sum(expected[watch.tenant, watch.about_grants] for watch in self._watches)
        await _until(lambda: sum(watch.subscriber.count for watch in self._watches) >= wanted)
        counts = [(watch.subscriber.count, expected[watch.tenant, watch.about_grants]) for watch in self._watches]
        lost = sum(max(0, expected - count) for count, expected in counts)
        doubled = sum(max(0, count - expected) for count, expected in counts)
        self._findings.expect(
            lost == doubled == 0, f"{when}: {wanted:,} messages due, {lost:,} lost, {doubled:,} too many"
        )

    async def _miss_some(self, connection: Connection) -> None:
        """Events that come while no server runs: as another node would append them."""
        for tenant in {watch.tenant for watch in self._watches if watch.about_grants}:
            await connection.execute(APPEND, f"missed-{tenant}", tenant_of(tenant), 3)

    # -- the one that does not read --------------------------------------------------------------------------------

    async def _open_slow(self, connection: Connection) -> SlowReader:
        slow = await SlowReader.open(self.served.port, ROOT_KEY)
        slow.subscribe("slow", MIRROR)
        await self._until_open(len(self._watches) + 1)
        self._slow_since = await last_seq(connection, EVERYBODYS)
        slow.stop_reading()
        return slow

    async def _resume_slow(self, connection: Connection, slow: SlowReader) -> None:
        """It reads what was on its way, finds that it was ended, and gets the rest by the last cursor that it has."""
        cut = await self._metric("earmark_subscribers_cut_total", 'reason="slow"')
        slow.read_on()
        await _until(lambda: slow.end() is not None)
        ended = slow.end()
        self._findings.expect(
            ended is not None,
            f"who does not read: {slow.count:,} messages on their way, then {ended} ({cut:.0f} cut as slow)",
        )
        after = slow.cursor or encode_cursor(EVERYBODYS, self._slow_since)
        resumed = await Subscriber.open(self.served.port, ROOT_KEY)
        resumed.subscribe("rest", MIRROR, after=after)
        wanted = await count_since(connection, EVERYBODYS, self._slow_since, about_grants=True)
        await _until(lambda: slow.count + resumed.count >= wanted)
        self._findings.expect(
            slow.count + resumed.count == wanted,
            f"resumed by its cursor: {slow.count:,} before and {resumed.count:,} after of {wanted:,} events",
        )
        slow.close()
        resumed.close()

    async def _metric(self, name: str, label: str = "") -> float:
        return await metric(self.served.port, name, label)


def _halves(memory: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The means of both halves of what comes after the first third."""
    rest = [megabytes for _, megabytes in memory[len(memory) // 3 :]]
    middle = max(1, len(rest) // 2)
    first, second = rest[:middle], rest[middle:] or rest
    return sum(first) / len(first), sum(second) / len(second)


_BUSY: Final = """
select exists (select 1 from capacity_outbox) or exists (select 1 from budget_outbox) or exists (
    select 1 from capacity_reservation where next_boundary_at < extract(epoch from clock_timestamp()) * 1000 + $1
)
"""


async def _settled(connection: Connection) -> None:
    """No event waits, and no term that was asked for is still to come to its end. Raises TimeoutError."""
    async with asyncio.timeout(WITHIN_S):
        while await connection.fetchval(_BUSY, TERM_MS * 2):  # noqa: ASYNC110 - it happens in PostgreSQL
            await asyncio.sleep(POLL_S * 10)


async def _until(condition: Callable[[], bool]) -> None:
    """Wait for it for a while; whoever asks looks again."""
    deadline = time.monotonic() + WITHIN_S / 3
    while not condition() and time.monotonic() < deadline:  # noqa: ASYNC110 - what is waited for comes over sockets
        await asyncio.sleep(POLL_S)


async def metric(port: int, name: str, label: str) -> float:
    """What the server says of itself; 0 where it says nothing."""
    connection = await KeepAlive.open(port)
    _, text = await connection.get("/metrics")
    connection.close()
    for line in text.decode().splitlines():
        if line.startswith(name) and line[len(name)] in " {" and label in line:
            return float(line.rpartition(" ")[2])
    return 0.0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="soak.py", description="One server, everything at once, for a long time.")
    parser.add_argument("--minutes", type=float, default=60.0, help="how long at most (an hour)")
    parser.add_argument("--commands", type=int, default=10_000_000, help="how many commands at most (ten million)")
    parser.add_argument("--subscribers", type=int, default=2_000)
    parser.add_argument("--clients", type=int, default=8, help="who ask one command after another")
    parser.add_argument("--rate", type=float, default=50.0, help="events a second that subscribers are told of")
    parser.add_argument("--small", action="store_true", help="a world of a hundredth, to try this out")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    given, findings = parse(arguments), Findings()
    with durable_server() as server, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_soak(given, findings, Place(server)))
    findings.note(f"{len(findings.wrong)} things were wrong" if findings.wrong else "nothing was wrong")
    return 1 if findings.wrong else 0


async def _soak(given: argparse.Namespace, findings: Findings, place: Place) -> None:
    await place.open()
    await Soak(given, findings).run(place)
