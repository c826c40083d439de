"""Lists as clients page through them: how many items at a time, and the cursor that stands for a place in a list.

A place is (instant, id) in an order that is newest first (D21). A cursor is opaque to clients and good for one kind of
list: the id inside must have the form of that list's ids.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any, Final

from domain.outcomes import InvalidInput
from domain.shapes import Shape, check_integer

PAGE_DEFAULT: Final = 50
"""Items of a page when the client does not say."""
PAGE_MAX: Final = 200
"""Items of a page: with what hangs on each of them an answer stays in the range of a megabyte."""
LIST_MAX: Final = 1_000
"""Items of the seed's plain lists, which have no pages (R61, D22)."""
CURSOR_LENGTH_MAX: Final = 1_024
"""Longer than any cursor of ours: the longest ids have some 360 characters."""

_PLACE: Final = re.compile(r"(0|[1-9][0-9]{0,15})/(.+)", re.DOTALL)


def check_first(value: Any, *, most: int = PAGE_MAX) -> int:
    """How many items are wanted; None stands for the default. Raises `Shape`."""
    return PAGE_DEFAULT if value is None else check_integer(value, "first", least=0, most=most)


def encode_cursor(instant: int, id_: str) -> str:
    """The cursor of the place of one item."""
    return base64.urlsafe_b64encode(f"{instant}/{id_}".encode()).decode().rstrip("=")


def check_after(value: Any, *, id_pattern: re.Pattern[str]) -> tuple[int, str] | None:
    """(instant, id) of the place after which to go on; None for the beginning.

    Raises `Shape` for what is no cursor, and for one of another kind of list.
    """
    if value is None:
        return None
    place = _decode(value) if isinstance(value, str) and len(value) <= CURSOR_LENGTH_MAX else None
    if place is None or not id_pattern.fullmatch(place[1]):
        raise Shape(InvalidInput(field="after", reason="bad-cursor", message="after is not a cursor of this list"))
    return place


def _decode(cursor: str) -> tuple[int, str] | None:
    """The place, if this is exactly the cursor that `encode_cursor` gives for it."""
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
    except (binascii.Error, ValueError):
        return None
    match = _PLACE.fullmatch(text)
    if match is None or encode_cursor(int(match[1]), match[2]) != cursor:
        return None
    return int(match[1]), match[2]
