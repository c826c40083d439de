"""Who holds a secret: authentication, how soon a revocation shows, and when a key was last used."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from domain.authority import Permission
from domain.credentials import present
from domain.tenancy import ApiKey, Tenant
from storage import identity
from storage.database import Database, Unavailable
from workers.authority import (
    PRINCIPALS_MAX,
    REMEMBER_MS,
    STRANGERS_MAX,
    Authenticator,
    new_secret,
)
from workers.clock import ManualClock
from workers.ids import IdSource

T = 1_800_000_000_000
CLOCK = ManualClock(T)
FOREIGN = "correct horse battery staple, twice over"


class Stopwatch:
    """Monotonic milliseconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1_000

    def __call__(self) -> int:
        return self.now


class CountingDatabase(Database):
    """A real database that counts how often it is asked."""

    asked = 0

    def acquire(self) -> Any:
        self.asked += 1
        return super().acquire()


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[CountingDatabase]:
    opened = await CountingDatabase.open(database_url)
    assert isinstance(opened, CountingDatabase)
    yield opened
    await opened.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(T)


@pytest.fixture
def stopwatch() -> Stopwatch:
    return Stopwatch()


@pytest.fixture
def authenticator(database: CountingDatabase, clock: ManualClock, stopwatch: Stopwatch) -> Authenticator:
    return Authenticator(database, clock, monotonic_ms=stopwatch)


MakeKey = Callable[..., Awaitable[tuple[ApiKey, str]]]


@pytest.fixture
async def make_key(database: CountingDatabase) -> MakeKey:
    """A new key of the tenant `a`, and its secret."""
    ids = IdSource(CLOCK)
    async with database.transaction() as connection:
        await identity.flush_tenant(connection, Tenant(tenant_id="a", name="A", is_root=False, created_at=T))

    async def make(secret: str | None = None, **fields: Any) -> tuple[ApiKey, str]:
        secret = secret or new_secret()
        presented = present(secret)
        assert presented is not None
        given = {"tenant_id": "a", "name": "key", "permissions": (Permission.QUOTAS_READ.value,), **fields}
        key = ApiKey(key_id=ids.new("key"), prefix=presented.prefix, created_at=T, **given)
        async with database.transaction() as connection:
            await identity.flush_api_key(connection, key, digest=presented.digest)
        return key, secret

    return make


async def revoke(database: Database, key: ApiKey) -> None:
    async with database.transaction() as connection:
        await identity.flush_api_key_revoked(connection, key.key_id, revoked_at=T)


# -- secrets -----------------------------------------------------------------------------------------------------------


def test_new_secrets_have_the_documented_form_and_never_repeat() -> None:
    secrets = {new_secret() for _ in range(1_000)}
    assert len(secrets) == 1_000
    for secret in secrets:
        word, prefix, random = secret.split("_")
        presented = present(secret)
        assert presented is not None
        assert (word, len(prefix), presented.prefix) == ("emk", 12, prefix)
        assert len(random) >= 32
        assert len(set(random)) > 8


@pytest.mark.parametrize("secret", ["", "x" * 31, "x" * 513, "\ud800" * 40, "emk_abc"])
def test_what_cannot_be_a_secret_is_none(secret: str) -> None:
    assert present(secret) is None


# -- authenticate ------------------------------------------------------------------------------------------------------


async def test_a_valid_key_gives_its_holder(authenticator: Authenticator, make_key: MakeKey) -> None:
    key, secret = await make_key()
    principal = await authenticator.authenticate(secret)
    assert principal is not None
    assert (principal.key_id, principal.tenant_id, principal.is_root) == (key.key_id, "a", False)
    assert principal.permissions == {Permission.QUOTAS_READ.value}


@pytest.mark.parametrize(
    "secret", ["x" * 32, "passphrase with spaces, ümlauts and 😀!", "emk_000000000000_short-but-32-long", "e" * 512]
)
async def test_any_text_of_32_characters_can_be_a_key(
    authenticator: Authenticator, make_key: MakeKey, secret: str
) -> None:
    key, _ = await make_key(secret)
    principal = await authenticator.authenticate(secret)
    assert principal is not None
    assert principal.key_id == key.key_id


