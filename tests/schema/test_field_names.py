"""Every refusal of an input names the input by its own path, in words: over all queries, mutations and subscriptions."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import pytest
from graphql import (
    GraphQLArgument,
    GraphQLEnumType,
    GraphQLField,
    GraphQLInputField,
    GraphQLInputObjectType,
    GraphQLInputType,
    GraphQLObjectType,
    GraphQLScalarType,
    GraphQLUnionType,
    get_named_type,
    get_nullable_type,
    is_leaf_type,
    is_list_type,
    is_required_argument,
)
from strawberry.types import ExecutionResult

from domain.capacity.metering import METERS
from schema.root import schema
from tests.schema.world import World, until

CONTRACT: Final = schema._schema
BODY: Final = "0" * 26
PLAUSIBLE: Final[Mapping[str, Any]] = {
    "tenantId": "root",
    "grantTenantId": "a",
    "ofTenantId": "a",
    "ownerTenantId": "a",
    "accountId": f"pacct_{BODY}",
    "projectId": f"prj_{BODY}",
    "grantId": f"rgrant_{BODY}",
    "instanceId": f"inst_{BODY}",
    "keyId": f"key_{BODY}",
    "webhookId": f"whsub_{BODY}",
    "id": "res",
    "reservation": f"pacct_{BODY}/res",
    "idempotencyKey": "key",
    "scope": "tenant:root",
    "scopePattern": "tenant:root",
    "url": "https://example.com/hook",
    "eventTypes": ["budget.funded"],
    "permissions": ["compute:quotas:read"],
    "types": ["reservation-grant.created"],
    "meters": ["vm.grant.slot.hours"],
    "startsAt": 1_800_000_000_000,
    "endsAt": 1_800_003_600_000,
    "from": 1_800_000_000_000,
    "to": 1_800_003_600_000,
    "slots": 1,
    "expectedVersion": 1,
    "first": 1,
    "durationMs": 1,
    "kind": "push",
    "settings": {},
    "subject": {"tenant": "root"},
    "after": None,
}
"""Values that are accepted, by the name of the input; of the rest, by its type."""
BY_TYPE: Final[Mapping[str, Any]] = {
    "ID": "x1",
    "String": "x1",
    "Int": 1,
    "Millis": 1_800_000_000_000,
    "Int64": "1",
    "Boolean": True,
    "JSON": {},
    "JSONObject": {},
}
WRONG: Final[Mapping[str, tuple[Any, ...]]] = {
    "ID": ("", "\n", "ä", "a b", "x" * 5_000),
    "String": ("", "\n", "ä\x00", "x" * 5_000),
    "Int": (-1, 0, 2**31 - 1),
    "Millis": (0, 2**53 - 1),
    "Int64": ("-1", str(2**63 - 1)),
    "Boolean": (),
    "JSON": ([], "x", {"": 1}, {"nope": {"a": [1, None]}}, {"x" * 5_000: 1}),
    "JSONObject": ({"": 1}, {"nope": {"a": [1, None]}}, {"x" * 5_000: "y" * 50_000}),
}
MACHINE_WORDS: Final = re.compile(
    r"NoneType|\b(int|str|dict|float|bool|tuple|frozenset)\b|\^|\\|\{\d|\[A-Z|<class|\bNone\b|\bTrue\b|\bFalse\b"
)
IN_QUOTES: Final = re.compile(r"""\"(?:[^"\\]|\\.)*\"|'[^']*'""")
"""What a client sent, shown to it again."""
Given = GraphQLArgument | GraphQLInputField


# -- making requests ---------------------------------------------------------------------------------------------------


def plausible(name: str, given: Given) -> Any:
    return _plausible(name, given.type)


