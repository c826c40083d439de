"""Shapes of input (R2, D23, D24): each check gives the value in its proper type, or a refusal that names the field.

Edges hand values over as they came; nothing is trimmed, folded or coerced, except an integral JSON number such as 3.0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from domain.outcomes import InvalidInput
from domain.terms import INSTANT_MAX

NAME_MAX = 256


class Shape(Exception):  # noqa: N818 - carries a refusal out of nested checks; never leaves the desk
    """Raised inside `check_*` and turned into the refusal it carries by the desk that asked."""

    def __init__(self, refusal: InvalidInput) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


def check_text(value: Any, field: str, pattern: re.Pattern[str]) -> str:
    """A string that matches the whole pattern. Raises `Shape`."""
    if not isinstance(value, str):
        raise _wrong(field, value, "a string")
    if not pattern.fullmatch(value):
        raise Shape(InvalidInput(field=field, reason="malformed", message=f"{field} must match ^{pattern.pattern}$"))
    return value


def check_optional_text(value: Any, field: str, pattern: re.Pattern[str]) -> str | None:
    return None if value is None else check_text(value, field, pattern)


def check_name(value: Any, field: str, *, longest: int = NAME_MAX) -> str:
    """A printable line for people: not blank, no control characters. Raises `Shape`."""
    if not isinstance(value, str):
        raise _wrong(field, value, "a string")
    if not value.strip() or len(value) > longest or not value.isprintable():
        message = f"{field} must have 1 to {longest} printable characters"
        raise Shape(InvalidInput(field=field, reason="malformed", message=message))
    return value


def check_integer(value: Any, field: str, *, least: int = 0, most: int = INSTANT_MAX) -> int:
    """An integer of JSON: no boolean, no string; 3.0 is 3 (D24). Raises `Shape`."""
    if isinstance(value, float) and value.is_integer() and abs(value) <= INSTANT_MAX:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(field, value, "an integer")
    if not least <= value <= most:
        message = f"{field} must be from {least} to {most}"
        raise Shape(InvalidInput(field=field, reason="out-of-range", message=message))
    return value


def check_optional_integer(value: Any, field: str, *, least: int = 0, most: int = INSTANT_MAX) -> int | None:
    return None if value is None else check_integer(value, field, least=least, most=most)


def check_boolean(value: Any, field: str) -> bool:
    if not isinstance(value, bool):
        raise _wrong(field, value, "a boolean")
    return value


def check_fields(given: Mapping[str, Any], *, required: frozenset[str], optional: frozenset[str]) -> None:
    """Exactly the named fields: a missing or unknown one is refused by its name. Raises `Shape`."""
    for name in sorted(required - given.keys()):
        raise Shape(InvalidInput(field=name, reason="missing", message=f"{name} is required"))
    for name in sorted(given.keys() - required - optional):
        raise Shape(InvalidInput(field=name, reason="unknown-field", message=f"{name} is not a field of this request"))


def _wrong(field: str, value: Any, wanted: str) -> Shape:
    given = "nothing" if value is None else type(value).__name__
    return Shape(InvalidInput(field=field, reason="wrong-type", message=f"{field} must be {wanted}, not {given}"))
