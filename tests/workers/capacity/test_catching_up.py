"""A node that was overtaken brings its books up to date with what is newer: they are what reading them anew would give."""

from __future__ import annotations

import random
from typing import Any

import pytest

from domain.capacity.state import CapacityState
from domain.identity import reservation_key
from domain.outcomes import Accepted
from storage.capacity.books import read_heads, read_states
from tests.faults.race_world import ACCOUNT, FIRST, B, H, RaceWorld, racing
from workers.capacity import gathering

KEY = reservation_key(ACCOUNT, FIRST)
STEPS = 60


class Walk:
    """Whatever can happen to a reservation, by chance, at one node or the other."""

    def __init__(self, world: RaceWorld, seed: int) -> None:
        self._world = world
        self._chance = random.Random(seed)
        self._grants: list[Any] = []
        self._instances: list[Any] = []

    async def step(self, node: int) -> None:
        chance = self._chance
        verbs = ["grant", "grant", "run", "run"]
        verbs += ["end", "amend"] if self._grants else []
        verbs += ["start", "stop", "delete"] if self._instances else []
        verb = chance.choice(verbs)
        if verb == "grant":
            starts_at = self._world.clock.now + chance.randrange(0, 3) * H
            ends_at = starts_at + chance.randrange(1, 4) * H
            made = await self._world.grant(chance.randrange(1, 4), starts_at, ends_at, tenant=self._tenant(), node=node)
            self._grants += [made.answer.grant] if isinstance(made, Accepted) else []
        elif verb == "run":
            run = await self._world.run(self._tenant(), node=node)
            self._instances += [run.answer] if isinstance(run, Accepted) else []
        elif verb == "end":
            await self._world.end(chance.choice(self._grants).grant_id, node=node)
        elif verb == "amend":
            grant = chance.choice(self._grants)
            await self._world.amend(grant.grant_id, version=1, slots=chance.randrange(1, 5), node=node)
        else:
            await self._world.act(verb, chance.choice(self._instances), node=node)

    def _tenant(self) -> str:
        return self._chance.choice("AB")


@pytest.mark.parametrize("seed", [1, 2])
async def test_books_that_are_brought_up_to_date_are_those_that_would_be_read(database_url: str, seed: int) -> None:
    chance = random.Random(seed)
    async with racing(database_url, nodes=2, first=12) as world:
        walk, compared = Walk(world, seed), 0
        for _ in range(STEPS):
            world.clock.advance(chance.choice([0, 0, 1, H // 3]))
            node = chance.randrange(2)
            await walk.step(node)
            state = world.node(node).asker._directory.actor(KEY).state
            heads = await read_heads(world.connection, [KEY])
            if state is not None and state.reservation.version == heads[KEY].version:
                compared += 1
                fresh = (await read_states(world.connection, heads))[KEY]
                assert books_of(state) == books_of(fresh)
        assert compared > STEPS // 2
        await world.audit()


async def test_much_that_is_newer_is_read_anew(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "CATCH_UP_MAX", 2)
    async with racing(database_url, nodes=2) as world:
        await world.grant(1, B, B + H, node=0)
        for number in range(4):
            await world.grant(1, B + number, B + H, node=1)
        await world.grant(1, B, B + H, node=0)
        state = world.node(0).asker._directory.actor(KEY).state
        heads = await read_heads(world.connection, [KEY])
        fresh = (await read_states(world.connection, heads))[KEY]
        assert state is not None
        assert books_of(state) == books_of(fresh)
        await world.audit()


def books_of(state: CapacityState) -> dict[str, Any]:
    """All that a decision can ask of them, at the instant of the last one and later."""
    now = state.reservation.clock_at
    grants = {each.grant_id: each for each in state.grants.values() if each.is_open_at(now)}
    return {
        "reservation": state.reservation,
        "grants": grants,
        "instances": state.instances,
        "members": {grant_id: set(state.members[grant_id]) for grant_id in grants},
        "of tenants": {tenant_id: set(mine) for tenant_id, mine in state.tenant_grants.items()},
        "outsiders": {tenant_id: set(mine) for tenant_id, mine in state.outsiders.items()},
        "counts": (state.running, state.outside_running, state.live_slots, state.free),
        "next": state.next_boundary(),
        "levels": [(at, state.timeline.level(at)) for at in range(now, now + 8 * H, H // 6)],
        "peak": state.timeline.peak(now, now + 1_000 * H),
    }
