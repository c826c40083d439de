"""More commands at one instant than a mailbox takes."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any, Final

from domain.amounts import Amount, Unit
from domain.budget.values import Action, Subject
from domain.outcomes import Accepted, Refusal
from tests.capacity_world import CapacityNode, caller_of, running_node
from tests.chaos.clients import free_debit
from tests.chaos.scene import Scene, shown
from tests.faults.cycles_load import SPENDERS
from tests.faults.load import RESERVATIONS, now_ms
from tests.simulation.histories import HOUR_MS
from tests.simulation.world_plan import ACCOUNT_MAIN, ROOT
from workers.actor import MAILBOX_MAX, Overloaded

FLOOD: Final = MAILBOX_MAX + 2_000
NEIGHBOURS_EVERY_S: Final = 0.01
PAGE: Final = 200


async def flood(scene: Scene) -> None:
    """Six thousand debits of one tenant and as many grants of one reservation, each at one instant at a node of its own.
    What is too much is told so at once, what was let in is done, and neighbours of the same node are served."""
    async with running_node(scene.stage.url) as node, scene.loaded(clients=2):
        await scene.compare_latency("on the other nodes", lambda: _both(scene, node))
        await scene.more_answers()


async def _both(scene: Scene, node: CapacityNode) -> None:
    run = scene.stage.budgets.run_number
    keys = [f"flood-{run}-{number}" for number in range(FLOOD)]
    await _with_neighbours(scene, node, _debits(scene, node, keys))
    await _with_neighbours(scene, node, _grants(scene, node, keys))
    for begin in range(0, FLOOD, PAGE):
        replies = await asyncio.gather(
            *(scene.stage.budgets.ask(free_debit(key)) for key in keys[begin : begin + PAGE])
        )
        assert {reply.status for reply in replies} == {201}


async def _debits(scene: Scene, node: CapacityNode, keys: list[str]) -> None:
    """Those that were let in are told to the books when they are repeated over HTTP, with the rest."""
    tenant_id = SPENDERS[0]
    outcomes = await _at_once(
        scene,
        "debits",
        [
            node.budgets.debit(
                caller_of(tenant_id),
                idempotency_key=key,
                subject=Subject(tenant=tenant_id),
                action=Action(kind="llm.completion", name="model"),
                actual=Amount(Unit.TOKENS, 0),
            )
            for key in keys
        ],
    )
    assert all(isinstance(outcome, Accepted) for outcome in outcomes)


async def _grants(scene: Scene, node: CapacityNode, keys: list[str]) -> None:
    """Each asks for more than there is, so that nothing comes of it but work."""
    starts_at = now_ms() + 300 * HOUR_MS
    outcomes = await _at_once(
        scene,
        "grants",
        [
            node.grants.create(
                caller_of(ROOT),
                tenant_id=ROOT,
                account_id=ACCOUNT_MAIN,
                reservation_id=RESERVATIONS[0].reservation_id,
                grant_tenant_id="A",
                slots=10_000,
                starts_at=starts_at,
                ends_at=starts_at + HOUR_MS,
                idempotency_key=key,
            )
            for key in keys
        ],
    )
    assert {outcome.code for outcome in outcomes} == {"CAPACITY_UNAVAILABLE"}


async def _at_once(scene: Scene, what: str, asked: list[Any]) -> list[Any]:
    """The outcomes of what was let in. Fails when nothing was shed."""
    began, told, outcomes = time.monotonic(), Counter[str](), list[Any]()
    shed_ms, taken_ms = list[float](), list[float]()

    async def ask(one: Any) -> None:
        try:
            outcome = await one
        except Overloaded:
            shed_ms.append((time.monotonic() - began) * 1_000)
            return
        taken_ms.append((time.monotonic() - began) * 1_000)
        outcomes.append(outcome)
        told["refused" if isinstance(outcome, Refusal) else "done"] += 1

    await asyncio.gather(*map(ask, asked))
    scene.say(
        f"{len(asked):,} {what} at once for one key: {len(outcomes):,} let in ({shown(taken_ms)}), "
        f"{len(shed_ms):,} told to come again (within {max(shed_ms, default=0):.0f} ms)"
    )
    assert len(shed_ms) > 0
    assert len(outcomes) >= MAILBOX_MAX
    return outcomes


async def _with_neighbours(scene: Scene, node: CapacityNode, work: Any) -> None:
    """While somebody asks for another key of the same node, again and again."""
    taken_ms: list[float] = []
    task = asyncio.ensure_future(work)
    number, tenant_id = 0, SPENDERS[1]
    while not task.done():
        number, began = number + 1, time.monotonic()
        await node.budgets.evaluate(
            caller_of(tenant_id),
            idempotency_key=f"beside-{scene.stage.budgets.run_number}-{number}-{id(task)}",
            subject=Subject(tenant=tenant_id),
            action=Action(kind="llm.completion", name="model"),
            estimate=Amount(Unit.TOKENS, 1),
        )
        taken_ms.append((time.monotonic() - began) * 1_000)
        await asyncio.wait([task], timeout=NEIGHBOURS_EVERY_S)
    await task
    scene.say(f"         a neighbour on the same node: {shown(taken_ms)}")
