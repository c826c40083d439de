"""Provider accounts, pools, and whom pools are offered to."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

import strawberry
from strawberry.scalars import JSON

from domain import registry
from domain.identity import ACCOUNT_ID, POOL_ID, TENANT_ID
from domain.outcomes import Accepted, Outcome
from schema.context import operation
from schema.inputs import ID, INPUT, given, in_own_tenant
from schema.paging import AFTER, FIRST, Connection, connection, one, position_of, settled, take, value
from schema.refusals import answer, answers_with, result
from schema.scalars import Millis, millis

OFFERED_TO: Final = re.compile(f"[{registry.EVERYBODY}]|{TENANT_ID.pattern}")
"""What stands in an offer's place of a tenant."""


# -- types -------------------------------------------------------------------------------------------------------------


@strawberry.type
class ProviderAccount:
    """An account of the platform at a provider, with how its latest scan went. For root only."""

    id: strawberry.ID
    name: str
    provider: str = strawberry.field(description="What grants and usage are tagged with, such as gcp.")
    kind: str = strawberry.field(description="How it is scanned, such as file, push or gce.")
    settings: JSON
    created_at: Millis
    deleted_at: Millis | None
    scanned_at: Millis | None
    scan_complete: bool | None = strawberry.field(
        description="Whether the latest scan saw everything: only such a one concludes that something is gone."
    )
    scan_problems: list[str]

    @classmethod
    def of(cls, account: registry.ProviderAccount) -> ProviderAccount:
        return cls(
            id=strawberry.ID(account.account_id),
            name=account.name,
            provider=account.provider,
            kind=account.kind,
            settings=JSON(dict(account.settings)),
            created_at=Millis(account.created_at),
            deleted_at=millis(account.deleted_at),
            scanned_at=millis(account.scanned_at),
            scan_complete=account.scan_complete,
            scan_problems=list(account.scan_problems),
        )


@strawberry.type
class Pool:
    """Capacity reservations that are offered together."""

    id: strawberry.ID
    name: str
    created_at: Millis

    @classmethod
    def of(cls, pool: registry.Pool) -> Pool:
        return cls(id=strawberry.ID(pool.pool_id), name=pool.name, created_at=Millis(pool.created_at))


@strawberry.type
class PoolOffer:
    """Grants on the pool's reservations may be made to the tenant, and its instances may run there."""

    pool_id: strawberry.ID
    offered_to: strawberry.ID = strawberry.field(description="A tenant, or * for everybody.")
    created_at: Millis

    @classmethod
    def of(cls, offer: registry.PoolOffer) -> PoolOffer:
        return cls(
            pool_id=strawberry.ID(offer.pool_id),
            offered_to=strawberry.ID(offer.tenant_id),
            created_at=Millis(offer.created_at),
        )


# -- inputs ------------------------------------------------------------------------------------------------------------


@strawberry.input
class CreateProviderAccountInput:
    """`settings` are what the kind of account needs to be scanned."""

    name: str
    provider: str
    kind: str
    settings: JSON | None = None
    idempotency_key: str | None = None


@strawberry.input
class DeleteProviderAccountInput:
    """The account goes with its ended and cancelled grants; their usage stays."""

    tenant_id: strawberry.ID | None = None
    account_id: strawberry.ID
    idempotency_key: str | None = None


@strawberry.input
class CreatePoolInput:
    """The id is chosen by the caller."""

    pool_id: strawberry.ID
    name: str
    idempotency_key: str | None = None


@strawberry.input
class OfferPoolInput:
    """`offeredTo` is a tenant, or * for everybody."""

    pool_id: strawberry.ID
    offered_to: strawberry.ID
    idempotency_key: str | None = None


@strawberry.input
class WithdrawPoolInput:
    """Takes back one offer: that to a tenant, or that to everybody."""

    tenant_id: strawberry.ID | None = None
    pool_id: strawberry.ID
    offered_to: strawberry.ID
    idempotency_key: str | None = None


# -- results -----------------------------------------------------------------------------------------------------------

CreateProviderAccountResult = result("CreateProviderAccountResult", ProviderAccount)
DeleteProviderAccountResult = result("DeleteProviderAccountResult", ProviderAccount)
CreatePoolResult = result("CreatePoolResult", Pool)
OfferPoolResult = result("OfferPoolResult", PoolOffer)
WithdrawPoolResult = result("WithdrawPoolResult", Pool)


# -- query -------------------------------------------------------------------------------------------------------------


