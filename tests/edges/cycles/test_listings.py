"""Lists of reservations and balances: filters, windows, order, cursors, projection (section 6; scenarios 112 to 115)."""

from __future__ import annotations

from typing import Any

import pytest

from domain.amounts import INT64_MAX
from domain.instants import show_instant
from tests.edges.cycles.world import ACME, BOT, OTHER, TENANT, USD, B, World, ok, refused, tokens, usd

INVALID = (400, "INVALID_REQUEST")
SECOND = 1_000


@pytest.fixture(autouse=True)
async def _budget(world: World) -> None:
    await world.budget(TENANT, INT64_MAX)


async def listed(world: World, *, by: str = ACME, **params: Any) -> list[str]:
    """Ids in the order of the list, over all its pages."""
    found: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        body = ok(await world.get("/v1/reservations", by=by, **params, **cursor))
        found += [row["reservation_id"] for row in body["reservations"]]
        assert body["has_more"] is ("next_cursor" in body)
        if not body["has_more"]:
            return found
        cursor = {"cursor": body["next_cursor"]}


async def seven(world: World) -> list[str]:
    """Seven reservations, a second apart, of 7, 6, 5, … tokens."""
    made = []
    for number in range(7):
        made.append(await world.held(7 - number, subject={"tenant": ACME, "agent": f"a{number % 2}"}))
        world.clock.advance(SECOND)
    return made


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 200])
async def test_pages_are_the_whole_list_once_and_newest_first(world: World, limit: int) -> None:
    made = await seven(world)
    assert await listed(world, limit=limit) == made[::-1]


async def test_a_page_stays_what_it_was_while_newer_ones_come(world: World) -> None:
    made = await seven(world)
    first = ok(await world.get("/v1/reservations", limit=3))
    await world.held(1)
    second = ok(await world.get("/v1/reservations", limit=10, cursor=first["next_cursor"]))
    rows = [row["reservation_id"] for page in (first, second) for row in page["reservations"]]
    assert rows == made[::-1]


ORDERS = ("reservation_id", "tenant", "scope_path", "status", "reserved", "created_at_ms", "expires_at_ms")


@pytest.mark.parametrize("sort_by", ORDERS)
@pytest.mark.parametrize("direction", ["asc", "desc"])
async def test_every_order_is_kept_over_pages_and_ties_go_by_id(world: World, sort_by: str, direction: str) -> None:
    made = await seven(world)
    ok(await world.release(made[2]))
    ok(await world.commit(made[3], 1))
    whole = ok(await world.get("/v1/reservations", sort_by=sort_by, sort_dir=direction))["reservations"]
    expected = sorted(whole, key=lambda row: str(row["reservation_id"]))
    expected.sort(key=lambda row: _sort_key(row, sort_by), reverse=direction == "desc")
    assert whole == expected
    ids = [row["reservation_id"] for row in whole]
    assert await listed(world, sort_by=sort_by.upper(), sort_dir=direction.upper(), limit=2) == ids


def _sort_key(row: dict[str, Any], sort_by: str) -> Any:
    if sort_by == "reserved":
        return row["reserved"]["amount"]
    return row["subject"].get("tenant", "") if sort_by == "tenant" else row[sort_by]


async def test_s115_large_amounts_are_ordered_as_numbers(world: World) -> None:
    amounts = (2**53, 2**53 + 1, 9, 2**60)
    made = {await world.held(amount): amount for amount in amounts}
    ids = await listed(world, sort_by="reserved", limit=1)
    assert [made[name] for name in ids] == sorted(amounts, reverse=True)


FILTERS: dict[str, tuple[dict[str, Any], set[int]]] = {
    "a level": ({"agent": "a1"}, {1, 3, 5}),
    "a level in another case": ({"agent": "A1"}, {1, 3, 5}),
    "a level of nobody": ({"workspace": "a1"}, set()),
    "the tenant itself": ({"tenant": ACME}, {0, 1, 2, 3, 4, 5, 6}),
    "active ones": ({"status": "ACTIVE"}, {0, 1, 4, 5, 6}),
    "committed ones": ({"status": "COMMITTED"}, {3}),
    "two at once": ({"status": "ACTIVE", "agent": "a0"}, {0, 4, 6}),
    "made since": ({"from_": show_instant(B + 5 * SECOND)}, {5, 6}),
    "made until": ({"to": show_instant(B + SECOND)}, {0, 1}),
    "made within": ({"from_": show_instant(B + SECOND), "to": show_instant(B + 2 * SECOND)}, {1, 2}),
    "a blank window": ({"from_": "", "to": ""}, {0, 1, 2, 3, 4, 5, 6}),
    "expiring": ({"expires_from": show_instant(B + 65 * SECOND), "expires_to": show_instant(B + 66 * SECOND)}, {5, 6}),
    "finalized": ({"finalized_from": show_instant(B)}, {2, 3}),
    "finalized before": ({"finalized_to": show_instant(B + 7 * SECOND)}, {2}),
    "another field's order": ({"from_": show_instant(B + 5 * SECOND), "sort_by": "expires_at_ms"}, {5, 6}),
}


@pytest.mark.parametrize("what", FILTERS)
async def test_filters_narrow_the_list_and_all_of_them_count(world: World, what: str) -> None:
    made = await seven(world)
    ok(await world.release(made[2]))
    world.clock.advance(1)
    ok(await world.commit(made[3], 1))
    params, wanted = FILTERS[what]
    found = await listed(world, limit=2, **params)
    assert {made.index(name) for name in found} == wanted
    assert len(found) == len(wanted)


