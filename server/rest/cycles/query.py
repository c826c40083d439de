"""Query parameters: each read in its own type or refused by its name. Blank ones are absent; unknown ones are passed over,
whatever they hold and however many there are, since later versions of the protocol may add some (1.0).

Every reader raises `domain.shapes.Shape`, which the resource turns into a 400.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from enum import Enum
from typing import Final, TypeVar
from urllib.parse import parse_qsl

from domain.instants import read_instant
from domain.outcomes import InvalidInput
from domain.shapes import Shape, check_known

Word = TypeVar("Word", bound=Enum)

_UNKEPT: Final = re.compile("[\0\ud800-\udfff]")
_INTEGER: Final = re.compile(r"-?[0-9]{1,19}")
_FRACTION: Final = re.compile(r"(0|1)(?:\.([0-9]{1,18}))?")
_MILLION_DIGITS: Final = 6


class SortDirection(Enum):
    ASCENDING = "asc"
    DESCENDING = "desc"


class Query:
    """The parameters of one request. One that is given twice counts as its last."""

    __slots__ = ("_given",)

    def __init__(self, raw: bytes) -> None:
        # How long a request line may be is HTTP's to say: at its 64 KiB this takes some milliseconds.
        self._given = dict(parse_qsl(raw.decode("latin-1"), keep_blank_values=True, errors="surrogateescape"))

    def text(self, name: str, *, most: int | None = None) -> str | None:
        value = self._given.get(name) or None
        if value is not None and most is not None and len(value) > most:
            raise _refused(name, f"{name} has at most {most} characters")
        if value is not None and _UNKEPT.search(value):
            raise _refused(name, f"{name} holds a NUL character or is no UTF-8")
        return value

    def required(self, name: str) -> str:
        value = self.text(name)
        if value is None:
            raise _refused(name, f"{name} query parameter is required")
        return value

    def integer(self, name: str, *, least: int, most: int) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        if not _INTEGER.fullmatch(value) or not least <= int(value) <= most:
            raise _refused(name, f"{name} must be an integer from {least} to {most}")
        return int(value)

    def boolean(self, name: str) -> bool | None:
        value = self.text(name)
        if value is None:
            return None
        if value.lower() not in ("true", "false"):
            raise _refused(name, f"{name} must be true or false")
        return value.lower() == "true"

    def word(self, name: str, known: Collection[str]) -> str | None:
        """One of the words that are known: another one would quietly match nothing."""
        value = self.text(name)
        if value is not None:
            check_known((value,), name, sorted(known))
        return value

    def choice(self, name: str, kind: type[Word], *, folds: bool = False) -> Word | None:
        """One of an enumeration's words. `folds`: in any case."""
        value = self.text(name)
        if value is None:
            return None
        wanted = value.lower() if folds else value
        for word in kind:
            if word.value == wanted or (folds and str(word.value).lower() == wanted):
                return word
        raise _refused(name, f"{name} must be one of {', '.join(str(word.value) for word in kind)}")

    def instant(self, name: str, *, round_up: bool = False) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        at = read_instant(value, round_up=round_up)
        if at is None:
            raise _refused(name, f"{name} must be an RFC 3339 date-time with its offset, a '+' in it written as %2B")
        return at

    def window(self, since: str, until: str) -> tuple[int | None, int | None]:
        """Both ends inclusive, each of them optional, in whole milliseconds."""
        first, last = self.instant(since, round_up=True), self.instant(until)
        if first is not None and last is not None and first > last:
            raise _refused(since, f"{since} lies after {until}")
        return first, last

    def millionths(self, name: str) -> int | None:
        """A fraction of one, as millionths; finer digits are dropped."""
        value = self.text(name)
        if value is None:
            return None
        match = _FRACTION.fullmatch(value)
        millionths = int(match[1] + (match[2] or "").ljust(_MILLION_DIGITS, "0")[:_MILLION_DIGITS]) if match else -1
        if not 0 <= millionths <= 10**_MILLION_DIGITS:
            raise _refused(name, f"{name} must be a fraction from 0 to 1")
        return millionths

    def is_descending(self, *, default: bool = True) -> bool:
        direction = self.choice("sort_dir", SortDirection, folds=True)
        return default if direction is None else direction is SortDirection.DESCENDING

    def words(self, name: str, *, most: int | None = None) -> tuple[str, ...]:
        """A list with commas; blanks around and between are passed over."""
        value = self.text(name) or ""
        words = tuple(word.strip() for word in value.split(",") if word.strip())
        if most is not None and len(words) > most:
            raise _refused(name, f"{name} has at most {most} entries")
        return words


def _refused(name: str, message: str) -> Shape:
    return Shape(InvalidInput(field=name, reason="malformed", message=message))
