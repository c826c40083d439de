"""Who holds a secret: authentication of every request, and the root key of a first start.

A request must not cost a query, and a revoked key must be out on every node within a second. So what a secret turned
out to be is remembered for half a second, good or bad, and looked up again after it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from domain.authority import EVERYTHING, Principal
from domain.credentials import (
    MALFORMED,
    PREFIX_LENGTH,
    RANDOM_LENGTH,
    SECRET_LEAST,
    UNKNOWN,
    Presented,
    Unfit,
    present,
    spell,
)
from domain.identity import TENANT_ID, encode_bits, in_words
from domain.tenancy import ENVIRONMENT_KEY_NAME, FIRST_KEY_NAME, ApiKey
from domain.terms import MINUTE_MS
from storage.database import AnyConnection, Database, read_clock
from storage.identity import (
    flush_api_key,
    flush_last_used,
    flush_others_revoked,
    flush_root_key_restored,
    flush_root_tenant,
    get_credential,
    get_root_tenant,
    has_api_keys,
    lock_tenant,
    read_credentials,
)
from workers.attempts import Attempt, AttemptLog
from workers.clock import Clock, DatabaseClock
from workers.ids import IdSource

log = logging.getLogger("earmark.authority")

REMEMBER_MS: Final = 500
"""How long a look-up counts: revocation shows within a second with room to spare, and a busy key costs two queries a
second and node."""
PRINCIPALS_MAX: Final = 10_000
"""Valid keys remembered: at most a few megabytes."""
STRANGERS_MAX: Final = 10_000
"""Invalid secrets remembered, apart from the valid ones, so that a flood of them pushes out none of those."""
LOOK_UPS_MAX: Final = 64
"""Look-ups at once. The same secret is looked up by one request only, the others wait for what it finds."""
USED_COARSE_MS: Final = MINUTE_MS
"""How old a key's `last_used_at` gets before it is written again."""


class RootKeyError(Exception):
    """The root tenant or key asked for cannot be had on this database: a mistake in the settings."""


def new_secret() -> str:
    """A secret that nobody had before."""
    bits = int.from_bytes(os.urandom(40))
    prefix = encode_bits(bits, characters=PREFIX_LENGTH)
    return spell(prefix=prefix, random=encode_bits(bits >> (5 * PREFIX_LENGTH), characters=RANDOM_LENGTH))


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class _Found:
    """What a secret turned out to be, and until when that counts on the monotonic clock."""

    principal: Principal | None
    good_until: int
    unfit: Unfit = UNKNOWN
    """Why there is no principal."""


class Authenticator:
    """One object a node. Nothing in it but what can be looked up again."""

    def __init__(self, database: Database, clock: Clock, *, monotonic_ms: Callable[[], int] = _monotonic_ms) -> None:
        self._database = database
        self._clock = clock
        self._monotonic_ms = monotonic_ms
        self._principals: OrderedDict[bytes, _Found] = OrderedDict()
        self._strangers: OrderedDict[bytes, _Found] = OrderedDict()
        self._looking_up = tuple(asyncio.Lock() for _ in range(LOOK_UPS_MAX))
        self._forgotten = 0
        """How often everything was."""
        self._used_at: dict[str, int] = {}
        self.attempts = AttemptLog(clock)

    async def authenticate(self, secret: str, attempt: Attempt | None = None) -> Principal | None:
        """The holder of the key; None for what is no valid key: unknown, revoked, expired, or of a deleted tenant.

        `attempt`: the request that it came with, to tell of when it fails. Raises `storage.database.Unavailable`.
        """
        presented = present(secret)
        if presented is None:
            self._note_failure(MALFORMED, attempt)
            return None
        found = self._recall(presented) or await self._find_out(presented)
        if found.principal is not None:
            self._used_at[found.principal.key_id] = self._clock.local_ms()
            self.attempts.succeeded(found.principal.tenant_id)
        else:
            self._note_failure(found.unfit, attempt)
        return found.principal

    def forget(self) -> None:
        """Keys or tenants were changed on this node: what is asked here from now on is looked up anew. The other nodes
        come to know of it within a second."""
        self._forgotten += 1
        self._principals.clear()
        self._strangers.clear()

    def _note_failure(self, unfit: Unfit, attempt: Attempt | None) -> None:
        if attempt is not None:
            self.attempts.failed(unfit, attempt)

    async def still_valid(self, key_ids: Iterable[str]) -> set[str]:
        """Those of the keys that a new request could still use: for what stays open. One query, never from memory."""
        async with self._database.acquire() as connection:
            found = await read_credentials(connection, key_ids)
        return {credential.key_id for credential, now in found if credential.is_valid_at(self._clock.instant(now))}

    async def flush_last_used(self) -> int:
        """Write down which keys were used since the last time; how many rows that took. Call it now and then."""
        used_at, self._used_at = self._used_at, {}
        if not used_at:
            return 0
        try:
            async with self._database.transaction() as connection:
                return await flush_last_used(connection, used_at, coarse_ms=USED_COARSE_MS)
        except BaseException:
            self._used_at = {**used_at, **self._used_at}
            raise

    def _recall(self, presented: Presented) -> _Found | None:
        found = self._principals.get(presented.digest) or self._strangers.get(presented.digest)
        return found if found is not None and self._monotonic_ms() < found.good_until else None

    async def _find_out(self, presented: Presented) -> _Found:
        async with self._looking_up[presented.digest[0] % LOOK_UPS_MAX]:
            found = self._recall(presented)
            while found is None:
                forgotten = self._forgotten
                looked_up = await self._look_up(presented)
                if forgotten == self._forgotten:  # else it may have been read just before the change
                    self._remember(presented, looked_up)
                    found = looked_up
            return found

    async def _look_up(self, presented: Presented) -> _Found:
        """What is remembered counts from before the look-up, and no longer than the key itself."""
        async with self._database.acquire() as connection:
            asked_at = self._monotonic_ms()
            kept = await get_credential(connection, presented.prefix)
        if kept is None:
            return _Found(None, asked_at + REMEMBER_MS)
        credential, now = kept[0], self._clock.instant(kept[1])
        if not credential.matches(presented):
            return _Found(None, asked_at + REMEMBER_MS)
        if (unfit := credential.unfit_at(now)) is not None:
            return _Found(None, asked_at + REMEMBER_MS, unfit)
        left = REMEMBER_MS if credential.expires_at is None else credential.expires_at - now
        return _Found(credential.principal, asked_at + min(REMEMBER_MS, left))

    def _remember(self, presented: Presented, found: _Found) -> None:
        self._principals.pop(presented.digest, None)
        self._strangers.pop(presented.digest, None)
        if found.principal is not None:
            _put(self._principals, presented.digest, found, most=PRINCIPALS_MAX)
        else:
            _put(self._strangers, presented.digest, found, most=STRANGERS_MAX)


