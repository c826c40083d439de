"""Pages of lists: newest first, by the position of the last item seen. Never by a number of rows to skip.

A position is (created_at, id): creation alone is no order, several things can be made in one millisecond (D21). Ids are
compared byte by byte, whatever the database's own collation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from storage.database import AnyConnection, Row

Item = TypeVar("Item")

PAGE_DEFAULT: Final = 50
PAGE_MAX: Final = 1_000
"""Items of one page, as the seed's lists have it (R61)."""


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a list. What a client's cursor stands for."""

    created_at: int
    id: str


NEWEST: Final = Position((1 << 63) - 1, "")
"""Before everything."""


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """`positions` has the place of each item; `has_more` says whether others follow the last."""

    items: tuple[Item, ...] = ()
    positions: tuple[Position, ...] = ()
    has_more: bool = False


def newest_first(source: str, id_column: str) -> str:
    """SQL of a page. `source` is everything from `from` on; its arguments come after $1..$3: position and limit."""
    return f"""
select * {source} and (created_at, {id_column} collate "C") < ($1::bigint, $2::text collate "C")
order by created_at desc, {id_column} collate "C" desc limit $3
"""


async def fetch_page(
    connection: AnyConnection,
    sql: str,
    *arguments: Any,
    id_column: str,
    convert: Callable[[Row], Item],
    first: int,
    after: Position | None,
) -> Page[Item]:
    """The first items after a position. `sql` is of `newest_first`."""
    start = after or NEWEST
    rows = await connection.fetch(sql, start.created_at, start.id, first + 1, *arguments)
    shown = rows[:first]
    return Page(
        items=tuple(convert(row) for row in shown),
        positions=tuple(Position(row["created_at"], row[id_column]) for row in shown),
        has_more=len(rows) > first,
    )


def like(text: str) -> str:
    """A pattern that finds the text anywhere."""
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"