async def test_a_right_prefix_with_a_wrong_secret_is_nobody(authenticator: Authenticator, make_key: MakeKey) -> None:
    _, secret = await make_key()
    wrong = secret[:-1] + ("1" if secret[-1] == "0" else "0")
    assert await authenticator.authenticate(wrong) is None
    assert await authenticator.authenticate(secret + "0") is None
    assert await authenticator.authenticate(secret) is not None


@pytest.mark.parametrize("secret", ["", "short", "x" * 10_000, "\ud800" * 40])
async def test_what_cannot_be_a_secret_costs_no_query(
    authenticator: Authenticator, database: CountingDatabase, secret: str
) -> None:
    assert await authenticator.authenticate(secret) is None
    assert database.asked == 0


async def test_a_key_of_a_deleted_tenant_is_nobody(
    authenticator: Authenticator, database: CountingDatabase, make_key: MakeKey
) -> None:
    _, secret = await make_key()
    async with database.transaction() as connection:
        # Only the mark, as if its keys had not been revoked.
        await connection.execute("update tenant set deleted_at = $1 where tenant_id = 'a'", T)
    assert await authenticator.authenticate(secret) is None


async def test_a_key_is_over_at_the_very_millisecond_it_expires(
    database: CountingDatabase, clock: ManualClock, make_key: MakeKey
) -> None:
    _, secret = await make_key(expires_at=T + 1_000)
    clock.now = T + 999
    assert await Authenticator(database, clock).authenticate(secret) is not None
    clock.now = T + 1_000
    assert await Authenticator(database, clock).authenticate(secret) is None


async def test_a_remembered_key_does_not_outlive_itself(
    authenticator: Authenticator, clock: ManualClock, stopwatch: Stopwatch, make_key: MakeKey
) -> None:
    _, secret = await make_key(expires_at=T + 100)
    assert await authenticator.authenticate(secret) is not None
    clock.advance(100)
    stopwatch.now += 100
    assert await authenticator.authenticate(secret) is None


# -- what is remembered ------------------------------------------------------------------------------------------------


async def test_a_busy_key_costs_one_query_in_half_a_second(
    authenticator: Authenticator, database: CountingDatabase, stopwatch: Stopwatch, make_key: MakeKey
) -> None:
    _, secret = await make_key()
    before = database.asked
    for _ in range(100):
        assert await authenticator.authenticate(secret) is not None
    stopwatch.now += REMEMBER_MS - 1
    assert await authenticator.authenticate(secret) is not None
    assert database.asked == before + 1
    stopwatch.now += 1
    assert await authenticator.authenticate(secret) is not None
    assert database.asked == before + 2


async def test_a_revocation_shows_on_every_node_within_a_second(
    authenticator: Authenticator,
    database: CountingDatabase,
    clock: ManualClock,
    stopwatch: Stopwatch,
    make_key: MakeKey,
) -> None:
    other_node = Authenticator(database, clock, monotonic_ms=stopwatch)
    key, secret = await make_key()
    for node in (authenticator, other_node):
        assert await node.authenticate(secret) is not None
    await revoke(database, key)
    stopwatch.now += 1_000
    for node in (authenticator, other_node):
        assert await node.authenticate(secret) is None


async def test_wrong_secrets_are_remembered_too_and_soon_looked_up_again(
    authenticator: Authenticator, database: CountingDatabase, stopwatch: Stopwatch, make_key: MakeKey
) -> None:
    secret = new_secret()
    before = database.asked
    for _ in range(10):
        assert await authenticator.authenticate(secret) is None
    assert database.asked == before + 1
    await make_key(secret)
    stopwatch.now += REMEMBER_MS
    assert await authenticator.authenticate(secret) is not None


async def test_a_flood_of_wrong_secrets_is_bounded_and_pushes_out_no_valid_key(
    authenticator: Authenticator, database: CountingDatabase, make_key: MakeKey
) -> None:
    _, secret = await make_key()
    assert await authenticator.authenticate(secret) is not None
    flood = STRANGERS_MAX + 50
    for start in range(0, flood, 250):
        await asyncio.gather(*(authenticator.authenticate(f"{n:040}") for n in range(start, min(start + 250, flood))))
    assert len(authenticator._strangers) == STRANGERS_MAX
    assert len(authenticator._principals) == 1 <= PRINCIPALS_MAX
    before = database.asked
    assert await authenticator.authenticate(secret) is not None
    assert database.asked == before


