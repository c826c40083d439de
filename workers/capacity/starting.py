"""Starting a stopped instance: where it is, or placed afresh over all reservations that could take it (R36, D27, D32).

Most starts are one ask of the instance's own reservation. One that has to be placed afresh may belong to another: the
others are asked whether they have a slot, and one that has gets the instance in a transaction over both reservations,
which leaves the books of the one for those of the other. So at any moment it is in exactly one place, whatever breaks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from domain.capacity.commands import CapacityCommand, SeekSlot, StartInstance, Surroundings
from domain.capacity.placement import NO_SLOT, UNPLACED, decide_start_elsewhere
from domain.capacity.state import CapacityState, Instance, ReservationStatus
from domain.outcomes import Accepted, Conflict, NotFound, Refusal
from domain.replay import Remembered
from storage.capacity.books import Flush, Wanted, flush_books, lock_reservations, read_surroundings, relocate
from storage.capacity.lookups import Candidate, find_candidates, get_instance
from storage.database import PooledConnection, Trouble, Unavailable, trouble_of
from storage.replay import answer_row
from workers import measures
from workers.capacity.asking import CapacityAsker, recall
from workers.capacity.books import books_at
from workers.capacity.turn import CONTEXT, Reply, write_changes
from workers.request import NOBODY, Provenance
from workers.turns import TurnResult

LOOKS_MAX: Final = 5
"""How often an instance is looked for again that moved, or whose slot went to somebody else, before the caller is told
to come back."""


@dataclass(frozen=True, slots=True)
class Found:
    """An instance and where it is, as a look at the tables had it."""

    key: str
    instance: Instance
    flavor: str


@dataclass(frozen=True, slots=True)
class Answered:
    """What a command came to, and at which reservation."""

    key: str
    reply: Reply


class InstanceAsker:
    """The way in for commands about an instance that there is."""

    def __init__(self, asker: CapacityAsker, committed: Callable[[TurnResult], None]) -> None:
        self._asker = asker
        self._committed = committed

    async def ask(self, found: Found, command: CapacityCommand, provenance: Provenance) -> Answered:
        """Decide a command about an instance where it is, and wherever it has moved to meanwhile."""
        for _ in range(LOOKS_MAX):
            if isinstance(command, StartInstance):
                answered = await self._start(found, command, provenance)
            else:
                answered = await self._ask(found.key, command, provenance)
            if answered is not None:
                return answered
            found = await self._look_again(found)
        raise Unavailable("the instance is being moved; ask again with the same idempotency key")

    async def _start(self, found: Found, command: StartInstance, provenance: Provenance) -> Answered | None:
        """None: it is not there any more, or its slot went to somebody else."""
        if not found.instance.holds_nothing:
            answered = await self._ask(found.key, replace(command, in_place=True), provenance)
            if answered is None or answered.reply.outcome != UNPLACED:
                return answered
        instance = found.instance
        async with self._asker.database.acquire() as connection:
            candidates = await find_candidates(
                connection, tenant_id=instance.tenant_id, flavor=found.flavor, pool_id=instance.wanted_pool_id
            )
            known = await recall(connection, provenance)
        if known is not None:
            return Answered(found.key, Reply(known, 0))
        attempts = attempts_of(candidates)
        if all(key == found.key for key, _ in attempts):
            return await self._ask(found.key, command, provenance)
        return await self._place(found, command, provenance, attempts)

    async def _place(
        self, found: Found, command: StartInstance, provenance: Provenance, attempts: Sequence[tuple[str, bool]]
    ) -> Answered | None:
        for key, grants_only in attempts:
            attempt = replace(command, grants_only=grants_only)
            if key == found.key:
                answered = await self._ask(key, attempt, provenance)
            else:
                answered = await self._try_elsewhere(found, key, attempt, provenance)
            if answered is None or answered.reply.outcome != NO_SLOT:
                return answered
        # Somebody else may have started it meanwhile, and it is what has the slot.
        answered = await self._ask(found.key, replace(command, in_place=True), provenance)
        if answered is None or answered.reply.outcome != UNPLACED:
            return answered
        return Answered(found.key, Reply(NO_SLOT, answered.reply.now))

    async def _try_elsewhere(
        self, found: Found, key: str, command: StartInstance, provenance: Provenance
    ) -> Answered | None:
        instance = found.instance
        seeking = SeekSlot(
            tenant_id=instance.tenant_id,
            project_id=command.project_id or instance.project_id,
            billing=instance.billing,
            grants_only=command.grants_only,
        )
        sought = await self._asker.ask(key, seeking)
        if isinstance(sought.outcome, Refusal):
            return Answered(key, sought)
        try:
            reply = await self._move(command, provenance, origin=found.key, target=key)
        except Exception as error:
            if trouble_of(error) is Trouble.DUPLICATE:
                return None  # the same key was used for something else in the same moment
            raise
        is_final = not isinstance(reply.outcome, Refusal) or isinstance(reply.outcome, Conflict)
        return Answered(key, reply) if is_final else None

    async def _ask(self, key: str, command: CapacityCommand, provenance: Provenance) -> Answered | None:
        """None: the instance is not at this reservation any more."""
        reply = await self._asker.ask(key, command, provenance)
        return None if isinstance(reply.outcome, NotFound) else Answered(key, reply)

    async def _look_again(self, found: Found) -> Found:
        async with self._asker.database.acquire() as connection:
            again = await get_instance(connection, found.instance.instance_id)
        assert again is not None, "an instance is always somewhere"
        return Found(*again)

    async def _move(self, command: StartInstance, provenance: Provenance, *, origin: str, target: str) -> Reply:
        """One transaction over both: heads in the order of their keys, books, the decision, everything written."""
        async with self._asker.database.transaction() as connection:
            database_now, heads = await lock_reservations(connection, sorted((origin, target)))
            now = max([self._asker.instant(database_now), *(head.clock_at for head in heads.values())])
            if (known := await recall(connection, provenance)) is not None:
                return Reply(known, now)
            states = await books_at(connection, heads, dict.fromkeys(heads, now))
            around = await _look_around(connection, states, command)
            outcome = decide_start_elsewhere(states[origin], states[target], command, around=around, now=now)
            if not isinstance(outcome, Accepted):
                return Reply(outcome, now)
            await self._flush(connection, states, outcome.answer, provenance, around=around, now=now)
            await relocate(connection, command.instance_id, origin=origin, target=target)
        measures.DECISIONS.labels(CONTEXT, type(command).__name__, "accepted").inc()
        self._committed(TurnResult(changed_keys=list(heads), event_keys=list(heads)))
        return Reply(outcome, now)

    async def _flush(
        self,
        connection: PooledConnection,
        states: Mapping[str, CapacityState],
        instance: Instance,
        provenance: Provenance,
        *,
        around: Surroundings,
        now: int,
    ) -> None:
        flush, platform = Flush(), around.platform_tenant_id
        for state in states.values():
            causes = [NOBODY] * len(state.changes.events)
            write_changes(flush, state, causes, now=now, platform_tenant_id=platform, ids=self._asker.ids)
        if provenance.key is not None:
            remembered = Remembered(provenance.fingerprint, instance.instance_id)
            flush.answers.append(answer_row(provenance.key, remembered, answered_at=now))
        await flush_books(connection, flush)


def attempts_of(candidates: Iterable[Candidate]) -> list[tuple[str, bool]]:
    """D32: (key, whether only a slot of an own grant counts) in the order to try: an own grant's slot on any reservation
    first, then an ordinary one, by reservation id."""
    ready = [candidate for candidate in candidates if candidate.status is ReservationStatus.READY]
    in_grants = [(candidate.key, True) for candidate in ready if candidate.has_own_grant] if len(ready) > 1 else []
    return in_grants + [(candidate.key, False) for candidate in ready]


async def _look_around(
    connection: PooledConnection, states: Mapping[str, CapacityState], command: StartInstance
) -> Surroundings:
    wanted = Wanted(pool_ids={state.reservation.pool_id for state in states.values() if state.reservation.pool_id})
    for state in states.values():
        if (instance := state.instances.get(command.instance_id)) is not None:
            wanted.tenant_ids.add(instance.tenant_id)
            wanted.project_ids.add(command.project_id or instance.project_id)
    return await read_surroundings(connection, wanted)
