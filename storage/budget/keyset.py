"""Pages by the place of the last item seen: any order, ties by id ascending, never by a number of rows to skip.

Every list has one constant text for each order and for its beginning and its going on. Texts are compared byte by byte,
whatever the database's own collation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Generic, TypeVar

from domain.budget.queries import Place
from storage.database import AnyConnection, Row

Item = TypeVar("Item")

NUMBER: Final = "bigint"
TEXT: Final = "text"


@dataclass(frozen=True, slots=True)
class Column:
    """What a list can be ordered by: an expression, and the type of its values. It is never null."""

    expression: str
    kind: str = TEXT

    @property
    def python_kind(self) -> type:
        return int if self.kind == NUMBER else str

    @property
    def compared(self) -> str:
        return self.expression if self.kind == NUMBER else f'{self.expression} collate "C"'


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """`places` has the place of each item; `has_more` says whether others follow the last."""

    items: tuple[Item, ...] = ()
    places: tuple[Place, ...] = ()
    has_more: bool = False


class Listing:
    """One list. `source` is everything from `from` to the end of the conditions, with arguments `$1` to `$arguments`."""

    def __init__(
        self,
        source: str,
        *,
        arguments: int,
        columns: Mapping[Any, Column],
        id_column: str,
        shown: str = "*",
    ) -> None:
        self.columns = columns
        self._arguments = arguments
        self._count = f"select count(*) {source}"
        self._statements = {
            (sort, descending, goes_on): _statement(
                f"{shown}, {column.expression} as sort_value, {id_column} as sort_id {source}",
                column,
                id_column=id_column,
                descending=descending,
                place=[f"${arguments + number}" for number in (1, 2, 3)],
                goes_on=goes_on,
            )
            for sort, column in columns.items()
            for descending in (False, True)
            for goes_on in (False, True)
        }

    def statements(self) -> list[str]:
        """For tests that look at all of them."""
        return list(self._statements.values())

    async def count(self, connection: AnyConnection, arguments: Sequence[Any]) -> int:
        """How many items there are in all."""
        number: int = await connection.fetchval(self._count, *arguments)
        return number

    async def fetch(
        self,
        connection: AnyConnection,
        arguments: Sequence[Any],
        *,
        sort: StrEnum,
        descending: bool,
        after: Place | None,
        limit: int,
        convert: Callable[[Row], Item],
    ) -> Page[Item]:
        """The first `limit` items after a place."""
        assert len(arguments) == self._arguments, "as many as the source names"
        sql = self._statements[sort, descending, after is not None]
        rows = await connection.fetch(sql, *arguments, limit + 1, *(after or ()))
        shown = rows[:limit]
        return Page(
            items=tuple(convert(row) for row in shown),
            places=tuple(Place(row["sort_value"], row["sort_id"]) for row in shown),
            has_more=len(rows) > limit,
        )


def _statement(
    selected: str, column: Column, *, id_column: str, descending: bool, place: Sequence[str], goes_on: bool
) -> str:
    """`place` names the arguments of the limit, and of the sort value and the id to go on after."""
    limit, value, id_ = place
    beyond, direction = ("<", "desc") if descending else (">", "asc")
    after = (
        # The first half is what an index can begin at.
        f"and {column.compared} {beyond}= {value}::{column.kind}"
        f' and ({column.compared} {beyond} {value} or {id_column} collate "C" > {id_}::text)'
    )
    return f"""
select {selected} {after if goes_on else ""}
order by {column.compared} {direction}, {id_column} collate "C" limit {limit}
"""