async def test_a_lost_id_is_found_by_its_key(world: World) -> None:
    key = world.key()
    reservation_id = await world.held(1, idempotency_key=key)
    await world.held(1)
    assert await listed(world, idempotency_key=key) == [reservation_id]
    assert await listed(world, idempotency_key="never-used") == []


async def test_s113_a_cursor_belongs_to_its_order_and_filters_and_to_no_projection(world: World) -> None:
    await seven(world)
    params = {"limit": 2, "sort_by": "created_at_ms", "sort_dir": "asc", "from_": show_instant(B)}
    cursor = ok(await world.get("/v1/reservations", **params))["next_cursor"]
    for change in (
        {"sort_dir": "desc"},
        {"sort_by": "reserved"},
        {"from_": show_instant(B + 1)},
        {"to": show_instant(B + 1)},
        {"status": "ACTIVE"},
        {"agent": "a1"},
    ):
        assert refused(await world.get("/v1/reservations", **{**params, **change}, cursor=cursor)) == INVALID
    for change in ({"include": "metadata"}, {"limit": 5}):
        ok(await world.get("/v1/reservations", **{**params, **change}, cursor=cursor))
    for forged in (cursor[:-2], cursor + "A", cursor + "==", f"{cursor[:5]} {cursor[5:]}", "e30", "\u00e4"):
        assert refused(await world.get("/v1/reservations", **params, cursor=forged)) == INVALID


async def test_s112_heavy_fields_come_when_they_are_asked_for(world: World) -> None:
    reservation_id = await world.held(10, metadata={"at": "reserve"})
    ok(await world.commit(reservation_id, 5, metadata={"at": "commit"}))
    for include, names in (
        (None, set()),
        ("metadata,bogus,,", {"metadata"}),
        (" committed_metadata , metadata", {"metadata", "committed_metadata"}),
        ("", set()),
    ):
        params = {} if include is None else {"include": include}
        (row,) = ok(await world.get("/v1/reservations", **params))["reservations"]
        assert names == row.keys() & {"metadata", "committed_metadata", "evidence"}
        assert (row["committed"], row["finalized_at_ms"]) == (tokens(5), world.clock.now)


async def test_nobody_sees_another_tenants_rows(world: World) -> None:
    await world.add_tenant(OTHER)
    await world.held(1)
    assert await listed(world, by=OTHER) == []


# -- balances ----------------------------------------------------------------------------------------------------------


@pytest.fixture
async def tree(world: World) -> None:
    await world.budget(BOT, 100, overdraft=10)
    await world.budget(BOT, usd(7))
    await world.budget(f"{TENANT}/workspace:prod/agent:bot", 50)


async def paths(world: World, **params: Any) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    cursor: dict[str, str] = {}
    while True:
        body = ok(await world.get("/v1/balances", **params, **cursor))
        found += [(row["scope_path"], row["remaining"]["unit"]) for row in body["balances"]]
        if not body["has_more"]:
            return found
        cursor = {"cursor": body["next_cursor"]}


@pytest.mark.usefixtures("tree")
@pytest.mark.parametrize("limit", [1, 2, 200])
async def test_balances_are_of_all_budgets_under_the_subject(world: World, limit: int) -> None:
    prod = f"{TENANT}/workspace:prod/agent:bot"
    everything = [(TENANT, "TOKENS"), (BOT, "TOKENS"), (BOT, USD), (prod, "TOKENS")]
    assert await paths(world, tenant=ACME, limit=limit) == everything
    assert await paths(world, agent="BOT", limit=limit) == everything[1:]
    assert await paths(world, workspace="prod", limit=limit) == everything[3:]
    assert await paths(world, workspace="nobody", limit=limit) == []


@pytest.mark.usefixtures("tree")
async def test_without_children_it_is_the_subjects_own(world: World) -> None:
    assert await paths(world, tenant=ACME, include_children="false") == [(TENANT, "TOKENS")]
    assert len(await paths(world, tenant=ACME, include_children="true")) == 4
    named = await paths(world, tenant=ACME, agent="bot", include_children="false")
    assert named
    assert await paths(world, agent="bot", include_children="false") == named, "the tenant is the key's"


@pytest.mark.usefixtures("tree")
async def test_a_balance_says_what_there_is_to_say(world: World) -> None:
    (row,) = ok(await world.get("/v1/balances", tenant=ACME, agent="bot", include_children="false", limit=1))[
        "balances"
    ]
    assert row == {
        "scope": "agent:bot",
        "scope_path": BOT,
        "remaining": tokens(100),
        "reserved": tokens(0),
        "spent": tokens(0),
        "allocated": tokens(100),
        "overdraft_limit": tokens(10),
    }


@pytest.mark.usefixtures("tree")
async def test_the_same_path_lists_ledgers_when_it_is_asked_as_the_admin_plane(world: World) -> None:
    rows = ok(await world.get("/v1/balances", scope_prefix=BOT))["balances"]
    assert [(row["scope"], row["unit"], row["tenant_id"]) for row in rows] == [(BOT, "TOKENS", ACME), (BOT, USD, ACME)]
    assert len(ok(await world.get("/v1/balances", unit="TOKENS"))["balances"]) == 3
    await world.add_key("reader", permissions=["balances:read"])
    assert len(ok(await world.get("/v1/balances", by="reader", unit="TOKENS"))["balances"]) == 3
    await world.add_key("governor", permissions=["budgets:read"])
    assert refused(await world.get("/v1/balances", by="governor", unit="TOKENS"))[0] == 403
    await world.add_tenant(OTHER)
    assert refused(await world.get("/v1/balances", tenant_id=ACME, by=OTHER)) == (403, "FORBIDDEN")
    assert refused(await world.get("/v1/balances", unit="TOKENS", limit="101")) == INVALID
