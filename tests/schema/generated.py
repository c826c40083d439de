"""Random selections, variables and outcomes that fit the schema, from a seed. Sometimes they do not quite fit."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable
from typing import Any

from graphql import (
    GraphQLInputType,
    GraphQLObjectType,
    GraphQLOutputType,
    get_named_type,
    is_abstract_type,
    is_composite_type,
    is_enum_type,
    is_input_object_type,
    is_list_type,
    is_non_null_type,
    is_object_type,
    is_required_input_field,
)

from schema.compiled.strawberries import class_of
from schema.root import schema

CORE = schema._schema
TEXTS = ("", "a", "ünïcode \u2603", 'quotes " and \\', "line\nbreak")
NUMBERS = (0, 1, -1, 2**31 - 1, 2**31, 2**53 - 1, 2**63 - 1, -(2**63))
SCALARS: dict[str, tuple[Any, ...]] = {
    "String": TEXTS,
    "ID": TEXTS,
    "Int": (0, 1, -(2**31), 2**31 - 1),
    "Boolean": (True, False),
    "Millis": (0, 1, 2**53 - 1),
    "Int64": NUMBERS,
    "JSON": (1, "x", [True]),
    "JSONObject": ({}, {"a": [1, None, {"b": "c"}]}),
}
ODD = (None, 3.0, 3.5, "x", 7, True, [], {}, ["x"], {"x": 1}, 2**70, -1, ValueError("odd"))
"""What is now and then in the place of a value."""
ODD_INPUTS = (None, 3.0, 3.5, "x", "7", 7, True, [], {}, ["x"], {"x": 1}, 2**40, -1)


class Generator:
    """`oddity`: one value in so many is odd; 0 for none."""

    def __init__(self, seed: int, *, oddity: int = 0) -> None:
        self.random = random.Random(seed)
        self._oddity = oddity
        self.fragments: list[str] = []

    def _is_odd(self) -> bool:
        return bool(self._oddity) and self.random.randrange(self._oddity) == 0

    # -- what a resolver returned --------------------------------------------------------------------------------------

    def outcome(self, type_: GraphQLOutputType) -> Any:
        if self._is_odd():
            return self.random.choice(ODD)
        if is_non_null_type(type_):
            return self._present(type_.of_type)
        return None if self.random.randrange(4) == 0 else self._present(type_)

    def _present(self, type_: Any) -> Any:
        if is_list_type(type_):
            return [self.outcome(type_.of_type) for _ in range(self.random.randrange(3))]
        if is_abstract_type(type_):
            return self._present(self.random.choice(CORE.get_possible_types(type_)))
        if is_object_type(type_):
            return self._object(type_)
        if is_enum_type(type_):
            return self.random.choice(list(type_.wrapped_cls))
        return self.random.choice(SCALARS.get(type_.name, (None,)))

    def _object(self, type_: GraphQLObjectType) -> Any:
        """With its plain fields; what its methods would look at is not there."""
        named = {schema.config.name_converter.from_field(field): field for field in _fields(type_)}
        kind = class_of(type_)
        values = dict.fromkeys(each.name for each in dataclasses.fields(kind) if each.init)
        for name, field in named.items():
            if field.base_resolver is None and name in type_.fields:
                values[field.python_name] = self.outcome(type_.fields[name].type)
        return kind(**values)

    # -- what was asked ------------------------------------------------------------------------------------------------

    def selection(self, type_: GraphQLOutputType, depth: int = 4) -> str:
        """Of fields that are answered without a database, in every form that selections have."""
        named = get_named_type(type_)
        assert is_composite_type(named)
        return f"{{ {' '.join(self._parts(named, depth))} }}"

    def _parts(self, type_: Any, depth: int) -> Iterable[str]:
        yield "__typename"
        for _ in range(self.random.randrange(1, 6)):
            choice = self.random.randrange(10)
            if choice == 0:
                yield f"{self._alias()}__typename"
            elif choice == 1 and depth:
                yield f"... {self.selection(type_, depth - 1)}"
            elif choice <= 4 and depth and (is_abstract_type(type_) or self.random.randrange(3) == 0):
                yield self._fragment(self._narrower(type_), depth - 1)
            elif getattr(type_, "fields", None) and (plain := _plain_fields(type_)):
                yield self._field(*self.random.choice(plain), depth)

    def _fragment(self, type_: Any, depth: int) -> str:
        selection = self.selection(type_, depth)
        if self.random.randrange(2):
            return f"... on {type_.name} {selection}"
        name = f"F{len(self.fragments)}"
        self.fragments.append(f"fragment {name} on {type_.name} {selection}")
        return f"...{name}" * self.random.choice((1, 1, 2))

    def _narrower(self, type_: Any) -> Any:
        """A type whose fragment may stand here."""
        possible = CORE.get_possible_types(type_) if is_abstract_type(type_) else (type_,)
        return self.random.choice([*possible, *(each for one in possible for each in one.interfaces)])

    def _field(self, name: str, type_: GraphQLOutputType, depth: int) -> str:
        if not is_composite_type(get_named_type(type_)):
            return f"{self._alias()}{name}"
        return f"{self._alias()}{name} {self.selection(type_, depth - 1)}" if depth else "__typename"

    def _alias(self) -> str:
        return f"{self.random.choice('abcdefgh')}{self.random.randrange(9)}: " if self.random.randrange(4) == 0 else ""

    # -- with what -----------------------------------------------------------------------------------------------------

    def variable(self, type_: GraphQLInputType) -> Any:
        """A value as JSON has it."""
        if self._is_odd():
            return self.random.choice(ODD_INPUTS)
        if is_non_null_type(type_):
            return self._given(type_.of_type)
        return None if self.random.randrange(4) == 0 else self._given(type_)

    def _given(self, type_: Any) -> Any:
        if is_list_type(type_):
            return [self.variable(type_.of_type) for _ in range(self.random.randrange(3))]
        if is_enum_type(type_):
            return self.random.choice(list(type_.values))
        if not is_input_object_type(type_):
            return self.random.choice(SCALARS[type_.name])
        given = {
            name: self.variable(field.type)
            for name, field in type_.fields.items()
            if is_required_input_field(field) or self.random.randrange(2)
        }
        if self._is_odd():
            given[self.random.choice((*type_.fields, "unknown"))] = self.random.choice(ODD_INPUTS)
        if self._is_odd():
            given.pop(self.random.choice(list(type_.fields)), None)
        return given


def _fields(type_: GraphQLObjectType) -> list[Any]:
    return list(type_.extensions["strawberry-definition"].fields)


def _plain_fields(type_: Any) -> list[tuple[str, GraphQLOutputType]]:
    """Those that are read off the object, or off any object of the interface."""
    kinds = [type_] if is_object_type(type_) else list(CORE.get_possible_types(type_))
    plain = {
        schema.config.name_converter.from_field(field) for field in _fields(kinds[0]) if field.base_resolver is None
    }
    return [(name, field.type) for name, field in type_.fields.items() if name in plain]
