"""Shapes of input (R2, D23, D24): each check gives the value in its proper type, or a refusal that names the field.

Edges hand values over as they came; nothing is trimmed, folded or coerced, except an integral JSON number such as 3.0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Final

from domain.identity import in_words
from domain.outcomes import InvalidInput
from domain.terms import INSTANT_MAX

NAME_MAX = 256
QUOTED_MAX: Final = 80
"""Characters of a client's text that are shown to it again."""


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
        raise Shape(InvalidInput(field=field, reason="malformed", message=f"{field} must be {in_words(pattern)}"))
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


def check_known(words: Iterable[str], field: str, known: Collection[str]) -> None:
    """Every word is one of those that are known: a mistyped one would quietly match nothing. Raises `Shape`."""
    for word in words:
        if word not in known:
            near = get_close_matches(word, known, n=3, cutoff=0.75)
            hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(known)}"
            message = f"{field} cannot be {quoted(word)}: {hint}"
            raise Shape(InvalidInput(field=field, reason="unknown-word", message=message))


def quoted(text: str) -> str:
    """Something of a client's, to show it what is meant."""
    return json.dumps(text[:QUOTED_MAX], ensure_ascii=False)


def _wrong(field: str, value: Any, wanted: str) -> Shape:
    given = _KINDS.get(type(value), "an object")
    return Shape(InvalidInput(field=field, reason="wrong-type", message=f"{field} must be {wanted}, not {given}"))


_KINDS: Final = {
    type(None): "nothing",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "a list",
    tuple: "a list",
}
"""How people call what came."""
