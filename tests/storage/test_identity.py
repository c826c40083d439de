"""What is kept of tenants, projects, keys, accounts, pools and offers, and the pages in which it is read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from domain.registry import EVERYBODY, Pool, PoolOffer, ProviderAccount
from domain.tenancy import ApiKey, Project, Tenant
from storage import identity, registry
from storage.database import Database
from storage.paging import Page, Position

T = 1_800_000_000_000


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    opened = await Database.open(database_url)
    yield opened
    await opened.close()


def tenant(name: str, *, created_at: int = T, is_root: bool = False) -> Tenant:
    return Tenant(tenant_id=name, name=f"Tenant {name}", is_root=is_root, created_at=created_at)


def key(number: int, owner: str = "a", *, name: str = "key") -> ApiKey:
    return ApiKey(
        key_id=f"key_{number:026}",
        tenant_id=owner,
        name=name,
        prefix=f"prefix{number:06}",
        permissions=("tenancy:read", "tenancy:manage"),
        created_at=T,
    )


def account(number: int, **fields: Any) -> ProviderAccount:
    given = {
        "account_id": f"pacct_{number:026}",
        "tenant_id": "root",
        "name": "Account",
        "provider": "gcp",
        "kind": "push",
        "settings": {},
        "created_at": T,
    }
    return ProviderAccount(**{**given, **fields})


# -- what is written is what is read -----------------------------------------------------------------------------------


async def test_every_field_is_read_as_it_was_written(database: Database) -> None:
    settings = {"project": "p-1", "zones": ["a", "b"], "flavors": {"x": "y"}, "n": 3, "text": 'quote " and ünïcode 😀'}
    new_key = key(1)
    new_project = Project(project_id=f"prj_{1:026}", tenant_id="a", name="P", created_at=T)
    async with database.transaction() as connection:
        await identity.flush_root_tenant(connection, "root", name="Platform", created_at=T)
        await identity.flush_tenant(connection, tenant("a"))
        await identity.flush_project(connection, new_project)
        await identity.flush_api_key(connection, new_key, digest=b"\x00\xff" * 16)
        await registry.flush_account(connection, account(1, settings=settings))
        await registry.flush_pool(connection, Pool(pool_id="pool", name="Pool", created_at=T))
        offer = await registry.flush_offer(connection, PoolOffer(pool_id="pool", tenant_id="a", created_at=T))
    async with database.acquire() as connection:
        assert await identity.get_root_tenant(connection) == Tenant(
            tenant_id="root", name="Platform", is_root=True, created_at=T
        )
        assert await identity.get_project(connection, new_project.project_id) == new_project
        assert await identity.get_api_key(connection, new_key.key_id) == new_key
        kept = await identity.get_credential(connection, new_key.prefix)
        assert kept is not None
        assert kept[0].digest == b"\x00\xff" * 16
        assert kept[0].permissions == {"tenancy:read", "tenancy:manage"}
        assert await registry.get_account(connection, account(1).account_id) == account(1, settings=settings)
        assert await connection.fetchval("select jsonb_typeof(settings) from provider_account") == "object"
        assert await registry.get_pool(connection, "pool") == Pool(pool_id="pool", name="Pool", created_at=T)
        assert await registry.get_offer(connection, "pool", "a") == offer


async def test_deleting_a_tenant_keeps_the_first_instant_and_revokes_its_living_keys(database: Database) -> None:
    async with database.transaction() as connection:
        for name in ("a", "b"):
            await identity.flush_tenant(connection, tenant(name))
        for number, owner in ((1, "a"), (2, "a"), (3, "b")):
            await identity.flush_api_key(connection, key(number, owner), digest=b"x" * 32)
        await identity.flush_api_key_revoked(connection, key(1).key_id, revoked_at=T + 1)
        await identity.flush_tenant_closed(connection, "a", closed_at=T + 2)
        living = await identity.get_tenant(connection, "a")
        await identity.flush_tenant_deleted(connection, "a", deleted_at=T + 3)
        await identity.flush_tenant_deleted(connection, "a", deleted_at=T + 4)
        await identity.flush_tenant_closed(connection, "a", closed_at=T + 5)
        await identity.flush_tenant_closed(connection, "a", closed_at=T + 6)
    async with database.acquire() as connection:
        gone = await identity.get_tenant(connection, "a")
        revoked = [(await identity.get_api_key(connection, key(n).key_id)) for n in (1, 2, 3)]
    assert living == tenant("a"), "a tenant that is not deleted cannot be closed"
    assert gone is not None
    assert (gone.deleted_at, gone.closed_at) == (T + 3, T + 5)
    assert [found and found.revoked_at for found in revoked] == [T + 1, T + 3, None]


async def test_a_scan_that_is_behind_changes_nothing(database: Database) -> None:
    async with database.transaction() as connection:
        await identity.flush_root_tenant(connection, "root", name="Platform", created_at=T)
        await registry.flush_account(connection, account(1))
        account_id = account(1).account_id
        await registry.flush_account_scanned(connection, account_id, scanned_at=T + 9, complete=False, problems=["x"])
        await registry.flush_account_scanned(connection, account_id, scanned_at=T + 8, complete=True, problems=[])
        found = await registry.get_account(connection, account_id)
    assert found is not None
    assert (found.scanned_at, found.scan_complete, found.scan_problems) == (T + 9, False, ("x",))


async def test_an_offer_is_withdrawn_once_and_one_that_stands_keeps_its_instant(database: Database) -> None:
    async with database.transaction() as connection:
        await registry.flush_pool(connection, Pool(pool_id="pool", name="Pool", created_at=T))
        first = await registry.flush_offer(connection, PoolOffer(pool_id="pool", tenant_id=EVERYBODY, created_at=T))
        again = await registry.flush_offer(connection, PoolOffer(pool_id="pool", tenant_id=EVERYBODY, created_at=T + 1))
        await registry.flush_offer(connection, PoolOffer(pool_id="pool", tenant_id="a", created_at=T))
        assert await registry.offered_tenants(connection, "pool") == {EVERYBODY, "a"}
        assert await registry.flush_offer_withdrawn(connection, "pool", EVERYBODY)
        assert not await registry.flush_offer_withdrawn(connection, "pool", EVERYBODY)
        assert await registry.offered_tenants(connection, "pool") == {"a"}
        assert await registry.is_offered(connection, "pool", "a")
        assert not await registry.is_offered(connection, "pool", "b")
    assert first == again == PoolOffer(pool_id="pool", tenant_id=EVERYBODY, created_at=T)


# -- pages -------------------------------------------------------------------------------------------------------------


async def all_tenants(database: Database, *, first: int, include_deleted: bool = False) -> list[Page[Tenant]]:
    pages: list[Page[Tenant]] = []
    after: Position | None = None
    async with database.acquire() as connection:
        while not pages or pages[-1].has_more:
            page = await identity.page_tenants(connection, first=first, after=after, include_deleted=include_deleted)
            pages.append(page)
            after = page.positions[-1]
    return pages


async def test_pages_show_everything_once_newest_first_also_within_one_millisecond(database: Database) -> None:
    """Ids are compared as bytes: B14, D21. Case and punctuation are where other collations differ."""
    names = ["a", "B", "b", "A-1", "a.1", "a_1", "Z", "0", "c", "C"]
    made = [tenant(name, created_at=T + number // 4) for number, name in enumerate(names)]
    async with database.transaction() as connection:
        for one in made:
            await identity.flush_tenant(connection, one)
    expected = sorted(made, key=lambda one: (one.created_at, one.tenant_id.encode()), reverse=True)
    for size in (1, 3, 10, 50):
        pages = await all_tenants(database, first=size)
        assert [one for page in pages for one in page.items] == expected
        assert all(len(page.items) == size for page in pages[:-1])
        positions = [position for page in pages for position in page.positions]
        assert positions == [Position(one.created_at, one.tenant_id) for one in expected]


async def test_a_page_may_be_empty_and_still_say_that_there_is_more(database: Database) -> None:
    async with database.transaction() as connection:
        await identity.flush_tenant(connection, tenant("a"))
        assert await identity.page_tenants(connection, first=0, after=None, include_deleted=False) == Page(
            has_more=True
        )
        past = Position(T, "a")
        assert await identity.page_tenants(connection, first=5, after=past, include_deleted=False) == Page()


async def test_deleted_things_are_left_out_unless_they_are_wanted(database: Database) -> None:
    async with database.transaction() as connection:
        for name in ("a", "b"):
            await identity.flush_tenant(connection, tenant(name))
        await identity.flush_tenant_deleted(connection, "a", deleted_at=T + 1)
    [page] = await all_tenants(database, first=9)
    assert [one.tenant_id for one in page.items] == ["b"]
    [page] = await all_tenants(database, first=9, include_deleted=True)
    assert [one.tenant_id for one in page.items] == ["b", "a"]


async def test_pools_and_offers_are_those_that_reach_the_tenant(database: Database) -> None:
    async with database.transaction() as connection:
        for number, name in enumerate(("for-a", "for-b", "for-all", "for-none")):
            await registry.flush_pool(connection, Pool(pool_id=name, name=name, created_at=T + number))
        for pool_id, grantee in (("for-a", "a"), ("for-b", "b"), ("for-all", EVERYBODY), ("for-all", "b")):
            await registry.flush_offer(connection, PoolOffer(pool_id=pool_id, tenant_id=grantee, created_at=T))
        seen = {
            who: [
                pool.pool_id
                for pool in (await registry.page_pools(connection, offered_to=who, first=9, after=None)).items
            ]
            for who in ("a", "b", "c", None)
        }
        offers = await registry.page_offers(connection, "for-all", offered_to="a", first=9, after=None)
        all_offers = await registry.page_offers(connection, "for-all", offered_to=None, first=9, after=None)
    assert seen == {
        "a": ["for-all", "for-a"],
        "b": ["for-all", "for-b"],
        "c": ["for-all"],
        None: ["for-none", "for-all", "for-b", "for-a"],
    }
    assert [offer.tenant_id for offer in offers.items] == [EVERYBODY]
    assert [offer.tenant_id for offer in all_offers.items] == ["b", EVERYBODY]


async def test_pages_are_read_from_their_index(database: Database) -> None:
    """A page costs what it shows, whatever the length of the list."""
    async with database.transaction() as connection:
        await connection.execute(
            "insert into tenant (tenant_id, name, created_at) select 't' || n, 'T', n from generate_series(1, 5000) n"
        )
        await connection.execute(
            "insert into project (project_id, tenant_id, name, created_at)"
            " select 'p' || n, 't' || (n % 10 + 1), 'P', n from generate_series(1, 5000) n"
        )
        await connection.execute("analyze tenant, project")
    async with database.acquire() as connection:
        tenants = await plan_of(connection, identity._PAGE_TENANTS, 2500, "t2500", 51, False)
        projects = await plan_of(connection, identity._PAGE_PROJECTS, 2500, "p2500", 51, "t3", True)
    assert "tenant_newest" in tenants
    assert "project_of_tenant" in projects
    for plan in (tenants, projects):
        assert "ROW(created_at" in plan.partition("Index Cond")[2].partition("\n")[0]
        assert "Sort" not in plan


async def plan_of(connection: Any, sql: str, *arguments: Any) -> str:
    rows = await connection.fetch(f"explain {sql}", *arguments)
    return "\n".join(cast(str, row[0]) for row in rows)
