"""From what a resolver returned to the data of the answer: one function for each type and what is selected of it.

Plain fields are read as they are and held against their type; whatever does not fit raises, and the answer is left to
graphql-core, which knows how to complain.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

from graphql import (
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    GraphQLEnumType,
    GraphQLObjectType,
    GraphQLOutputType,
    GraphQLScalarType,
    GraphQLSchema,
    InlineFragmentNode,
    SelectionSetNode,
    is_abstract_type,
    is_enum_type,
    is_list_type,
    is_non_null_type,
    is_object_type,
    is_scalar_type,
)
from graphql.language import NamedTypeNode
from strawberry.schema.config import StrawberryConfig
from strawberry.types.field import StrawberryField

from domain.amounts import INT64_MAX, INT64_MIN
from domain.terms import INSTANT_MAX
from schema.compiled.source import NotCompiled, Source, indented
from schema.compiled.strawberries import class_of, field_of, plain_function

EXACT: Final = {
    "String": "type({0}) is not str",
    "ID": "type({0}) is not str",
    "Boolean": "type({0}) is not bool",
    "Int": "type({0}) is not int or not -2147483648 <= {0} <= 2147483647",
}
"""What is true of a value that is not one of this scalar as it stands. Others have functions of their own."""

USUAL: Final = {
    "Int64": (f"type({{0}}) is int and {INT64_MIN} <= {{0}} <= {INT64_MAX}", "str({0})"),
    "Millis": (f"type({{0}}) is int and 0 <= {{0}} <= {INSTANT_MAX}", "{0}"),
}
"""What is true of nearly all values of a scalar of ours, and how they are shown then."""

_CALL: Final = re.compile(r"o = (f\d+)\(o\)")

Nodes = Sequence[FieldNode]


class AnswerWriter:
    """Writes the functions for one operation."""

    def __init__(
        self,
        schema: GraphQLSchema,
        config: StrawberryConfig,
        fragments: Mapping[str, FragmentDefinitionNode],
        source: Source,
    ) -> None:
        self._schema = schema
        self._config = config
        self._fragments = fragments
        self._source = source

    def function(self, type_: GraphQLOutputType, nodes: Nodes) -> str:
        """The name of a function from a value of the type to its data. Raises `NotCompiled`."""
        lines = self._completed("o", type_, nodes)
        if len(lines) == 1 and (whole := _CALL.fullmatch(lines[0])):
            return whole[1]
        return self._source.function("o", [*lines, "return o"])

    def _completed(self, name: str, type_: GraphQLOutputType, nodes: Nodes) -> list[str]:
        """Lines that put the data in the place of a variable."""
        if is_non_null_type(type_):
            return [*refuse_null(name, type_.of_type), *self._held(name, type_.of_type, nodes)]
        return [f"if {name} is not None:", *indented(self._held(name, type_, nodes))]

    def _held(self, name: str, type_: GraphQLOutputType, nodes: Nodes) -> list[str]:
        """The same, for what is not null: null itself must fit none of these."""
        if is_list_type(type_):
            item = self.function(type_.of_type, nodes)
            return [f"if type({name}) is not list: raise Uncommon", f"{name} = [{item}(each) for each in {name}]"]
        if is_scalar_type(type_):
            return self._scalar(name, type_)
        if is_enum_type(type_):
            return self._enum(name, type_)
        if is_abstract_type(type_):
            possible = self._schema.get_possible_types(type_)
            functions = {class_of(one): one for one in possible}
            if len(functions) != len(possible):
                raise NotCompiled(f"members of {type_.name} are told apart by more than their classes")
            written = [f"{self._source.name(kind, 'c')}: {self._object(one, nodes)}" for kind, one in functions.items()]
            table = self._table(written)
            return [f"{name} = {table}[type({name})]({name})"]
        assert is_object_type(type_)
        return [f"{name} = {self._object(type_, nodes)}({name})"]

    def _table(self, entries: Iterable[str]) -> str:
        """A function's table is made when the code is: its own functions are not known before."""
        return self._source.constant(f"{{{', '.join(entries)}}}")

    def _scalar(self, name: str, type_: GraphQLScalarType) -> list[str]:
        if type_.name in EXACT:
            return [f"if {EXACT[type_.name].format(name)}: raise Uncommon"]
        if type_.name == "Float":
            raise NotCompiled("numbers with fractions are rare")
        serialize = self._source.name(type_.coerce_output_value, "s")
        usual, shown = USUAL.get(type_.name, ("False", "{0}"))
        return [f"{name} = {shown.format(name)} if {usual.format(name)} else {serialize}({name})"]

    def _enum(self, name: str, type_: GraphQLEnumType) -> list[str]:
        kind = getattr(type_, "wrapped_cls", None)
        if kind is None:
            raise NotCompiled(f"{type_.name} is no enumeration of ours")
        kind_name = self._source.name(kind, "c")
        names = self._source.name(_names(type_), "e")
        return [f"if type({name}) is not {kind_name}: raise Uncommon", f"{name} = {names}[{name}]"]

    def _object(self, type_: GraphQLObjectType, nodes: Nodes) -> str:
        kind = self._source.name(class_of(type_), "c")
        lines, entries = [f"if type(o) is not {kind}: raise Uncommon"], []
        selected = self._selected(type_, nodes)
        for number, (key, alike) in enumerate(selected.items()):
            name = alike[0].name.value
            if name == "__typename":
                entries.append(f"{key!r}: {type_.name!r}")
                continue
            variable = f"v{number}"
            lines.append(f"{variable} = {self._read(type_, name, alike)}")
            lines += self._completed(variable, type_.fields[name].type, alike)
            entries.append(f"{key!r}: {variable}")
        return self._source.function("o", [*lines, f"return {{{', '.join(entries)}}}"])

    def _read(self, type_: GraphQLObjectType, name: str, nodes: Nodes) -> str:
        """An expression for the field's value of the object `o`."""
        if any(node.arguments for node in nodes) or name.startswith("__"):
            raise NotCompiled(f"{type_.name}.{name} is asked with arguments")
        field = field_of(type_, name, self._config)
        if field.base_resolver is None:
            return f"o.{field.python_name}"
        if not _is_method(field):
            raise NotCompiled(f"{type_.name}.{name} takes more than the object")
        return f"{self._source.name(plain_function(field.base_resolver), 'r')}(o)"

    # -- what is selected ----------------------------------------------------------------------------------------------

    def _selected(self, type_: GraphQLObjectType, nodes: Nodes) -> dict[str, list[FieldNode]]:
        """Keys of the answer to the fields that are merged there, in graphql-core's order."""
        selected: dict[str, list[FieldNode]] = {}
        spread: set[str] = set()
        for node in nodes:
            assert node.selection_set is not None, "objects are asked for something"
            for field in self._fields(type_, node.selection_set, spread):
                key = field.alias.value if field.alias else field.name.value
                selected.setdefault(key, []).append(field)
        return selected

    def _fields(
        self, type_: GraphQLObjectType, selection_set: SelectionSetNode, spread: set[str]
    ) -> Iterator[FieldNode]:
        for node in selection_set.selections:
            refuse_directives(node)
            if isinstance(node, FieldNode):
                yield node
            elif isinstance(node, InlineFragmentNode):
                if self._applies(node.type_condition, type_):
                    yield from self._fields(type_, node.selection_set, spread)
            else:
                assert isinstance(node, FragmentSpreadNode)
                fragment = self._fragments[node.name.value]
                refuse_directives(fragment)
                if fragment.variable_definitions or getattr(node, "arguments", ()):
                    raise NotCompiled("a fragment has variables of its own")
                if node.name.value not in spread:
                    spread.add(node.name.value)
                    if self._applies(fragment.type_condition, type_):
                        yield from self._fields(type_, fragment.selection_set, spread)

    def _applies(self, condition: NamedTypeNode | None, type_: GraphQLObjectType) -> bool:
        if condition is None or condition.name.value == type_.name:
            return True
        wanted = self._schema.get_type(condition.name.value)
        return is_abstract_type(wanted) and self._schema.is_sub_type(wanted, type_)


def refuse_null(name: str, type_: Any) -> list[str]:
    """Only functions of scalars are not certain to refuse it by themselves."""
    return [f"if {name} is None: raise Uncommon"] if is_scalar_type(type_) and type_.name not in EXACT else []


def refuse_directives(node: Any) -> None:
    if node.directives:
        raise NotCompiled("a directive decides")


@cache
def _names(type_: GraphQLEnumType) -> dict[Any, str]:
    """The members of our enumeration, and what they are called in the schema."""
    return {member: type_.coerce_output_value(member) for member in type_.wrapped_cls}  # type: ignore[attr-defined]


def _is_method(field: StrawberryField) -> bool:
    """Whether it is answered at once, by the object alone."""
    resolver = field.base_resolver
    assert resolver is not None
    others = (resolver.info_parameter, resolver.parent_parameter, resolver.root_parameter)
    return not (resolver.is_async or field.arguments or any(others)) and resolver.self_parameter is not None
