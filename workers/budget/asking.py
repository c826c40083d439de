"""How a command reaches its tenant's actor."""

from __future__ import annotations

from typing import Any

from domain.budget.commands import AnyCommand
from domain.budget.repeats import BudgetOutcome
from storage.database import AnyConnection, Database, read_clock
from workers import measures
from workers.actor import Directory, Overloaded
from workers.budget.loading import TenantBooks
from workers.budget.turn import CONTEXT
from workers.clock import Clock
from workers.ids import IdSource
from workers.request import NOBODY


class BudgetAsker:
    """The way in that desks and jobs share."""

    def __init__(self, database: Database, directory: Directory[TenantBooks], ids: IdSource, clock: Clock) -> None:
        self.database = database
        self.ids = ids
        self.clock = clock
        self._directory = directory

    async def ask(self, command: AnyCommand) -> BudgetOutcome[Any]:
        """Decide one command. Raises `Overloaded`, `Stopped`, `storage.database.Unavailable`."""
        try:
            outcome: BudgetOutcome[Any] = await self._directory.actor(command.tenant_id).ask(command, NOBODY)
        except Overloaded:
            measures.OVERLOADED.labels(context=CONTEXT).inc()
            raise
        return outcome

    async def now(self, connection: AnyConnection) -> int:
        """The instant of a read."""
        database_ms = await read_clock(connection)
        self.clock.database.see(database_ms)  # what is decided after a read is never behind what it has shown
        return self.clock.instant(database_ms)
