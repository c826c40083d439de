"""How the registry is written: one short transaction a mutation, in which its answer is remembered too.

The registry is small and changes rarely, so it needs neither actors nor lanes: a row lock decides. The desks are
`workers.tenancy_desk` and `workers.provider_desk`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from domain.authority import Permission
from domain.identity import IDEMPOTENCY_KEY, TENANT_ID
from domain.outcomes import Accepted, AccessDenied, NotFound, Outcome, Refusal, Replayed
from domain.replay import Remembered, RequestKey, check_replay, fingerprint
from domain.shapes import check_optional_text
from domain.tenancy import NO_TENANT, is_visible
from storage.database import AnyConnection, Database, Trouble, Unavailable, read_clock, trouble_of
from storage.identity import get_tenant
from storage.replay import flush_answer, read_answers
from workers import measures
from workers.clock import Clock
from workers.request import Caller

Answer = TypeVar("Answer")

CONTEXT: Final = "registry"
ATTEMPTS_MAX: Final = 3
"""Whoever loses a race for a unique key sees the winner's row at the second attempt; the third is for another race."""


@dataclass(frozen=True, slots=True)
class Request:
    """A mutation as it was asked for: its name, where it is remembered (None: nowhere), what was asked, in short."""

    operation: str
    key: RequestKey | None
    fingerprint: bytes


@dataclass(frozen=True, slots=True)
class Turn:
    """The transaction of one mutation."""

    connection: AnyConnection
    clock: Clock

    async def now(self) -> int:
        """The instant. Ask for it after the locks are held (R3)."""
        return self.clock.instant(await read_clock(self.connection))


class Registrar:
    """Runs the registry's mutations and reads. One object serves all desks of a node."""

    def __init__(self, database: Database, clock: Clock, *, keys_changed: Callable[[], None] = lambda: None) -> None:
        """`keys_changed` is called when a mutation that may have changed what API keys are good for has been committed."""
        self._database = database
        self._clock = clock
        self._keys_changed = keys_changed

    def request(self, caller: Caller, operation: str, *, idempotency_key: Any, content: Mapping[str, Any]) -> Request:
        """The request of a caller, who acts in its own tenant. Raises `Shape` for a malformed key."""
        given = check_optional_text(idempotency_key, "idempotencyKey", IDEMPOTENCY_KEY)
        key = RequestKey(caller.principal.tenant_id, operation, given) if given is not None else None
        return Request(operation, key, fingerprint(content))

    async def write(
        self,
        request: Request,
        decide: Callable[[Turn], Awaitable[Outcome[Answer]]],
        *,
        subject: Callable[[Answer], str],
        again: Callable[[AnyConnection, str], Awaitable[Answer | None]],
        changes_keys: bool = False,
    ) -> Accepted[Answer] | Refusal:
        """Decide and write, or find what the same request did before.

        `decide` locks, guards and writes on its turn; when it refuses, it has written nothing. `subject` names what an
        answer is about, `again` looks that up for a retry: it gets the thing as it is now (R5). Raises `Unavailable`.
        """
        outcome = await self._settle(request, decide, subject)
        measures.DECISIONS.labels(CONTEXT, request.operation, _word(outcome)).inc()
        if changes_keys and isinstance(outcome, Accepted):
            self._keys_changed()
        if not isinstance(outcome, Replayed):
            return outcome
        async with self.reading() as turn:
            thing = await again(turn.connection, outcome.subject_id)
        return NotFound(message="what this request made is gone") if thing is None else Accepted(thing)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Turn]:
        """A connection to read with. Raises `Unavailable`."""
        async with self._database.acquire() as connection:
            yield Turn(connection, self._clock)

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[Turn]:
        """A transaction, for what nobody asked for under a key. Raises `Unavailable`."""
        async with self._database.transaction() as connection:
            yield Turn(connection, self._clock)

    async def _settle(
        self,
        request: Request,
        decide: Callable[[Turn], Awaitable[Outcome[Answer]]],
        subject: Callable[[Answer], str],
    ) -> Outcome[Answer]:
        """Whoever runs into a unique key waited for the one that took it, and now reads what that one wrote."""
        for _ in range(ATTEMPTS_MAX):
            try:
                return await self._attempt(request, decide, subject)
            except Exception as error:
                if trouble_of(error) is not Trouble.DUPLICATE:
                    raise
        raise Unavailable("too many requests want the same name; ask again with the same idempotency key")

    async def _attempt(
        self,
        request: Request,
        decide: Callable[[Turn], Awaitable[Outcome[Answer]]],
        subject: Callable[[Answer], str],
    ) -> Outcome[Answer]:
        """Replay comes before state (R5). A refusal burns no key."""
        async with self._database.transaction() as connection:
            turn = Turn(connection, self._clock)
            if request.key is not None:
                known = await read_answers(connection, [request.key])
                if request.key in known:
                    return check_replay(known[request.key], request.fingerprint)
            outcome = await decide(turn)
            if request.key is not None and isinstance(outcome, Accepted):
                remembered = Remembered(request.fingerprint, subject(outcome.answer))
                await flush_answer(connection, request.key, remembered, answered_at=await turn.now())
            return outcome


async def refuse_invisible(turn: Turn, caller: Caller, tenant_id: str) -> Refusal | None:
    """NOT_FOUND for a tenant that there is not, or not for this caller."""
    if is_visible(caller.principal, tenant_id) and await get_tenant(turn.connection, tenant_id) is not None:
        return None
    return NO_TENANT


def refuse_unless_root(caller: Caller, permission: Permission) -> AccessDenied | None:
    """Answered before any look-up (R4). A caller acts in its own tenant."""
    return caller.principal.refuse_as_root(permission, tenant_id=caller.principal.tenant_id)


def refuse_reader(caller: Caller) -> AccessDenied | None:
    """Whoever may not read tenancy learns nothing about anybody's."""
    return caller.principal.refuse(Permission.TENANCY_READ, tenant_id=caller.principal.tenant_id)


def refuse_manager(caller: Caller) -> AccessDenied | None:
    """The same for changes, where the thing itself says whose it is: that is looked at afterwards."""
    return caller.principal.refuse(Permission.TENANCY_MANAGE, tenant_id=caller.principal.tenant_id)


def check_owner(caller: Caller, tenant_id: Any) -> str:
    """The tenant whose list is wanted; the caller's own when none is named. Raises `Shape`."""
    return check_optional_text(tenant_id, "tenantId", TENANT_ID) or caller.principal.tenant_id


def _word(outcome: Outcome[Any]) -> str:
    if isinstance(outcome, Refusal):
        return outcome.code.lower()
    return "accepted" if isinstance(outcome, Accepted) else "replayed"