def _put(shelf: OrderedDict[bytes, _Found], digest: bytes, found: _Found, *, most: int) -> None:
    shelf[digest] = found
    if len(shelf) > most:
        shelf.popitem(last=False)


async def ensure_root(
    database: Database, *, root_tenant_id: str = "root", root_key: str | None = None, clock: Clock | None = None
) -> str | None:
    """Make sure that there is a root tenant with a key; the secret of a key made here, to be shown once.

    With `root_key` (any text of 32 characters or more) the key with that secret is a valid root key afterwards, and one
    that an earlier value made is revoked. Without it a key is made at the first start and never again. Safe on any
    number of nodes at once: the root tenant's row is locked. Raises `RootKeyError`.
    """
    clock = clock or DatabaseClock()
    async with database.transaction() as connection:
        now = clock.instant(await read_clock(connection))
        await _lock_root(connection, root_tenant_id, now=now)
        if root_key is not None:
            await _use_environment_key(connection, root_tenant_id, root_key, clock=clock, now=now)
            return None
        if await has_api_keys(connection, root_tenant_id):
            return None
        secret = new_secret()
        await _make_root_key(connection, root_tenant_id, secret, name=FIRST_KEY_NAME, clock=clock, now=now)
        return secret


async def _lock_root(connection: AnyConnection, tenant_id: str, *, now: int) -> None:
    if not TENANT_ID.fullmatch(tenant_id):
        raise RootKeyError(f"the id of the root tenant must be {in_words(TENANT_ID)}")
    await flush_root_tenant(connection, tenant_id, name="Platform", created_at=now)
    tenant = await lock_tenant(connection, tenant_id)
    if tenant is None or not tenant.is_root:
        root = await get_root_tenant(connection)
        known = f"its root tenant is {root.tenant_id}" if root else "it has no root tenant"
        raise RootKeyError(f"tenant {tenant_id} is not the root tenant of this database: {known}")


async def _use_environment_key(
    connection: AnyConnection, tenant_id: str, secret: str, *, clock: Clock, now: int
) -> None:
    """The environment decides: its key works, whatever was done to it since, and no earlier one of its does."""
    presented = _checked(secret)
    kept = await get_credential(connection, presented.prefix)
    if kept is None:
        key_id = await _make_root_key(connection, tenant_id, secret, name=ENVIRONMENT_KEY_NAME, clock=clock, now=now)
    elif kept[0].tenant_id == tenant_id and kept[0].matches(presented):
        key_id = kept[0].key_id
        await flush_root_key_restored(connection, key_id, name=ENVIRONMENT_KEY_NAME, permissions=[EVERYTHING])
    else:
        raise RootKeyError(f"{ENVIRONMENT_KEY_NAME} clashes with another API key: choose another value")
    if await flush_others_revoked(connection, tenant_id, name=ENVIRONMENT_KEY_NAME, keep=key_id, revoked_at=now):
        log.warning(
            "%s has another value than before: the former root key is revoked, also for nodes that were started with it",
            ENVIRONMENT_KEY_NAME,
        )


async def _make_root_key(
    connection: AnyConnection, tenant_id: str, secret: str, *, name: str, clock: Clock, now: int
) -> str:
    """The id of a new key that may everything."""
    presented = _checked(secret)
    key = ApiKey(
        key_id=IdSource(clock).new("key"),
        tenant_id=tenant_id,
        name=name,
        prefix=presented.prefix,
        permissions=(EVERYTHING,),
        created_at=now,
    )
    await flush_api_key(connection, key, digest=presented.digest)
    return key.key_id


def _checked(secret: str) -> Presented:
    presented = present(secret)
    if presented is None:
        raise RootKeyError(f"{ENVIRONMENT_KEY_NAME} must have at least {SECRET_LEAST} characters")
    return presented
