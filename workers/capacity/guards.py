"""Decisions that look at several reservations at once: deleting a provider account, withdrawing a pool's offer.

They lock every head concerned, in order, and only then the registry row; whoever adds a reservation or binds one holds
its head while it takes that same row, so a second look at the keys after the lock is final (R12, R51, R52, D29).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from domain.authority import Permission
from domain.capacity.commands import MissReservation
from domain.capacity.observation import decide_miss
from domain.capacity.state import CapacityState, Grant, ReservationStatus
from domain.identity import ACCOUNT_ID, POOL_ID, TENANT_ID
from domain.outcomes import Accepted, InvalidState, NotFound, Outcome, Refusal, Replayed
from domain.registry import EVERYBODY
from domain.replay import Remembered
from domain.shapes import Shape, check_text
from storage.capacity.books import Flush, flush_books, lock_reservations
from storage.capacity.lookups import (
    forget_grants,
    keys_of_account,
    keys_of_pool,
    unmetered_grants,
)
from storage.database import PooledConnection
from storage.registry import (
    flush_account_deleted,
    flush_offer_withdrawn,
    lock_account,
    lock_pool,
    offered_tenants,
)
from storage.replay import flush_answer
from workers.capacity.asking import CapacityAsker, recall
from workers.capacity.books import books_at
from workers.capacity.turn import CREATE_GRANT, write_changes
from workers.request import NOBODY, Caller, Provenance
from workers.turns import TurnResult

DELETE_ACCOUNT: Final = "providerAccounts.delete"
WITHDRAW_POOL: Final = "pools.withdraw"
LOOKS_MAX: Final = 5
"""How often the keys are read again because some were added meanwhile, before the caller is told to come back."""

Attempt = Callable[[PooledConnection, Mapping[str, CapacityState], int], Awaitable[Outcome[None]]]
KeysOf = Callable[[PooledConnection], Awaitable[Sequence[str]]]


class CapacityGuards:
    def __init__(self, asker: CapacityAsker, committed: Callable[[TurnResult], None]) -> None:
        self._asker = asker
        self._committed = committed

    async def delete_account(
        self, caller: Caller, *, tenant_id: Any, account_id: Any, idempotency_key: Any = None
    ) -> Outcome[str]:
        """Delete a provider account with its ended and cancelled grants; usage stays (R46). Answers with its id.

        Refuses in this order: INVALID_INPUT (shape), ACCESS_DENIED, CONFLICT (key), NOT_FOUND, INVALID_STATE with the
        scheduled and active grants (R51), INVALID_STATE with the ended ones that are not metered out (R52).
        """
        try:
            check_text(account_id, "accountId", ACCOUNT_ID)
            content = {"accountId": account_id}
            provenance = self._provenance(caller, tenant_id, DELETE_ACCOUNT, idempotency_key, content)
        except Shape as shape:
            return shape.refusal
        if denied := caller.principal.refuse_as_root(Permission.PROVIDERS_MANAGE, tenant_id=tenant_id):
            return denied

        async def keys(connection: PooledConnection) -> Sequence[str]:
            return sorted(await keys_of_account(connection, account_id))

        async def attempt(connection: PooledConnection, states: Mapping[str, CapacityState], now: int) -> Outcome[None]:
            if refusal := await _refuse_deletion(connection, states, now):
                return refusal
            await self._let_go(connection, states, now)
            await flush_account_deleted(connection, account_id, deleted_at=now)
            return Accepted(None)

        async def lock(connection: PooledConnection) -> Refusal | None:
            account = await lock_account(connection, account_id)
            return None if account else NotFound(field="accountId", message="no such provider account")

        return await self._decide(keys, lock, attempt, provenance, subject=account_id)

    async def withdraw_pool(
        self, caller: Caller, *, tenant_id: Any, pool_id: Any, offered_to: Any, idempotency_key: Any = None
    ) -> Outcome[str]:
        """Take back an offer of a pool to a tenant, or to everybody (`*`). Answers with the pool's id.

        Refuses in this order: INVALID_INPUT (shape), ACCESS_DENIED, CONFLICT (key), NOT_FOUND (no such offer),
        INVALID_STATE with the scheduled and active grants that rest on it (D29).
        """
        try:
            check_text(pool_id, "poolId", POOL_ID)
            if offered_to != EVERYBODY:
                check_text(offered_to, "offeredTo", TENANT_ID)
            content = {"poolId": pool_id, "offeredTo": offered_to}
            provenance = self._provenance(caller, tenant_id, WITHDRAW_POOL, idempotency_key, content)
        except Shape as shape:
            return shape.refusal
        if denied := caller.principal.refuse_as_root(Permission.PROVIDERS_MANAGE, tenant_id=tenant_id):
            return denied
        tenants: set[str] = set()

        async def keys(connection: PooledConnection) -> Sequence[str]:
            return sorted(await keys_of_pool(connection, pool_id))

        async def lock(connection: PooledConnection) -> Refusal | None:
            await lock_pool(connection, pool_id)
            tenants.clear()
            tenants.update(await offered_tenants(connection, pool_id))
            return None if offered_to in tenants else NotFound(field="offeredTo", message="no such offer of this pool")

        async def attempt(connection: PooledConnection, states: Mapping[str, CapacityState], now: int) -> Outcome[None]:
            resting = [grant.grant_id for grant in _open_grants(states, now) if _rests_on(grant, offered_to, tenants)]
            if resting:
                message = "grants that rest on this offer are scheduled or active"
                return InvalidState(grant_ids=tuple(sorted(resting)), message=message)
            await flush_offer_withdrawn(connection, pool_id, offered_to)
            return Accepted(None)

        return await self._decide(keys, lock, attempt, provenance, subject=pool_id)

    async def _decide(
        self,
        keys_of: KeysOf,
        lock: Callable[[PooledConnection], Awaitable[Refusal | None]],
        attempt: Attempt,
        provenance: Provenance,
        *,
        subject: str,
    ) -> Outcome[str]:
        """One transaction: heads, registry row, another look at the keys, the decision, the remembered answer."""
        for _ in range(LOOKS_MAX):
            async with self._asker.database.transaction() as connection:
                keys = await keys_of(connection)
                database_now, heads = await lock_reservations(connection, keys)
                if (known := await recall(connection, provenance)) is not None:
                    return Accepted(subject) if isinstance(known, Replayed) else known
                if refusal := await lock(connection):
                    return refusal
                if set(await keys_of(connection)) - set(keys):
                    continue
                now = max([self._asker.instant(database_now), *(head.clock_at for head in heads.values())])
                states = await books_at(connection, heads, dict.fromkeys(heads, now))
                outcome = await attempt(connection, states, now)
                if isinstance(outcome, Refusal):
                    return outcome
                if provenance.key is not None:
                    remembered = Remembered(provenance.fingerprint, subject)
                    await flush_answer(connection, provenance.key, remembered, answered_at=now)
            self._committed(TurnResult(changed_keys=list(heads), event_keys=list(heads)))
            return Accepted(subject)
        return InvalidState(state="busy", message="reservations are being added right now: try again")

    async def _let_go(self, connection: PooledConnection, states: Mapping[str, CapacityState], now: int) -> None:
        """The account's reservations are gone: their instances are on demand, their finished grants removed (R52)."""
        flush = Flush()
        for state in states.values():
            if state.reservation.status is not ReservationStatus.GONE:
                decide_miss(state, MissReservation(gone_after_misses=1), now=now)
            if state.changes:
                causes = [NOBODY] * len(state.changes.events)
                write_changes(flush, state, causes, now=now, platform_tenant_id="", ids=self._asker.ids)
        if flush:
            await flush_books(connection, flush)
        await forget_grants(connection, list(states), operation=CREATE_GRANT)

    def _provenance(
        self, caller: Caller, tenant_id: Any, operation: str, idempotency_key: Any, content: dict[str, Any]
    ) -> Provenance:
        check_text(tenant_id, "tenantId", TENANT_ID)
        return self._asker.provenance(
            caller, owner=tenant_id, operation=operation, idempotency_key=idempotency_key, content=content
        )


async def _refuse_deletion(
    connection: PooledConnection, states: Mapping[str, CapacityState], now: int
) -> Refusal | None:
    if standing := sorted(grant.grant_id for grant in _open_grants(states, now)):
        message = "grants of this account are scheduled or active"
        return InvalidState(grant_ids=tuple(standing), message=message)
    if unmetered := await unmetered_grants(connection, states):
        message = "hours of ended grants are not metered yet: try again after the next pass of vps.grants"
        return InvalidState(grant_ids=tuple(unmetered), message=message)
    return None


def _open_grants(states: Mapping[str, CapacityState], now: int) -> list[Grant]:
    return [grant for state in states.values() for grant in state.open_grants(at=now)]


def _rests_on(grant: Grant, offered_to: str, tenants: set[str]) -> bool:
    """Whether the grant's tenant would be left without any offer of the pool."""
    if offered_to == EVERYBODY:
        return grant.tenant_id not in tenants
    return grant.tenant_id == offered_to and EVERYBODY not in tenants
