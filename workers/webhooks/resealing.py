"""The job that seals secrets anew which are still sealed with a former key of this node, so that the former can be thrown
away: what is left tells when."""

from __future__ import annotations

from typing import Final

from storage.database import Database
from storage.webhooks.subscriptions import (
    count_sealed_otherwise,
    flush_sealed,
    lock_heads,
    page_sealed_with,
    read_subscriptions,
)
from workers.schedule import Ran
from workers.webhooks.secrets import seal, unseal
from workers.webhooks.vault import Vault

PAGE: Final = 100
"""Subscriptions of one transaction: their heads stay locked until its end."""


class ResealJob:
    """`webhooks.reseal`. Harmless twice: whoever holds the heads seals, and the other finds nothing left."""

    def __init__(self, database: Database, vault: Vault | None) -> None:
        self._database = database
        self._vault = vault

    async def run_once(self) -> Ran:
        """How many were sealed anew, and how many are sealed with keys other than this node's own."""
        vault = self._vault
        if vault is None or not vault.former_key_ids:
            return Ran(counts={"resealed": 0})
        resealed = 0
        while count := await self._reseal_some(vault):
            resealed += count
        async with self._database.acquire() as connection:
            left = await count_sealed_otherwise(connection, vault.key_id)
        return Ran(counts={"resealed": resealed, "left": left})

    async def _reseal_some(self, vault: Vault) -> int:
        async with self._database.transaction() as connection:
            names = await page_sealed_with(connection, vault.former_key_ids, limit=PAGE)
            await lock_heads(connection, names)
            for name, kept in (await read_subscriptions(connection, names)).items():
                await flush_sealed(connection, name, seal(vault, name, unseal(vault, kept)))
        return len(names)
