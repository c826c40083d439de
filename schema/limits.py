"""How much one document may ask for. Everything has a limit with a name; more is refused with a code, never cut short.

Depth and aliases are properties of the document and are checked once for each text, with the validation that is
remembered for it. Items depend on variables, so each list counts them off as it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from graphql import (
    ASTValidationRule,
    DocumentNode,
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    GraphQLError,
    OperationDefinitionNode,
    SelectionNode,
    ValidationContext,
)
from strawberry.extensions import AddValidationRules, MaxTokensLimiter, ParserCache, SchemaExtension, ValidationCache

from schema.failures import TOO_DEEP

DEPTH_MAX: Final = 12
"""Fields inside fields: a connection takes three, and the deepest useful question has three of them."""
ALIASES_MAX: Final = 100
"""Aliased fields of a document, fragments counted as often as they are used: a dashboard asks one list many times."""
TOKENS_MAX: Final = 4_000
"""Words and signs of a document: parsing is paid before anything else is known."""
DOCUMENTS_MAX: Final = 1_000
"""Documents whose parsing and validation are remembered: clients send few different ones, over and over."""
REMEMBERED_LENGTH_MAX: Final = 20_000
"""Characters of a document that is remembered."""
ITEMS_MAX: Final = 5_000
"""Items that all lists of one operation may ask for together: about a second of work."""


@dataclass(frozen=True, slots=True)
class _Size:
    depth: int = 0
    aliases: int = 0


_UNLIMITED: Final = 1 << 30
"""Where sums stop growing: fragments that use one another could make them astronomically large."""


class DocumentLimits(ASTValidationRule):
    """Refuses a document that is too deep or has too many aliases. Introspection is bounded by graphql-core itself."""

    def __init__(self, context: ValidationContext) -> None:
        super().__init__(context)
        self._fragments = _fragments_of(context.document)
        self._sizes: dict[str, _Size] = {}
        self._open: set[str] = set()

    def enter_operation_definition(self, node: OperationDefinitionNode, *_: Any) -> None:
        size = self._size_of(node.selection_set.selections)
        for code, what, found, limit in (
            (TOO_DEEP, "levels of fields", size.depth, DEPTH_MAX),
            ("TOO_MANY_ALIASES", "aliases", size.aliases, ALIASES_MAX),
        ):
            if found > limit:
                message = f"the operation has more than {limit} {what}"
                self.report_error(GraphQLError(message, [node], extensions={"code": code, "limit": limit}))

    def _size_of(self, selections: Iterable[SelectionNode]) -> _Size:
        sizes = [self._size_of_one(selection) for selection in selections]
        depth = max((size.depth for size in sizes), default=0)
        return _Size(depth, min(sum(size.aliases for size in sizes), _UNLIMITED))

    def _size_of_one(self, selection: SelectionNode) -> _Size:
        if isinstance(selection, FragmentSpreadNode):
            return self._size_of_fragment(selection.name.value)
        inner = getattr(selection, "selection_set", None)
        size = self._size_of(inner.selections) if inner is not None else _Size()
        if not isinstance(selection, FieldNode):
            return size
        is_introspection = selection.name.value.startswith("__")
        return _Size(0 if is_introspection else size.depth + 1, size.aliases + (selection.alias is not None))

    def _size_of_fragment(self, name: str) -> _Size:
        """Each fragment is measured once. One that uses itself, or is not there, is another rule's error."""
        if name in self._open or name not in self._fragments:
            return _Size()
        if name not in self._sizes:
            self._open.add(name)
            self._sizes[name] = self._size_of(self._fragments[name].selection_set.selections)
            self._open.discard(name)
        return self._sizes[name]


def _fragments_of(document: DocumentNode) -> dict[str, FragmentDefinitionNode]:
    return {node.name.value: node for node in document.definitions if isinstance(node, FragmentDefinitionNode)}


class LimitDocument(AddValidationRules):
    """The rule class is always the same object: it is part of the key under which validation is remembered."""

    def __init__(self) -> None:
        super().__init__([DocumentLimits])


class LimitTokens(MaxTokensLimiter):
    def __init__(self) -> None:
        super().__init__(TOKENS_MAX)


class RememberParsed(ParserCache):
    """Parses each document once. One with long strings in it is not kept: memory is for what comes again."""

    def __init__(self) -> None:
        super().__init__(maxsize=DOCUMENTS_MAX)

    def on_parse(self) -> Iterator[None]:
        """A faulty document is left to be parsed again: an error from in here would end a socket without a word."""
        execution = self.execution_context
        if len(execution.query or "") <= REMEMBERED_LENGTH_MAX:
            with suppress(GraphQLError):
                execution.graphql_document = self.cached_parse_document(execution.query, **execution.parse_options)
        yield


class RememberValidated(ValidationCache):
    """Validates each document once."""

    def __init__(self) -> None:
        super().__init__(maxsize=DOCUMENTS_MAX)

    def on_validate(self) -> Iterator[None]:
        if len(self.execution_context.query or "") > REMEMBERED_LENGTH_MAX:
            yield
        else:
            yield from super().on_validate()


class AskWhichOperation(SchemaExtension):
    """A document with several operations needs the name of one: the library would silently take the first."""

    def on_validate(self) -> Iterator[None]:
        execution = self.execution_context
        definitions = execution.graphql_document.definitions if execution.graphql_document else ()
        operations = [node for node in definitions if isinstance(node, OperationDefinitionNode)]
        if len(operations) > 1 and execution._provided_operation_name is None:  # noqa: SLF001 - not told otherwise
            message = "the document has several operations: operationName must name one"
            execution.pre_execution_errors = [GraphQLError(message)]
        yield
