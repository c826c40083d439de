"""Tenants, projects and keys: who may make, see and delete them, and what that does."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import pytest

from domain.authority import EVERYTHING, TENANT_DEFAULT, Permission
from domain.outcomes import Outcome
from domain.tenancy import ApiKey, IssuedKey, Project, Tenant
from storage.database import Unavailable
from storage.paging import Page, Position
from tests.registry_desks import (
    NOBODYS_KEY,
    NOBODYS_PROJECT,
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
from workers.authority import Authenticator
from workers.request import Caller
from workers.tenancy_desk import CLOSING_MAX

# -- tenants -----------------------------------------------------------------------------------------------------------


async def test_root_makes_tenants_and_a_name_is_taken_once_and_for_all(desks: Desks) -> None:
    made = await accepted(desks.tenancy.create_tenant(ROOT, tenant_id="a", name="Tenant A"))
    assert made == Tenant(tenant_id="a", name="Tenant A", is_root=False, created_at=T)
    again = await refused(desks.tenancy.create_tenant(ROOT, tenant_id="a", name="Tenant A"))
    assert (again.code, again.details()) == ("CONFLICT", {"reason": "tenant-exists"})
    await accepted(desks.tenancy.delete_tenant(ROOT, tenant_id="a"))
    after = await refused(desks.tenancy.create_tenant(ROOT, tenant_id="a", name="Tenant A"))
    assert after.details() == {"reason": "tenant-exists"}


async def test_only_root_makes_and_deletes_tenants(desks: Desks) -> None:
    await make_tenants(desks, "a")
    clerk = caller("root", Permission.TENANCY_READ, Permission.PROVIDERS_MANAGE, is_root=True)
    for who in (A, caller("a", EVERYTHING), clerk):
        for asked in (
            desks.tenancy.create_tenant(who, tenant_id="new", name="New"),
            desks.tenancy.delete_tenant(who, tenant_id="a"),
            desks.tenancy.delete_tenant(who, tenant_id="unknown"),
        ):
            assert (await refused(asked)).code == "ACCESS_DENIED"


async def test_deleting_a_tenant_revokes_its_keys_lets_capacity_go_and_is_then_closed(desks: Desks) -> None:
    await make_tenants(desks, "a", "b")
    issued: IssuedKey = await accepted(desks.keys.create_api_key(A, tenant_id="a", name="k"))
    assert issued.secret is not None
    assert await Authenticator(desks.database, desks.clock).authenticate(issued.secret) is not None
    desks.clock.advance(1_000)
    gone: Tenant = await accepted(desks.tenancy.delete_tenant(ROOT, tenant_id="a"))
    assert (gone.deleted_at, gone.closed_at) == (T + 1_000, T + 1_000)
    assert desks.closed == ["a"]
    assert await Authenticator(desks.database, desks.clock).authenticate(issued.secret) is None
    key: ApiKey = await accepted(desks.keys.get_api_key(ROOT, key_id=issued.key.key_id))
    assert key.revoked_at == T + 1_000
    desks.clock.advance(1_000)
    assert await accepted(desks.tenancy.delete_tenant(ROOT, tenant_id="a")) == gone, "a second time changes nothing"
    assert desks.closed == ["a"]


async def test_root_and_unknown_tenants_cannot_be_deleted(desks: Desks) -> None:
    root = await refused(desks.tenancy.delete_tenant(ROOT, tenant_id="root"))
    assert (root.code, root.details()) == ("INVALID_STATE", {"state": "root"})
    unknown = await refused(desks.tenancy.delete_tenant(ROOT, tenant_id="unknown"))
    assert (unknown.code, unknown.details()) == ("NOT_FOUND", {"field": "tenantId"})
    assert desks.closed == []


async def test_a_deletion_that_was_interrupted_is_finished_by_the_job(desks: Desks) -> None:
    await make_tenants(desks, "a", "b", "c")
    desks.close_fails_with = Unavailable("the database went away")
    for name in ("a", "b"):
        with pytest.raises(Unavailable):
            await desks.tenancy.delete_tenant(ROOT, tenant_id=name)
    assert await desks.tenancy.finish_closing() == 0, "one tenant in trouble keeps neither the others nor the job"
    half: Tenant = await accepted(desks.tenancy.get_tenant(ROOT, tenant_id="a"))
    assert half.is_closing
    desks.close_fails_with = None
    assert await desks.tenancy.finish_closing() == 2
    assert await desks.tenancy.finish_closing() == 0
    assert desks.closed == ["a", "b"]
    whole: Tenant = await accepted(desks.tenancy.get_tenant(ROOT, tenant_id="a"))
    assert whole.closed_at is not None


async def test_a_retry_finishes_a_deletion_that_was_interrupted(desks: Desks) -> None:
    await make_tenants(desks, "a")
    desks.close_fails_with = Unavailable("the database went away")
    with pytest.raises(Unavailable):
        await desks.tenancy.delete_tenant(ROOT, tenant_id="a", idempotency_key="k")
    desks.close_fails_with = None
    gone: Tenant = await accepted(desks.tenancy.delete_tenant(ROOT, tenant_id="a", idempotency_key="k"))
    assert gone.closed_at is not None
    assert desks.closed == ["a"]


async def test_the_job_finishes_more_deletions_than_it_reads_at_a_time(desks: Desks) -> None:
    count = CLOSING_MAX + 20
    async with desks.database.transaction() as connection:
        await connection.execute(
            "insert into tenant (tenant_id, name, created_at, deleted_at)"
            " select 't' || n, 'T', 1, 2 from generate_series(1, $1) n",
            count,
        )
    assert await desks.tenancy.finish_closing() == count
    assert len(set(desks.closed)) == count


async def test_a_tenant_sees_itself_and_root_sees_all(desks: Desks) -> None:
    await make_tenants(desks, "a", "b")
    assert (await accepted(desks.tenancy.get_tenant(A, tenant_id="a"))).name == "A"
    assert (await accepted(desks.tenancy.get_tenant(ROOT, tenant_id="b"))).name == "B"
    for hidden in ("b", "root", "unknown"):
        refusal = await refused(desks.tenancy.get_tenant(A, tenant_id=hidden))
        assert (refusal.code, refusal.details()) == ("NOT_FOUND", {"field": "tenantId"})
    own: Page[Tenant] = await accepted(desks.tenancy.page_tenants(A))
    assert [tenant.tenant_id for tenant in own.items] == ["a"]
    assert await accepted(desks.tenancy.page_tenants(A, after=own.positions[0])) == Page()
    every: Page[Tenant] = await accepted(desks.tenancy.page_tenants(ROOT))
    assert [tenant.tenant_id for tenant in every.items] == ["root", "b", "a"]


# -- projects ----------------------------------------------------------------------------------------------------------


async def test_members_and_root_make_and_delete_projects(desks: Desks) -> None:
    await make_tenants(desks, "a")
    made: Project = await accepted(desks.tenancy.create_project(A, tenant_id="a", name="one"))
    other: Project = await accepted(desks.tenancy.create_project(ROOT, tenant_id="a", name="two"))
    assert made == Project(project_id=made.project_id, tenant_id="a", name="one", created_at=T)
    assert len(made.project_id) == len("prj_") + 26
    desks.clock.advance(5)
    gone: Project = await accepted(desks.tenancy.delete_project(A, project_id=made.project_id))
    assert gone.deleted_at == T + 5
    desks.clock.advance(5)
    assert await accepted(desks.tenancy.delete_project(ROOT, project_id=made.project_id)) == gone
    assert await accepted(desks.tenancy.get_project(A, project_id=made.project_id)) == gone
    live: Page[Project] = await accepted(desks.tenancy.page_projects(A))
    assert live.items == (other,)
    every: Page[Project] = await accepted(desks.tenancy.page_projects(ROOT, tenant_id="a", include_deleted=True))
    assert every.items == (other, gone)


async def test_another_tenants_projects_and_keys_do_not_exist(desks: Desks) -> None:
    await make_tenants(desks, "a", "b")
    project: Project = await accepted(desks.tenancy.create_project(A, tenant_id="a", name="p"))
    issued: IssuedKey = await accepted(desks.keys.create_api_key(A, tenant_id="a", name="k"))
    for project_id, key_id in ((project.project_id, issued.key.key_id), (NOBODYS_PROJECT, NOBODYS_KEY)):
        for asked, named in (
            (desks.tenancy.get_project(B, project_id=project_id), "projectId"),
            (desks.tenancy.delete_project(B, project_id=project_id), "projectId"),
            (desks.keys.get_api_key(B, key_id=key_id), "keyId"),
            (desks.keys.revoke_api_key(B, key_id=key_id), "keyId"),
        ):
            refusal = await refused(asked)
            assert (refusal.code, refusal.details()) == ("NOT_FOUND", {"field": named})
    for tenant_id in ("a", "unknown"):
        assert (await refused(desks.tenancy.page_projects(B, tenant_id=tenant_id))).code == "NOT_FOUND"
        assert (await refused(desks.keys.page_api_keys(B, tenant_id=tenant_id))).code == "NOT_FOUND"
        making: list[Awaitable[Outcome[Any]]] = [
            desks.tenancy.create_project(B, tenant_id=tenant_id, name="p"),
            desks.keys.create_api_key(B, tenant_id=tenant_id, name="k"),
        ]
        for one in making:
            assert (await refused(one)).code == "ACCESS_DENIED", "answered before any look-up"
    assert (await accepted(desks.tenancy.get_project(A, project_id=project.project_id))).deleted_at is None
    assert (await accepted(desks.keys.get_api_key(A, key_id=issued.key.key_id))).revoked_at is None


async def test_nothing_new_is_made_for_a_deleted_or_unknown_tenant(desks: Desks) -> None:
    await make_tenants(desks, "a")
    await accepted(desks.providers.create_pool(ROOT, pool_id="pool", name="Pool"))
    await accepted(desks.tenancy.delete_tenant(ROOT, tenant_id="a"))
    for tenant_id, expected in (
        ("a", ("INVALID_STATE", {"state": "deleted"})),
        ("unknown", ("NOT_FOUND", {"field": "tenantId"})),
    ):
        for asked in (
            desks.tenancy.create_project(ROOT, tenant_id=tenant_id, name="p"),
            desks.keys.create_api_key(ROOT, tenant_id=tenant_id, name="k"),
            desks.providers.offer_pool(ROOT, pool_id="pool", offered_to=tenant_id),
        ):
            refusal = await refused(asked)
            assert (refusal.code, refusal.details()) == expected


# -- keys --------------------------------------------------------------------------------------------------------------


async def test_a_new_key_works_with_the_secret_that_is_told_once(desks: Desks) -> None:
    await make_tenants(desks, "a")
    authenticator = Authenticator(desks.database, desks.clock)
    issued: IssuedKey = await accepted(
        desks.keys.create_api_key(A, tenant_id="a", name="k", expires_at=T + 60_000, idempotency_key="1")
    )
    assert issued.secret is not None
    principal = await authenticator.authenticate(issued.secret)
    assert principal is not None
    assert (principal.key_id, principal.tenant_id, principal.is_root) == (issued.key.key_id, "a", False)
    assert principal.permissions == set(TENANT_DEFAULT)
    assert issued.secret.split("_")[1] == issued.key.prefix
    again: IssuedKey = await accepted(
        desks.keys.create_api_key(A, tenant_id="a", name="k", expires_at=T + 60_000, idempotency_key="1")
    )
    assert again == IssuedKey(key=issued.key, secret=None)
    viewer = await accepted(desks.keys.viewer(Caller(principal=principal)))
    assert (viewer.tenant.tenant_id, viewer.key) == ("a", issued.key)


async def test_a_revoked_key_is_revoked_once(desks: Desks) -> None:
    await make_tenants(desks, "a")
    issued: IssuedKey = await accepted(desks.keys.create_api_key(A, tenant_id="a", name="k"))
    revoked: ApiKey = await accepted(desks.keys.revoke_api_key(A, key_id=issued.key.key_id))
    assert revoked.revoked_at == T
    desks.clock.advance(1)
    assert await accepted(desks.keys.revoke_api_key(ROOT, key_id=issued.key.key_id)) == revoked
    assert issued.secret is not None
    assert await Authenticator(desks.database, desks.clock).authenticate(issued.secret) is None
    assert (await accepted(desks.keys.page_api_keys(A))).items == ()
    assert (await accepted(desks.keys.page_api_keys(A, include_revoked=True))).items == (revoked,)


async def test_nobody_hands_out_what_they_lack_in_another_tenant_neither(desks: Desks) -> None:
    await make_tenants(desks, "a")
    manager = caller("a", Permission.TENANCY_MANAGE, Permission.TENANCY_READ)
    clerk = caller("root", Permission.TENANCY_MANAGE, is_root=True)
    for who, tenant_id, permissions in (
        (manager, "a", [EVERYTHING]),
        (manager, "a", [Permission.TENANCY_READ.value, Permission.QUOTAS_READ.value]),
        (manager, "a", None),
        (clerk, "root", [Permission.PROVIDERS_MANAGE.value]),
        (clerk, "a", [EVERYTHING]),
        (clerk, "a", [Permission.INSTANCES_MANAGE.value]),
        (clerk, "a", None),
    ):
        denied = await refused(desks.keys.create_api_key(who, tenant_id=tenant_id, name="k", permissions=permissions))
        assert denied.code == "ACCESS_DENIED"
    for who, tenant_id, permissions in (
        (manager, "a", [Permission.TENANCY_READ.value]),
        (manager, "a", []),
        (clerk, "a", [Permission.TENANCY_MANAGE.value]),
        (ROOT, "a", None),
        (ROOT, "root", [EVERYTHING, EVERYTHING]),
    ):
        issued: IssuedKey = await accepted(
            desks.keys.create_api_key(who, tenant_id=tenant_id, name="k", permissions=permissions)
        )
        default = tuple(permission.value for permission in TENANT_DEFAULT)
        assert issued.key.permissions == (default if permissions is None else tuple(dict.fromkeys(permissions)))


async def test_a_tenants_key_with_every_permission_is_not_root(desks: Desks) -> None:
    await make_tenants(desks, "a")
    issued: IssuedKey = await accepted(
        desks.keys.create_api_key(ROOT, tenant_id="a", name="k", permissions=[EVERYTHING])
    )
    assert issued.secret is not None
    principal = await Authenticator(desks.database, desks.clock).authenticate(issued.secret)
    assert principal is not None
    denied = await refused(desks.tenancy.create_tenant(Caller(principal=principal), tenant_id="x", name="X"))
    assert denied.code == "ACCESS_DENIED"


# -- lists -------------------------------------------------------------------------------------------------------------


async def test_lists_are_walked_page_by_page(desks: Desks) -> None:
    await make_tenants(desks, "a")
    made = []
    for number in range(7):
        made.append(await accepted(desks.tenancy.create_project(A, tenant_id="a", name=f"p{number}")))
        desks.clock.advance(number % 2)
    walked: list[Project] = []
    after: Position | None = None
    while True:
        page: Page[Project] = await accepted(desks.tenancy.page_projects(A, first=3, after=after))
        walked.extend(page.items)
        if not page.has_more:
            break
        after = page.positions[-1]
    assert walked == made[::-1]
