"""Lists of requests in one mutation: each is decided by itself and has an outcome of its own.

They are asked at once and in their order, so that one turn takes as many as it can: a list of the greatest length for one
tenant or one capacity reservation is one commit, if nothing else waits there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import GenericAlias
from typing import Any, TypeVar

import strawberry

from domain.outcomes import InvalidInput
from schema.context import operation
from schema.refusals import Refusal, show_refusal
from workers.lane import BATCH_MAX

Wanted = TypeVar("Wanted")
Outcomes = TypeVar("Outcomes")


def outcomes_of(kind: Any) -> Any:
    """The field for them, of a type that is made by `schema.refusals.result`."""
    return strawberry.field(graphql_type=GenericAlias(list, kind))


async def each(
    wanted: Sequence[Wanted], ask: Callable[[Wanted], Awaitable[Any]], show: Callable[..., Outcomes], *, field: str
) -> Outcomes | Refusal:
    """The outcomes, in the order of the list. One that failed is its error, and says nothing of the others.

    Refuses INVALID_INPUT: none at all, or more than a turn takes.
    """
    if not 0 < len(wanted) <= BATCH_MAX:
        message = f"{field} must have from 1 to {BATCH_MAX} entries"
        return show_refusal(InvalidInput(field=field, reason="out-of-range", message=message))
    operation().take(len(wanted))
    return show(outcomes=await asyncio.gather(*(ask(one) for one in wanted), return_exceptions=True))