async def test_requests_that_come_together_look_up_once(
    authenticator: Authenticator, database: CountingDatabase, make_key: MakeKey
) -> None:
    _, secret = await make_key()
    before = database.asked
    principals = await asyncio.gather(*(authenticator.authenticate(secret) for _ in range(50)))
    assert all(principal is not None for principal in principals)
    assert database.asked == before + 1


async def test_a_request_that_is_cancelled_in_its_look_up_holds_up_nobody(
    authenticator: Authenticator, make_key: MakeKey
) -> None:
    _, secret = await make_key()
    for steps in range(8):
        first = asyncio.create_task(authenticator.authenticate(secret))
        second = asyncio.create_task(authenticator.authenticate(secret))
        for _ in range(steps):
            await asyncio.sleep(0)
        first.cancel()
        assert await asyncio.wait_for(second, timeout=60) is not None
        authenticator._principals.clear()


async def test_without_a_database_nobody_is_known_and_nothing_is_remembered(
    database_url: str, clock: ManualClock, make_key: MakeKey
) -> None:
    _, secret = await make_key()
    database = await Database.open(database_url)
    authenticator = Authenticator(database, clock)
    await database.close()
    with pytest.raises(Unavailable):
        await authenticator.authenticate(secret)
    assert not authenticator._principals
    assert not authenticator._strangers


# -- streams -----------------------------------------------------------------------------------------------------------


async def test_still_valid_leaves_out_what_a_new_request_could_not_use(
    authenticator: Authenticator, database: CountingDatabase, clock: ManualClock, make_key: MakeKey
) -> None:
    good, _ = await make_key(expires_at=T + 1_001)
    revoked, secret = await make_key()
    expired, _ = await make_key(expires_at=T + 1_000)
    assert await authenticator.authenticate(secret) is not None
    await revoke(database, revoked)
    clock.now = T + 1_000
    asked = {good.key_id, revoked.key_id, expired.key_id, "key_unknown"}
    before = database.asked
    assert await authenticator.still_valid(asked) == {good.key_id}
    assert database.asked == before + 1
    async with database.transaction() as connection:
        await identity.flush_tenant_deleted(connection, "a", deleted_at=T)
    assert await authenticator.still_valid(asked) == set()
    assert await authenticator.still_valid(set()) == set()


# -- last used ---------------------------------------------------------------------------------------------------------


async def last_used(database: Database, key: ApiKey) -> int | None:
    async with database.acquire() as connection:
        found = await identity.get_api_key(connection, key.key_id)
    assert found is not None
    return found.last_used_at


async def test_the_last_use_is_written_behind_and_once_a_minute(
    authenticator: Authenticator, database: CountingDatabase, clock: ManualClock, make_key: MakeKey
) -> None:
    (busy, secret), (idle, _) = await make_key(), await make_key()
    await authenticator.authenticate(secret)
    assert await last_used(database, busy) is None
    assert await authenticator.flush_last_used() == 1
    assert await authenticator.flush_last_used() == 0
    assert (await last_used(database, busy), await last_used(database, idle)) == (T, None)
    clock.advance(59_999)
    await authenticator.authenticate(secret)
    assert await authenticator.flush_last_used() == 0
    clock.advance(1)
    await authenticator.authenticate(secret)
    assert await authenticator.flush_last_used() == 1
    assert await last_used(database, busy) == T + 60_000


async def test_a_key_that_somebody_writes_is_marked_another_time(
    authenticator: Authenticator, database: CountingDatabase, make_key: MakeKey
) -> None:
    (locked, first), (free, second) = await make_key(), await make_key()
    for secret in (first, second):
        await authenticator.authenticate(secret)
    async with database.transaction() as connection:
        await identity.lock_api_key(connection, locked.key_id)
        assert await authenticator.flush_last_used() == 1
    assert (await last_used(database, locked), await last_used(database, free)) == (None, T)


async def test_a_use_that_could_not_be_written_is_kept(
    database_url: str, database: CountingDatabase, clock: ManualClock, make_key: MakeKey
) -> None:
    key, secret = await make_key()
    closing = await Database.open(database_url)
    authenticator = Authenticator(closing, clock)
    await authenticator.authenticate(secret)
    await closing.close()
    with pytest.raises(Unavailable):
        await authenticator.flush_last_used()
    authenticator._database = database
    assert await authenticator.flush_last_used() == 1
    assert await last_used(database, key) == T
