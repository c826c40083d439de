"""What the reads of budgets share: a page as edges get it, one snapshot a read, and the guards of a list."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from domain.budget.queries import (
    LIMIT_MAX,
    SEARCH_MAX,
    WORDS_MAX,
    Place,
    Window,
    decode_place,
    encode_place,
    query_mark,
)
from domain.budget.records import Budget, BudgetReservation, Policy, ReservationStatus
from domain.budget.shapes import check_length, check_range, invalid
from domain.outcomes import InvalidInput, Refusal
from storage.budget.keyset import Column, Page
from storage.database import PooledConnection
from workers.budget.asking import BudgetAsker
from workers.budget.rights import Right, refuse
from workers.budget.texts import is_kept, refuse_texts
from workers.request import Caller

Item = TypeVar("Item")
Found = TypeVar("Found")

TEXT: Final = Column("")
"""Of the lists whose sort value is a text, whichever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing(Generic[Item]):
    """A page of a list. `cursors` has one for each item: the list goes on after it."""

    items: tuple[Item, ...] = ()
    cursors: tuple[str, ...] = ()
    has_more: bool = False

    @property
    def next_cursor(self) -> str | None:
        return self.cursors[-1] if self.has_more and self.cursors else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenReservation:
    """`status` is as of the read: EXPIRED as soon as the grace is over (decision 19)."""

    tenant_id: str
    reservation: BudgetReservation
    status: ReservationStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenBudget:
    tenant_id: str
    budget: Budget


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenPolicy:
    tenant_id: str
    policy: Policy


class ListingReads:
    """The base of the reads: each concept adds its own methods."""

    def __init__(self, asker: BudgetAsker) -> None:
        self._asker = asker

    @asynccontextmanager
    async def _snapshot(self) -> AsyncIterator[tuple[PooledConnection, int]]:
        """Everything read inside is of one moment; and its instant. Raises `Unavailable`."""
        async with self._asker.database.transaction(isolation="repeatable_read") as connection:
            yield connection, await self._asker.now(connection)  # the first statement fixes the moment

    def _begin(
        self,
        caller: Caller,
        right: Right,
        *,
        name: str,
        tenant: str | None,
        query: Any,
        limit: int,
        cursor: str | None,
        columns: Mapping[Any, Column],
    ) -> tuple[str, Place | None] | Refusal:
        """The guards of a list, and where it goes on. The tenant None: everybody's, for operators."""
        own = caller.principal.tenant_id
        if (denied := refuse(caller, right, tenant or own, as_admin=tenant is None)) is not None:
            return denied
        if (refused := refuse_query(query, tenant, limit)) is not None:
            return refused
        mark = query_mark(name, tenant or "", query)
        after = place_of(mark, cursor, columns[query.sort_by])
        return after if isinstance(after, Refusal) else (mark, after)


def refuse_query(query: Any, tenant: str | None, limit: int) -> InvalidInput | None:
    """What no list can be asked for."""
    search = getattr(query, "search", None)
    if tenant is not None and not is_kept(tenant):
        return invalid("tenant_id", "no tenant can be called so", reason="charset")
    return (
        check_range(limit, field="limit", least=0, most=LIMIT_MAX)
        or check_length(search, field="search", most=SEARCH_MAX)
        or _refuse_lists(query)
        or refuse_texts(query)
    )


def _refuse_lists(query: Any) -> InvalidInput | None:
    """Windows end where they begin or after; lists of words are short."""
    for name in query.__dataclass_fields__:
        value = getattr(query, name)
        if isinstance(value, Window):
            if value.since is not None and value.until is not None and value.since > value.until:
                return invalid(f"{name}_from", f"{name}_from must not be after its end", reason="range")
        elif isinstance(value, tuple) and len(value) > WORDS_MAX and name != "segments":
            return invalid(name, f"{name} has at most {WORDS_MAX} entries", reason="range")
    return None


def place_of(mark: str, cursor: str | None, column: Column) -> Place | InvalidInput | None:
    """Where a list goes on; None: it begins."""
    if cursor is None:
        return None
    place = decode_place(mark, cursor, column.python_kind)
    if isinstance(place, Place) and not is_kept(place):
        return invalid("cursor", "the cursor is not of this list and order", reason="bad-cursor")
    return place


def listing(page: Page[Found], mark: str, shown: Callable[[Found], Item]) -> Listing[Item]:
    """A page as edges get it."""
    return Listing(
        items=tuple(shown(found) for found in page.items),
        cursors=tuple(encode_place(mark, place) for place in page.places),
        has_more=page.has_more,
    )
