"""What is told of it: each event once, at the transition, and never for a retry (scenarios 76, 103, 118, 119)."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.edges.budget.edge import BudgetEdge
from tests.edges.budget.story import (
    AIA,
    P,
    Player,
    Story,
    commit,
    debit,
    decide,
    fund,
    release,
    reserve,
    retold,
    story,
)
from tests.edges.cycles.world import ACME, ADMIN, World

TOLD: tuple[tuple[Story, dict[str, int]], ...] = (
    (
        story("118: exhausted once", {P: 5}, reserve(5), reserve(0, hold="none")),
        {"budget.exhausted": 1},
    ),
    (
        story(
            "119: over the limit once, until it is funded",
            {P: 100},
            reserve(50, overage_policy=AIA, hold="one"),
            reserve(50, overage_policy=AIA, hold="two"),
            commit(80, hold="one"),
            commit(80, hold="two"),
            fund("CREDIT", 10),
            fund("CREDIT", 10),
        ),
        {"budget.over_limit_entered": 1, "budget.over_limit_exited": 1, "budget.funded": 2},
    ),
    (
        story(
            "24 of section 14: a denial, live and beforehand",
            {P: 5},
            reserve(6, gives="BUDGET_EXCEEDED"),
            decide(6, gives={"decision": "DENY"}),
            reserve(6, dry_run=True, gives={"decision": "DENY"}),
        ),
        {"reservation.denied": 3},
    ),
    (
        story(
            "76: nothing for a retry",
            {P: 5},
            decide(6, key="d", gives={"decision": "DENY"}),
            decide(6, key="d", gives={"decision": "DENY"}),
            reserve(5, key="k"),
            reserve(5, key="k"),
            commit(9, key="c", gives={"charged": 5}),
            commit(9, key="c", gives={"charged": 5}),
            debit(0, key="v"),
            debit(0, key="v"),
        ),
        {"reservation.denied": 1, "budget.exhausted": 1, "reservation.commit_overage": 1},
    ),
)


@pytest.mark.parametrize(("told", "expected"), TOLD, ids=[told.name for told, _ in TOLD])
async def test_each_event_is_told_once(
    stage: World, stage_edge: BudgetEdge, cast: dict[str, str], told: Story, expected: dict[str, int]
) -> None:
    await Player(stage, stage_edge, cast[ACME]).play(retold(told, cast))
    await stage.node.relay.flush()
    async with stage.node.database.acquire() as connection:
        rows = await connection.fetch("select type from event where tenant_id = $1", cast[ACME])
    counted = Counter(row["type"] for row in rows)
    assert {kind: counted[kind] for kind in expected} == expected


async def test_an_operators_release_is_on_record_as_on_behalf_of_the_tenant(world: World, edge: BudgetEdge) -> None:
    """103."""
    told = story("released", {P: 10}, reserve(5), release(by=ADMIN, reason="stuck"))
    await Player(world, edge).play(told)
    logs = (await world.get("/v1/admin/audit/logs", by=ADMIN, operation="releaseReservation")).json()["logs"]

    assert [entry["tenant_id"] for entry in logs] == [ACME]
    assert (logs[0]["metadata"]["actor_type"], logs[0]["metadata"]["reason"]) == ("admin_on_behalf_of", "stuck")
