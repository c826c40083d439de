"""One execution and one encoding of a document for an event, however many listen with it.

What a subscription shows of an event follows from the event and the document alone, as long as no variable reaches below
its root field: filters and cursors are that field's arguments, and choose which events come at all. So the first of the
subscribers has an event executed and leaves the answer with it, and the others take it from there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import strawberry
from graphql import (
    BREAK,
    ExecutionResult,
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    OperationDefinitionNode,
    VariableNode,
    Visitor,
    visit,
)
from strawberry.extensions import SchemaExtension
from strawberry.extensions.runner import SchemaExtensionsRunner
from strawberry.schema.schema import StrawberryGraphQLCoreExecutionContext
from strawberry.types import ExecutionContext
from strawberry.types import ExecutionResult as StrawberryResult

OPERATIONS_MAX: Final = 1_000
"""Operations of which it is remembered whether their answers can be shared: as many as documents are."""


@dataclass(frozen=True, slots=True)
class Answered:
    """In the place of an executor: it need not look."""

    result: ExecutionResult

    def execute_operation(self, _serially: bool | None = None) -> ExecutionResult:
        return self.result


Answers: TypeAlias = dict[int, tuple[OperationDefinitionNode, Answered]]
"""What was answered about one event, by the operation. It is kept beside, so that its number is nobody else's meanwhile."""


class Told(dict[str, Any]):
    """The data of an answer that several get. `text`: how it was encoded for the first of them."""

    __slots__ = ("text",)
    text: str

    def encoded(self, encode: Callable[[Told], str]) -> str:
        """`encode` is asked once."""
        try:
            return self.text
        except AttributeError:
            self.text = encode(self)
            return self.text


class Known:
    """What the resolver of an operation's only root field came to, when it has run already: it stands in for it.

    It has the place of graphql-core's middleware, which is asked for each field in turn, the root's first.
    """

    def __init__(self, outcome: Any = None, *, error: Exception | None = None) -> None:
        self._outcome = outcome
        self._error = error
        self._is_told = False

    def get_field_resolver(self, resolve: Callable[..., Any]) -> Callable[..., Any]:
        if self._is_told:
            return resolve
        self._is_told = True
        return self._tell

    async def _tell(self, _source: Any, _info: Any, **_arguments: Any) -> Any:
        if self._error is not None:
            raise self._error
        return self._outcome


class SharingExecutor(StrawberryGraphQLCoreExecutionContext):
    """Executes a document for an event that has `answers` only if nobody has before; and completes what is known."""

    def build_per_event_executor(self, payload: Any) -> Any:
        answers: Answers | None = getattr(payload, "answers", None)
        known = None if answers is None else answers.get(id(self.operation))
        return super().build_per_event_executor(payload) if known is None else known[1]

    def execute_operation(self, serially: bool | None = None) -> Any:
        known: Known | None = getattr(self.context_value, "known", None)
        if known is not None:
            self.middleware_manager = known  # type: ignore[assignment]  # all that is asked of it
        result = super().execute_operation(serially)
        answers: Answers | None = getattr(self.root_value, "answers", None)
        if answers is None or not isinstance(result, ExecutionResult) or result.data is None or result.errors:
            return result
        if not _is_shared(self.operation, self.fragment_definitions):
            return result
        shared = ExecutionResult(Told(result.data), None)
        answers[id(self.operation)] = (self.operation, Answered(shared))
        return shared


class SharingRunner(SchemaExtensionsRunner):
    """Has no extension look at what was looked at already: an answer that is shared has no errors to describe."""

    def on_stream_result(self, result: Any) -> Any:
        return _NOTHING if isinstance(result.data, Told) else super().on_stream_result(result)


class SharingSchema(strawberry.Schema):
    """Hands on what is shared as it is."""

    def create_extensions_runner(
        self, execution_context: ExecutionContext, extensions: list[SchemaExtension]
    ) -> SharingRunner:
        return SharingRunner(execution_context=execution_context, extensions=extensions)

    async def _handle_execution_result(
        self, context: ExecutionContext, result: Any, extensions_runner: SchemaExtensionsRunner, **given: Any
    ) -> Any:
        if isinstance(result.data, Told):
            return StrawberryResult(data=result.data, errors=None)
        return await super()._handle_execution_result(context, result, extensions_runner, **given)


class _Nothing:
    """A context in which nothing happens, entered by everybody at once."""

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(self, *_: object) -> None:
        return None


_NOTHING: Final = _Nothing()
_KNOWN: OrderedDict[int, tuple[OperationDefinitionNode, bool]] = OrderedDict()


def _is_shared(operation: OperationDefinitionNode, fragments: Mapping[str, FragmentDefinitionNode]) -> bool:
    """Looked at once for each operation, as long as its document is remembered."""
    known = _KNOWN.get(id(operation))
    if known is None:
        known = _KNOWN[id(operation)] = (operation, not _reads_variables(operation, fragments))
        if len(_KNOWN) > OPERATIONS_MAX:
            _KNOWN.popitem(last=False)
    return known[1]


def _reads_variables(operation: OperationDefinitionNode, fragments: Mapping[str, FragmentDefinitionNode]) -> bool:
    """Whether a variable is used anywhere but in the arguments of a root field. Fragments are valid, so they do not
    use one another in a circle."""
    nodes: list[Any] = []
    for selection in operation.selection_set.selections:
        if isinstance(selection, FieldNode):
            nodes += [*(selection.directives or ()), *([selection.selection_set] if selection.selection_set else ())]
        else:
            nodes.append(selection)
    return any(_uses(node, fragments) for node in nodes)


def _uses(node: Any, fragments: Mapping[str, FragmentDefinitionNode]) -> bool:
    finder = _FindVariables()
    visit(node, finder)
    return finder.found or any(_uses(fragments[name].selection_set, fragments) for name in finder.fragments)


class _FindVariables(Visitor):
    def __init__(self) -> None:
        super().__init__()
        self.found = False
        self.fragments: set[str] = set()

    def enter_variable(self, _node: VariableNode, *_: Any) -> Any:
        self.found = True
        return BREAK

    def enter_fragment_spread(self, node: FragmentSpreadNode, *_: Any) -> None:
        self.fragments.add(node.name.value)
