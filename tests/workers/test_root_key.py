"""The root tenant and its key: of a first start, and from the environment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from domain.authority import EVERYTHING
from domain.credentials import present
from domain.tenancy import ENVIRONMENT_KEY_NAME, ApiKey, Tenant
from storage import identity
from storage.database import Database
from storage.paging import Page
from workers.authority import Authenticator, RootKeyError, ensure_root, new_secret
from workers.clock import ManualClock

T = 1_800_000_000_000
CLOCK = ManualClock(T)
FOREIGN = "correct horse battery staple, twice over"


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    opened = await Database.open(database_url)
    yield opened
    await opened.close()


async def keys_of_root(database: Database) -> Page[ApiKey]:
    async with database.acquire() as connection:
        return await identity.page_api_keys(connection, "root", first=50, after=None, include_revoked=True)


async def revoke(database: Database, key: ApiKey) -> None:
    async with database.transaction() as connection:
        await identity.flush_api_key_revoked(connection, key.key_id, revoked_at=T)


async def make_tenant_with_a_key(database: Database) -> str:
    """The secret of a key of the tenant `a`."""
    secret = new_secret()
    presented = present(secret)
    assert presented is not None
    key = ApiKey(
        key_id=f"key_{0:026}", tenant_id="a", name="k", prefix=presented.prefix, permissions=(EVERYTHING,), created_at=T
    )
    async with database.transaction() as connection:
        await identity.flush_tenant(connection, Tenant(tenant_id="a", name="A", is_root=False, created_at=T))
        await identity.flush_api_key(connection, key, digest=presented.digest)
    return secret


async def test_the_first_start_makes_root_and_tells_its_key_once(
    database: Database,
) -> None:
    secret = await ensure_root(database, clock=CLOCK)
    assert secret is not None
    assert await ensure_root(database, clock=CLOCK) is None
    principal = await Authenticator(database, CLOCK).authenticate(secret)
    assert principal is not None
    assert (principal.tenant_id, principal.is_root) == ("root", True)
    assert principal.permissions == {EVERYTHING}
    assert len((await keys_of_root(database)).items) == 1


async def test_two_nodes_at_their_first_start_make_one_root_and_one_key(database_url: str) -> None:
    nodes = [await Database.open(database_url) for _ in range(4)]
    try:
        secrets = await asyncio.gather(*(ensure_root(node, clock=CLOCK) for node in nodes))
        told = [secret for secret in secrets if secret is not None]
        assert len(told) == 1
        assert await Authenticator(nodes[0], CLOCK).authenticate(told[0]) is not None
        assert len((await keys_of_root(nodes[0])).items) == 1
    finally:
        for node in nodes:
            await node.close()


async def test_two_nodes_with_the_same_environment_make_one_key(database_url: str) -> None:
    nodes = [await Database.open(database_url) for _ in range(4)]
    try:
        assert await asyncio.gather(*(ensure_root(node, root_key=FOREIGN, clock=CLOCK) for node in nodes)) == [None] * 4
        assert [key.name for key in (await keys_of_root(nodes[0])).items] == [ENVIRONMENT_KEY_NAME]
        assert await Authenticator(nodes[1], CLOCK).authenticate(FOREIGN) is not None
    finally:
        for node in nodes:
            await node.close()


async def test_the_key_from_the_environment_works_and_its_next_value_replaces_it(database: Database) -> None:
    first, second = FOREIGN, new_secret()
    other = await ensure_root(database, clock=CLOCK)
    assert other is not None

    async def works() -> list[bool]:
        node = Authenticator(database, CLOCK)
        return [await node.authenticate(secret) is not None for secret in (first, second, other)]

    assert await ensure_root(database, root_key=first, clock=CLOCK) is None
    assert await works() == [True, False, True]
    assert await ensure_root(database, root_key=second, clock=CLOCK) is None
    assert await works() == [False, True, True]
    assert await ensure_root(database, clock=CLOCK) is None
    assert await works() == [False, True, True], "a start without the variable leaves the keys as they are"
    assert await ensure_root(database, root_key=first, clock=CLOCK) is None
    assert await works() == [True, False, True], "an earlier value works again"
    assert len((await keys_of_root(database)).items) == 3


async def test_a_node_with_another_key_from_the_environment_says_that_it_revokes_the_former(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    await ensure_root(database, root_key=FOREIGN, clock=CLOCK)
    await ensure_root(database, root_key=FOREIGN, clock=CLOCK)
    assert caplog.messages == []
    await ensure_root(database, root_key=new_secret(), clock=CLOCK)
    (message,) = caplog.messages
    assert message.startswith("EARMARK_ROOT_KEY has another value than before: the former root key is revoked")


async def test_the_environment_restores_a_key_that_was_revoked(database: Database) -> None:
    await ensure_root(database, root_key=FOREIGN, clock=CLOCK)
    [key] = (await keys_of_root(database)).items
    await revoke(database, key)
    assert await Authenticator(database, CLOCK).authenticate(FOREIGN) is None
    await ensure_root(database, root_key=FOREIGN, clock=CLOCK)
    assert await Authenticator(database, CLOCK).authenticate(FOREIGN) is not None


async def test_the_printed_first_key_may_be_put_into_the_environment(database: Database) -> None:
    secret = await ensure_root(database, clock=CLOCK)
    assert secret is not None
    await ensure_root(database, root_key=secret, clock=CLOCK)
    assert [key.name for key in (await keys_of_root(database)).items] == [ENVIRONMENT_KEY_NAME]
    assert await Authenticator(database, CLOCK).authenticate(secret) is not None


async def test_a_tenants_secret_never_becomes_the_root_key(database: Database) -> None:
    secret = await make_tenant_with_a_key(database)
    with pytest.raises(RootKeyError, match="clashes"):
        await ensure_root(database, root_key=secret, clock=CLOCK)
    async with database.acquire() as connection:
        assert await identity.get_root_tenant(connection) is None, "refused whole"


@pytest.mark.parametrize("root_key", ["", "too short", "x" * 513])
async def test_a_root_key_that_cannot_be_one_is_a_mistake(database: Database, root_key: str) -> None:
    with pytest.raises(RootKeyError, match="32 characters"):
        await ensure_root(database, root_key=root_key, clock=CLOCK)


async def test_another_root_tenant_is_a_mistake_and_not_a_second_root(
    database: Database,
) -> None:
    await make_tenant_with_a_key(database)
    await ensure_root(database, root_tenant_id="platform", clock=CLOCK)
    for wrong in ("root", "a"):
        with pytest.raises(RootKeyError, match="its root tenant is platform"):
            await ensure_root(database, root_tenant_id=wrong, clock=CLOCK)
    with pytest.raises(RootKeyError, match="must be 1 to 128 letters"):
        await ensure_root(database, root_tenant_id="not an id", clock=CLOCK)
