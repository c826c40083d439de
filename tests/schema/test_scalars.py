"""Millis and Int64 at their edges, as values and as literals."""

from __future__ import annotations

from typing import Any

import pytest
from graphql import GraphQLError, parse_value

from schema.root import schema


def scalar(name: str) -> Any:
    return schema._schema.type_map[name]


@pytest.mark.parametrize("value", [0, 1_800_000_000_000, 2**53 - 1])
def test_millis_is_a_number_in_and_out(value: int) -> None:
    assert scalar("Millis").parse_value(value) == value
    assert scalar("Millis").serialize(value) == value
    assert scalar("Millis").parse_literal(parse_value(str(value))) == value


@pytest.mark.parametrize("value", ["1800000000000", "1", True, -1, 2**53, 1.5, 1e20, float("nan"), None, [1], {}])
def test_millis_refuses_what_is_no_safe_instant(value: object) -> None:
    """T20, D24."""
    with pytest.raises(GraphQLError) as refused:
        scalar("Millis").parse_value(value)
    assert refused.value.extensions == {"code": "INVALID_INPUT"}


def test_a_whole_float_is_an_instant() -> None:
    """D24: JSON does not tell 3 from 3.0."""
    assert scalar("Millis").parse_value(3.0) == 3
    assert scalar("Millis").parse_literal(parse_value("3.0")) == 3


@pytest.mark.parametrize("value", [0, -(2**63), 2**63 - 1, 2**53 + 1])
def test_int64_is_a_string_out_and_either_in(value: int) -> None:
    assert scalar("Int64").serialize(value) == str(value)
    assert scalar("Int64").parse_value(value) == value
    assert scalar("Int64").parse_value(str(value)) == value
    assert scalar("Int64").parse_literal(parse_value(str(value))) == value
    assert scalar("Int64").parse_literal(parse_value(f'"{value}"')) == value


@pytest.mark.parametrize(
    "value", [2**63, -(2**63) - 1, str(2**63), "1e3", " 1", "1\n", "01", "+1", "", True, 1.5, None]
)
def test_int64_refuses_what_is_no_64_bit_integer(value: object) -> None:
    with pytest.raises(GraphQLError):
        scalar("Int64").parse_value(value)
