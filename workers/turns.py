"""What lanes and contexts agree on: a batch of work, a turn over it, and what comes of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from domain.replay import RequestKey
from storage.database import AnyConnection
from workers.actor import Actor, Ask

Work: TypeAlias = Sequence[tuple[Actor[Any], Sequence[Ask]]]
Answers: TypeAlias = Mapping[RequestKey, Any]


@dataclass(slots=True)
class TurnResult:
    """Outcomes to reply with once the transaction is durable, and what to wake then."""

    replies: list[tuple[Ask, Any]] = field(default_factory=list)
    changed_keys: list[str] = field(default_factory=list)
    event_keys: list[str] = field(default_factory=list)
    """Keys whose outbox has something new."""
    answers: Answers = field(default_factory=dict)
    """What is remembered, or was found to be, under request keys."""


@dataclass(slots=True, kw_only=True)
class Prepared:
    """Decisions made from memory, before the database has agreed. The actors' states are ahead of it."""

    work: Work
    result: TurnResult


class Turn(Protocol):
    """What a context does with a batch."""

    name: str

    def prepare(self, work: Work, *, under_way: Answers) -> tuple[Prepared | None, Work]:
        """Decide what can be decided from memory; and the rest of the work, which needs locks.

        `under_way` is what the batch before remembers, when it is being written meanwhile: these decisions rest on it.
        """

    async def settle(self, connection: AnyConnection, prepared: Prepared) -> bool:
        """Write these decisions in one statement, a transaction of its own, if the database agrees that they stand."""

    async def run(self, connection: AnyConnection, work: Work) -> TurnResult:
        """Lock, instant, read, advance, decide, flush, all on the given transaction."""

    def committed(self, result: TurnResult) -> None:
        """The turn is durable."""

    def forget(self, actors: Iterable[Actor[Any]]) -> None:
        """The turn failed: what these actors hold in memory may be ahead of the database."""


def count_of(work: Work) -> int:
    """How many commands there are."""
    return sum(len(asks) for _, asks in work)


def fail(work: Work, error: BaseException) -> None:
    """Tell everybody who still waits."""
    for _, asks in work:
        for ask in asks:
            if not ask.reply.done():
                ask.reply.set_exception(error)
