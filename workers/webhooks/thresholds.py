"""What webhooks want to be told of beyond the published thresholds, kept in memory for those who decide and count (8.3).

A turn must not pay for it, so a node knows what was asked for when it last looked: at its own changes at once, at those of
other nodes within a second. Nothing is decided before it has looked for the first time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from domain.budget.burning import PUBLISHED_BURN, BurnLevel
from domain.budget.rates import PUBLISHED_LEVELS, Level
from domain.budget.state import DEFAULT_THRESHOLDS
from domain.identity import SYSTEM
from domain.webhooks.thresholds import wanted_by
from storage.database import AnyConnection, Database, Unavailable
from storage.webhooks.thresholds import Asking, read_asking

log = logging.getLogger("earmark.webhooks")

LOOK_S: Final = 1.0


class ThresholdBoard:
    """One object a node."""

    def __init__(self) -> None:
        self._is_loaded = False
        self._everybodys: tuple[int, ...] = DEFAULT_THRESHOLDS
        self._tenants: dict[str, tuple[int, ...]] = {}
        self._levels: frozenset[Level] = frozenset(PUBLISHED_LEVELS)
        self._burns: frozenset[BurnLevel] = frozenset({PUBLISHED_BURN})

    def utilizations(self, tenant_id: str) -> tuple[int, ...]:
        return self._tenants.get(tenant_id, self._everybodys)

    def levels(self) -> Iterable[Level]:
        return self._levels

    def burns(self) -> Iterable[BurnLevel]:
        return self._burns

    async def load(self, connection: AnyConnection) -> None:
        if not self._is_loaded:
            self._take(await read_asking(connection))

    async def look(self, database: Database) -> None:
        """What is asked for now; without the database, what was asked for before."""
        try:
            async with database.acquire() as connection:
                self._take(await read_asking(connection))
        except Unavailable as error:
            log.debug("thresholds could not be read: %s", error)

    async def keep_looking(self, database: Database) -> None:
        while True:
            await self.look(database)
            await asyncio.sleep(LOOK_S)

    def _take(self, asking: Iterable[Asking]) -> None:
        utilizations: dict[str, set[int]] = defaultdict(set)
        levels, burns = set(PUBLISHED_LEVELS), {PUBLISHED_BURN}
        for each in asking:
            wanted = wanted_by(each.owner, each.types, each.categories, each.thresholds)
            utilizations[each.owner] |= wanted.utilizations
            levels |= wanted.levels
            burns |= wanted.burns
        everybodys = utilizations.pop(SYSTEM, set()) | {*DEFAULT_THRESHOLDS}
        self._everybodys = _same_or(self._everybodys, everybodys)
        self._tenants = {
            tenant_id: _same_or(self._tenants.get(tenant_id, ()), everybodys | own)
            for tenant_id, own in utilizations.items()
        }
        self._levels, self._burns = frozenset(levels), frozenset(burns)
        self._is_loaded = True


def _same_or(before: tuple[int, ...], now: set[int]) -> tuple[int, ...]:
    """The object from before if it says the same: that is how a turn sees that nothing has changed."""
    rising = tuple(sorted(now))
    return before if before == rising else rising
