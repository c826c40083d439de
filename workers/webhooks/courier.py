"""The node's part in delivering: hand out what is new, claim subscriptions that have something due, deliver for them.

A claim is a lease that the node prolongs while it works. A node that dies lets it run out, and another one goes on: what
it had sent without writing so down is sent again (at least once), and nothing is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from typing import Final

from storage.database import Database, Unavailable, read_clock
from storage.webhooks.handing_out import claim, prolong, read_next_due, release
from storage.webhooks.subscriptions import lock_heads
from workers.clock import Clock
from workers.schedule import Ran
from workers.supervisor import Supervisor
from workers.webhooks.delivering import Delivering
from workers.webhooks.handing_out import HandingOut
from workers.webhooks.sender import Sender
from workers.webhooks.settling import Settler
from workers.webhooks.vault import VaultError
from workers.webhooks.writing import Tools

log = logging.getLogger("earmark.webhooks")

STRANDS_MAX: Final = 64
"""Subscriptions that a node delivers for at a time: more would only share the same processor."""
FAILING_MAX: Final = 32
"""Of them those whose last attempt failed: receivers that are dead or slow cannot take every place."""
HOST_MAX: Final = 8
"""Of them those of one host, however many subscribe with it."""
LEASE_MS: Final = 15_000
"""After which a node that died no longer stands in the way."""
PROLONG_S: Final = 4.0
MARGIN_S: Final = 5.0
"""Nothing is sent any more when a lease has less left: the clock of this node is not the database's."""
LOOK_S: Final = 1.0
"""How often a node looks for what others have queued and not delivered."""
QUIET_S: Final = 0.25
"""How long it looks at nothing, whatever happens, while there is no webhook."""
RETRY_S: Final = 0.5
RESTS: Final = 4
"""How many times as long as it took to hand out the courier rests, up to a limit: it must not stand in anybody's way."""
REST_MAX_S: Final = 0.05


