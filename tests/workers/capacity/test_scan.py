"""The job that looks at what providers report: each account apart, one look at a time, and only a complete look
concludes anything (R54..R59, D11..D16)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from domain.capacity.boundaries import CAPACITY_SHORT
from domain.capacity.refusals import CapacityUnavailable
from domain.capacity.scan import ReportedReservation, ScanReport
from domain.outcomes import Accepted, InvalidInput, InvalidState
from storage.jobs import claim_run
from tests.capacity_world import CapacityNode, running_node
from tests.workers.capacity.world import ACCOUNT, HOUR, MINUTE, RESERVATION, ROOT, START, World, key_of
from workers.capacity.providers.protocol import Provider, ProviderAccountConfig
from workers.capacity.providers.push import PushProvider
from workers.capacity.providers.registry import Registry
from workers.capacity.scan import LEASE_MS, ScanJob

FILE_ACCOUNT = f"pacct_{'f' * 26}"
OTHER_FILE_ACCOUNT = f"pacct_{'g' * 26}"


async def add_account(world: World, account_id: str, *, kind: str, settings: Mapping[str, Any]) -> None:
    await world.value(
        """insert into provider_account (account_id, tenant_id, name, provider, kind, settings, created_at)
        values ($1, $2, 'account', 'gcp', $3, $4, $5)""",
        account_id,
        ROOT,
        kind,
        settings,
        START,
    )


def write_inventory(path: Path, totals: Mapping[str, int], **more: Any) -> None:
    entries = [
        {"reservationId": name, "flavor": f"flavor-{name}", "region": "region-1", "total": total, **more}
        for name, total in totals.items()
    ]
    path.write_text(json.dumps({"reservations": entries}))


def file_job(node: CapacityNode, folder: Path) -> ScanJob:
    return ScanJob(node.asker, node.reservations, Registry(inventory_directory=folder))


async def account_row(world: World, account_id: str) -> dict[str, Any]:
    (row,) = await world.rows("select * from provider_account where account_id = $1", account_id)
    return row


class Told:
    """A provider of the kind `told`: what it reports is given by the test, and awaited where the test wants to wait."""

    name = "told"
    scans = True

    def __init__(self, look: Callable[[], Awaitable[ScanReport]]) -> None:
        self._look = look

    def provider_for(self, kind: str) -> Provider | None:
        return self if kind == self.name else PushProvider()

    def validate_settings(self, settings: Mapping[str, Any]) -> InvalidInput | None:
        return None

    async def scan(self, account: ProviderAccountConfig) -> ScanReport:
        return await self._look()


def seen(total: int) -> ScanReport:
    reservation = ReportedReservation(
        reservation_id=RESERVATION, flavor=f"flavor-{RESERVATION}", region="region-1", total=total
    )
    return ScanReport(reservations=(reservation,), complete=True)


# -- what is taken in ------------------------------------------------------------------------------------------------


async def test_a_scan_makes_reservations_known_and_notes_how_it_went(world: World, tmp_path: Path) -> None:
    await add_account(world, FILE_ACCOUNT, kind="file", settings={"path": "main.json"})
    write_inventory(tmp_path / "main.json", {"rack-1": 8, "rack-2": 4})
    world.clock.advance(MINUTE)
    ran = await file_job(world.node, tmp_path).run_once()
    assert ran.counts == {"complete": 1, "incomplete": 0, "skipped": 0, "failed": 0}
    found = await world.rows(
        "select reservation_id, total, status from capacity_reservation where account_id = $1 order by key",
        FILE_ACCOUNT,
    )
    assert [tuple(row.values()) for row in found] == [("rack-1", 8, "ready"), ("rack-2", 4, "ready")]
    row = await account_row(world, FILE_ACCOUNT)
    assert (row["scanned_at"], row["scan_complete"], row["scan_problems"]) == (START + MINUTE, True, [])


async def test_the_same_scan_twice_changes_nothing(world: World, tmp_path: Path) -> None:
    """R58, P12."""
    await add_account(world, FILE_ACCOUNT, kind="file", settings={"path": "main.json"})
    write_inventory(tmp_path / "main.json", {"rack-1": 8}, inUse=3)
    job = file_job(world.node, tmp_path)
    await job.run_once()
    heads = await world.rows("select * from capacity_reservation order by key")
    events = await world.events()
    for _ in range(3):
        world.clock.advance(MINUTE)
        await job.run_once()
    assert await world.rows("select * from capacity_reservation order by key") == heads
    assert await world.events() == events


async def test_an_incomplete_scan_concludes_nothing_and_says_why(world: World, tmp_path: Path) -> None:
    """R54, D12: a file that vanished is no empty file."""
    await add_account(world, FILE_ACCOUNT, kind="file", settings={"path": "main.json"})
    write_inventory(tmp_path / "main.json", {"rack-1": 8})
    job = file_job(world.node, tmp_path)
    await job.run_once()
    (tmp_path / "main.json").unlink()
    world.clock.advance(MINUTE)
    ran = await job.run_once()
    assert ran.counts["incomplete"] == 1
    assert await world.value("select status from capacity_reservation where account_id = $1", FILE_ACCOUNT) == "ready"
    row = await account_row(world, FILE_ACCOUNT)
    assert row["scan_complete"] is False
    assert "main.json" in row["scan_problems"][0]


async def test_one_account_in_trouble_does_not_keep_the_others(world: World, tmp_path: Path) -> None:
    await add_account(world, FILE_ACCOUNT, kind="file", settings={"path": "missing.json"})
    await add_account(world, OTHER_FILE_ACCOUNT, kind="file", settings={"path": "main.json"})
    await add_account(world, f"pacct_{'h' * 26}", kind="of-another-version", settings={})
    write_inventory(tmp_path / "main.json", {"rack-1": 8})
    ran = await file_job(world.node, tmp_path).run_once()
    assert ran.counts == {"complete": 1, "incomplete": 2, "skipped": 0, "failed": 0}
    assert (await account_row(world, OTHER_FILE_ACCOUNT))["scan_complete"] is True
    assert "of-another-version" in (await account_row(world, f"pacct_{'h' * 26}"))["scan_problems"][0]


async def test_accounts_that_report_by_themselves_and_deleted_ones_are_not_looked_at(
    world: World, tmp_path: Path
) -> None:
    await add_account(world, FILE_ACCOUNT, kind="file", settings={"path": "main.json"})
    await world.value("update provider_account set deleted_at = $2 where account_id = $1", FILE_ACCOUNT, START)
    ran = await file_job(world.node, tmp_path).run_once()
    assert sum(ran.counts.values()) == 0
    assert (await account_row(world, ACCOUNT))["scanned_at"] is None
    assert await world.value("select status from capacity_reservation where key = $1", key_of()) == "ready"


async def test_a_provider_that_raises_or_hangs_is_an_incomplete_scan(world: World) -> None:
    await add_account(world, FILE_ACCOUNT, kind="told", settings={})

    async def raise_something() -> ScanReport:
        raise RuntimeError("half a page")

    async def hang() -> ScanReport:
        return await asyncio.Future[ScanReport]()

    for look, word, advance_ms in ((raise_something, "half a page", 0), (hang, "did not answer", 1)):
        world.clock.advance(advance_ms)
        job = ScanJob(world.node.asker, world.node.reservations, Told(look), scan_s_max=0.05)
        await job.run_once()
        row = await account_row(world, FILE_ACCOUNT)
        assert row["scan_complete"] is False
        assert word in row["scan_problems"][0]


# -- what is concluded -----------------------------------------------------------------------------------------------


async def test_a_total_below_the_peak_of_live_grants_is_told_once_a_change(world: World) -> None:
    """T85, T86, R57, R58, D44: a grant that does not overlap the peak is not named."""
    overlapping = sorted([
        await world.grant(5, START, START + 4 * HOUR),
        await world.grant(3, START + HOUR, START + 3 * HOUR),
    ])  # fmt: skip
    await world.grant(2, START + 5 * HOUR, START + 6 * HOUR)
    for total in (10, 9, 8, 7, 7, 6, 7, 10, 7):
        world.clock.advance(1_000)
        await world.report({RESERVATION: total})
    short = [event for event in await world.events() if event.type == CAPACITY_SHORT]
    assert [(event.payload["total"], event.payload["grantedSlots"]) for event in short] == [
        (7, 8), (6, 8), (7, 8), (7, 8)
    ]  # fmt: skip
    assert {event.tenant_id for event in short} == {ROOT}
    for event in short:
        assert sorted(event.payload["grantIds"]) == overlapping
        assert (event.payload["accountId"], event.payload["reservationId"]) == (ACCOUNT, RESERVATION)


async def test_a_reservation_that_comes_back_takes_new_grants_and_revives_nothing(world: World) -> None:
    """D14, R55: with `reason` on the events of what ended."""
    ended = await world.grant(3, START, START + 5 * HOUR)
    await world.at(START + MINUTE).report({})
    refused = await world.try_grant(1, START + HOUR, START + 2 * HOUR)
    assert isinstance(refused, InvalidState)
    assert refused.state == "gone"
    await world.at(START + 2 * MINUTE).report({RESERVATION: 10})
    assert isinstance(await world.try_grant(10, START + 2 * MINUTE, START + HOUR), Accepted)
    assert await world.story(ended) == [("created", 0), ("active", 0), ("ended", 1)]
    (last,) = [
        event for event in await world.events() if event.payload.get("grantId") == ended and "ended" in event.type
    ]
    assert last.payload["reason"] == "reservation-gone"


async def test_a_shrinking_report_beside_a_create_is_one_order_or_the_other(world: World) -> None:
    """T88."""
    for attempt in range(20):
        starts_at = START + (attempt + 1) * 10 * HOUR
        await world.report({RESERVATION: 10})
        before = len([event for event in await world.events() if event.type == CAPACITY_SHORT])
        outcome, _ = await asyncio.gather(
            world.try_grant(7, starts_at, starts_at + HOUR), world.report({RESERVATION: 6})
        )
        short = [event for event in await world.events() if event.type == CAPACITY_SHORT][before:]
        if isinstance(outcome, Accepted):
            assert [(event.payload["total"], event.payload["grantedSlots"]) for event in short] == [(6, 7)]
            await world.end(outcome.answer.grant.grant_id)
        else:
            assert isinstance(outcome, CapacityUnavailable)
            assert (outcome.total, outcome.granted) == (6, 0)
            assert short == []


# -- one look at a time ----------------------------------------------------------------------------------------------


async def test_two_nodes_at_once_look_once(world: World, database_url: str) -> None:
    looking, go_on = asyncio.Event(), asyncio.Event()
    looks = []

    async def look() -> ScanReport:
        looks.append(1)
        looking.set()
        await go_on.wait()
        return seen(8)

    await add_account(world, FILE_ACCOUNT, kind="told", settings={})
    async with running_node(database_url, clock=world.clock) as other:
        first = asyncio.create_task(ScanJob(world.node.asker, world.node.reservations, Told(look)).run_once())
        await looking.wait()
        second = await ScanJob(other.asker, other.reservations, Told(look)).run_once()
        assert second.counts["skipped"] == 1
        go_on.set()
        assert (await first).counts["complete"] == 1
        third = await ScanJob(other.asker, other.reservations, Told(look)).run_once(every_ms=MINUTE)
        assert third.counts["skipped"] == 1, "it was looked at within the minute"
        world.clock.advance(MINUTE)
        fourth = await ScanJob(other.asker, other.reservations, Told(look)).run_once(every_ms=MINUTE)
    assert fourth.counts["complete"] == 1
    assert len(looks) == 2


async def test_an_account_whose_node_died_is_looked_at_again_when_its_claim_has_run_out(world: World) -> None:
    async def look() -> ScanReport:
        return seen(8)

    await add_account(world, FILE_ACCOUNT, kind="told", settings={})
    async with world.database.acquire() as connection:
        await claim_run(connection, f"vps.reservations/{FILE_ACCOUNT}", now=START, every_ms=0, lease_ms=LEASE_MS)
    job = ScanJob(world.node.asker, world.node.reservations, Told(look))
    world.at(START + LEASE_MS - 1)
    assert (await job.run_once()).counts["skipped"] == 1
    world.at(START + LEASE_MS)
    assert (await job.run_once()).counts["complete"] == 1


async def test_an_old_view_never_overwrites_a_newer_one(world: World, database_url: str) -> None:
    """A node that stood still over its claim finds another has looked since, and drops what it saw."""
    looking, go_on = asyncio.Event(), asyncio.Event()

    async def look_slowly() -> ScanReport:
        looking.set()
        await go_on.wait()
        return seen(3)

    async def look() -> ScanReport:
        return seen(8)

    await add_account(world, FILE_ACCOUNT, kind="told", settings={})
    async with running_node(database_url, clock=world.clock) as other:
        slow = ScanJob(world.node.asker, world.node.reservations, Told(look_slowly))
        first = asyncio.create_task(slow.run_once())
        await looking.wait()
        world.clock.advance(LEASE_MS)
        second = await ScanJob(other.asker, other.reservations, Told(look)).run_once()
        assert second.counts["complete"] == 1
        go_on.set()
        assert (await first).counts["skipped"] == 1
    totals = await world.rows("select total from capacity_reservation where account_id = $1", FILE_ACCOUNT)
    assert [row["total"] for row in totals] == [8]