def _plausible(name: str, kind: GraphQLInputType) -> Any:
    kind = get_nullable_type(kind)
    if name in PLAUSIBLE and not isinstance(kind, GraphQLInputObjectType):
        return PLAUSIBLE[name]
    if is_list_type(kind):
        return [_plausible(name.removesuffix("s"), kind.of_type)]
    if isinstance(kind, GraphQLEnumType):
        return next(iter(kind.values))
    if isinstance(kind, GraphQLInputObjectType):
        required = {inner: field for inner, field in kind.fields.items() if str(field.type).endswith("!")}
        return {inner: plausible(inner, field) for inner, field in required.items()}
    assert isinstance(kind, GraphQLScalarType)
    return BY_TYPE[kind.name]


def spoiled(name: str, kind: GraphQLInputType, *, depth: int = 4) -> Iterator[Any]:
    """Wrong values of the type that GraphQL itself lets through, one wrong place at a time."""
    kind = get_nullable_type(kind)
    if is_list_type(kind):
        good = _plausible(name, kind.of_type) if name not in PLAUSIBLE else PLAUSIBLE[name][0]
        yield []
        yield [good] * 2
        yield [good] * 2_400
        yield from ([good, wrong] for wrong in spoiled(name, kind.of_type, depth=depth - 1))
    elif isinstance(kind, GraphQLInputObjectType) and depth:
        base = _plausible(name, kind)
        for inner, field in kind.fields.items():
            for wrong in spoiled(inner, field.type, depth=depth - 1):
                yield {**base, inner: wrong}
    elif isinstance(kind, GraphQLScalarType):
        yield from WRONG[kind.name]


def document(operation: str, name: str, field: GraphQLField, variables: Iterable[str]) -> str:
    declared = ", ".join(f"${argument}: {field.args[argument].type}" for argument in variables)
    passed = ", ".join(f"{argument}: ${argument}" for argument in variables)
    kind = get_named_type(field.type)
    if isinstance(kind, GraphQLUnionType):
        selection = "{ __typename ... on InvalidInput { field reason message } }"
    else:
        selection = "" if is_leaf_type(kind) else _touching(kind)
    return f"{operation} ({declared}) {{ {name}({passed}) {selection} }}"


def _touching(kind: Any) -> str:
    """Something of the object: what has fields alone is only refused where they are asked for."""
    assert isinstance(kind, GraphQLObjectType)
    return "{ records { nodes { meter } } totals { meter } }" if kind.name == "Usage" else "{ __typename }"


def roots() -> dict[str, GraphQLObjectType]:
    kinds = {
        "query": CONTRACT.query_type,
        "mutation": CONTRACT.mutation_type,
        "subscription": CONTRACT.subscription_type,
    }
    return {operation: kind for operation, kind in kinds.items() if kind is not None}


def base_of(field: GraphQLField) -> dict[str, Any]:
    """What is required."""
    return {name: plausible(name, given) for name, given in field.args.items() if is_required_argument(given)}


def requests(operation: str) -> Iterator[tuple[str, GraphQLField, dict[str, Any]]]:
    """(field, its definition, variables): one wrong place each."""
    for name, field in roots()[operation].fields.items():
        for argument, given in field.args.items():
            for wrong in spoiled(argument, given.type):
                yield name, field, {**base_of(field), argument: wrong}


# -- looking at answers ------------------------------------------------------------------------------------------------


def is_path(path: str, field: GraphQLField) -> bool:
    """Whether a client finds its input by this: arguments, fields and places in lists; an input object that is the one
    argument `input` is taken for granted."""
    steps = re.findall(r"\.?([^.\[\]]+)|\[(\d+)\]", path)
    options: dict[str, GraphQLInputType] = {name: given.type for name, given in field.args.items()}
    wanted = get_named_type(options["input"]) if set(options) == {"input"} else None
    if isinstance(wanted, GraphQLInputObjectType):  # what the library itself refuses it names from the variable on
        options |= {name: given.type for name, given in wanted.fields.items()}
    kind: Any = None
    for name, index in steps:
        if index:
            kind = get_nullable_type(kind)
            if not is_list_type(kind):
                return getattr(kind, "name", "") in ("JSON", "JSONObject")
            kind = kind.of_type
            continue
        if kind is not None:
            inner = get_nullable_type(kind)
            if getattr(inner, "name", "") in ("JSON", "JSONObject"):
                return True
            if not isinstance(inner, GraphQLInputObjectType):
                return False
            options = {each: given.type for each, given in inner.fields.items()}
        if name not in options:
            return False
        kind = options[name]
    return bool(steps)


