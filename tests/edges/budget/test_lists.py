"""Lists of holds over both edges: filters, orders, pages and the cursor that is bound to them (section 6; 86, 113, 115)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.edges.budget.edge import BudgetEdge, Refused
from tests.edges.budget.story import P, Player, commit, release, reserve, story, wait
from tests.edges.cycles.world import ACME, ADMIN, OTHER, B, World

BIG = 2**53
MINUTE = 60_000


@pytest.fixture
async def player(world: World, edge: BudgetEdge) -> Player:
    """Four holds, a second apart: committed, released, active, and one whose time is over."""
    made = Player(world, edge)
    await made.play(
        story(
            "four holds",
            {P: 2**60},
            reserve(BIG + 1, {"tenant": ACME, "agent": "Bot"}, hold="committed", key="first"),
            wait(1_000),
            reserve(BIG, {"tenant": ACME, "app": "x", "agent": "bot"}, hold="released"),
            wait(1_000),
            reserve(3, {"tenant": ACME, "app": "y"}, hold="active"),
            wait(1_000),
            reserve(9, hold="expired", ttl_ms=1_000, grace_period_ms=0),
            commit(7, hold="committed"),
            release(hold="released"),
            wait(1_001),
        )
    )
    return made


async def listed(player: Player, *, by: str = ACME, **chosen: Any) -> list[str]:
    """The names of the holds, in the order of the list, over all its pages."""
    names = {reservation_id: hold for hold, reservation_id in player.holds.items()}
    found: list[str] = []
    cursor: dict[str, Any] = {}
    while True:
        page = await player.edge.holds({**chosen, **cursor}, by=by)
        assert not isinstance(page, Refused), page
        found += [names[row["reservation_id"]] for row in page[0]]
        if page[1] is None:
            return found
        cursor = {"cursor": page[1]}


CHOSEN: dict[str, tuple[dict[str, Any], list[str]]] = {
    "all": ({}, ["expired", "active", "released", "committed"]),
    "page by page": ({"limit": 1}, ["expired", "active", "released", "committed"]),
    "active": ({"status": "ACTIVE"}, ["active"]),
    "86: expired by time": ({"status": "EXPIRED"}, ["expired"]),
    "committed": ({"status": "COMMITTED"}, ["committed"]),
    "agent, in any case": ({"agent": "BOT"}, ["released", "committed"]),
    "app and agent": ({"app": "x", "agent": "bot"}, ["released"]),
    "by its key": ({"idempotency_key": "first"}, ["committed"]),
    "by another key": ({"idempotency_key": "none"}, []),
    "made": ({"created_from": B + 1_000, "created_to": B + 2_000}, ["active", "released"]),
    "ending": ({"expires_to": B + 4_000}, ["expired"]),
    "finalized": ({"finalized_from": B}, ["released", "committed"]),
    "115: by amount, above 2^53": ({"sort_by": "reserved"}, ["committed", "released", "expired", "active"]),
    "by expiry": ({"sort_by": "expires_at_ms", "sort_dir": "asc"}, ["expired", "committed", "released", "active"]),
    "by status": ({"sort_by": "status", "sort_dir": "asc", "limit": 3}, ["active", "committed", "expired", "released"]),
}


@pytest.mark.parametrize("which", CHOSEN)
async def test_what_is_asked_for_is_listed_in_its_order(player: Player, which: str) -> None:
    chosen, expected = CHOSEN[which]
    assert await listed(player, **chosen) == expected


async def test_a_cursor_is_bound_to_the_list_that_it_came_from(player: Player) -> None:
    """113."""
    page = await player.edge.holds({"limit": 2, "sort_by": "reserved", "sort_dir": "asc"})
    assert not isinstance(page, Refused)
    for other in (
        {"sort_by": "reserved", "sort_dir": "desc"},
        {"sort_by": "created_at_ms", "sort_dir": "asc"},
        {"sort_by": "reserved", "sort_dir": "asc", "created_from": B},
        {"sort_by": "reserved", "sort_dir": "asc", "status": "ACTIVE"},
    ):
        moved = await player.edge.holds({**other, "cursor": page[1]})
        assert isinstance(moved, Refused), other
        assert moved.code == "INVALID_REQUEST"


@pytest.mark.parametrize(
    "chosen", [{"limit": 201}, {"created_from": B, "created_to": B - 1}, {"cursor": "nonsense"}, {"limit": -1}]
)
async def test_what_cannot_be_listed_is_refused(player: Player, chosen: dict[str, Any]) -> None:
    refused = await player.edge.holds(chosen)
    assert isinstance(refused, Refused)
    assert refused.code == "INVALID_REQUEST"


async def test_a_list_is_of_ones_own_and_for_an_operator_of_any(player: Player) -> None:
    await player.world.add_tenant(OTHER)
    assert await listed(player, by=OTHER) == []
    assert await listed(player, by=ADMIN, tenant=ACME) == ["expired", "active", "released", "committed"]
    forbidden = await player.edge.holds({"tenant": ACME}, by=OTHER)
    assert isinstance(forbidden, Refused)
    assert forbidden.code == "FORBIDDEN"
