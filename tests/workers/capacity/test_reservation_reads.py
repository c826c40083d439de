"""Reads of capacity reservations on a real database: their numbers now, and what is free when (F1)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from domain.authority import Permission
from domain.capacity.availability import Fit, Step
from domain.capacity.scan import ScanReport
from domain.capacity.state import ReservationStatus
from domain.identity import reservation_key
from domain.outcomes import Accepted, AccessDenied, InvalidInput, NotFound, Refusal
from domain.paging import encode_cursor
from domain.terms import INSTANT_MAX
from tests.capacity_reading import (
    LARGE,
    MAIN,
    MAIN_KEY,
    ROOT_CALLER,
    SECOND,
    SMALL,
    A,
    B,
    H,
    M,
    World,
    member,
    reading_world,
    shown,
)
from tests.capacity_world import answer_of
from tests.simulation.world_plan import ACCOUNT_MAIN, ACCOUNT_SIDE, POOL_MAIN, ROOT, WORLD
from workers.capacity.reservation_reads import STEPS_MAX


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    async with reading_world(database_url) as made:
        yield made


# -- reservations -----------------------------------------------------------------------------------------------------


async def test_a_reservation_shows_the_numbers_of_the_worked_example(world: World) -> None:
    await world.grant(6, B, B + 9 * H)
    for _ in range(2):
        await world.attach("c", of="B")
    for _ in range(3):
        await world.instance()
    main = await world.main()
    assert (main.total, main.in_use, main.granted_now, main.unused_granted, main.free) == (10, 5, 6, 3, 2)
    assert (main.status, main.shortfall, main.at) == (ReservationStatus.READY, 0, B)


async def test_a_shrunken_reservation_shows_its_shortfall_and_never_less_than_nothing_free(world: World) -> None:
    await world.grant(6, B, B + 2 * H)
    await world.grant(2, B + H, B + 3 * H)
    await world.grant(9, B + 3 * H, B + 4 * H)
    await world.report(total=5)
    main = await world.main()
    assert (main.total, main.shortfall, main.free) == (5, 4, 0)
    world.clock.now = B + 3 * H
    assert (await world.main()).shortfall == 4
    world.clock.now = B + 4 * H
    after = await world.main()
    assert (after.shortfall, after.free) == (0, 5)


async def test_a_reservation_that_is_gone_offers_nothing(world: World) -> None:
    await world.grant(3, B, B + H)
    await world.instance()
    await world.node.reservations.take_report(ACCOUNT_MAIN, "gcp", ScanReport(reservations=(), complete=True))
    main = await world.main()
    assert (main.status, main.gone_at, main.in_use, main.granted_now, main.free) == (
        ReservationStatus.GONE,
        B,
        0,
        0,
        0,
    )
    assert await _available(world, B, B + H) == (Step(B, 0, 0),)
    assert await _fits(world, slots=1, duration_ms=H) == ()


async def test_reservations_are_roots_alone_and_pages_filter_them(world: World) -> None:
    page = shown(await world.reads.reservations(ROOT_CALLER, tenant_id=ROOT))
    assert [view.reservation_id for view in page.items] == [SMALL, SECOND, LARGE]

    async def chosen(**filters: Any) -> list[str]:
        some = shown(await world.reads.reservations(ROOT_CALLER, tenant_id=ROOT, **filters))
        assert await world.reads.count_reservations(ROOT_CALLER, tenant_id=ROOT, **filters) == len(some.items)
        return [view.reservation_id for view in some.items]

    assert await chosen(account_id=ACCOUNT_SIDE) == [SMALL]
    assert await chosen(pool_id=POOL_MAIN) == [SECOND, LARGE]
    assert await chosen(flavor="small") == [SMALL]
    assert await chosen(status="gone") == []
    first = shown(await world.reads.reservations(ROOT_CALLER, tenant_id=ROOT, first=2))
    assert first.has_more
    cursor = encode_cursor(first.positions[-1].created_at, first.positions[-1].id)
    rest = shown(await world.reads.reservations(ROOT_CALLER, tenant_id=ROOT, first=2, after=cursor))
    assert [*first.items, *rest.items] == list(page.items)
    for caller, tenant_id in ((A, "A"), (A, ROOT), (ROOT_CALLER, "A"), (member(ROOT, Permission.QUOTAS_READ), ROOT)):
        assert isinstance(await world.reads.reservations(caller, tenant_id=tenant_id), AccessDenied)
        for place in (LARGE, "zone-9/none"):
            refused = await world.reads.reservation(
                caller, tenant_id=tenant_id, account_id=ACCOUNT_MAIN, reservation_id=place
            )
            assert isinstance(refused, AccessDenied)


async def test_a_reservation_of_another_account_or_of_a_deleted_one_is_not_found(world: World) -> None:
    for account, name in ((ACCOUNT_SIDE, LARGE), (ACCOUNT_MAIN, "zone-9/none"), (f"pacct_{9:026}", LARGE)):
        missing = await world.reads.reservation(ROOT_CALLER, tenant_id=ROOT, account_id=account, reservation_id=name)
        assert isinstance(missing, NotFound)
    answer_of(await world.node.guards.delete_account(ROOT_CALLER, tenant_id=ROOT, account_id=ACCOUNT_SIDE))
    gone = await world.reads.reservation(ROOT_CALLER, tenant_id=ROOT, account_id=ACCOUNT_SIDE, reservation_id=SMALL)
    assert isinstance(gone, NotFound)
    names = [view.reservation_id for view in shown(await world.reads.reservations(ROOT_CALLER, tenant_id=ROOT)).items]
    assert names == [SECOND, LARGE]


async def test_many_reservations_are_counted_at_once_each_for_itself(world: World) -> None:
    await world.grant(6, B, B + H)
    await world.grant(2, B, B + H, account_id=ACCOUNT_SIDE, reservation_id=SMALL)
    keys = [reservation_key(plan.account_id, plan.reservation_id) for plan in WORLD.reservations]
    views = await world.reads.load_reservation_views([*keys, "pacct_x/none"])
    assert {view.reservation_id: view.granted_now for view in views.values()} == {LARGE: 6, SECOND: 0, SMALL: 2}


# -- availability and fits (F1) ---------------------------------------------------------------------------------------


async def test_availability_is_a_step_function_of_what_is_granted(world: World) -> None:
    await world.grant(6, B, B + 2 * H)
    await world.grant(3, B + H, B + 3 * H)
    await world.end(await world.grant(1, B + H, B + 3 * H))
    steps = await _available(world, B - H, B + 4 * H)
    assert steps == (
        Step(B - H, 0, 10),
        Step(B, 6, 4),
        Step(B + H, 9, 1),
        Step(B + 2 * H, 3, 7),
        Step(B + 3 * H, 0, 10),
    )
    assert await _available(world, B + 90 * M, B + 100 * M) == (Step(B + 90 * M, 9, 1),)


async def test_availability_remembers_the_past_as_it_was_granted(world: World) -> None:
    grant = await world.grant(6, B, B + 4 * H)
    world.clock.now = B + H
    amended = await world.node.grants.amend(
        ROOT_CALLER,
        tenant_id=ROOT,
        account_id=ACCOUNT_MAIN,
        grant_id=grant.grant.grant_id,
        expected_version=1,
        slots=2,
    )
    assert isinstance(amended, Accepted)
    world.clock.now = B + 3 * H
    await world.end(grant)
    world.clock.now = B + 20 * H
    assert await _available(world, B, B + 5 * H) == (
        Step(B, 6, 4),
        Step(B + H, 2, 8),
        Step(B + 3 * H, 0, 10),
    )


async def test_too_many_steps_are_refused_and_parts_of_them_shown(world: World) -> None:
    async with world.node.database.acquire() as connection:
        await connection.execute(
            """
            insert into capacity_grant (key, grant_id, tenant_id, slots, starts_at, ends_at, created_at, created_by,
                pool_id, region, provider, started_applied, ended_applied, version)
            select $1, 'rgrant_' || lpad(n::text, 26, '0'), 'A', 1, $2::bigint + n * 10, $2 + n * 10 + 5, $2, 'key',
                'pool', 'region', 'gcp', false, false, 1
            from generate_series(1, $3) n
            """,
            MAIN_KEY,
            B,
            STEPS_MAX // 2,
        )
    refusal = await _available(world, B, B + H)
    assert isinstance(refusal, InvalidInput)
    assert (refusal.field, refusal.reason) == ("to", "too-many-steps")
    assert len(await _available(world, B, B + 1_000)) == 1 + 2 * 99


async def test_earliest_fits_are_what_create_accepts_and_one_millisecond_earlier_is_not(world: World) -> None:
    await world.grant(8, B + H, B + 3 * H)
    await world.grant(4, B + 5 * H, B + 6 * H)
    fits = await _fits(world, slots=7, duration_ms=H)
    assert fits == (
        Fit(B, B + H, B),
        Fit(B + 3 * H, B + 4 * H, B + 4 * H),
        Fit(B + 6 * H, B + 7 * H, INSTANT_MAX - H),
    )
    assert await _fits(world, slots=7, duration_ms=H, first=1) == fits[:1]
    assert await _fits(world, slots=7, duration_ms=H + 1, not_after=B + 3 * H) == (
        Fit(B + 3 * H, B + 4 * H + 1, B + 3 * H),
    )
    assert await _fits(world, slots=11, duration_ms=1) == ()
    early = await world.node.grants.plan(
        ROOT_CALLER,
        tenant_id=ROOT,
        account_id=ACCOUNT_MAIN,
        reservation_id=LARGE,
        grant_tenant_id="A",
        slots=7,
        starts_at=B + 3 * H - 1,
        ends_at=B + 4 * H - 1,
    )
    assert not isinstance(early, Refusal)
    assert early.refusal is not None
    for fit in fits:
        await world.grant(7, fit.starts_at, fit.ends_at)


async def test_a_fit_never_lies_in_the_past_and_an_unbound_reservation_offers_none(world: World) -> None:
    world.clock.now = B + H
    assert await _fits(world, slots=1, duration_ms=H, not_before=B, not_after=B + H) == (Fit(B + H, B + 2 * H, B + H),)
    assert await _fits(world, slots=1, duration_ms=H, not_before=B, not_after=B + H - 1) == ()
    answer_of(
        await world.node.reservations.unbind(ROOT_CALLER, tenant_id=ROOT, account_id=ACCOUNT_MAIN, reservation_id=LARGE)
    )
    assert await _fits(world, slots=1, duration_ms=H) == ()


MALFORMED: list[tuple[str, dict[str, Any]]] = [
    ("slots", {"slots": 0}),
    ("slots", {"slots": True}),
    ("durationMs", {"duration_ms": 0}),
    ("durationMs", {"duration_ms": INSTANT_MAX + 1}),
    ("notAfter", {"not_before": B + 1, "not_after": B}),
    ("first", {"first": -1}),
    ("first", {"first": 51}),
]


async def test_a_malformed_question_about_fits_names_its_field(world: World) -> None:
    for field_name, given in MALFORMED:
        refusal = await _fits(world, **{"slots": 1, "duration_ms": H, **given})
        assert isinstance(refusal, InvalidInput), given
        assert refusal.field == field_name, given


async def _available(world: World, starts_at: Any, ends_at: Any) -> Any:
    return await world.reads.availability(ROOT_CALLER, **MAIN, starts_at=starts_at, ends_at=ends_at)


async def _fits(world: World, **given: Any) -> Any:
    return await world.reads.earliest_fit(ROOT_CALLER, **MAIN, **given)
