"""`vps.reservations`: the job that looks at what providers report (R54..R59, D12)."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Final, Protocol

from domain.capacity.scan import ScanReport
from domain.registry import ProviderAccount
from storage.database import Unavailable
from storage.jobs import claim_run, finish_run, prolong_run
from storage.paging import PAGE_MAX
from storage.registry import page_accounts
from workers.capacity.asking import CapacityAsker
from workers.capacity.providers.protocol import Provider, ProviderAccountConfig, incomplete, shortened
from workers.capacity.reservations import ReservationDesk
from workers.schedule import Ran

log = logging.getLogger("earmark.scan")

ACCOUNTS_AT_ONCE: Final = 8
"""Accounts that are looked at beside each other, so that a slow provider does not make the others late."""
SCAN_S_MAX: Final = 90.0
"""Providers end by themselves earlier; one that does not is cut off, and nothing is concluded."""
LEASE_MS: Final = 300_000
"""How long one node may keep others from an account: a look and taking it in, many times over."""


class Providers(Protocol):
    """`workers.capacity.providers.registry.Registry`, or a smaller one."""

    def provider_for(self, kind: str) -> Provider | None:
        """None for a kind that this version does not know."""
        ...


class ScanJob:
    """Every account apart: what fails with one does not touch the others. One look at an account at a time, over all
    nodes, so that an old view never overwrites a newer one."""

    def __init__(
        self, asker: CapacityAsker, desk: ReservationDesk, providers: Providers, *, scan_s_max: float = SCAN_S_MAX
    ) -> None:
        self._asker = asker
        self._desk = desk
        self._providers = providers
        self._scan_s_max = scan_s_max

    async def run_once(self, *, every_ms: int = 0) -> Ran:
        """Look at every account that nobody has begun to look at for about `every_ms`, on whatever node."""
        due_ms = every_ms - every_ms // 10  # ticks come a little early at times, and must not be passed over for it
        limit = asyncio.Semaphore(ACCOUNTS_AT_ONCE)

        async def scan_in_turn(account: ProviderAccount) -> str:
            async with limit:
                return await self._guarded(account, every_ms=due_ms)

        accounts = await self._scanned_accounts()
        words = Counter(await asyncio.gather(*(scan_in_turn(account) for account in accounts)))
        return Ran(counts={word: words[word] for word in ("complete", "incomplete", "skipped", "failed")})

    async def scan(self, account: ProviderAccount, *, every_ms: int = 0) -> ScanReport | None:
        """Look at one account and take in what it shows. None: another node is at it, or it is not due yet."""
        async with self._asker.database.acquire() as connection:
            began_at = await self._asker.now(connection)
            claim = await claim_run(
                connection, _claim_name(account), now=began_at, every_ms=every_ms, lease_ms=LEASE_MS
            )
        if claim is None:
            return None
        try:
            report = await self._look(account)
            async with self._asker.database.acquire() as connection:
                now = await self._asker.now(connection)
                prolonged = await prolong_run(connection, _claim_name(account), claim, now=now, lease_ms=LEASE_MS)
            if prolonged is None:
                return None  # it took so long that another node has begun anew: this view is old
            claim = prolonged
            await self._desk.take_report(account.account_id, account.provider, report)
            await self._desk.note_scan(account.account_id, report, began_at=began_at)
            return report
        finally:
            async with self._asker.database.acquire() as connection:
                await finish_run(connection, _claim_name(account), claim, began_at=began_at)

    async def _scanned_accounts(self) -> list[ProviderAccount]:
        """The accounts that are not deleted and do not report by themselves."""
        accounts: list[ProviderAccount] = []
        after = None
        while True:
            async with self._asker.database.acquire() as connection:
                page = await page_accounts(connection, first=PAGE_MAX, after=after, include_deleted=False)
            for account in page.items:
                provider = self._providers.provider_for(account.kind)
                if provider is None or provider.scans:
                    accounts.append(account)
            if not page.has_more:
                return accounts
            after = page.positions[-1]

    async def _guarded(self, account: ProviderAccount, *, every_ms: int) -> str:
        """One account, whatever comes of it, in a word."""
        try:
            report = await self.scan(account, every_ms=every_ms)
        except Unavailable as error:
            log.warning("account %s could not be scanned: %s", account.account_id, error)
            return "failed"
        except Exception:
            log.exception("the scan of account %s failed", account.account_id)
            return "failed"
        if report is None:
            return "skipped"
        if not report.complete:
            log.warning("the scan of account %s is incomplete: %s", account.account_id, "; ".join(report.problems))
        return "complete" if report.complete else "incomplete"

    async def _look(self, account: ProviderAccount) -> ScanReport:
        """What the provider shows; trouble of any kind is an incomplete report."""
        provider = self._providers.provider_for(account.kind)
        if provider is None:
            return incomplete(f"this version knows no provider of the kind {account.kind}")
        config = ProviderAccountConfig(account_id=account.account_id, kind=account.kind, settings=account.settings)
        try:
            async with asyncio.timeout(self._scan_s_max):
                return await provider.scan(config)
        except TimeoutError:
            return incomplete(f"the provider did not answer within {self._scan_s_max:g} s")
        except Exception as error:
            log.exception("provider %s raised on account %s", account.kind, account.account_id)
            return incomplete(shortened(f"the provider failed: {type(error).__name__}: {error}"))


def _claim_name(account: ProviderAccount) -> str:
    return f"vps.reservations/{account.account_id}"