class Courier:
    """One a node. Without a key to open secrets with it hands out and leaves delivering to others."""

    def __init__(self, database: Database, clock: Clock, supervisor: Supervisor, tools: Tools, sender: Sender) -> None:
        self._database = database
        self._clock = clock
        self._supervisor = supervisor
        self._vault = tools.vault
        self._lease = tools.ids.new("lease")
        settler = Settler(database, clock, tools.ids, lease=self._lease)
        self._handing_out = HandingOut(database, clock, tools.ids)
        self._delivering = Delivering(
            database, clock, vault=tools.vault, guard=tools.guard, sender=sender, settler=settler
        )
        self._wake = asyncio.Event()
        self._strands: dict[str, asyncio.Task[int]] = {}
        self._failing: set[str] = set()
        self._hosts: Counter[str] = Counter()
        self._good_until: dict[str, float] = {}
        self._claimed_at = 0
        self._is_stopping = False

    def wake(self) -> None:
        """There are new events, or there is something due."""
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled."""
        while not self._is_stopping:
            self._wake.clear()
            started = time.monotonic()
            try:
                queued = await self._handing_out.step()
                took_s = time.monotonic() - started
                if self._handing_out.found_nobody:
                    await asyncio.sleep(QUIET_S)
                    continue
                await self._claim()
                wait_s = 0.0 if queued is not None else await self._until_next_s()
            except Unavailable as error:
                log.warning("webhooks wait: %s", error)
                took_s, wait_s = 0.0, RETRY_S
            await asyncio.sleep(min(REST_MAX_S, RESTS * took_s))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()

    async def run_once(self) -> Ran:
        """A job: hand out what there is and deliver what is due, until nothing is."""
        queued = await self._handing_out.run_once()
        attempts = 0
        while started := await self._claim():
            done, _ = await asyncio.wait(started)
            attempts += sum(task.result() or 0 for task in done if not task.cancelled())
        return Ran(counts={"queued": queued, "attempts": attempts})

    async def keep_leases(self) -> None:
        """Prolong what this node holds, until cancelled. A lease that is not ours any more ends its deliveries."""
        while True:
            await asyncio.sleep(PROLONG_S)
            held = sorted(self._good_until)
            if not held:
                continue
            try:
                asked_at = time.monotonic()
                async with self._database.transaction() as connection:
                    await lock_heads(connection, held)
                    now = self._clock.instant(await read_clock(connection))
                    kept = await prolong(connection, held, lease=self._lease, leased_until=now + LEASE_MS)
            except Unavailable as error:
                log.warning("the leases of webhooks could not be prolonged: %s", error)
                continue
            for name in held:
                if name in self._good_until:
                    self._good_until[name] = asked_at + LEASE_MS / 1_000 if name in kept else 0.0

    async def stop(self, *, within_s: float) -> None:
        """Begin nothing more, let what is on its way arrive if it can in time, and give back every lease."""
        self._is_stopping = True
        for name in self._good_until:
            self._good_until[name] = 0.0
        self._wake.set()
        strands = list(self._strands.values())
        if not strands:
            return
        _, late = await asyncio.wait(strands, timeout=within_s)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)

    # -- claims ----------------------------------------------------------------------------------------------------

    async def _claim(self) -> list[asyncio.Task[int]]:
        """Take what is due, as far as there are places, and begin with it."""
        if self._is_stopping:
            return []
        started = []
        for is_failing in (False, True):
            places = STRANDS_MAX - len(self._strands)
            if is_failing:
                places = min(places, FAILING_MAX - len(self._failing))
            for name, host in await self._claim_some(places, is_failing=is_failing):
                if name in self._strands:
                    continue  # its lease ran out under our own hands: it ends by itself
                if self._hosts[host] >= HOST_MAX:
                    del self._good_until[name]
                    await self._release(name)
                else:
                    started.append(self._start(name, host, is_failing=is_failing))
        return started

    async def _claim_some(self, places: int, *, is_failing: bool) -> list[tuple[str, str]]:
        """Each with its host."""
        if places <= 0 or self._vault is None:
            return []
        asked_at = time.monotonic()
        async with self._database.transaction() as connection:
            self._claimed_at = self._clock.instant(await read_clock(connection))
            claimed = await claim(
                connection,
                now=self._claimed_at,
                is_failing=is_failing,
                key_ids=self._vault.key_ids,
                limit=places,
                lease=self._lease,
                leased_until=self._claimed_at + LEASE_MS,
                but_not_of=[host for host, strands in self._hosts.items() if strands >= HOST_MAX],
            )
        for name, _ in claimed:
            if name not in self._strands:
                self._good_until[name] = asked_at + LEASE_MS / 1_000
        return claimed

    def _start(self, name: str, host: str, *, is_failing: bool) -> asyncio.Task[int]:
        if is_failing:
            self._failing.add(name)
        self._hosts[host] += 1
        task = self._supervisor.spawn(f"webhook {name}", self._deliver(name))
        self._strands[name] = task
        task.add_done_callback(lambda _: self._ended(name, host))
        return task

    def _ended(self, name: str, host: str) -> None:
        del self._strands[name]
        self._good_until.pop(name, None)
        self._failing.discard(name)
        self._hosts[host] -= 1
        if not self._hosts[host]:
            del self._hosts[host]
        self._wake.set()

    async def _deliver(self, name: str) -> int:
        """What fails for a fault of ours keeps its lease until that runs out: so it is not tried again at once."""
        attempts = 0
        try:
            attempts = await self._delivering.deliver(name, is_ours=lambda: self._is_ours(name))
        except Unavailable as error:
            log.warning("deliveries of %s wait: %s", name, error)
            await asyncio.sleep(RETRY_S)
        except VaultError:
            log.exception("the secrets of %s cannot be opened", name)
            return attempts
        except asyncio.CancelledError:
            await self._release(name)
            raise
        await self._release(name)
        return attempts

    async def _release(self, name: str) -> None:
        """A lease that cannot be given back runs out by itself."""
        try:
            async with self._database.transaction() as connection:
                await lock_heads(connection, [name])
                now = self._clock.instant(await read_clock(connection))
                await release(connection, name, lease=self._lease, now=now)
        except Unavailable as error:
            log.warning("the lease of %s runs out by itself: %s", name, error)

    def _is_ours(self, name: str) -> bool:
        return self._good_until.get(name, 0.0) - time.monotonic() > MARGIN_S

    async def _until_next_s(self) -> float:
        """How long there is nothing to do, as far as this node knows. What was due and could not be taken, it does not ask
        for again before something has changed."""
        if len(self._strands) >= STRANDS_MAX:
            return LOOK_S  # whoever ends wakes us
        async with self._delivering.reading() as connection:
            due_at = await read_next_due(connection, after=self._claimed_at)
            now = self._clock.instant(await read_clock(connection))
        return LOOK_S if due_at is None else min(LOOK_S, max(0.0, (due_at - now) / 1_000))
