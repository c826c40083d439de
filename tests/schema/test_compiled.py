"""Compiled operations answer byte for byte what graphql-core answers, or leave it to graphql-core."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from graphql import (
    FieldNode,
    GraphQLError,
    GraphQLField,
    OperationDefinitionNode,
    get_variable_values,
    type_from_ast,
)
from graphql.execution.values import get_argument_values
from hypothesis import given
from hypothesis import settings as bounded
from hypothesis import strategies as st
from strawberry.types.arguments import convert_arguments

from domain.authority import EVERYTHING, Principal
from schema.compiled.operations import OWN_EXTENSIONS, PLANS, Plan
from schema.compiled.strawberries import field_of
from schema.context import Context, Operation
from schema.documents import DOCUMENTS
from schema.root import schema
from schema.sharing import Known
from tests.schema.generated import CORE, Generator
from workers.request import Caller
from workers.runtime import Runtime

PROJECT = Path(__file__).resolve().parents[2]
MUTATION, QUERY = CORE.mutation_type, CORE.query_type
assert MUTATION is not None
assert QUERY is not None
HOT = (
    "createGrant",
    "createGrants",
    "endGrant",
    "amendGrant",
    "createInstance",
    "reserveBudget",
    "reserveBudgets",
    "commitBudget",
    "releaseBudget",
    "extendBudget",
    "debitBudget",
)
SEEDS = st.integers(0, 2**32)
ROOT = Caller(
    principal=Principal(key_id="key_1", tenant_id="root", is_root=True, permissions=frozenset({EVERYTHING})),
    request_id="req_1",
)


def context(known: Known | None = None) -> Context:
    """Nothing that is asked here looks at a node."""
    return Context(runtime=cast(Runtime, None), caller=ROOT, known=known)


def plan_of(text: str) -> Plan | None:
    return PLANS.plan(schema, DOCUMENTS.prepare(CORE, text), text, None)


def compiled(text: str) -> Plan:
    prepared = DOCUMENTS.prepare(CORE, text)
    assert not prepared.errors, prepared.errors
    plan = plan_of(text)
    assert plan is not None, f"not compiled: {text}"
    return plan


def document_for(name: str, root: GraphQLField, generator: Generator) -> str:
    """The root field with its input as a variable, and anything selected."""
    selection = generator.selection(root.type)
    alias = generator.random.choice(("", "", "told: "))
    kind = "query" if QUERY is not None and name in QUERY.fields else "mutation"
    parts = [f"{kind} ($input: {root.args['input'].type}) {{ {alias}{name}(input: $input) {selection} }}"]
    return "\n".join([*parts, *generator.fragments])


async def by_core(text: str, variables: dict[str, Any], outcome: Any) -> tuple[Any, list[GraphQLError] | None]:
    """What graphql-core makes of what the resolver returned."""
    result = await schema.execute(text, variable_values=variables, context_value=context(Known(outcome)))
    return result.data, result.errors


async def assert_alike(text: str, variables: dict[str, Any], outcome: Any, *, must: bool) -> None:
    """`must`: nothing is odd about the outcome, so that the compiled operation answers."""
    plan = compiled(text)
    data, errors = await by_core(text, variables, outcome)
    Operation(context()).begin()
    try:
        plan.arguments(variables)
        own = {plan.key: plan.complete(outcome)}
    except Exception:  # noqa: BLE001 - whatever it is, graphql-core decides
        assert errors or not must, text
        return
    assert errors is None, (text, errors)
    assert msgspec.json.encode(own) == msgspec.json.encode(data), text


def root_field(name: str) -> GraphQLField:
    assert MUTATION is not None
    assert QUERY is not None
    return MUTATION.fields.get(name) or QUERY.fields[name]


@pytest.mark.parametrize("name", [*HOT, "decide"])
@bounded(max_examples=12, deadline=None)
@given(seed=SEEDS, oddity=st.sampled_from((0, 12, 3)))
async def test_answers_are_those_of_graphql_core(name: str, seed: int, oddity: int) -> None:
    root, generator = root_field(name), Generator(seed)
    text = document_for(name, root, generator)
    if DOCUMENTS.prepare(CORE, text).errors:  # an alias that means two things
        return
    variables = {"input": generator.variable(root.args["input"].type)}
    await assert_alike(text, variables, Generator(seed + 1, oddity=oddity).outcome(root.type), must=not oddity)


def by_core_and_strawberry(text: str, variables: dict[str, Any]) -> dict[str, Any] | None:
    """The arguments; None where the request is wrong."""
    document = DOCUMENTS.prepare(CORE, text).document
    assert document is not None
    operation = next(node for node in document.definitions if isinstance(node, OperationDefinitionNode))
    coerced = get_variable_values(CORE, operation.variable_definitions or (), variables)
    if isinstance(coerced, list):
        return None
    node = cast(FieldNode, operation.selection_set.selections[0])
    parent = CORE.get_root_type(operation.operation)
    assert parent is not None
    try:
        given_ = get_argument_values(parent.fields[node.name.value], node, coerced)
    except GraphQLError:
        return None
    field = field_of(parent, node.name.value, schema.config)
    registry = schema.schema_converter.scalar_registry
    return convert_arguments(given_, field.arguments, registry, schema.config)


@pytest.mark.parametrize("name", HOT)
@bounded(max_examples=40, deadline=None)
@given(seed=SEEDS, oddity=st.sampled_from((0, 20, 5)))
def test_arguments_are_those_of_graphql_core_and_strawberry(name: str, seed: int, oddity: int) -> None:
    root, generator = root_field(name), Generator(seed, oddity=oddity)
    text = f"mutation ($input: {root.args['input'].type}) {{ {name}(input: $input) {{ __typename }} }}"
    variables = {"input": generator.variable(root.args["input"].type)}
    expected = by_core_and_strawberry(text, variables)
    try:
        found = compiled(text).arguments(variables)
    except Exception:  # noqa: BLE001 - whatever it is, graphql-core decides
        assert expected is None or oddity, variables
    else:
        assert found == expected


@pytest.mark.parametrize(
    ("head", "argument"),
    [
        ("$first: Int", "first: $first"),
        ("$first: Int = 5", "first: $first"),
        ("$first: Int!", "first: $first"),
        ("", "first: 7"),
        ("", "first: null"),
        ("$all: Boolean!", "all: $all"),
        ("$all: Boolean! = true", "all: $all"),
        ("$state: GrantState = ACTIVE", "state: $state"),
        ("", "state: ENDED"),
        ("$state: GrantState, $first: Int", "state: $state, first: $first"),
    ],
)
@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"first": 3},
        {"first": None},
        {"first": "3"},
        {"all": False},
        {"all": None},
        {"state": "ENDED"},
        {"state": 1},
    ],
)
def test_defaults_nulls_and_literals_are_those_of_graphql_core(
    head: str, argument: str, variables: dict[str, Any]
) -> None:
    text = f"query {f'({head})' if head else ''} {{ grants({argument}) {{ __typename }} }}"
    expected = by_core_and_strawberry(text, variables)
    try:
        found = compiled(text).arguments(variables)
    except Exception:  # noqa: BLE001 - whatever it is, graphql-core decides
        assert expected is None
    else:
        assert found == expected


ENDED = "endGrant(input: $input) { __typename }"
SELECTED = "{ __typename ... on Grant { id state } ... on Refusal { code } }"


@pytest.mark.parametrize(
    "text",
    [
        f"mutation ($input: EndGrantInput!) {{ a: {ENDED} b: {ENDED} }}",
        f"mutation ($input: EndGrantInput!) {{ __typename endGrant(input: $input) {SELECTED} }}",
        f"mutation ($input: EndGrantInput!, $x: Boolean!) {{ endGrant(input: $input) @skip(if: $x) {SELECTED} }}",
        "mutation ($input: EndGrantInput!) { endGrant(input: $input) { __typename @include(if: true) } }",
        "mutation ($input: EndGrantInput!) { endGrant(input: $input) { ... on Grant @skip(if: false) { id } } }",
        "mutation ($input: EndGrantInput!) { endGrant(input: $input) { ... on Grant { held } } }",
        "mutation ($input: EndGrantInput!) { endGrant(input: $input) { ... on Grant { events(first: 1) { __typename } } } }",
        'mutation ($id: ID!) { endGrant(input: {tenantId: "root", accountId: "a", grantId: $id}) { __typename } }',
        "query ($id: ID!) { grant(id: $id) { instances(first: 3) { __typename } } }",
        "{ __schema { queryType { name } } }",
        "subscription { events { __typename } }",
    ],
)
def test_what_is_unusual_is_left_to_graphql_core(text: str) -> None:
    assert plan_of(text) is None


def test_nothing_is_compiled_for_a_schema_with_an_extension_that_it_does_not_know() -> None:
    assert tuple(schema.extensions) == OWN_EXTENSIONS


def test_names_that_are_thought_up_and_long_documents_are_not_remembered() -> None:
    text = "query Named { grants { __typename } }"
    prepared, before = DOCUMENTS.prepare(CORE, text), len(PLANS)
    assert all(PLANS.plan(schema, prepared, text, f"other{number}") is None for number in range(9))
    long = f"{text} #{'x' * 30_000}"
    assert PLANS.plan(schema, DOCUMENTS.prepare(CORE, long), long, None) is None
    assert len(PLANS) == before


# -- every document of the project -------------------------------------------------------------------------------------


ELSEWHERE = (".md", ".ts", ".tsx", ".js", ".mjs", ".html")
SPOKEN = re.compile(r"\b(mutation|query)\b.*\{")


def texts() -> Iterator[str]:
    """Whatever could be a document: texts of Python, fenced or in backticks elsewhere."""
    for folder, inner, names in os.walk(PROJECT):
        inner[:] = [
            name for name in inner if not name.startswith(".") and name not in {"node_modules", "dist", "build"}
        ]
        for path in (Path(folder, name) for name in names):
            if path.suffix not in {".py", *ELSEWHERE} or not SPOKEN.search(text := path.read_text()):
                continue
            if path.suffix == ".py":
                nodes = ast.walk(ast.parse(text))
                constants = (node.value for node in nodes if isinstance(node, ast.Constant))
                yield from (value for value in constants if isinstance(value, str))
            else:
                yield from (found[1] for found in re.finditer(r"```graphql\n(.*?)```", text, re.DOTALL))
                yield from (found[1] for found in re.finditer(r"(?<!`)`([^`$]*)`", text))


def root_of(text: str) -> tuple[OperationDefinitionNode, GraphQLField] | None:
    """Of a document that is compiled."""
    prepared = DOCUMENTS.prepare(CORE, text)
    operation = prepared.operation(None)
    if prepared.errors or operation is None or plan_of(text) is None:
        return None
    node, parent = cast(FieldNode, operation.selection_set.selections[0]), CORE.get_root_type(operation.operation)
    assert parent is not None
    return operation, parent.fields[node.name.value]


async def test_every_document_of_the_project_is_answered_alike() -> None:
    documents = {text for text in texts() if re.match(r"\s*(#.*\n\s*)*(query|mutation|\{)", text) and "{" in text}
    hurried = 0
    for text in sorted(documents):
        if (root := root_of(text)) is None:
            continue
        operation, field = root
        hurried += 1
        generator = Generator(hurried)
        for _ in range(2):
            variables = {
                each.variable.name.value: generator.variable(cast(Any, type_from_ast(CORE, each.type)))
                for each in operation.variable_definitions or ()
            }
            await assert_alike(text, variables, generator.outcome(field.type), must=False)
    assert hurried > 20, f"only {hurried} of {len(documents)} are compiled"
