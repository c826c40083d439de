"""From what the desk and the reads of budgets answer to the fields of this schema."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

from strawberry.utils.str_converters import to_camel_case

from domain.budget.repeats import BudgetOutcome
from domain.outcomes import InvalidInput, Refusal
from schema.context import operation
from schema.failures import failed, renamed
from schema.paging import Connection, Edge, page_info
from schema.refusals import show_refusal
from workers.budget.listing import Listing

Item = TypeVar("Item")
Node = TypeVar("Node")

_RENAMED: Final = {
    "limit": "first",
    "cursor": "after",
    "period_end": "periodEndAt",
    "effective_until": "effectiveUntilAt",
    "reservation_ttl_override": "ttlOverride",
    "header_names": "headers",
}
"""Input fields that this schema calls otherwise than the wire under `/v1`, whose names the decisions use."""


def told(outcome: BudgetOutcome[Item], show: Callable[[Item], Any]) -> Any:
    """A member of the mutation's union. A replay is told like the first answer."""
    return show_refusal(_in_our_words(outcome)) if isinstance(outcome, Refusal) else show(outcome.answer)


async def ask(decide: Callable[..., Awaitable[BudgetOutcome[Item]]], show: Callable[[Item], Any], **wanted: Any) -> Any:
    """Ask the desk, by one of its methods, as the caller of this operation."""
    current = operation()
    return told(await decide(current.runtime.budgets, current.caller, **wanted), show)


def read(found: Item | Refusal, **named: str) -> Item:
    """The answer of a read. Raises its refusal. `named` as in `failed`."""
    if isinstance(found, Refusal):
        raise failed(_in_our_words(found, named))
    return found


def listed(found: Listing[Item] | Refusal, show: Callable[[Item], Node], *, after: str | None) -> Connection[Node]:
    """A page as a client gets it. Raises the refusals of the read."""
    page = read(found)
    edges = [Edge(node=show(item), cursor=cursor) for item, cursor in zip(page.items, page.cursors, strict=True)]
    return Connection(edges=edges, page_info=page_info(page.cursors, has_next=page.has_more, after=after))


def _in_our_words(refusal: Refusal, named: Mapping[str, str] | None = None) -> Refusal:
    if not isinstance(refusal, InvalidInput):
        return refusal
    names = {**_RENAMED, **(named or {})}
    path = ".".join(names.get(name) or to_camel_case(name) for name in refusal.field.split("."))
    return renamed(refusal, {refusal.field: path})
