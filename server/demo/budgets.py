"""The demo's money: a budget for each tenant and one for an agent of each, and agents that spend it slowly."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final

from domain.amounts import Amount, Unit
from domain.budget.refusals import Duplicate
from domain.budget.values import Action, Subject
from domain.outcomes import Accepted, Refusal
from workers.request import Caller
from workers.runtime import Runtime

DOLLAR: Final = 100_000_000
"""In microcents, which are 10^-8 US dollars."""

AGENT: Final = "planner"
ALLOCATED: Final[Mapping[str, int]] = {"northwind": 400, "bluefin": 150, "quarry": 90, "lantern": 60}
"""US dollars of a tenant. Its agent may spend a third of them, so that it is the agent's budget which runs out first."""

MODELS: Final = ("small", "large")


class BudgetRefused(Exception):  # noqa: N818 - says why the world cannot be built
    """A budget cannot be made: somebody has used the demo's database for something else."""


async def build_budgets(node: Runtime, caller: Caller) -> None:
    """The budgets of the caller's tenant; those that are there already stay as they are."""
    tenant_id = caller.principal.tenant_id
    dollars = ALLOCATED[tenant_id]
    for scope, share in ((f"tenant:{tenant_id}", 1), (f"tenant:{tenant_id}/agent:{AGENT}", 3)):
        allocated = Amount(Unit.USD_MICROCENTS, dollars * DOLLAR // share)
        made = await node.budgets.create_budget(caller, scope=scope, unit=Unit.USD_MICROCENTS, allocated=allocated)
        if isinstance(made, Refusal) and not isinstance(made, Duplicate):
            raise BudgetRefused(f"the budget of {scope} cannot be made: {made.message}")


async def spend_once(node: Runtime, caller: Caller, chance: random.Random, *, name: str) -> bool:
    """One call of an agent: held before at its estimate, settled after at what it took; whether it was allowed."""
    estimate = chance.randrange(1, 40) * DOLLAR // 20
    held = await node.budgets.reserve(
        caller,
        idempotency_key=f"{name}-reserve",
        subject=Subject(tenant=caller.principal.tenant_id, agent=AGENT),
        action=Action(kind="llm.completion", name=chance.choice(MODELS)),
        estimate=Amount(Unit.USD_MICROCENTS, estimate),
        ttl_ms=30_000,
    )
    if not isinstance(held, Accepted) or held.answer.reservation_id is None:
        return False
    actual = Amount(Unit.USD_MICROCENTS, estimate * chance.randrange(30, 110) // 100)
    await node.budgets.commit(
        caller, reservation_id=held.answer.reservation_id, idempotency_key=f"{name}-commit", actual=actual
    )
    return True
