"""Mutations of the registry again, and at once: one key has one effect, one name one owner, a deletion no stragglers."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable
from typing import Any

from domain.outcomes import Accepted, InvalidState, Outcome, Refusal
from domain.tenancy import ApiKey, IssuedKey, Project, Tenant
from storage import identity, registry
from storage.paging import Page
from tests.registry_desks import (
    ROOT,
    A,
    B,
    Desks,
    T,
    accepted,
    lock_waiter,
    make_tenants,
    refused,
)

# -- replay ------------------------------------------------------------------------------------------------------------


async def test_a_retry_gets_the_thing_as_it_is_now_and_changes_nothing(desks: Desks) -> None:
    first: Tenant = await accepted(desks.tenancy.create_tenant(ROOT, tenant_id="a", name="A", idempotency_key="tenant"))
    project: Project = await accepted(
        desks.tenancy.create_project(A, tenant_id="a", name="p", idempotency_key="project")
    )
    desks.clock.advance(360_000)
    assert await accepted(desks.tenancy.create_tenant(ROOT, tenant_id="a", name="A", idempotency_key="tenant")) == first
    gone: Project = await accepted(desks.tenancy.delete_project(A, project_id=project.project_id, idempotency_key="d"))
    again = await accepted(desks.tenancy.create_project(A, tenant_id="a", name="p", idempotency_key="project"))
    assert again == gone
    assert (await accepted(desks.tenancy.page_projects(A, include_deleted=True))).items == (gone,)


async def test_another_request_under_a_used_key_is_a_conflict_and_does_nothing(desks: Desks) -> None:
    await accepted(desks.tenancy.create_tenant(ROOT, tenant_id="a", name="A", idempotency_key="k"))
    for other in ({"tenant_id": "b", "name": "A"}, {"tenant_id": "a", "name": "B"}):
        conflict = await refused(desks.tenancy.create_tenant(ROOT, **other, idempotency_key="k"))
        assert (conflict.code, conflict.details()) == ("CONFLICT", {"reason": "idempotency-key-reused"})
    assert (await refused(desks.tenancy.get_tenant(ROOT, tenant_id="b"))).code == "NOT_FOUND"


async def test_a_key_belongs_to_its_operation_and_to_the_tenant_that_used_it(desks: Desks) -> None:
    await make_tenants(desks, "a", "b")
    for who, owner in ((A, "a"), (B, "b"), (ROOT, "a")):
        await accepted(desks.tenancy.create_project(who, tenant_id=owner, name="p", idempotency_key="k"))
        await accepted(desks.keys.create_api_key(who, tenant_id=owner, name="p", idempotency_key="k"))
    assert len((await accepted(desks.tenancy.page_projects(A))).items) == 2


async def test_a_refusal_burns_no_key(desks: Desks) -> None:
    asked = {"tenant_id": "a", "name": "p", "idempotency_key": "k"}
    assert (await refused(desks.tenancy.create_project(ROOT, **asked))).code == "NOT_FOUND"
    await make_tenants(desks, "a")
    project: Project = await accepted(desks.tenancy.create_project(ROOT, **asked))
    assert await accepted(desks.tenancy.create_project(ROOT, **asked)) == project


# -- races -------------------------------------------------------------------------------------------------------------


async def test_twenty_at_once_under_one_key_have_one_effect(desks: Desks) -> None:
    await make_tenants(desks, "a")
    projects = await asyncio.gather(
        *(accepted(desks.tenancy.create_project(A, tenant_id="a", name="p", idempotency_key="k")) for _ in range(20))
    )
    assert len({project.project_id for project in projects}) == 1
    assert len((await accepted(desks.tenancy.page_projects(A))).items) == 1
    issued: list[IssuedKey] = await asyncio.gather(
        *(accepted(desks.keys.create_api_key(A, tenant_id="a", name="k", idempotency_key="k")) for _ in range(20))
    )
    assert len({one.key for one in issued}) == 1
    assert [one.secret is not None for one in issued].count(True) == 1, "the secret is told once"
    assert len((await accepted(desks.keys.page_api_keys(A))).items) == 1


async def test_twenty_different_requests_at_once_under_one_key_are_one_success(desks: Desks) -> None:
    outcomes = await asyncio.gather(
        *(
            desks.tenancy.create_tenant(ROOT, tenant_id=f"t{number}", name="T", idempotency_key="k")
            for number in range(20)
        )
    )
    made = [outcome.answer.tenant_id for outcome in outcomes if isinstance(outcome, Accepted)]
    codes = [outcome.details().get("reason") for outcome in outcomes if isinstance(outcome, Refusal)]
    assert len(made) == 1
    assert codes == ["idempotency-key-reused"] * 19
    page: Page[Tenant] = await accepted(desks.tenancy.page_tenants(ROOT))
    assert {tenant.tenant_id for tenant in page.items} == {"root", *made}


async def test_twenty_at_once_want_one_name_and_one_gets_it(desks: Desks) -> None:
    """Each under its own key; one that lost can come again and gets the same no."""

    async def ask(number: int) -> Outcome[Any]:
        return await desks.tenancy.create_tenant(ROOT, tenant_id="a", name=f"T{number}", idempotency_key=f"k{number}")

    outcomes = await asyncio.gather(*(ask(number) for number in range(20)))
    assert [isinstance(outcome, Accepted) for outcome in outcomes].count(True) == 1
    refusals = [outcome.details() for outcome in outcomes if isinstance(outcome, Refusal)]
    assert refusals == [{"reason": "tenant-exists"}] * 19
    assert await asyncio.gather(*(ask(number) for number in range(20))) == outcomes


async def test_parallel_deletions_of_one_tenant_all_answer_with_it_closed(desks: Desks) -> None:
    await make_tenants(desks, "a")
    gone = await asyncio.gather(*(accepted(desks.tenancy.delete_tenant(ROOT, tenant_id="a")) for _ in range(10)))
    assert len(set(gone)) == 1
    assert gone[0].closed_at is not None


async def test_nothing_is_made_for_a_tenant_that_is_deleted_at_the_same_time(desks: Desks) -> None:
    """R53, T82: an offer, a project or a key is there before the deletion, or not at all. In every order of asking; the
    next two tests have each order of happening for certain."""
    await accepted(desks.providers.create_pool(ROOT, pool_id="pool", name="P"))
    for number, order in enumerate(itertools.permutations(range(4))):
        name = f"t{number}"
        await make_tenants(desks, name)
        asked: list[Awaitable[Outcome[Any]]] = [
            desks.providers.offer_pool(ROOT, pool_id="pool", offered_to=name),
            desks.tenancy.create_project(ROOT, tenant_id=name, name="p"),
            desks.keys.create_api_key(ROOT, tenant_id=name, name="k"),
            desks.tenancy.delete_tenant(ROOT, tenant_id=name),
        ]
        outcomes = dict(zip(order, await asyncio.gather(*(asked[i] for i in order)), strict=True))
        assert isinstance(outcomes[3], Accepted)
        for outcome in (outcomes[0], outcomes[1], outcomes[2]):
            assert isinstance(outcome, Accepted | InvalidState), outcome
        keys: Page[ApiKey] = await accepted(desks.keys.page_api_keys(ROOT, tenant_id=name))
        assert keys.items == (), "a key that was made before the deletion is revoked by it"


async def test_an_offer_waits_for_the_deletion_under_way(desks: Desks) -> None:
    await make_tenants(desks, "a")
    await accepted(desks.providers.create_pool(ROOT, pool_id="pool", name="P"))
    async with desks.database.transaction() as deletion:
        await identity.lock_tenant(deletion, "a")
        await identity.flush_tenant_deleted(deletion, "a", deleted_at=T)
        offer = asyncio.create_task(refused(desks.providers.offer_pool(ROOT, pool_id="pool", offered_to="a")))
        await lock_waiter(desks.database)
        assert not offer.done()
    assert (await offer).details() == {"state": "deleted"}
    async with desks.database.acquire() as connection:
        assert await registry.offered_tenants(connection, "pool") == set()


async def test_a_deletion_waits_for_what_is_being_made(desks: Desks) -> None:
    await make_tenants(desks, "a")
    async with desks.database.transaction() as creation:
        await identity.lock_tenants_shared(creation, ["a"])
        deletion = asyncio.create_task(accepted(desks.tenancy.delete_tenant(ROOT, tenant_id="a")))
        await lock_waiter(desks.database)
        assert not deletion.done()
        assert desks.closed == []
    assert (await deletion).closed_at is not None
