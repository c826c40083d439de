"""Things that are watched: shown as they are, then again after each change."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TypeVar

from domain.outcomes import Refusal
from schema.context import Operation
from schema.paging import value

Seen = TypeVar("Seen")
Node = TypeVar("Node")


async def snapshots(
    current: Operation,
    changes: AsyncGenerator[None, None],
    look: Callable[[], Awaitable[Seen | Refusal]],
    show: Callable[[Seen], Node],
) -> AsyncGenerator[Node, None]:
    """What `look` finds, at once and then whenever it has changed. It is watched before it is looked at, so no change can
    fall between the two. Raises what `look` refuses."""
    last: Seen | None = None
    async with aclosing(changes) as hints:
        async for _ in hints:
            current.begin()
            seen = value(await look())
            if seen != last:
                last = seen
                yield show(seen)