async def refusals(
    world: World, operation: str, name: str, field: GraphQLField, variables: Any
) -> list[dict[str, Any]]:
    """What is told of a wrong input: inside the result or beside it."""
    text = document(operation, name, field, variables)
    result = await (world.ask(text, **variables) if operation != "subscription" else first_of(world, text, variables))
    if result is None:
        return []
    told = [{"message": error.message, **(error.extensions or {})} for error in result.errors or ()]
    assert "INTERNAL" not in {each.get("code") for each in told}, (name, str(variables)[:300])
    shown = (result.data or {}).get(name)
    if isinstance(shown, dict) and shown.get("__typename") == "InvalidInput":
        told.append({**shown, "code": "INVALID_INPUT"})
    return [each for each in told if each.get("code") == "INVALID_INPUT"]


AFTER_JOINING_S: Final = 0.1
"""A subscriber joins before it catches up, which is when a few refusals are found."""


async def first_of(world: World, text: str, variables: Any) -> ExecutionResult | None:
    """What a subscription begins with; None for one that was let in and has nothing to say yet."""
    stream = await world.stream(text, **variables)
    if isinstance(stream, ExecutionResult):
        return stream
    listening, first = listeners(world), asyncio.ensure_future(anext(stream))
    try:
        await until(lambda: first.done() or listeners(world) > listening)
        await asyncio.wait([first], timeout=AFTER_JOINING_S)
        return first.result() if first.done() else None
    finally:
        first.cancel()
        await asyncio.wait([first])
        await stream.aclose()


def listeners(world: World) -> int:
    return world.runtime.hub.count + world.runtime.board.count


@pytest.mark.parametrize("operation", ["query", "mutation", "subscription"])
async def test_every_refused_input_is_named_by_its_own_path_and_told_in_words(world: World, operation: str) -> None:
    """Nothing that GraphQL lets through is a fault of ours, whatever is in it."""
    refused = 0
    for name, field, variables in requests(operation):
        for told in await refusals(world, operation, name, field, variables):
            refused += 1
            place = f"{name} {str(variables)[:200]}: {told['message'][:200]}"
            assert told.get("field"), place
            assert told["field"] == "variables" or is_path(told["field"], field), place  # all of them are too many
            assert told.get("reason"), place
            assert not MACHINE_WORDS.search(IN_QUOTES.sub("", told["message"])), place
    assert refused > {"query": 200, "mutation": 500, "subscription": 20}[operation]


VOCABULARIES: Final = frozenset({"types", "meters", "eventTypes", "permissions"})
LOOKED_UP_FIRST: Final = frozenset({"updateWebhook"})
"""It looks at the whole of what would be, so at nothing of what is not there."""


@pytest.mark.parametrize("operation", ["query", "mutation", "subscription"])
async def test_a_word_that_is_no_type_of_anything_is_refused(world: World, operation: str) -> None:
    for name, field in roots()[operation].fields.items():
        for argument, given in field.args.items() if name not in LOOKED_UP_FIRST else ():
            wanted = get_named_type(given.type)
            inside = wanted.fields if isinstance(wanted, GraphQLInputObjectType) else {}
            for vocabulary in VOCABULARIES.intersection([argument, *inside]):
                base = base_of(field)
                wrong: Any = ["nonsense.word"]
                if vocabulary in inside:
                    wrong = {**base[argument], vocabulary: wrong}
                told = await refusals(world, operation, name, field, {**base, argument: wrong})
                assert [each["field"] for each in told[:1]] == [vocabulary], name
                assert "nonsense.word" in told[0]["message"]


