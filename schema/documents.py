"""From the text of a document to an operation that may be executed: parsed, validated, counted, each once for a text.

Clients send few different documents, over and over. Whoever executes operations in a way of its own asks here too:
`Documents.prepare`, then `Prepared.refuse`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from graphql import (
    DocumentNode,
    ExecutionResult,
    FieldNode,
    GraphQLError,
    GraphQLSchema,
    NameNode,
    OperationDefinitionNode,
    OperationType,
    SelectionSetNode,
    parse,
    specified_rules,
    validate,
)
from graphql.validation import OverlappingFieldsCanBeMergedRule
from strawberry.extensions import SchemaExtension
from strawberry.schema.validation_rules.maybe_null import MaybeNullValidationRule
from strawberry.schema.validation_rules.one_of import OneOfInputValidationRule

from schema.bounds import (
    ERRORS_MAX,
    INTROSPECTIONS_MAX,
    REMEMBERED_LENGTH_MAX,
    REMEMBERED_MAX,
    REMEMBERED_SUM_MAX,
    TOKENS_MAX,
)
from schema.cost import Costing, introspection_max
from schema.failures import TOO_DEEP, syntax_failure
from schema.limits import (
    DocumentLimits,
    FieldsMerge,
    refuse_cost,
    refuse_document,
    refuse_variables,
)
from schema.weights import Weights

RULES: Final = (
    *(rule for rule in specified_rules if rule is not OverlappingFieldsCanBeMergedRule),
    FieldsMerge,
    DocumentLimits,
    MaybeNullValidationRule,
    OneOfInputValidationRule,
)


class Prepared:
    """A document with what is known of it. One that cannot be parsed has its error, and nothing else."""

    def __init__(self, schema: GraphQLSchema, document: DocumentNode | None, errors: tuple[GraphQLError, ...]) -> None:
        self.document = document
        self.errors = errors
        self._schema = schema
        definitions = document.definitions if document is not None and not errors else ()
        operations = [node for node in definitions if isinstance(node, OperationDefinitionNode)]
        self._operations = {node.name.value if node.name else None: node for node in operations}
        self._costings: dict[str | None, Costing] = {}

    def refuse(
        self, operation_name: str | None, variables: Mapping[str, Any] | None, *, cost_max: int
    ) -> tuple[GraphQLError, ...]:
        """Why the operation may not be executed; nothing if it may.

        In this order: an invalid document, no name where there are several operations, variables that are too large,
        TOO_COSTLY.
        """
        if self.errors:
            return self.errors
        if operation_name is None and len(self._operations) > 1:
            return (GraphQLError("the document has several operations: operationName must name one"),)
        refused = refuse_variables(variables)
        if refused is None and (costing := self.costing(operation_name)) is not None:
            most = _introspection_max(self._schema)
            refused = refuse_cost(costing.of(variables), most=cost_max, introspection_most=most)
        return () if refused is None else (refused,)

    def costing(self, operation_name: str | None) -> Costing | None:
        """None for an operation that is not in the document."""
        name = self._name(operation_name)
        if name not in self._costings and name in self._operations and self.document is not None:
            self._costings[name] = Costing(_weights(self._schema), self.document, self._operations[name])
        return self._costings.get(name)

    def operation(self, operation_name: str | None) -> OperationDefinitionNode | None:
        """None for one that is not in the document, or where none is named and there are several."""
        if operation_name is None and len(self._operations) > 1:
            return None
        return self._operations.get(self._name(operation_name))

    def _name(self, operation_name: str | None) -> str | None:
        return operation_name if operation_name is not None else next(iter(self._operations), None)


class Documents:
    """What is remembered of documents, the latest used last."""

    def __init__(self) -> None:
        self._remembered: OrderedDict[str, Prepared] = OrderedDict()
        self._length = 0

    def prepare(self, schema: GraphQLSchema, text: str) -> Prepared:
        prepared = self._remembered.get(text)
        if prepared is not None:
            self._remembered.move_to_end(text)
            return prepared
        prepared = _prepared(schema, text)
        if len(text) <= REMEMBERED_LENGTH_MAX:
            self._remembered[text] = prepared
            self._length += len(text)
            while self._length > REMEMBERED_SUM_MAX or len(self._remembered) > REMEMBERED_MAX:
                forgotten, _ = self._remembered.popitem(last=False)
                self._length -= len(forgotten)
        return prepared

    def __len__(self) -> int:
        return len(self._remembered)


DOCUMENTS: Final = Documents()
"""One a process: it has one schema."""


class PrepareDocument(SchemaExtension):
    """Puts what is remembered in the place of parsing and validating."""

    prepared: Prepared | None = None

    def on_parse(self) -> Iterator[None]:
        """A document that cannot be parsed is stood in for, until validation tells why: an error from in here would end
        a socket without a word."""
        execution = self.execution_context
        if execution.query:
            self.prepared = DOCUMENTS.prepare(execution.schema._schema, execution.query)  # noqa: SLF001 - graphql-core's
            stand_in = _stand_in(execution._provided_operation_name)  # noqa: SLF001 - not told otherwise
            execution.graphql_document = self.prepared.document or stand_in
        yield

    def on_validate(self) -> Iterator[None]:
        execution = self.execution_context
        if self.prepared is not None:
            name = execution._provided_operation_name  # noqa: SLF001 - not told otherwise
            refused = self.prepared.refuse(name, execution.variables, cost_max=execution.context.cost_max)
            execution.pre_execution_errors = list(refused)
        yield


class RememberIntrospection(SchemaExtension):
    """Answers what was asked about the schema before as it was answered then: it is long, and always the same."""

    _answers: Final[OrderedDict[tuple[str, str | None], dict[str, Any]]] = OrderedDict()

    def on_execute(self) -> Iterator[None]:
        execution = self.execution_context
        key = (execution.query or "", execution.operation_name)
        if not self._is_about_schema() or execution.variables:
            yield
            return
        if (known := self._answers.get(key)) is not None:
            self._answers.move_to_end(key)
            execution.result = ExecutionResult(data=known, errors=None)
            yield
            return
        yield
        result = execution.result
        if isinstance(result, ExecutionResult) and result.data is not None and not result.errors:
            self._answers[key] = result.data
            if len(self._answers) > INTROSPECTIONS_MAX:
                self._answers.popitem(last=False)

    def _is_about_schema(self) -> bool:
        execution = self.execution_context
        prepared = DOCUMENTS.prepare(execution.schema._schema, execution.query or "")  # noqa: SLF001 - graphql-core's
        costing = prepared.costing(execution.operation_name)
        return costing is not None and costing.is_introspection


def _prepared(schema: GraphQLSchema, text: str) -> Prepared:
    if (refused := refuse_document(text)) is not None:
        return Prepared(schema, None, (refused,))
    try:
        document = parse(text, max_tokens=TOKENS_MAX)
    except GraphQLError as error:
        return Prepared(schema, None, (syntax_failure(error),))
    errors = validate(schema, document, RULES, max_errors=ERRORS_MAX)
    return Prepared(schema, document, tuple(_explained(error) for error in errors))


def _explained(error: GraphQLError) -> GraphQLError:
    """What the library says of fragments that go through one another too often is not much."""
    if error.message != "Validation aborted.":
        return error
    return GraphQLError("the document's fragments are nested too deeply in one another", extensions={"code": TOO_DEEP})


def _stand_in(operation_name: str | None) -> DocumentNode:
    """A query that is good for nothing but not to be executed."""
    field = FieldNode(name=NameNode(value="__typename"), arguments=(), directives=())
    operation = OperationDefinitionNode(
        operation=OperationType.QUERY,
        name=None if operation_name is None else NameNode(value=operation_name),
        variable_definitions=(),
        directives=(),
        selection_set=SelectionSetNode(selections=(field,)),
    )
    return DocumentNode(definitions=(operation,))


@cache
def _weights(schema: GraphQLSchema) -> Weights:
    return Weights(schema)


@cache
def _introspection_max(schema: GraphQLSchema) -> int:
    return introspection_max(_weights(schema))
