"""Malformed input to the registry's desks is refused by the name of its field, before anything else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from domain.outcomes import InvalidInput, Outcome
from domain.tenancy import ENVIRONMENT_KEY_NAME
from storage.paging import PAGE_MAX
from tests.registry_desks import (
    ROOT,
    Desks,
    T,
    refused,
)

Ask = Callable[[Desks], Awaitable[Outcome[Any]]]
SHAPES: Mapping[str, tuple[Ask, str, str]] = {
    "tenant id": (lambda d: d.tenancy.create_tenant(ROOT, tenant_id="a b", name="A"), "tenantId", "malformed"),
    "trailing newline": (lambda d: d.tenancy.create_tenant(ROOT, tenant_id="a\n", name="A"), "tenantId", "malformed"),
    "everybody": (lambda d: d.tenancy.create_tenant(ROOT, tenant_id="*", name="A"), "tenantId", "malformed"),
    "no name": (lambda d: d.tenancy.create_tenant(ROOT, tenant_id="a", name=None), "name", "wrong-type"),
    "blank name": (lambda d: d.tenancy.create_project(ROOT, tenant_id="a", name="  "), "name", "malformed"),
    "NUL in name": (lambda d: d.tenancy.create_project(ROOT, tenant_id="a", name="a\0"), "name", "malformed"),
    "project id": (lambda d: d.tenancy.delete_project(ROOT, project_id="prj_1"), "projectId", "malformed"),
    "key id": (lambda d: d.keys.revoke_api_key(ROOT, key_id=7), "keyId", "wrong-type"),
    "reserved key name": (
        lambda d: d.keys.create_api_key(ROOT, tenant_id="root", name=ENVIRONMENT_KEY_NAME),
        "name",
        "reserved",
    ),
    "permission": (
        lambda d: d.keys.create_api_key(ROOT, tenant_id="root", name="k", permissions=["tenancy:*"]),
        "permissions",
        "unknown-permission",
    ),
    "permissions as text": (
        lambda d: d.keys.create_api_key(ROOT, tenant_id="root", name="k", permissions="*"),
        "permissions",
        "wrong-type",
    ),
    "expiry as text": (
        lambda d: d.keys.create_api_key(ROOT, tenant_id="root", name="k", expires_at="1"),
        "expiresAt",
        "wrong-type",
    ),
    "expiry now": (
        lambda d: d.keys.create_api_key(ROOT, tenant_id="root", name="k", expires_at=T),
        "expiresAt",
        "in-the-past",
    ),
    "idempotency key": (
        lambda d: d.tenancy.create_tenant(ROOT, tenant_id="a", name="A", idempotency_key="é"),
        "idempotencyKey",
        "malformed",
    ),
    "account id": (lambda d: d.providers.get_account(ROOT, account_id="x"), "accountId", "malformed"),
    "settings": (
        lambda d: d.providers.create_provider_account(ROOT, name="n", provider="gcp", kind="push", settings=[]),
        "settings",
        "wrong-type",
    ),
    "NUL in settings": (
        lambda d: d.providers.create_provider_account(ROOT, name="n", provider="gcp", kind="gce", settings={"a": "\0"}),
        "settings",
        "malformed",
    ),
    "unknown setting": (
        lambda d: d.providers.create_provider_account(ROOT, name="n", provider="gcp", kind="gce", settings={"a": 1}),
        "settings.a",
        "unknown-key",
    ),
    "pool id": (lambda d: d.providers.create_pool(ROOT, pool_id="a/b", name="P"), "poolId", "malformed"),
    "grantee": (lambda d: d.providers.offer_pool(ROOT, pool_id="p", offered_to="a/b"), "offeredTo", "malformed"),
    "page": (lambda d: d.tenancy.page_tenants(ROOT, first=PAGE_MAX + 1), "first", "out-of-range"),
    "negative page": (lambda d: d.keys.page_api_keys(ROOT, first=-1), "first", "out-of-range"),
}


@pytest.mark.parametrize("case", SHAPES)
async def test_what_is_malformed_is_refused_by_the_name_of_its_field(desks: Desks, case: str) -> None:
    ask, named, reason = SHAPES[case]
    refusal = await refused(ask(desks))
    assert isinstance(refusal, InvalidInput)
    assert (refusal.field, refusal.reason) == (named, reason)