async def test_a_mistyped_word_is_answered_with_the_right_one(world: World) -> None:
    async def message(document: str) -> str:
        result = await world.ask(document)
        assert result.errors is not None
        assert (result.errors[0].extensions or {})["reason"] == "unknown-word"
        return result.errors[0].message

    events = await message('{ events(types: ["reservation-grant.actve"]) { nodes { id } } }')
    meters = await message('{ usage(meters: ["vm.grant.slots.hours"]) { records { nodes { meter } } } }')
    other = await message('{ usage(meters: ["x"]) { totals { meter } } }')
    of_grants = await first_of(world, 'subscription { grantEvents(types: ["budget.funded"]) { id } }', {})

    assert "did you mean reservation-grant.active" in events
    assert "did you mean vm.grant.slot.hours" in meters
    assert all(meter in other for meter in METERS)
    assert of_grants is not None
    assert of_grants.errors is not None
    assert (of_grants.errors[0].extensions or {})["reason"] == "unknown-word"


@pytest.mark.parametrize(
    ("document", "variables", "field", "reason"),
    [
        ("query ($n: Int!) { grants(first: $n) { totalCount } }", {"n": "x"}, "n", "wrong-type"),
        ("query ($n: Int!) { grants(first: $n) { totalCount } }", {}, "n", "missing"),
        (
            "query ($o: TermInput) { grants(overlaps: $o) { totalCount } }",
            {"o": {"startsAt": "x", "endsAt": 1}},
            "o.startsAt",
            "wrong-type",
        ),
        ("query ($t: [String!]) { events(types: $t) { totalCount } }", {"t": ["a", 1]}, "t[1]", "wrong-type"),
    ],
)
async def test_a_variable_that_is_no_value_of_its_type_is_named_by_its_place(
    world: World, document: str, variables: dict[str, Any], field: str, reason: str
) -> None:
    result = await world.ask(document, **variables)
    assert result.errors is not None
    extensions = result.errors[0].extensions or {}
    assert (extensions["code"], extensions["field"], extensions["reason"]) == ("INVALID_INPUT", field, reason)


# -- pages of nothing --------------------------------------------------------------------------------------------------


def lists_of(kind: GraphQLObjectType) -> Iterator[tuple[str, GraphQLField]]:
    for name, field in kind.fields.items():
        if "first" in field.args:
            yield name, field


async def test_a_page_of_nothing_is_an_empty_page_everywhere(world: World) -> None:
    grant = (await world.create_grant())["id"]
    inside = {
        "Query": "{{ {asked} }}",
        "Grant": '{{ grant(id: "{grant}") {{ {asked} }} }}',
        "CapacityReservation": '{{ capacityReservation(id: "{reservation}") {{ {asked} }} }}',
        "Usage": "{{ usage {{ {asked} }} }}",
        "Webhook": "{{ webhooks {{ nodes {{ {asked} }} }} }}",
    }
    seen = 0
    for kind in (each for each in CONTRACT.type_map.values() if isinstance(each, GraphQLObjectType)):
        for name, field in lists_of(kind):
            given = {**base_of(field), "first": 0}
            arguments = ", ".join(f"{argument}: {literal(value)}" for argument, value in given.items())
            is_page = not is_list_type(get_nullable_type(field.type))
            selection = "nodes { __typename } pageInfo { hasPreviousPage }" if is_page else "__typename"
            document = inside[kind.name].format(
                asked=f"{name}({arguments}) {{ {selection} }}", grant=grant, reservation=f"{world.account_id}/res"
            )
            for shown in named(name, await world.data(document)):
                assert shown in (None, [], {"nodes": [], "pageInfo": {"hasPreviousPage": False}}), (kind.name, name)
            seen += 1
    assert seen > 20


def named(name: str, data: Any) -> Iterator[Any]:
    """What an answer has under a name, wherever."""
    for key, value in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        if key == name:
            yield value
        yield from named(name, value)


def literal(value: Any) -> str:
    """A value as a document writes it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {literal(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(literal(each) for each in value) + "]"
    text = json.dumps(value)
    return text if not isinstance(value, str) or not value.isupper() else value
