"""What an operation would cost, worked out from its text and its variables before anything is executed.

A field costs what it takes to answer once, times the items of every list that it is in: of a page, as many as `first`
asks for. A unit is about what a plain field takes: five microseconds of the one thread that serves everybody. So a limit
on units is a bound on how long one request can keep all others waiting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from graphql import (
    DirectiveNode,
    DocumentNode,
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    GraphQLNamedType,
    InlineFragmentNode,
    OperationDefinitionNode,
    SelectionNode,
    SelectionSetNode,
    ValueNode,
    VariableNode,
    get_introspection_query,
    get_named_type,
    get_nullable_type,
    is_abstract_type,
    is_composite_type,
    is_list_type,
    is_object_type,
    parse,
)
from graphql.language import BooleanValueNode, IntValueNode, NamedTypeNode, NonNullTypeNode, TypeNode

from domain.paging import PAGE_DEFAULT, PAGE_MAX
from schema.bounds import INTROSPECTION_RATIO, VISITS_MAX
from schema.weights import COMPUTED, Weights, is_page

Sizing: TypeAlias = int | bool | None
"""The value of a variable that says how many, or whether."""
Places: TypeAlias = dict[tuple[str, str], list[FieldNode]]
"""(type, key in the answer) to the nodes that are merged there."""


@dataclass(frozen=True, slots=True)
class Cost:
    """`heaviest` is the path of the field that most of it is for; `introspection` what is asked about the schema itself,
    which is counted apart. `is_whole` is false when counting was given up."""

    total: int = 0
    heaviest: tuple[str, ...] = ()
    introspection: int = 0
    is_whole: bool = True


class _GaveUp(Exception):  # noqa: N818 - what happened
    pass


class Costing:
    """The cost of one operation of a valid document, by the variables that pages and conditions depend on."""

    KNOWN_MAX: Final = 32
    """Combinations of such variables that are remembered."""

    def __init__(self, weights: Weights, document: DocumentNode, operation: OperationDefinitionNode) -> None:
        self._weights = weights
        self._operation = operation
        self._fragments = fragments_of(document)
        self._defaults = {
            each.variable.name.value: _literal(each.default_value, {})
            for each in operation.variable_definitions or ()
            if _named(each.type) in ("Int", "Boolean")
        }
        self._known: dict[tuple[Sizing, ...], Cost] = {}
        roots = {node.name.value for node in self._top_fields()}
        self.is_introspection = bool(roots) and all(name.startswith("__") for name in roots)
        """Whether it asks about the schema and nothing else, so that the answer is always the same."""

    def of(self, variables: Mapping[str, Any] | None) -> Cost:
        given = variables or {}
        sizing = {name: _sizing(given.get(name, default)) for name, default in self._defaults.items()}
        key = tuple(sizing.values())
        cost = self._known.get(key)
        if cost is None:
            cost = _Walk(self._weights, self._fragments, sizing).cost(self._operation)
            if len(self._known) < self.KNOWN_MAX:
                self._known[key] = cost
        return cost

    def _top_fields(self) -> Iterator[FieldNode]:
        seen: set[str] = set()
        waiting = [self._operation.selection_set]
        while waiting:
            for node in waiting.pop().selections:
                if isinstance(node, FieldNode):
                    yield node
                elif isinstance(node, InlineFragmentNode):
                    waiting.append(node.selection_set)
                elif isinstance(node, FragmentSpreadNode) and node.name.value not in seen:
                    seen.add(node.name.value)
                    waiting.append(self._fragments[node.name.value].selection_set)


@dataclass(frozen=True, slots=True)
class _Part:
    """Of one field, or of all fields of an object."""

    total: int
    heaviest: tuple[str, ...] = ()


class _Walk:
    """One look through an answer that is yet to be made, with one set of variables."""

    def __init__(
        self,
        weights: Weights,
        fragments: Mapping[str, FragmentDefinitionNode],
        variables: Mapping[str, Sizing],
    ) -> None:
        self._weights = weights
        self._schema = weights.schema
        self._fragments = fragments
        self._variables = variables
        self._visits = 0

    def cost(self, operation: OperationDefinitionNode) -> Cost:
        root = self._schema.get_root_type(operation.operation)
        assert root is not None, "the document is valid"
        places = self._places(root, [operation.selection_set])
        about_schema = {
            place: nodes for place, nodes in places.items() if nodes[0].name.value in ("__schema", "__type")
        }
        others = {place: nodes for place, nodes in places.items() if place not in about_schema}
        try:
            part, introspection = self._of_object(others, page=1), self._of_object(about_schema, page=1)
        except _GaveUp:
            return Cost(is_whole=False)
        return Cost(part.total, part.heaviest, introspection.total)

    def _of_object(self, places: Places, *, page: int) -> _Part:
        """`page`: how many items the object has, if it is a page."""
        total, largest = 0, 0
        heaviest: tuple[str, ...] = ()
        for (owner, key), nodes in places.items():
            part, is_object = self._of_field(owner, nodes, page=page)
            total += part.total
            if is_object and part.total > largest:
                largest, heaviest = part.total, (key, *part.heaviest)
        return _Part(total, heaviest if 2 * largest >= total else ())

    def _of_field(self, owner: str, nodes: Sequence[FieldNode], *, page: int) -> tuple[_Part, bool]:
        """What it costs, and whether it has fields of its own."""
        self._visits += 1
        if self._visits > VISITS_MAX:
            raise _GaveUp
        node = nodes[0]
        parent = self._schema.type_map[owner]
        field = self._schema.get_field(parent, node.name.value)  # type: ignore[arg-type]
        assert field is not None, "the document is valid"
        weight, kind = self._weights.of(owner, node.name.value, field), get_named_type(field.type)
        if not is_composite_type(kind):
            return _Part(weight), False
        first = self._first(node) if "first" in field.args else None
        places = self._places(kind, [each.selection_set for each in nodes if each.selection_set is not None])
        inner = self._of_object(places, page=PAGE_DEFAULT if first is None else first)
        is_list = is_list_type(get_nullable_type(field.type))
        items: float = self._weights.length(owner, node.name.value, is_list=is_list)
        if is_list and (is_page(parent) or first is not None):
            items = page if is_page(parent) else first or 0
        return _Part(weight + round(items * (COMPUTED + inner.total)), inner.heaviest), True

    def _places(self, kind: GraphQLNamedType, selection_sets: Iterable[SelectionSetNode]) -> Places:
        """The fields of an object as they are going to be merged. What is asked of several kinds is counted for each."""
        places: Places = {}
        seen: set[tuple[str, str]] = set()
        waiting = [(kind.name, node) for selections in selection_sets for node in reversed(selections.selections)]
        while waiting:
            owner, node = waiting.pop()
            if not self._is_wanted(node):
                continue
            if isinstance(node, FieldNode):
                key = node.alias.value if node.alias else node.name.value
                places.setdefault((owner, key), []).append(node)
                continue
            inner = self._fragments[node.name.value] if isinstance(node, FragmentSpreadNode) else node
            assert isinstance(inner, FragmentDefinitionNode | InlineFragmentNode), "there are no other selections"
            condition = inner.type_condition
            if condition is not None and not is_object_type(self._schema.type_map[owner]):
                owner = condition.name.value
            elif condition is not None and not self._can_be(owner, condition.name.value):
                continue
            if isinstance(inner, FragmentDefinitionNode):
                if (owner, inner.name.value) in seen:
                    continue
                seen.add((owner, inner.name.value))
            waiting.extend((owner, each) for each in reversed(inner.selection_set.selections))
        return places

    def _can_be(self, owner: str, wanted: str) -> bool:
        """Whether objects of a type are of another one: by way of an interface a fragment can ask for what they never
        are."""
        other = self._schema.type_map[wanted]
        is_wider = is_abstract_type(other) and self._schema.is_sub_type(other, self._schema.type_map[owner])
        return is_wider or owner == wanted

    def _is_wanted(self, node: SelectionNode) -> bool:
        for directive in node.directives or ():
            if directive.name.value == "skip" and self._argument(directive, "if") is True:
                return False
            if directive.name.value == "include" and self._argument(directive, "if") is False:
                return False
        return True

    def _first(self, node: FieldNode) -> int | None:
        """How many items are asked for; None where the client does not say. More than a page is refused later."""
        wanted = self._argument(node, "first")
        return None if wanted is None else min(max(int(wanted), 0), PAGE_MAX)

    def _argument(self, node: FieldNode | DirectiveNode, name: str) -> Sizing:
        found = next((each.value for each in node.arguments or () if each.name.value == name), None)
        return _literal(found, self._variables)


def introspection_max(weights: Weights) -> int:
    """Units that may be asked for about the schema: it grows, and clients ask for all of it."""
    document = parse(get_introspection_query(input_value_deprecation=True, one_of=True, specified_by_url=True))
    operation = document.definitions[0]
    assert isinstance(operation, OperationDefinitionNode), "it comes first"
    return round(INTROSPECTION_RATIO * Costing(weights, document, operation).of(None).introspection)


def fragments_of(document: DocumentNode) -> dict[str, FragmentDefinitionNode]:
    return {node.name.value: node for node in document.definitions if isinstance(node, FragmentDefinitionNode)}


def _literal(node: ValueNode | None, variables: Mapping[str, Sizing]) -> Sizing:
    if isinstance(node, VariableNode):
        return variables.get(node.name.value)
    if isinstance(node, IntValueNode):
        return min(int(node.value), PAGE_MAX)  # the document is valid: it has at most 32 bits
    return node.value if isinstance(node, BooleanValueNode) else None


def _sizing(value: Any) -> Sizing:
    """The value, if it can be one of its kind; what it is instead is refused when the variables are looked at."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) else None


def _named(node: TypeNode) -> str:
    if isinstance(node, NonNullTypeNode):
        node = node.type
    return node.name.value if isinstance(node, NamedTypeNode) else ""
