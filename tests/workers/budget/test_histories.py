"""Random histories through the real turn, beside the pure state and the naive model of the domain's tests.

Each step is decided four times: by the model, by a state that lives on, by a partial state of the flushed rows, and by one
of two nodes on a real database, picked by chance, whose memory is dropped now and then. All must agree on every outcome,
on everything that is told, and in the end on every row.
"""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from domain.budget.tenants import TenantAnswer
from domain.outcomes import Accepted
from storage.budget.books import lock_tenants, read_some_budgets
from storage.budget.rows import budget_row, reservation_of
from tests.budget_world import ACME, BudgetWorld, budget_world
from tests.domain.budget.histories import Trial, opening_of, step_of

STEPS = 70
INSERT = """
insert into budget (tenant_id, scope_path, unit, budget_id, allocated, reserved, spent, debt, overdraft_limit, capped,
    status, rollover_policy, created_at)
select tenant_id, scope_path, unit, budget_id, allocated, reserved, spent, debt, overdraft_limit, capped, status,
    rollover_policy, created_at
from json_populate_recordset(null::budget, $1)
"""


async def open_books(world: BudgetWorld, trial: Trial) -> None:
    """The budgets that the trial begins with, and no API key that closing the tenant would tell of."""
    async with world.connection.transaction():
        await world.connection.execute("delete from api_key where tenant_id = $1", ACME)
        await lock_tenants(world.connection, [ACME], [])
        rows = [budget_row(ACME, budget) for budget in trial.state.all_budgets()]
        await world.connection.execute(INSERT, rows)


class Beside:
    """The real thing beside a trial."""

    def __init__(self, world: BudgetWorld, trial: Trial, chance: Random) -> None:
        self.world = world
        self.trial = trial
        self.chance = chance
        self.told: list[tuple[str, Any]] = []

    async def play(self, step: dict[str, Any]) -> None:
        self.trial.play(step)
        if self.trial.decided is None:
            return
        command, expected, changes = self.trial.decided
        self.world.clock.now = self.trial.now
        node = self.chance.choice(self.world.nodes)
        if self.chance.random() < 0.1 and (actor := node.budget_asker._directory.find(ACME)) is not None:
            actor.state = None
        assert comparable(await node.budget_asker.ask(command)) == comparable(expected), command
        self.told += [(event.type.value, plain(event.payload(ACME))) for event in changes.events]

    async def compare(self) -> None:
        """Every row, and every event in its place."""
        connection, rows = self.world.connection, self.trial.rows
        budgets = await read_some_budgets(connection, ACME, limit=None)
        assert {(budget.scope_path, budget.unit): budget for budget in budgets} == rows.budgets
        found = await connection.fetch("select * from budget_reservation where tenant_id = $1", ACME)
        assert {row["reservation_id"]: reservation_of(row) for row in found} == rows.reservations
        for table, kept in (("budget_debit", rows.debits), ("budget_funding", rows.fundings)):
            assert await connection.fetchval(f"select count(*) from {table}") == len(kept)
        answers = await connection.fetchval("select count(*) from budget_answer")
        assert answers == len(rows.remembered)
        assert [(event.type, event.payload) for event in await self.world.events()] == self.told


def comparable(outcome: Any) -> Any:
    """Without what only a stored tenant has: its version, and the registry's name."""
    if isinstance(outcome, Accepted) and isinstance(outcome.answer, TenantAnswer):
        answer = outcome.answer
        return replace(answer, tenant=replace(answer.tenant, version=0, name=""))
    return outcome


def plain(payload: dict[str, Any]) -> Any:
    return json.loads(json.dumps(payload))


@pytest.mark.parametrize("seed", range(10))
async def test_a_history_is_decided_on_two_nodes_as_it_is_in_the_books_of_the_domain(
    database_url: str, seed: int
) -> None:
    chance = Random(seed)
    trial = Trial(opening_of(chance))
    async with budget_world(database_url, nodes=2) as world:
        await open_books(world, trial)
        beside = Beside(world, trial, chance)
        while trial.number < STEPS:
            step = step_of(chance)
            if "hold" not in step or trial.made or chance.randint(0, 9) == 0:
                await beside.play(step)
        if seed % 3 == 0:
            await beside.play({"do": "tenant", "status": "CLOSED"})
            for _ in range(5):
                await beside.play(step_of(chance))
        await beside.compare()
        await world.audit()
