"""Strict JSON in (1.0): closed objects, exact integers, nothing coerced. What a request may say stands in `requests`.

Python's own reader takes NaN, infinities, repeated names and lone surrogates; none of that passes here. Free objects
(metadata, custom metrics, dimensions) may hold any JSON that PostgreSQL can keep.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from typing import Any, Final, TypeVar

import msgspec

from domain.outcomes import InvalidInput
from server.plain import unreadable

BODY_MAX: Final = 1_048_576
"""Bytes of a request body: a mebibyte holds the largest metadata that anybody should keep beside a hold."""
DEPTH_MAX: Final = 64
"""Objects and lists inside each other: whatever is read must be written again without a deep stack."""
NAME_MAX: Final = 128
"""Characters of a name that a message repeats."""

Body = TypeVar("Body", bound=msgspec.Struct)

_PLACE: Final = re.compile(r"(?P<what>.*?)(?: - at `\$\.?(?P<where>[^`]*)`)?", re.DOTALL)
_FIELD: Final = re.compile(r"Object (?:contains unknown|missing required) field `(?P<name>.*)`", re.DOTALL)


def read_body(body: bytes, kind: type[Body]) -> Body | InvalidInput:
    """The request that the body states, with every field in its own type; ranges are the decisions' business."""
    try:
        value = _DECODER.decode(body.decode())
        if b"\\u" in body:
            _check_text(value)
        _check_depth(value, body)
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        return _misshapen(str(error))
    except (ValueError, RecursionError) as error:
        return InvalidInput(
            field="body", reason="malformed", message=f"the body is not acceptable JSON: {unreadable(error)}"
        )


def _misshapen(text: str) -> InvalidInput:
    """The field that does not fit, in the client's own words."""
    found = _PLACE.fullmatch(text)
    what, where = (found["what"], found["where"] or "") if found else (text, "")
    field = where
    if named := _FIELD.fullmatch(what):
        field = f"{where}.{named['name'][:NAME_MAX]}".lstrip(".")
    reason = "unknown-field" if "unknown field" in what else "missing" if "missing" in what else "wrong-type"
    return InvalidInput(field=field or "body", reason=reason, message=f"{field or 'body'}: {what[: 2 * NAME_MAX]}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a name stands twice in one object")
    return value


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits[:NAME_MAX]} is out of range")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_constant=_no_constant)


def _check_text(value: Any) -> None:
    """Escapes can spell what no database keeps: NUL, and half of a surrogate pair. Raises ValueError."""
    written = json.dumps(value, ensure_ascii=False)
    written.encode()
    if "\\u0000" in written.replace("\\\\", ""):  # behind an escaped backslash it is plain text
        raise ValueError("text holds a NUL character")


def _check_depth(value: Any, body: bytes) -> None:
    if body.count(b"{") + body.count(b"[") <= DEPTH_MAX:
        return  # it cannot be deeper than it has brackets
    level: list[Any] = [value]
    for _ in range(DEPTH_MAX):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return
    raise ValueError(f"more than {DEPTH_MAX} objects and lists lie inside each other")


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
