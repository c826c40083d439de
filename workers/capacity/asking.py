"""How a command reaches its reservation's actor, and comes back as something to show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from domain.capacity.commands import CapacityCommand
from domain.capacity.state import CapacityState
from domain.identity import IDEMPOTENCY_KEY
from domain.outcomes import Conflict, Replayed
from domain.replay import RequestKey, check_replay, fingerprint
from domain.shapes import check_optional_text
from storage.database import AnyConnection, Database, read_clock
from storage.replay import read_answers
from workers import measures
from workers.actor import Directory, Overloaded
from workers.capacity.instants import Instants, ShownAhead
from workers.capacity.turn import Reply
from workers.clock import Clock
from workers.ids import IdSource
from workers.request import NOBODY, Caller, Provenance

UNASKED: Final = "~"
"""Begins the keys that a desk makes itself, for commands whose effect must be recognised after a doubtful commit. No
client can send one: it is outside the grammar of R2."""


class CapacityAsker:
    """The way in that desks and jobs share."""

    def __init__(self, database: Database, directory: Directory[CapacityState], ids: IdSource, clock: Clock) -> None:
        self.database = database
        self.ids = ids
        self.clock = clock
        self._directory = directory
        self._shown = ShownAhead()

    async def ask(self, key: str, command: CapacityCommand, provenance: Provenance = NOBODY) -> Reply:
        """Decide one command. Raises `Overloaded`, `Stopped`, `storage.database.Unavailable`."""
        try:
            reply: Reply = await self._directory.actor(key).ask(command, provenance)
        except Overloaded:
            measures.OVERLOADED.labels(context="capacity").inc()
            raise
        return reply

    async def now(self, connection: AnyConnection) -> int:
        """What the clock says. What a reservation is shown at can be later: see `instants`."""
        return self.instant(await read_clock(connection))

    def instant(self, database_ms: int) -> int:
        """The instant that the database's clock means. What is decided afterwards is never behind it."""
        self.clock.database.see(database_ms)
        return self.clock.instant(database_ms)

    async def instants(self, connection: AnyConnection) -> Instants:
        """The instants of a read."""
        return self._shown.instants(await self.now(connection))

    def provenance(
        self,
        caller: Caller,
        *,
        owner: str,
        operation: str,
        idempotency_key: Any,
        content: Mapping[str, Any],
        always: bool = False,
    ) -> Provenance:
        """Where a command comes from. `always`: remembered even without a key of the client's. Raises `Shape`."""
        given = check_optional_text(idempotency_key, "idempotencyKey", IDEMPOTENCY_KEY)
        if given is None and always:
            given = UNASKED + self.ids.new("req")
        return Provenance(
            request_id=caller.request_id,
            trace_id=caller.trace_id,
            trace_flags=caller.trace_flags,
            key=RequestKey(owner, operation, given) if given is not None else None,
            fingerprint=fingerprint(content),
        )


async def recall(connection: AnyConnection, provenance: Provenance) -> Replayed | Conflict | None:
    """What a command was told before under its idempotency key; None when it has none, or is new."""
    if provenance.key is None:
        return None
    known = (await read_answers(connection, [provenance.key])).get(provenance.key)
    return check_replay(known, provenance.fingerprint) if known is not None else None
