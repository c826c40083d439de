"""From a request's variables to the arguments of a resolver: what graphql-core and strawberry make of them, in one step.

Only what is plainly right gets through. Whatever is not raises, and graphql-core looks at it from the beginning: nothing
has been executed by then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING
from enum import Enum
from functools import cache
from typing import Any, Final

from graphql import (
    ArgumentNode,
    FieldNode,
    GraphQLArgument,
    GraphQLEnumType,
    GraphQLField,
    GraphQLInputField,
    GraphQLInputObjectType,
    GraphQLInputType,
    GraphQLScalarType,
    GraphQLSchema,
    OperationDefinitionNode,
    Undefined,
    VariableDefinitionNode,
    VariableNode,
    is_enum_type,
    is_input_object_type,
    is_input_type,
    is_list_type,
    is_non_null_type,
    is_required_argument,
    is_required_input_field,
    is_scalar_type,
    type_from_ast,
    value_from_ast,
)
from graphql.utilities.coerce_input_value import coerce_default_value
from strawberry.schema.config import StrawberryConfig
from strawberry.types.base import StrawberryList, StrawberryMaybe
from strawberry.types.field import StrawberryField

from schema.compiled.answers import EXACT, refuse_directives, refuse_null
from schema.compiled.source import NotCompiled, Source, indented
from schema.compiled.strawberries import class_of, field_of, refuse_out_names

DEPTH_MAX: Final = 8
"""Input objects in one another: none of ours is in itself."""


class InputWriter:
    """Writes the functions for one operation."""

    def __init__(self, schema: GraphQLSchema, config: StrawberryConfig, source: Source) -> None:
        self._schema = schema
        self._config = config
        self._source = source
        self._missing = source.name(object(), "m")
        self._written: dict[str, str] = {}
        self._open = 0

    def arguments(
        self, operation: OperationDefinitionNode, node: FieldNode, field_def: GraphQLField, field: StrawberryField
    ) -> str:
        """The name of a function from variables to keywords of the field's resolver. Raises `NotCompiled`."""
        definitions = {each.variable.name.value: each for each in operation.variable_definitions or ()}
        given = {each.name.value: each for each in node.arguments or ()}
        used = [each.value.name.value for each in given.values() if isinstance(each.value, VariableNode)]
        if sorted(used) != sorted(definitions):
            raise NotCompiled("variables are used elsewhere, twice or not at all")
        lines = ["a = {}"]
        for argument in field.arguments:
            name = self._config.name_converter.from_argument(argument)
            if isinstance(argument.type, StrawberryMaybe):
                raise NotCompiled("an argument may be absent in a way of its own")
            lines += self._argument(argument.python_name, field_def.args[name], given.get(name), definitions)
        return self._source.function("v", [*lines, "return a"])

    def _argument(
        self,
        keyword: str,
        argument: GraphQLArgument,
        given: ArgumentNode | None,
        definitions: Mapping[str, VariableDefinitionNode],
    ) -> list[str]:
        """Lines that put the argument among the keywords `a`, from the variables `v`."""
        if given is None:
            return self._otherwise(keyword, argument)
        if not isinstance(given.value, VariableNode):
            literal = self._constant(value_from_ast(given.value, argument.type))
            return [f"a[{keyword!r}] = {literal}"]
        definition = definitions[given.value.name.value]
        refuse_directives(definition)
        type_ = type_from_ast(self._schema, definition.type)
        assert type_ is not None, "the document is valid"
        assert is_input_type(type_), "the document is valid"
        absent = self._absent(keyword, argument, definition, type_)
        null = ["if x is None: raise Uncommon"] if is_non_null_type(argument.type) else []
        present = [*self._coerced("x", type_), *null, f"a[{keyword!r}] = x"]
        read = f"x = v.get({given.value.name.value!r}, {self._missing})"
        return [read, f"if x is {self._missing}:", *indented(absent), "else:", *indented(present)]

    def _absent(
        self, keyword: str, argument: GraphQLArgument, definition: VariableDefinitionNode, type_: GraphQLInputType
    ) -> list[str]:
        if definition.default_value is not None:
            default = value_from_ast(definition.default_value, type_)
            if default is None and is_non_null_type(argument.type):
                return ["raise Uncommon"]
            return [f"a[{keyword!r}] = {self._constant(default)}"]
        return ["raise Uncommon"] if is_non_null_type(type_) else self._otherwise(keyword, argument)

    def _otherwise(self, keyword: str, argument: GraphQLArgument) -> list[str]:
        """Where nothing was given."""
        if is_required_argument(argument):
            return ["raise Uncommon"]
        default = coerce_default_value(argument)
        return ["pass"] if default is Undefined else [f"a[{keyword!r}] = {self._constant(default)}"]

    def _constant(self, value: Any) -> str:
        """A value that all requests can share."""
        if value is Undefined or not isinstance(value, str | int | Enum | None):
            raise NotCompiled("a literal is more than a word or a number")
        return self._source.name(value, "d")

    # -- values --------------------------------------------------------------------------------------------------------

    def _coerced(self, name: str, type_: GraphQLInputType) -> list[str]:
        """Lines that put the value in the place of what was sent."""
        if is_non_null_type(type_):
            return [*refuse_null(name, type_.of_type), *self._held(name, type_.of_type)]
        return [f"if {name} is not None:", *indented(self._held(name, type_))]

    def _held(self, name: str, type_: GraphQLInputType) -> list[str]:
        """The same, for what is not null: null itself must fit none of these."""
        if is_list_type(type_):
            item = self._source.function("x", [*self._coerced("x", type_.of_type), "return x"])
            return [f"if type({name}) is not list: raise Uncommon", f"{name} = [{item}(each) for each in {name}]"]
        if is_scalar_type(type_):
            return self._scalar(name, type_)
        if is_enum_type(type_):
            return self._enum(name, type_)
        assert is_input_object_type(type_)
        return [f"{name} = {self._object(type_)}({name})"]

    def _scalar(self, name: str, type_: GraphQLScalarType) -> list[str]:
        if type_.name in EXACT:
            return [f"if {EXACT[type_.name].format(name)}: raise Uncommon"]
        if type_.name == "Float":
            raise NotCompiled("numbers with fractions are rare")
        parse = self._source.name(type_.coerce_input_value, "p")
        return [f"{name} = {parse}({name})"]

    def _enum(self, name: str, type_: GraphQLEnumType) -> list[str]:
        members = self._source.name(_members(type_), "e")
        return [f"if type({name}) is not str: raise Uncommon", f"{name} = {members}[{name}]"]

    def _object(self, type_: GraphQLInputObjectType) -> str:
        """The name of the function that makes one."""
        if type_.name not in self._written:
            refuse_out_names(type_)
            self._open += 1
            if type_.is_one_of or self._open > DEPTH_MAX:
                raise NotCompiled(f"{type_.name} is out of the ordinary")
            self._written[type_.name] = self._write_object(type_)
            self._open -= 1
        return self._written[type_.name]

    def _write_object(self, type_: GraphQLInputObjectType) -> str:
        lines, keywords = ["if type(o) is not dict: raise Uncommon", "n = 0"], []
        for number, (name, input_field) in enumerate(type_.fields.items()):
            variable = f"x{number}"
            field = field_of(type_, name, self._config)
            lines += [
                f"{variable} = o.get({name!r}, {self._missing})",
                f"if {variable} is {self._missing}:",
                *indented(self._default(variable, input_field, field)),
                "else:",
                "    n += 1",
                *indented(self._coerced(variable, input_field.type)),
            ]
            keywords.append(f"{field.python_name}={variable}")
        lines.append("if n != len(o): raise Uncommon")
        kind = self._source.name(class_of(type_), "c")
        return self._source.function("o", [*lines, f"return {kind}({', '.join(keywords)})"])

    def _default(self, variable: str, input_field: GraphQLInputField, field: StrawberryField) -> list[str]:
        if isinstance(field.type, StrawberryMaybe | StrawberryList) and field.default_factory is not MISSING:
            raise NotCompiled("a default is made anew each time")
        if is_required_input_field(input_field):
            return ["raise Uncommon"]
        default = coerce_default_value(input_field)
        if default is not Undefined:
            return [f"{variable} = {self._constant(default)}"]
        if field.default_factory is not MISSING:
            raise NotCompiled("a default is made anew each time")
        own = None if field.default_value is MISSING else field.default_value
        return [f"{variable} = {self._source.name(own, 'd')}"]


@cache
def _members(type_: GraphQLEnumType) -> dict[str, Any]:
    """What members are called in the schema, and what they are."""
    return {word: type_.coerce_input_value(word) for word in type_.values}
