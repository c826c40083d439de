"""What stands behind the types of graphql-core: the classes and fields that strawberry made them of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from graphql import GraphQLInputObjectType, GraphQLNamedType, GraphQLObjectType
from strawberry.schema.config import StrawberryConfig
from strawberry.types.base import StrawberryObjectDefinition
from strawberry.types.field import StrawberryField
from strawberry.types.fields.resolver import StrawberryResolver

from schema.compiled.source import NotCompiled

_DEFINITION: Final = "strawberry-definition"


def definition_of(type_: GraphQLObjectType | GraphQLInputObjectType) -> StrawberryObjectDefinition:
    definition = (type_.extensions or {}).get(_DEFINITION)
    if not isinstance(definition, StrawberryObjectDefinition):
        raise NotCompiled(f"{type_.name} is no class of ours")
    if definition.is_type_of is not None or definition.resolve_type is not None or definition.from_input is not None:
        raise NotCompiled(f"{type_.name} is found or made in a way of its own")
    return definition


def class_of(type_: GraphQLObjectType | GraphQLInputObjectType) -> type[Any]:
    return definition_of(type_).origin


def field_of(type_: GraphQLObjectType | GraphQLInputObjectType, name: str, config: StrawberryConfig) -> StrawberryField:
    """A field whose value is not changed or refused by anything around it."""
    field = _fields_of(type_, config).get(name)
    if field is None:
        raise NotCompiled(f"{type_.name}.{name} is no field of ours")
    if field.extensions or field.permission_classes:
        raise NotCompiled(f"{type_.name}.{name} has something around it")
    return field


_FIELDS: Final[dict[str, dict[str, StrawberryField]]] = {}
"""By the name of their type: a process has one schema."""


def _fields_of(
    type_: GraphQLObjectType | GraphQLInputObjectType, config: StrawberryConfig
) -> Mapping[str, StrawberryField]:
    if type_.name not in _FIELDS:
        fields = definition_of(type_).fields
        _FIELDS[type_.name] = {config.name_converter.from_field(field): field for field in fields}
    return _FIELDS[type_.name]


def refuse_out_names(type_: GraphQLNamedType) -> None:
    """Nothing of ours renames what comes in beneath strawberry."""
    if isinstance(type_, GraphQLInputObjectType) and any(field.out_name for field in type_.fields.values()):
        raise NotCompiled(f"{type_.name} renames its fields")


def plain_function(resolver: StrawberryResolver[Any]) -> Callable[..., Any]:
    """The function itself, which takes the object first."""
    function = resolver.wrapped_func
    if isinstance(function, staticmethod | classmethod):
        raise NotCompiled(f"{resolver.name} is no method of an object")
    return function