@strawberry.type
class ProviderQuery:
    @strawberry.field
    async def provider_account(self, account_id: Annotated[strawberry.ID, ID]) -> ProviderAccount | None:
        """Root only."""
        current = operation()
        found = settled(await current.runtime.accounts.get_account(current.caller, account_id=account_id))
        return one(found, ProviderAccount.of, accountId="id")

    @strawberry.field
    async def provider_accounts(
        self,
        *,
        first: Annotated[int | None, FIRST] = None,
        after: Annotated[str | None, AFTER] = None,
        include_deleted: bool = False,
    ) -> Connection[ProviderAccount] | None:
        """Root only, newest first."""
        current = operation()
        page = settled(
            await current.runtime.accounts.page_accounts(
                current.caller,
                first=take(first),
                after=position_of(after, ids=ACCOUNT_ID),
                include_deleted=include_deleted,
            )
        )
        return connection(value(page), ProviderAccount.of, after=after)

    @strawberry.field
    async def pool(self, pool_id: Annotated[strawberry.ID, ID]) -> Pool | None:
        """A pool that is offered to the caller's tenant; for root, any."""
        current = operation()
        found = settled(await current.runtime.accounts.get_pool(current.caller, pool_id=pool_id))
        return one(found, Pool.of, poolId="id")

    @strawberry.field
    async def pools(
        self, first: Annotated[int | None, FIRST] = None, after: Annotated[str | None, AFTER] = None
    ) -> Connection[Pool] | None:
        """Pools that are offered to the caller's tenant, newest first; for root, all."""
        current = operation()
        page = settled(
            await current.runtime.accounts.page_pools(
                current.caller, first=take(first), after=position_of(after, ids=POOL_ID)
            )
        )
        return connection(value(page), Pool.of, after=after)

    @strawberry.field
    async def pool_offers(
        self,
        *,
        pool_id: strawberry.ID,
        first: Annotated[int | None, FIRST] = None,
        after: Annotated[str | None, AFTER] = None,
    ) -> Connection[PoolOffer] | None:
        """Whom a pool is offered to, newest first; a tenant sees what makes it offered to itself. Null for a pool that
        cannot be seen."""
        current = operation()
        page = settled(
            await current.runtime.accounts.page_offers(
                current.caller, pool_id=pool_id, first=take(first), after=position_of(after, ids=OFFERED_TO)
            )
        )
        return one(page, lambda items: connection(items, PoolOffer.of, after=after))


# -- mutation ----------------------------------------------------------------------------------------------------------


@strawberry.type
class ProviderMutation:
    @answers_with(CreateProviderAccountResult)
    async def create_provider_account(self, wanted: Annotated[CreateProviderAccountInput, INPUT]) -> Any:
        """Root only."""
        current = operation()
        outcome = await current.runtime.accounts.create_provider_account(current.caller, **given(wanted))
        return answer(outcome, ProviderAccount.of)

    @answers_with(DeleteProviderAccountResult)
    async def delete_provider_account(self, wanted: Annotated[DeleteProviderAccountInput, INPUT]) -> Any:
        """Root only. Refused while a grant on it is scheduled or active, or an ended one is not metered out."""
        current = operation()
        outcome = await current.runtime.guards.delete_account(current.caller, **in_own_tenant(wanted))
        if isinstance(outcome, Accepted):
            named: Outcome[Any] = await current.runtime.accounts.get_account(current.caller, account_id=outcome.answer)
            return answer(named, ProviderAccount.of)
        return answer(outcome, ProviderAccount.of)

    @answers_with(CreatePoolResult)
    async def create_pool(self, wanted: Annotated[CreatePoolInput, INPUT]) -> Any:
        """Root only."""
        current = operation()
        return answer(await current.runtime.accounts.create_pool(current.caller, **given(wanted)), Pool.of)

    @answers_with(OfferPoolResult)
    async def offer_pool(self, wanted: Annotated[OfferPoolInput, INPUT]) -> Any:
        """Root only. An offer that stands is answered as it is."""
        current = operation()
        return answer(await current.runtime.accounts.offer_pool(current.caller, **given(wanted)), PoolOffer.of)

    @answers_with(WithdrawPoolResult)
    async def withdraw_pool(self, wanted: Annotated[WithdrawPoolInput, INPUT]) -> Any:
        """Root only. Refused while a grant that rests on the offer is scheduled or active."""
        current = operation()
        outcome = await current.runtime.guards.withdraw_pool(current.caller, **in_own_tenant(wanted))
        if isinstance(outcome, Accepted):
            named: Outcome[Any] = await current.runtime.accounts.get_pool(current.caller, pool_id=outcome.answer)
            return answer(named, Pool.of)
        return answer(outcome, Pool.of)
