"""The desk for provider accounts, pools and their offers: shape, then authority, then one transaction of the registry.

Root's members, acting in the root tenant, manage all of it; nobody else learns of accounts (D46). A tenant sees the
pools that are offered to it. Deleting an account and withdrawing an offer look at grants and are not done here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from domain.authority import Permission
from domain.identity import ACCOUNT_ID, POOL_ID, TENANT_ID
from domain.outcomes import Accepted, InvalidInput, Outcome
from domain.paging import LIST_MAX, check_first
from domain.registry import (
    EVERYBODY,
    KIND,
    NO_ACCOUNT,
    NO_POOL,
    PROVIDER,
    Pool,
    PoolOffer,
    ProviderAccount,
    check_settings,
    refuse_new_pool,
    refuse_pool_reader,
)
from domain.shapes import Shape, check_name, check_text
from domain.tenancy import refuse_tenant
from storage import registry
from storage.database import AnyConnection
from storage.identity import lock_tenants_shared
from storage.paging import Page, Position
from workers.ids import IdSource
from workers.registry import Registrar, Turn, refuse_unless_root
from workers.request import Caller

CREATE_ACCOUNT: Final = "providerAccounts.create"
CREATE_POOL: Final = "pools.create"
OFFER_POOL: Final = "pools.offer"


class ValidateSettings(Protocol):
    def __call__(self, *, kind: str, settings: Mapping[str, Any]) -> InvalidInput | None:
        """None when an account of this kind may be created with these settings."""
        ...


class ProviderDesk:
    def __init__(self, registrar: Registrar, ids: IdSource, *, validate_settings: ValidateSettings) -> None:
        self._registrar = registrar
        self._ids = ids
        self._validate_settings = validate_settings

    # -- accounts --------------------------------------------------------------------------------------------------

    async def create_provider_account(
        self,
        caller: Caller,
        *,
        name: Any,
        provider: Any,
        kind: Any,
        settings: Any = None,
        idempotency_key: Any = None,
    ) -> Outcome[ProviderAccount]:
        """An account of the root tenant. `provider` tags its grants and usage, `kind` says how it is scanned.

        Refuses in this order: INVALID_INPUT (shape), ACCESS_DENIED, INVALID_INPUT (kind and settings), CONFLICT (key).
        """
        try:
            title = check_name(name, "name")
            tag = check_text(provider, "provider", PROVIDER)
            way = check_text(kind, "kind", KIND)
            given = check_settings(settings, "settings")
            content = {"name": title, "provider": tag, "kind": way, "settings": given}
            request = self._registrar.request(caller, CREATE_ACCOUNT, idempotency_key=idempotency_key, content=content)
        except Shape as shape:
            return shape.refusal
        if denied := refuse_unless_root(caller, Permission.PROVIDERS_MANAGE):
            return denied
        if refusal := self._validate_settings(kind=way, settings=given):
            return refusal
        account_id = self._ids.new("pacct")

        async def decide(turn: Turn) -> Outcome[ProviderAccount]:
            account = ProviderAccount(
                account_id=account_id,
                tenant_id=caller.principal.tenant_id,
                name=title,
                provider=tag,
                kind=way,
                settings=given,
                created_at=await turn.now(),
            )
            await registry.flush_account(turn.connection, account)
            return Accepted(account)

        return await self._registrar.write(
            request, decide, subject=lambda account: account.account_id, again=registry.get_account
        )

    async def get_account(self, caller: Caller, *, account_id: Any) -> Outcome[ProviderAccount]:
        """Refuses in this order: INVALID_INPUT, ACCESS_DENIED, NOT_FOUND."""
        try:
            wanted = check_text(account_id, "accountId", ACCOUNT_ID)
        except Shape as shape:
            return shape.refusal
        if denied := refuse_unless_root(caller, Permission.PROVIDERS_MANAGE):
            return denied
        async with self._registrar.reading() as turn:
            account = await registry.get_account(turn.connection, wanted)
        return Accepted(account) if account else NO_ACCOUNT

    async def page_accounts(
        self, caller: Caller, *, first: Any = None, after: Position | None = None, include_deleted: bool = False
    ) -> Outcome[Page[ProviderAccount]]:
        """Refuses in this order: INVALID_INPUT, ACCESS_DENIED."""
        try:
            count = check_first(first, most=LIST_MAX)
        except Shape as shape:
            return shape.refusal
        if denied := refuse_unless_root(caller, Permission.PROVIDERS_MANAGE):
            return denied
        async with self._registrar.reading() as turn:
            page = await registry.page_accounts(
                turn.connection, first=count, after=after, include_deleted=include_deleted
            )
        return Accepted(page)

    # -- pools -----------------------------------------------------------------------------------------------------

    async def create_pool(
        self, caller: Caller, *, pool_id: Any, name: Any, idempotency_key: Any = None
    ) -> Outcome[Pool]:
        """Refuses in this order: INVALID_INPUT, ACCESS_DENIED, CONFLICT (key), CONFLICT `pool-exists`."""
        try:
            wanted = check_text(pool_id, "poolId", POOL_ID)
            title = check_name(name, "name")
            content = {"poolId": wanted, "name": title}
            request = self._registrar.request(caller, CREATE_POOL, idempotency_key=idempotency_key, content=content)
        except Shape as shape:
            return shape.refusal
        if denied := refuse_unless_root(caller, Permission.PROVIDERS_MANAGE):
            return denied

        async def decide(turn: Turn) -> Outcome[Pool]:
            if refusal := refuse_new_pool(await registry.get_pool(turn.connection, wanted)):
                return refusal
            pool = Pool(pool_id=wanted, name=title, created_at=await turn.now())
            await registry.flush_pool(turn.connection, pool)
            return Accepted(pool)

        return await self._registrar.write(request, decide, subject=lambda pool: pool.pool_id, again=registry.get_pool)

    async def get_pool(self, caller: Caller, *, pool_id: Any) -> Outcome[Pool]:
        """Refuses in this order: INVALID_INPUT, ACCESS_DENIED, NOT_FOUND (also a pool not offered to the caller)."""
        try:
            wanted = check_text(pool_id, "poolId", POOL_ID)
        except Shape as shape:
            return shape.refusal
        if denied := refuse_pool_reader(caller.principal):
            return denied
        async with self._registrar.reading() as turn:
            pool = await registry.get_pool(turn.connection, wanted)
            is_shown = pool is not None and await _is_shown(turn, caller, wanted)
        return Accepted(pool) if pool is not None and is_shown else NO_POOL

    async def page_pools(
        self, caller: Caller, *, first: Any = None, after: Position | None = None
    ) -> Outcome[Page[Pool]]:
        """Root sees all pools, a tenant those offered to it. Refuses in this order: INVALID_INPUT, ACCESS_DENIED."""
        try:
            count = check_first(first, most=LIST_MAX)
        except Shape as shape:
            return shape.refusal
        if denied := refuse_pool_reader(caller.principal):
            return denied
        async with self._registrar.reading() as turn:
            page = await registry.page_pools(turn.connection, offered_to=_only_to(caller), first=count, after=after)
        return Accepted(page)

    # -- offers ----------------------------------------------------------------------------------------------------

    async def offer_pool(
        self, caller: Caller, *, pool_id: Any, offered_to: Any, idempotency_key: Any = None
    ) -> Outcome[PoolOffer]:
        """Offer a pool to a tenant, or to everybody (`*`). One that stands is answered as it is.

        Refuses in this order: INVALID_INPUT, ACCESS_DENIED, CONFLICT (key), NOT_FOUND (pool, then tenant),
        INVALID_STATE (the tenant is deleted). A retry after the offer was withdrawn is NOT_FOUND.
        """
        try:
            wanted = check_text(pool_id, "poolId", POOL_ID)
            grantee = EVERYBODY if offered_to == EVERYBODY else check_text(offered_to, "offeredTo", TENANT_ID)
            content = {"poolId": wanted, "offeredTo": grantee}
            request = self._registrar.request(caller, OFFER_POOL, idempotency_key=idempotency_key, content=content)
        except Shape as shape:
            return shape.refusal
        if denied := refuse_unless_root(caller, Permission.PROVIDERS_MANAGE):
            return denied

        async def decide(turn: Turn) -> Outcome[PoolOffer]:
            tenants = await lock_tenants_shared(turn.connection, [grantee] if grantee != EVERYBODY else [])
            if await registry.lock_pool_shared(turn.connection, wanted) is None:
                return NO_POOL
            if grantee != EVERYBODY and (refusal := refuse_tenant(tenants.get(grantee))):
                return refusal
            offer = PoolOffer(pool_id=wanted, tenant_id=grantee, created_at=await turn.now())
            return Accepted(await registry.flush_offer(turn.connection, offer))

        return await self._registrar.write(request, decide, subject=_name_of_offer, again=_offer_named)

    async def page_offers(
        self, caller: Caller, *, pool_id: Any, first: Any = None, after: Position | None = None
    ) -> Outcome[Page[PoolOffer]]:
        """Root sees whom a pool is offered to, a tenant only what makes it offered to itself.

        Refuses in this order: INVALID_INPUT, ACCESS_DENIED, NOT_FOUND (also when it is not offered to the caller).
        """
        try:
            wanted = check_text(pool_id, "poolId", POOL_ID)
            count = check_first(first, most=LIST_MAX)
        except Shape as shape:
            return shape.refusal
        if denied := refuse_pool_reader(caller.principal):
            return denied
        async with self._registrar.reading() as turn:
            if await registry.get_pool(turn.connection, wanted) is None or not await _is_shown(turn, caller, wanted):
                return NO_POOL
            page = await registry.page_offers(
                turn.connection, wanted, offered_to=_only_to(caller), first=count, after=after
            )
        return Accepted(page)


def _only_to(caller: Caller) -> str | None:
    """Whose offers count for what the caller sees; None: everybody's."""
    return None if caller.principal.is_root else caller.principal.tenant_id


async def _is_shown(turn: Turn, caller: Caller, pool_id: str) -> bool:
    only_to = _only_to(caller)
    return only_to is None or await registry.is_offered(turn.connection, pool_id, only_to)


def _name_of_offer(offer: PoolOffer) -> str:
    """Neither id can hold a slash."""
    return f"{offer.pool_id}/{offer.tenant_id}"


async def _offer_named(connection: AnyConnection, name: str) -> PoolOffer | None:
    pool_id, _, tenant_id = name.partition("/")
    return await registry.get_offer(connection, pool_id, tenant_id)
