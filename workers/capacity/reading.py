"""What all reads of capacity share: one snapshot with its instant, who may look, and shapes of filters."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeVar

from domain.authority import Permission
from domain.identity import ACCOUNT_ID, RESERVATION_ID, reservation_key
from domain.outcomes import AccessDenied, InvalidInput
from domain.paging import check_after, check_first
from domain.shapes import Shape, check_boolean, check_integer, check_known, check_optional_integer, check_text
from storage.database import PooledConnection
from storage.paging import Position
from workers.capacity.asking import CapacityAsker
from workers.capacity.instants import Instants
from workers.request import Caller

Word = TypeVar("Word", bound=StrEnum)

WORDS_MAX: Final = 100
"""Words of one filter, such as event types: more than there are."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A connection that sees one moment, and the instants to show what is there at (R3, D15)."""

    connection: PooledConnection
    instants: Instants


class Reading:
    """The base of the reads: each concept adds its own methods."""

    def __init__(self, asker: CapacityAsker) -> None:
        self._asker = asker

    @asynccontextmanager
    async def _snapshot(self) -> AsyncIterator[Snapshot]:
        """Everything read inside is of one moment. Raises `Unavailable`."""
        async with self._moment() as connection:
            yield Snapshot(connection, await self._asker.instants(connection))  # the first statement fixes the moment

    @asynccontextmanager
    async def _moment(self) -> AsyncIterator[PooledConnection]:
        """The same without instants, for what is read at those of an earlier read."""
        async with self._asker.database.transaction(isolation="repeatable_read") as connection:
            yield connection


def refuse_reader(caller: Caller, permission: Permission, *, tenant_id: str, as_root: bool) -> AccessDenied | None:
    """None if the caller may read what is the tenant's, or with `as_root` what is anybody's (R60, R61)."""
    if as_root:
        return caller.principal.refuse_as_root(permission, tenant_id=tenant_id)
    return caller.principal.refuse(permission, tenant_id=tenant_id)


def check_flag(value: Any, field: str) -> bool:
    """A boolean that is false when it is not given. Raises `Shape`."""
    return False if value is None else check_boolean(value, field)


def check_word(value: Any, field: str, kind: type[Word]) -> Word | None:
    """One of the words of an enumeration, or None. Raises `Shape`."""
    if value is None:
        return None
    if not isinstance(value, str) or value not in [word.value for word in kind]:
        words = ", ".join(word.value for word in kind)
        raise Shape(InvalidInput(field=field, reason="malformed", message=f"{field} must be one of {words}"))
    return kind(value)


def check_words(value: Any, field: str, *, known: Collection[str]) -> tuple[str, ...] | None:
    """A list of words of those that are known, or None. Raises `Shape`."""
    if value is None:
        return None
    fits = isinstance(value, list | tuple) and len(value) <= WORDS_MAX
    if not fits or not all(isinstance(word, str) and 0 < len(word) <= 100 and word.isprintable() for word in value):
        message = f"{field} must be a list of at most {WORDS_MAX} short strings"
        raise Shape(InvalidInput(field=field, reason="malformed", message=message))
    check_known(value, field, known)
    return tuple(value)


def check_span(since: Any, until: Any, *, fields: tuple[str, str]) -> tuple[int | None, int | None]:
    """Two instants of which either may be open; the second lies after the first. Raises `Shape`."""
    first = check_optional_integer(since, fields[0])
    last = check_optional_integer(until, fields[1])
    if first is not None and last is not None:
        _check_order(first, last, fields)
    return first, last


def check_term(since: Any, until: Any, *, fields: tuple[str, str]) -> tuple[int, int]:
    """A half-open term that is not empty. Raises `Shape`."""
    term = check_integer(since, fields[0]), check_integer(until, fields[1])
    _check_order(*term, fields)
    return term


def check_reservation(account_id: Any, reservation_id: Any) -> str:
    """The key of a capacity reservation. Raises `Shape`."""
    return reservation_key(
        check_text(account_id, "accountId", ACCOUNT_ID), check_text(reservation_id, "reservationId", RESERVATION_ID)
    )


def check_optional_reservation(account_id: Any, reservation_id: Any) -> str | None:
    """The same, or None when neither is given. Raises `Shape`."""
    if account_id is None and reservation_id is None:
        return None
    return check_reservation(account_id, reservation_id)


def check_page(first: Any, after: Any, *, pattern: Any) -> tuple[int, Position | None]:
    """How many items, and the place after which they begin. Raises `Shape`."""
    place = check_after(after, id_pattern=pattern)
    return check_first(first), Position(*place) if place else None


def _check_order(first: int, last: int, fields: Sequence[str]) -> None:
    if last <= first:
        message = f"{fields[1]} must be after {fields[0]}"
        raise Shape(InvalidInput(field=fields[1], reason="ends-not-after-start", message=message))
