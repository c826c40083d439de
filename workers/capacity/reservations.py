"""The desk for the reservations themselves: what providers report, the pools they are bound to, and the guards over
several of them at once (R51, R52, D29)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any, Final, TypeAlias

from domain.authority import Permission
from domain.capacity.commands import (
    BindReservation,
    CapacityCommand,
    CloseTenant,
    MissReservation,
    ObserveReservation,
    UnbindReservation,
)
from domain.capacity.scan import ReportedReservation, ScanReport
from domain.capacity.state import ReservationStatus
from domain.identity import ACCOUNT_ID, POOL_ID, RESERVATION_ID, TENANT_ID, reservation_key
from domain.outcomes import Accepted, InvalidState, NotFound, Outcome, Refusal, Replayed
from domain.registry import ProviderAccount
from domain.replay import Remembered, RequestKey, check_replay
from domain.shapes import Shape, check_text
from storage.capacity.lookups import keys_of_account, keys_of_tenant
from storage.database import Trouble, trouble_of
from storage.identity import get_tenant
from storage.registry import flush_account_scanned, get_account
from storage.replay import flush_answer, read_answers
from workers.capacity.asking import UNASKED, CapacityAsker
from workers.capacity.providers.push import PushProvider, report_from_push
from workers.request import NOBODY, Caller, Provenance

BIND: Final = "providerAccounts.bindReservation"
REPORT: Final = "providerAccounts.report"
UNBIND: Final = "providerAccounts.unbindReservation"
MISS: Final = "vps.reservations.miss"
"""The operation under which misses are remembered, by account; nobody asks for one by name."""
ASKS_AT_ONCE: Final = 500
"""Commands that one report or sweep keeps waiting at a time: more would only fill mailboxes that others need."""

Ask: TypeAlias = tuple[str, CapacityCommand, Provenance]
"""The key of a reservation, what it is asked, and where that comes from."""


class ReservationDesk:
    """Bind and unbind, and take in reports. What it answers with is the key: the edge shows the reservation behind it."""

    def __init__(self, asker: CapacityAsker, *, gone_after_misses: int = 1) -> None:
        self._asker = asker
        self._gone_after_misses = gone_after_misses

    async def bind(
        self,
        caller: Caller,
        *,
        tenant_id: Any,
        account_id: Any,
        reservation_id: Any,
        pool_id: Any,
        idempotency_key: Any = None,
    ) -> Outcome[str]:
        """Refuses in this order: INVALID_INPUT (shape), ACCESS_DENIED, CONFLICT (key), then as `decide_bind`."""
        try:
            command = BindReservation(pool_id=check_text(pool_id, "poolId", POOL_ID))
            key = _key_of(account_id, reservation_id)
            provenance = self._provenance(caller, tenant_id, BIND, idempotency_key, {"key": key, "poolId": pool_id})
        except Shape as shape:
            return shape.refusal
        return await self._ask_as_root(caller, tenant_id, key, command, provenance)

    async def unbind(
        self, caller: Caller, *, tenant_id: Any, account_id: Any, reservation_id: Any, idempotency_key: Any = None
    ) -> Outcome[str]:
        """Refuses in this order: INVALID_INPUT (shape), ACCESS_DENIED, CONFLICT (key), then as `decide_unbind`."""
        try:
            key = _key_of(account_id, reservation_id)
            provenance = self._provenance(caller, tenant_id, UNBIND, idempotency_key, {"key": key})
        except Shape as shape:
            return shape.refusal
        return await self._ask_as_root(caller, tenant_id, key, UnbindReservation(), provenance)

    async def report(
        self,
        caller: Caller,
        *,
        tenant_id: Any,
        account_id: Any,
        reservations: Sequence[ReportedReservation],
        complete: bool = True,
        idempotency_key: Any = None,
    ) -> Outcome[tuple[str, ...]]:
        """A provider's agent pushes what it sees; the keys of the reservations it named.

        Refuses in this order: INVALID_INPUT (shape; `reservations[3].total`), ACCESS_DENIED, CONFLICT (key), NOT_FOUND
        (account), INVALID_STATE (an account that is scanned takes no reports).
        """
        try:
            check_text(account_id, "accountId", ACCOUNT_ID)
            content = {"accountId": account_id, "complete": complete, "reservations": [asdict(r) for r in reservations]}
            provenance = self._provenance(caller, tenant_id, REPORT, idempotency_key, content)
        except Shape as shape:
            return shape.refusal
        report = report_from_push(reservations, complete=complete)
        if isinstance(report, Refusal):
            return report
        if denied := caller.principal.refuse_as_root(Permission.PROVIDERS_MANAGE, tenant_id=tenant_id):
            return denied
        named = tuple(reservation_key(account_id, reported.reservation_id) for reported in report.reservations)
        account = await self._account_or_answer(account_id, provenance, named)
        if not isinstance(account, ProviderAccount):
            return account
        async with self._asker.database.acquire() as connection:
            began_at = await self._asker.now(connection)
        await self.take_report(account_id, account.provider, report, provenance)
        await self.note_scan(account_id, report, began_at=began_at)
        await self._remember(provenance, account_id)
        return Accepted(named)

    async def take_report(
        self, account_id: str, provider: str, report: ScanReport, provenance: Provenance = NOBODY
    ) -> list[str]:
        """Hand what a provider showed to every reservation it concerns; the keys that were reported, in order.

        Only a complete report concludes anything about what it does not name, or about totals (R54, D12).
        """
        if not report.complete:
            return []
        plain = replace(provenance, key=None)
        asks: dict[str, Ask] = {}
        for reported in report.reservations:
            key = reservation_key(account_id, reported.reservation_id)
            asks[key] = key, _observation(account_id, provider, reported), plain
        reported_keys = list(asks)
        async with self._asker.database.acquire() as connection:
            known = await keys_of_account(connection, account_id)
        report_id = provenance.key.idempotency_key if provenance.key else self._asker.ids.new("req")
        for key, status in known.items():
            if key not in asks and status is not ReservationStatus.GONE:
                # A report is one miss, also when its commit is in doubt and it is written again (D13).
                once = RequestKey(account_id, MISS, f"{UNASKED}{report_id}/{key}")
                miss = MissReservation(gone_after_misses=self._gone_after_misses)
                asks[key] = key, miss, replace(provenance, key=once)
        await self._ask_all(asks.values())
        return reported_keys

    async def note_scan(self, account_id: str, report: ScanReport, *, began_at: int) -> None:
        """What the account's latest look came to, whoever looked: a later one is never overwritten."""
        async with self._asker.database.acquire() as connection:
            await flush_account_scanned(
                connection,
                account_id,
                scanned_at=began_at,
                complete=report.complete,
                problems=report.problems,
            )

    async def close_tenant(self, tenant_id: str) -> None:
        """Every reservation lets go of a tenant that was marked deleted before (R53).

        A create that did not see the mark still holds the lock of its head, which is bound to a pool offered to the
        tenant; so asking every such reservation comes after it, and no grant is born to a dead tenant.
        """
        async with self._asker.database.acquire() as connection:
            keys = await keys_of_tenant(connection, tenant_id)
            tenant = await get_tenant(connection, tenant_id)
        if tenant is not None and tenant.deleted_at is not None:
            command = CloseTenant(tenant_id=tenant_id, deleted_at=tenant.deleted_at)
            await self._ask_all((key, command, NOBODY) for key in keys)

    async def _ask_all(self, asks: Iterable[Ask]) -> None:
        """One command a key, some hundred at a time."""
        waiting = list(asks)
        for start in range(0, len(waiting), ASKS_AT_ONCE):
            await asyncio.gather(*(self._asker.ask(*ask) for ask in waiting[start : start + ASKS_AT_ONCE]))

    async def _account_or_answer(
        self, account_id: str, provenance: Provenance, named: tuple[str, ...]
    ) -> ProviderAccount | Outcome[tuple[str, ...]]:
        """The account to report on; or the answer, when the same report was taken before or cannot be taken."""
        async with self._asker.database.acquire() as connection:
            account = await get_account(connection, account_id)
            key = provenance.key
            known = (await read_answers(connection, [key])).get(key) if key is not None else None
        if known is not None:
            replay = check_replay(known, provenance.fingerprint)
            return Accepted(named) if isinstance(replay, Replayed) else replay
        if account is None or account.deleted_at is not None:
            return NotFound(field="accountId", message="no such provider account")
        if account.kind != PushProvider.name:
            return InvalidState(state="scanned", message=f"an account of the kind {account.kind} is scanned")
        return account

    async def _remember(self, provenance: Provenance, subject: str) -> None:
        """A report is not one transaction; taking the same one twice changes nothing (P12), so it is remembered last."""
        if provenance.key is None:
            return
        try:
            async with self._asker.database.transaction() as connection:
                now = await self._asker.now(connection)
                remembered = Remembered(provenance.fingerprint, subject)
                await flush_answer(connection, provenance.key, remembered, answered_at=now)
        except Exception as error:
            if trouble_of(error) is not Trouble.DUPLICATE:
                raise

    def _provenance(
        self, caller: Caller, tenant_id: Any, operation: str, idempotency_key: Any, content: dict[str, Any]
    ) -> Provenance:
        check_text(tenant_id, "tenantId", TENANT_ID)
        return self._asker.provenance(
            caller, owner=tenant_id, operation=operation, idempotency_key=idempotency_key, content=content
        )

    async def _ask_as_root(
        self, caller: Caller, tenant_id: str, key: str, command: CapacityCommand, provenance: Provenance
    ) -> Outcome[str]:
        if denied := caller.principal.refuse_as_root(Permission.PROVIDERS_MANAGE, tenant_id=tenant_id):
            return denied
        reply = await self._asker.ask(key, command, provenance)
        if isinstance(reply.outcome, Refusal):
            return reply.outcome
        assert isinstance(reply.outcome, Accepted | Replayed)
        return Accepted(key)


def _key_of(account_id: Any, reservation_id: Any) -> str:
    return reservation_key(
        check_text(account_id, "accountId", ACCOUNT_ID), check_text(reservation_id, "reservationId", RESERVATION_ID)
    )


def _observation(account_id: str, provider: str, reported: ReportedReservation) -> ObserveReservation:
    return ObserveReservation(account_id=account_id, provider=provider, reported=reported)
