"""The scalars that GraphQL does not have: instants and 64-bit amounts. GraphQL's own `Int` has 32 bits (D25).

What a scalar refuses is no value of its type, so the document or the variables are wrong; what a value may be in its
place is the desk's to say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NewType

import strawberry
from graphql import GraphQLError
from strawberry.types.scalar import ScalarDefinition

from domain.amounts import INT64_MAX, INT64_MIN
from domain.terms import INSTANT_MAX

Millis = NewType("Millis", int)
"""An instant or a duration in milliseconds: a JSON number."""

Int64 = NewType("Int64", int)
"""A signed 64-bit integer: a string on the way out, since JSON's numbers carry only 53 bits everywhere."""

JSONObject = NewType("JSONObject", dict[str, Any])
"""Whatever a client keeps beside a thing: an object, never a list or a bare value."""


def millis(instant: int | None) -> Millis | None:
    return None if instant is None else Millis(instant)


def int64(number: int | None) -> Int64 | None:
    return None if number is None else Int64(number)


def json_object(content: Mapping[str, Any] | None) -> JSONObject | None:
    return None if content is None else JSONObject(dict(content))


def optional_id(text: str | None) -> strawberry.ID | None:
    return None if text is None else strawberry.ID(text)


_DIGITS: Final = re.compile(r"-?(0|[1-9][0-9]{0,18})")


def _millis(value: object) -> int:
    if type(value) is int and 0 <= value <= INSTANT_MAX:
        return value
    number = _integral(value)
    if number is None or not 0 <= number <= INSTANT_MAX:
        raise _refuse("Millis must be a whole number from 0 to 2^53-1")
    return number


def _int64(value: object) -> int:
    if type(value) is int and INT64_MIN <= value <= INT64_MAX:
        return value
    number = int(value) if isinstance(value, str) and _DIGITS.fullmatch(value) else _integral(value)
    if number is None or not INT64_MIN <= number <= INT64_MAX:
        raise _refuse("Int64 must be a whole number of 64 bits, or a string of its decimal digits")
    return number


def _integral(value: object) -> int | None:
    """An integer of JSON: no boolean, no string; 3.0 is 3 (D24)."""
    if isinstance(value, float) and value.is_integer() and abs(value) <= INSTANT_MAX:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _json_object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _refuse("JSONObject must be a JSON object")
    return value


def _refuse(message: str) -> GraphQLError:
    return GraphQLError(message, extensions={"code": "INVALID_INPUT"})


SCALARS: Final[Mapping[object, ScalarDefinition]] = {
    Millis: strawberry.scalar(
        name="Millis",
        description="An instant (milliseconds since 1970-01-01T00:00:00Z) or a duration in milliseconds, as a JSON "
        "number from 0 to 2^53-1.",
        serialize=_millis,
        parse_value=_millis,
    ),
    Int64: strawberry.scalar(
        name="Int64",
        description="A signed 64-bit integer, sent as a string of decimal digits; a JSON number is accepted too.",
        serialize=lambda value: str(_int64(value)),
        parse_value=_int64,
    ),
    JSONObject: strawberry.scalar(
        name="JSONObject",
        description="A JSON object, as it was given.",
        serialize=_json_object,
        parse_value=_json_object,
    ),
}
