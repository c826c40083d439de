"""One way through a hot operation: variables to arguments, the resolver, the data of its answer.

It holds for an operation with one field at its root, whose resolver is an ordinary one, and selections that are read off
what it returns. What the extensions of the schema do is done here too: `OWN_EXTENSIONS` says which those are, and with
any other nothing is compiled. What goes wrong after the resolver has run is told by graphql-core, from what came of it:
`Known` stands in for the resolver then, and nothing runs twice.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import strawberry
from graphql import FieldNode, FragmentDefinitionNode, GraphQLObjectType, OperationDefinitionNode, OperationType

from schema.bounds import REMEMBERED_LENGTH_MAX, REMEMBERED_MAX
from schema.compiled.answers import AnswerWriter, refuse_directives
from schema.compiled.inputs import InputWriter
from schema.compiled.source import NotCompiled, Source
from schema.compiled.strawberries import field_of, plain_function
from schema.context import Context, Operation, PerOperation
from schema.cost import fragments_of
from schema.documents import DOCUMENTS, Prepared, PrepareDocument, RememberIntrospection
from schema.failures import DescribeFailures
from schema.sharing import Known

LINES_SUM_MAX: Final = 50_000
"""Lines of all code that is remembered: each takes a hundred bytes. A hot mutation has two to four hundred."""
OWN_EXTENSIONS: Final = (DescribeFailures, PerOperation, PrepareDocument, RememberIntrospection)
"""What they come to on this way: an error is left to graphql-core and so is described there; an `Operation` is begun; the
document is prepared and refused; a question about the schema is not compiled."""


@dataclass(frozen=True, slots=True)
class Plan:
    """An operation that was compiled."""

    key: str
    """Of the root field in the answer."""
    resolve: Callable[..., Awaitable[Any]]
    arguments: Callable[[Mapping[str, Any]], dict[str, Any]]
    """From variables to keywords. Raises whatever it likes about what graphql-core must look at."""
    complete: Callable[[Any], Any]
    """From what the resolver returned to data. Raises the same way."""
    length: int
    """Of its code, in lines."""


class Plans:
    """What was compiled, the latest used last; None for an operation that graphql-core executes."""

    def __init__(self) -> None:
        self._remembered: OrderedDict[tuple[str, str | None], Plan | None] = OrderedDict()
        self._length = 0

    def plan(self, schema: strawberry.Schema, prepared: Prepared, text: str, operation_name: str | None) -> Plan | None:
        """Compiled at first sight, which is about as much work as it was to parse and validate the document."""
        key = (text, operation_name)
        if key in self._remembered:
            self._remembered.move_to_end(key)
            return self._remembered[key]
        operation = prepared.operation(operation_name)
        if operation is None or len(text) > REMEMBERED_LENGTH_MAX:
            return None  # nothing is remembered under a name that anybody can think up
        plan = self._remembered[key] = _compiled(schema, prepared, operation)
        self._length += _length_of(plan)
        while self._length > LINES_SUM_MAX or len(self._remembered) > REMEMBERED_MAX:
            _, forgotten = self._remembered.popitem(last=False)
            self._length -= _length_of(forgotten)
        return plan

    def __len__(self) -> int:
        return len(self._remembered)


PLANS: Final = Plans()
"""One a process: it has one schema."""


def _length_of(plan: Plan | None) -> int:
    return 0 if plan is None else plan.length


async def execute_compiled(
    schema: strawberry.Schema,
    context: Context,
    text: str,
    variables: dict[str, Any] | None,
    operation_name: str | None,
) -> dict[str, Any] | None:
    """The data of the answer; None where graphql-core has to execute the operation, with this context, to find it.

    That is so for what was not compiled, what is refused before it is executed, and everything with an error in it.
    """
    prepared = DOCUMENTS.prepare(schema._schema, text)  # noqa: SLF001 - graphql-core's
    plan = PLANS.plan(schema, prepared, text, operation_name)
    if plan is None or prepared.refuse(operation_name, variables, cost_max=context.cost_max):
        return None
    try:
        arguments = plan.arguments(variables or {})
    except Exception:  # noqa: BLE001 - whatever it is, nothing has been executed
        return None
    Operation(context).begin()
    try:
        outcome = await plan.resolve(None, **arguments)
    except Exception as error:  # noqa: BLE001 - it is told, logged and masked where every error is
        context.known = Known(error=error)
        return None
    try:
        return {plan.key: plan.complete(outcome)}
    except Exception:  # noqa: BLE001 - graphql-core finds it again, and knows what to say
        context.known = Known(outcome=outcome)
        return None


def _compiled(schema: strawberry.Schema, prepared: Prepared, operation: OperationDefinitionNode) -> Plan | None:
    if tuple(schema.extensions) != OWN_EXTENSIONS or prepared.document is None:
        return None
    try:
        return _Compiler(schema, fragments_of(prepared.document)).plan(operation)
    except NotCompiled:
        return None


class _Compiler:
    def __init__(self, schema: strawberry.Schema, fragments: Mapping[str, FragmentDefinitionNode]) -> None:
        self._schema = schema._schema  # noqa: SLF001 - graphql-core's
        self._config = schema.config
        self._fragments = fragments

    def plan(self, operation: OperationDefinitionNode) -> Plan:
        """Raises `NotCompiled`."""
        node, root = _root_field(operation), self._root_type(operation)
        field_def, field = root.fields.get(node.name.value), field_of(root, node.name.value, self._config)
        if field_def is None or field.base_resolver is None or not field.is_async:
            raise NotCompiled("the root field is no question to a desk or a read")
        resolver = field.base_resolver
        if resolver.info_parameter or resolver.parent_parameter or resolver.root_parameter:
            raise NotCompiled("its resolver takes more than arguments")
        arguments, answers = Source(), Source()
        taken = InputWriter(self._schema, self._config, arguments).arguments(operation, node, field_def, field)
        told = AnswerWriter(self._schema, self._config, self._fragments, answers).function(field_def.type, [node])
        return Plan(
            key=node.alias.value if node.alias else node.name.value,
            resolve=plain_function(resolver),
            arguments=arguments.built(taken),
            complete=answers.built(told),
            length=arguments.length + answers.length,
        )

    def _root_type(self, operation: OperationDefinitionNode) -> GraphQLObjectType:
        root = self._schema.get_root_type(operation.operation)
        if operation.operation is OperationType.SUBSCRIPTION or root is None:
            raise NotCompiled("it is a stream")
        return root


def _root_field(operation: OperationDefinitionNode) -> FieldNode:
    refuse_directives(operation)
    nodes = operation.selection_set.selections
    if len(nodes) != 1 or not isinstance(nodes[0], FieldNode):
        raise NotCompiled("it has not just one field at its root")
    refuse_directives(nodes[0])
    return nodes[0]
