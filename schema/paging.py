"""Connections: pages of a list with a cursor for each item. A cursor is a place in the list, no number of rows (D22)."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

import strawberry

from domain.outcomes import Accepted, InvalidInput, NotFound, Outcome, Refusal
from domain.paging import PAGE_DEFAULT, PAGE_MAX, check_after, encode_cursor
from domain.shapes import Shape
from schema.context import operation
from schema.failures import failed
from storage.paging import Page, Position

Node = TypeVar("Node")
Item = TypeVar("Item")

Count = Callable[[], Awaitable[int | Refusal]]

FIRST: Final = strawberry.argument(description=f"How many items, at most {PAGE_MAX}; {PAGE_DEFAULT} if not given.")
AFTER: Final = strawberry.argument(description="The cursor of the item to go on after.")


@strawberry.type
class PageInfo:
    """Where a page lies in its list."""

    has_next_page: bool
    has_previous_page: bool
    start_cursor: str | None
    end_cursor: str | None


@strawberry.type
class Edge(Generic[Node]):
    """An item and its place."""

    node: Node
    cursor: str


@strawberry.type
class Connection(Generic[Node]):
    """One page of a list."""

    edges: list[Edge[Node]]
    page_info: PageInfo
    count: strawberry.Private[Count | None] = None

    @strawberry.field
    def nodes(self) -> list[Node]:
        """The items without their cursors."""
        return [edge.node for edge in self.edges]

    @strawberry.field
    async def total_count(self) -> int | None:
        """How many items the whole list has, counted when it is asked for; null for lists that are not counted."""
        return None if self.count is None else value(await self.count())


def connection(
    page: Page[Item], show: Callable[[Item], Node], *, after: object = None, count: Count | None = None
) -> Connection[Node]:
    """The page as a client gets it. `after`: what it was asked for with, to tell whether something lies before it."""
    cursors = [encode_cursor(position.created_at, position.id) for position in page.positions]
    edges = [Edge(node=show(item), cursor=cursor) for item, cursor in zip(page.items, cursors, strict=True)]
    return Connection(edges=edges, page_info=page_info(cursors, has_next=page.has_more, after=after), count=count)


def page_info(cursors: Sequence[str], *, has_next: bool, after: object) -> PageInfo:
    return PageInfo(
        has_next_page=has_next,
        has_previous_page=after is not None,
        start_cursor=cursors[0] if cursors else None,
        end_cursor=cursors[-1] if cursors else None,
    )


def position_of(after: str | None, *, ids: re.Pattern[str]) -> Position | None:
    """The place that a cursor stands for in a list of things with such ids. Raises INVALID_INPUT."""
    try:
        place = check_after(after, id_pattern=ids)
    except Shape as shape:
        raise failed(shape.refusal) from None
    return Position(*place) if place else None


def take(first: int | None) -> int:
    """How many items are wanted, counted off from what the operation may ask for. Raises INVALID_INPUT."""
    wanted = PAGE_DEFAULT if first is None else first
    if not 0 <= wanted <= PAGE_MAX:
        message = f"first must be from 0 to {PAGE_MAX}"
        raise failed(InvalidInput(field="first", reason="out-of-range", message=message))
    operation().take(wanted)
    return wanted


def one(read: Item | Refusal, show: Callable[[Item], Node], **named: str) -> Node | None:
    """What a read of one thing answers: null when there is none, or none for this caller. Raises other refusals.
    `named` as in `failed`."""
    return None if isinstance(read, NotFound) else show(value(read, **named))


def value(read: Item | Refusal, **named: str) -> Item:
    """The answer of a read. Raises its refusal. `named` as in `failed`."""
    if isinstance(read, Refusal):
        raise failed(read, **named)
    return read


def settled(outcome: Outcome[Item]) -> Item | Refusal:
    """The answer of a read that came as an outcome."""
    if isinstance(outcome, Refusal):
        return outcome
    assert isinstance(outcome, Accepted), "a read is never a replay"
    return outcome.answer
