"""What each field of the schema takes to be answered once, and how many items a list has that nobody says the size of.

In units of what a plain field takes. Nearly all of it follows from how a field is resolved; the tables say the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from graphql import (
    GraphQLEnumType,
    GraphQLField,
    GraphQLInputObjectType,
    GraphQLInterfaceType,
    GraphQLNamedType,
    GraphQLObjectType,
    GraphQLSchema,
    GraphQLUnionType,
    is_object_type,
)

PLAIN: Final = 1
"""A value that is at hand."""
COMPUTED: Final = 2
"""A value that a function gives; also an object, for being one."""
LOADED: Final = 6
"""A value that is waited for, together with its like."""
READ: Final = 60
"""What is read by itself: a list, a count, and everything that an operation begins with."""
LISTED: Final = 20
"""Items of a list that is no page. What there are more is counted off as they come: `Operation.take`."""

WEIGHTS: Final[Mapping[tuple[str, str], int]] = {
    ("Grant", "instances"): 2 * LOADED,  # read for all grants at once, then taken apart
    ("CapacityReservation", "availability"): 2 * READ,
    ("CapacityReservation", "earliestFit"): 2 * READ,
    ("Webhook", "deliveries"): READ,
}
"""(type, field) to units, where the way that it is resolved does not tell."""
SIZES: Final[Mapping[tuple[str, str], float]] = {
    ("CapacityReservation", "earliestFit"): 5,
    ("ReportedReservations", "capacityReservations"): 100,
    ("ReservedBudgets", "outcomes"): 100,
    ("CreatedGrants", "outcomes"): 100,
}
"""(type, field) to items, where a list that is no page has many more or less than others."""


class Weights:
    """The fields of one schema."""

    def __init__(self, schema: GraphQLSchema) -> None:
        self.schema = schema
        self._roots = {
            kind.name for kind in (schema.query_type, schema.mutation_type, schema.subscription_type) if kind
        }
        self._weights: dict[tuple[str, str], int] = dict(WEIGHTS)
        self._lengths = {**_introspection_lengths(schema), **SIZES}

    def of(self, owner: str, name: str, field: GraphQLField) -> int:
        weight = self._weights.get((owner, name))
        if weight is None:
            weight = self._weights[owner, name] = self._weigh(owner, name, field)
        return weight

    def length(self, owner: str, name: str, *, is_list: bool) -> float:
        """Items of a list whose size the client does not say; of something that is mostly null, how often it is not."""
        return self._lengths.get((owner, name), LISTED if is_list else 1)

    def _weigh(self, owner: str, name: str, field: GraphQLField) -> int:
        if name == "__typename":
            return PLAIN
        if owner.startswith("__"):
            return COMPUTED
        definition: Any = field.extensions.get("strawberry-definition")
        if definition is None or definition.base_resolver is None:
            return PLAIN
        if owner in self._roots:
            return READ
        if not definition.is_async:
            return COMPUTED
        is_count = is_page(self.schema.type_map[owner])
        return READ if is_count or "first" in field.args else LOADED


def is_page(kind: GraphQLNamedType) -> bool:
    """Whether the lists of this type have as many items as its field was asked for."""
    return is_object_type(kind) and {"nodes", "edges", "pageInfo"} <= kind.fields.keys()


def _introspection_lengths(schema: GraphQLSchema) -> dict[tuple[str, str], float]:
    """What the schema has to say about itself: as much as there is, or on the average."""
    kinds = list(schema.type_map.values())
    with_fields = [kind for kind in kinds if isinstance(kind, GraphQLObjectType | GraphQLInterfaceType)]
    fields = [field for kind in with_fields for field in kind.fields.values()]

    def average(total: int, among: int) -> float:
        return total / max(1, among)

    return {
        ("__Schema", "types"): len(kinds),
        ("__Schema", "directives"): len(schema.directives),
        ("__Directive", "args"): average(sum(len(each.args) for each in schema.directives), len(schema.directives)),
        ("__Field", "args"): average(sum(len(field.args) for field in fields), len(fields)),
        ("__Type", "ofType"): 0.4,  # a type that is not null, or of a list: some are, and few of those again
        ("__Type", "fields"): average(len(fields), len(kinds)),
        ("__Type", "interfaces"): average(sum(len(kind.interfaces) for kind in with_fields), len(kinds)),
        ("__Type", "inputFields"): average(
            sum(len(kind.fields) for kind in kinds if isinstance(kind, GraphQLInputObjectType)), len(kinds)
        ),
        ("__Type", "enumValues"): average(
            sum(len(kind.values) for kind in kinds if isinstance(kind, GraphQLEnumType)), len(kinds)
        ),
        ("__Type", "possibleTypes"): average(
            sum(len(kind.types) for kind in kinds if isinstance(kind, GraphQLUnionType)), len(kinds)
        ),
    }
