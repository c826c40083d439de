"""Actors: one a key, owning the order of that key's commands and its state between turns.

An actor is a plain object: a mailbox and a state. The lane it belongs to drives it; it runs nothing by itself, so an
idle one costs a few hundred bytes, and a directory of them can forget the idle ones at any time.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from workers.request import Provenance

if TYPE_CHECKING:
    from workers.lane import Lane

State = TypeVar("State")

MAILBOX_MAX: Final = 4_096
"""Commands that may wait for one key: at some ten thousand decisions a second this is under half a second of waiting."""
ACTORS_MAX: Final = 10_000
"""Keys kept in memory; beyond it the longest unused idle ones are forgotten and read again when asked."""

CAUTIOUS_S: Final = 2.0
"""How long an actor stays in lock mode after it was overtaken: while two nodes ask for one key it is the fair way, and to
find out that they do not any more costs one batch decided twice."""


class Overloaded(Exception):  # noqa: N818 - a state of the world
    """The mailbox is full: refused at once, nothing was queued. `retry_after_s` is a sensible pause."""

    def __init__(self, retry_after_s: int = 1) -> None:
        super().__init__("too many commands are waiting for this key")
        self.retry_after_s = retry_after_s


class Stopped(Exception):  # noqa: N818 - a state of the world
    """The node is closing; nothing was queued, or what was queued was not begun."""


@dataclass(slots=True, eq=False)
class Ask:
    """One command waiting for its outcome. The future may be cancelled by a caller that left; the turn does not care."""

    command: Any
    provenance: Provenance
    reply: asyncio.Future[Any]


@dataclass(slots=True, eq=False)
class Actor(Generic[State]):
    key: str
    lane: Lane
    state: State | None = None
    mailbox: deque[Ask] = field(default_factory=deque)
    is_queued: bool = False
    """Whether its lane has it on the list of actors with something to do."""
    cautious_until: float = 0.0
    """Until when, on the monotonic clock, its lane decides nothing from its state without the lock."""

    @property
    def is_cautious(self) -> bool:
        """Whether somebody else was at work on this key lately."""
        return time.monotonic() < self.cautious_until

    def be_cautious(self) -> None:
        """Somebody else is at work on this key."""
        self.cautious_until = time.monotonic() + CAUTIOUS_S

    async def ask(self, command: Any, provenance: Provenance) -> Any:
        """Queue a command and wait for its outcome. Raises `Overloaded`, `Stopped`, or what the turn failed with."""
        if len(self.mailbox) >= MAILBOX_MAX:
            raise Overloaded
        ask = Ask(command, provenance, asyncio.get_running_loop().create_future())
        self.lane.queue(self, ask)
        return await ask.reply


class Directory(Generic[State]):
    """The actors of one context on this node, by key."""

    def __init__(self, lane_of: Callable[[str], Lane], *, actors_max: int = ACTORS_MAX) -> None:
        self._lane_of = lane_of
        self._actors: OrderedDict[str, Actor[State]] = OrderedDict()
        self._actors_max = actors_max

    def __len__(self) -> int:
        return len(self._actors)

    def actor(self, key: str) -> Actor[State]:
        """The actor of `key`, made on demand."""
        actor = self._actors.get(key)
        if actor is None:
            actor = self._actors[key] = Actor(key=key, lane=self._lane_of(key))
            self._evict()
        else:
            self._actors.move_to_end(key)
        return actor

    def find(self, key: str) -> Actor[State] | None:
        return self._actors.get(key)

    def _evict(self) -> None:
        """Forget idle actors, the longest unused first; one that has work is passed over."""
        surplus = len(self._actors) - self._actors_max
        for key in list(self._actors)[: max(0, surplus) * 2]:
            actor = self._actors[key]
            if surplus > 0 and not actor.mailbox and not actor.is_queued:
                del self._actors[key]
                surplus -= 1
