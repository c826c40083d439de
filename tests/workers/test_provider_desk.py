"""Provider accounts, pools and offers: who may make them, and who sees which."""

from __future__ import annotations

from domain.authority import EVERYTHING, Permission
from domain.outcomes import Accepted
from domain.registry import EVERYBODY, PoolOffer, ProviderAccount
from storage import registry
from storage.paging import Page
from tests.registry_desks import (
    NOBODYS_ACCOUNT,
    ROOT,
    A,
    B,
    Desks,
    T,
    accepted,
    caller,
    make_tenants,
    refused,
)
from workers.request import Caller


async def test_accounts_are_roots_and_nobody_else_learns_of_them(desks: Desks) -> None:
    await make_tenants(desks, "a")
    settings = {"project": "my-project", "zones": ["europe-west4-a"]}
    made: ProviderAccount = await accepted(
        desks.providers.create_provider_account(ROOT, name="GCP", provider="gcp", kind="gce", settings=settings)
    )
    assert (made.tenant_id, made.created_at, made.settings) == ("root", T, settings)
    assert len(made.account_id) == len("pacct_") + 26
    assert await accepted(desks.providers.get_account(ROOT, account_id=made.account_id)) == made
    assert (await accepted(desks.providers.page_accounts(ROOT))).items == (made,)
    unknown = await refused(desks.providers.get_account(ROOT, account_id=NOBODYS_ACCOUNT))
    assert (unknown.code, unknown.details()) == ("NOT_FOUND", {"field": "accountId"})
    for who in (A, caller("a", EVERYTHING), caller("root", Permission.TENANCY_MANAGE, is_root=True)):
        for asked in (
            desks.providers.create_provider_account(who, name="n", provider="gcp", kind="push"),
            desks.providers.create_provider_account(who, name="n", provider="gcp", kind="no-such-kind"),
            desks.providers.get_account(who, account_id=made.account_id),
            desks.providers.get_account(who, account_id=NOBODYS_ACCOUNT),
            desks.providers.page_accounts(who),
            desks.providers.create_pool(who, pool_id="pool", name="P"),
            desks.providers.offer_pool(who, pool_id="pool", offered_to="a"),
        ):
            assert (await refused(asked)).code == "ACCESS_DENIED"


async def test_a_tenant_sees_the_pools_offered_to_it_and_not_to_whom_else(desks: Desks) -> None:
    await make_tenants(desks, "a", "b")
    for pool_id in ("for-a", "for-all", "for-none"):
        await accepted(desks.providers.create_pool(ROOT, pool_id=pool_id, name=pool_id))
    taken = await refused(desks.providers.create_pool(ROOT, pool_id="for-a", name="again"))
    assert (taken.code, taken.details()) == ("CONFLICT", {"reason": "pool-exists"})
    for pool_id, grantee in (("for-a", "a"), ("for-all", EVERYBODY), ("for-all", "b")):
        await accepted(desks.providers.offer_pool(ROOT, pool_id=pool_id, offered_to=grantee))

    async def sees(who: Caller) -> set[str]:
        page = await accepted(desks.providers.page_pools(who))
        singly = {
            pool_id
            for pool_id in ("for-a", "for-all", "for-none", "unknown")
            if isinstance(await desks.providers.get_pool(who, pool_id=pool_id), Accepted)
        }
        assert {pool.pool_id for pool in page.items} == singly
        return singly

    assert await sees(A) == {"for-a", "for-all"}
    assert await sees(B) == {"for-all"}
    assert await sees(ROOT) == {"for-a", "for-all", "for-none"}
    assert await sees(caller("root", Permission.PROVIDERS_MANAGE, is_root=True)) == {"for-a", "for-all", "for-none"}
    assert [offer.tenant_id for offer in (await accepted(desks.providers.page_offers(A, pool_id="for-all"))).items] == [
        EVERYBODY
    ]
    whole: Page[PoolOffer] = await accepted(desks.providers.page_offers(ROOT, pool_id="for-all"))
    assert [offer.tenant_id for offer in whole.items] == ["b", EVERYBODY]
    for hidden in ("for-a", "for-none", "unknown"):
        assert (await refused(desks.providers.page_offers(B, pool_id=hidden))).code == "NOT_FOUND"
    assert (await refused(desks.providers.page_pools(caller("a", Permission.TENANCY_READ)))).code == "ACCESS_DENIED"


async def test_offers_of_unknown_pools_are_refused_and_standing_ones_stay(desks: Desks) -> None:
    await make_tenants(desks, "a")
    unknown = await refused(desks.providers.offer_pool(ROOT, pool_id="pool", offered_to="a"))
    assert (unknown.code, unknown.details()) == ("NOT_FOUND", {"field": "poolId"})
    await accepted(desks.providers.create_pool(ROOT, pool_id="pool", name="P"))
    first = await accepted(desks.providers.offer_pool(ROOT, pool_id="pool", offered_to="root"))
    desks.clock.advance(9)
    assert await accepted(desks.providers.offer_pool(ROOT, pool_id="pool", offered_to="root")) == first


async def test_a_retry_of_an_offer_that_was_withdrawn_since_does_not_make_it_again(desks: Desks) -> None:
    await accepted(desks.providers.create_pool(ROOT, pool_id="pool", name="P"))
    asked = {"pool_id": "pool", "offered_to": EVERYBODY, "idempotency_key": "k"}
    await accepted(desks.providers.offer_pool(ROOT, **asked))
    async with desks.database.transaction() as connection:
        assert await registry.lock_pool(connection, "pool") is not None
        assert await registry.flush_offer_withdrawn(connection, "pool", EVERYBODY)
    assert (await refused(desks.providers.offer_pool(ROOT, **asked))).code == "NOT_FOUND"
    async with desks.database.acquire() as connection:
        assert await registry.offered_tenants(connection, "pool") == set()
