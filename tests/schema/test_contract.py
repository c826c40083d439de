"""The printed contract, and the promises that hold for all of it."""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
from graphql import (
    GraphQLEnumType,
    GraphQLInputObjectType,
    GraphQLInterfaceType,
    GraphQLObjectType,
    GraphQLSchema,
    GraphQLUnionType,
    build_schema,
    get_named_type,
    is_leaf_type,
    is_required_argument,
    parse,
    validate,
)
from graphql.validation import FieldsOnCorrectTypeRule, OverlappingFieldsCanBeMergedRule

import domain
from domain.budget.refusals import Denial
from domain.outcomes import Refusal
from schema import refusals
from schema.root import sdl

CONTRACT = Path(__file__).parents[2] / "schema" / "schema.graphql"
INSTANT = re.compile(r"(\w+At|at|from|to|notBefore|notAfter|hourStart|dayStart|durationMs)")
AMOUNT = re.compile(r"(\w+Ms|seq)")
UNKEYED = {
    "testWebhook": "a second test is a second test",
    "createGrants": "each of its grants has its own",
    "reserveBudgets": "each of its holds has its own",
}
"""Mutations that take no idempotency key, and why a retry does no harm."""


@pytest.fixture(scope="module")
def contract() -> GraphQLSchema:
    return build_schema(sdl())


def names_and_types(contract: GraphQLSchema) -> Iterator[tuple[str, str, str]]:
    """(place, name, type) of every field, argument and input field."""
    for kind in contract.type_map.values():
        if kind.name.startswith("__") or not isinstance(
            kind, GraphQLObjectType | GraphQLInterfaceType | GraphQLInputObjectType
        ):
            continue
        for name, field in kind.fields.items():
            yield kind.name, name, get_named_type(field.type).name
            for argument, given in getattr(field, "args", {}).items():
                yield f"{kind.name}.{name}", argument, get_named_type(given.type).name


def subclasses(kind: type[Refusal]) -> Iterator[type[Refusal]]:
    """Those that their modules have: a dataclass with slots leaves the class it was made from behind."""
    for child in kind.__subclasses__():
        if getattr(sys.modules[child.__module__], child.__name__, None) is child:
            yield child
        yield from subclasses(child)


def domain_refusals() -> list[type[Refusal]]:
    """Every refusal of the domain that this schema can answer with."""
    for module in pkgutil.walk_packages(domain.__path__, "domain."):
        importlib.import_module(module.name)
    return [kind for kind in subclasses(Refusal) if kind.__module__.startswith("domain.") and kind is not Denial]


def test_the_checked_in_contract_is_current() -> None:
    """`earmark export-schema schema/schema.graphql` writes it anew."""
    assert CONTRACT.read_text() == sdl()


def test_every_instant_is_in_millis_and_every_amount_in_int64(contract: GraphQLSchema) -> None:
    """T95, D25: as Int, an instant would not fit."""
    checked = 0
    for place, name, kind in names_and_types(contract):
        if INSTANT.fullmatch(name):
            assert kind == "Millis", f"{place}.{name} is {kind}"
            checked += 1
        elif AMOUNT.fullmatch(name):
            assert kind == "Int64", f"{place}.{name} is {kind}"
            checked += 1
    assert checked > 50


def test_no_number_is_a_float(contract: GraphQLSchema) -> None:
    assert [place for place, _, kind in names_and_types(contract) if kind == "Float"] == []


def test_every_refusal_of_the_domain_has_a_type() -> None:
    """The table is total: whoever adds a refusal is told here where it is missing."""
    kinds = domain_refusals()

    assert len(kinds) >= 6
    assert [kind.__name__ for kind in kinds if kind not in refusals.shown_kinds()] == []


def test_every_refusal_keeps_its_code_and_details() -> None:
    examples = {
        "expected_units": ("TOKENS",),
        "field": "f",
        "state": "s",
        "grant_ids": ("g",),
        "reason": "r",
        "grant_id": "g",
        "version": 2,
    }
    for kind in domain_refusals():
        names = {field.name for field in fields(kind) if field.name != "message"}
        given = {name: examples.get(name, 7) for name in names}
        shown = refusals.show_refusal(kind(message="m", **given))

        assert (shown.code.value, shown.message) == (kind.code, "m")
        for name in names - ({"field"} if kind.code == "NOT_FOUND" else set()):  # R64: NOT_FOUND tells nothing more
            value = getattr(shown, refusals.shown_name(kind, name))
            assert (tuple(value) if isinstance(value, list) else value) == given[name]


def test_the_codes_are_those_of_the_domain(contract: GraphQLSchema) -> None:
    codes = contract.type_map["RefusalCode"]
    assert isinstance(codes, GraphQLEnumType)
    assert {kind.code for kind in domain_refusals()} == set(codes.values)


def test_every_mutation_takes_one_input_and_answers_with_a_union(contract: GraphQLSchema) -> None:
    assert contract.mutation_type is not None
    refusal = contract.type_map["Refusal"]
    assert isinstance(refusal, GraphQLInterfaceType)
    kinds = set(contract.get_implementations(refusal).objects)
    for name, field in contract.mutation_type.fields.items():
        union = get_named_type(field.type)
        assert list(field.args) == ["input"], name
        assert isinstance(union, GraphQLUnionType), name
        assert union.name == f"{name[0].upper()}{name[1:]}Result"
        assert len([kind for kind in union.types if kind not in kinds]) == 1, f"{name} has one success"
        wanted = get_named_type(field.args["input"].type)
        assert isinstance(wanted, GraphQLInputObjectType)
        assert ("idempotencyKey" in wanted.fields) is (name not in UNKEYED), name


def test_the_idempotency_key_is_required_where_a_retry_could_do_harm(contract: GraphQLSchema) -> None:
    required = {
        kind.name
        for kind in contract.type_map.values()
        if isinstance(kind, GraphQLInputObjectType)
        and "idempotencyKey" in kind.fields
        and str(kind.fields["idempotencyKey"].type).endswith("!")
    }
    of_budgets = {f"{name}BudgetInput" for name in ("Reserve", "Commit", "Release", "Extend", "Debit")}
    assert required == {"CreateGrantInput", "DecideInput", *of_budgets}


def test_every_list_of_things_is_a_page(contract: GraphQLSchema) -> None:
    """What takes `first` for a page answers with a connection, and every connection takes it."""
    for kind in contract.type_map.values():
        for name, field in getattr(kind, "fields", {}).items():
            if get_named_type(field.type).name.endswith("Connection"):
                assert "first" in field.args, f"{kind.name}.{name}"


def test_every_type_and_every_computed_field_is_described(contract: GraphQLSchema) -> None:
    described = (GraphQLObjectType, GraphQLInterfaceType, GraphQLInputObjectType, GraphQLEnumType)
    silent = [
        kind.name
        for kind in contract.type_map.values()
        if isinstance(kind, described) and not kind.name.startswith("__") and not kind.description
    ]
    assert [name for name in silent if not name.endswith(("Connection", "Edge"))] == []
    for kind in (contract.query_type, contract.mutation_type, contract.subscription_type):
        assert kind is not None
        assert [name for name, field in kind.fields.items() if not field.description] == []


# -- one document may ask for everything -------------------------------------------------------------------------------


def everything_of(kind: GraphQLObjectType, depth: int = 2) -> str:
    """Every field that needs no argument, with what is in it, some way down."""
    parts = []
    for name, field in kind.fields.items():
        inner = get_named_type(field.type)
        if any(is_required_argument(argument) for argument in field.args.values()):
            continue
        if is_leaf_type(inner):
            parts.append(name)
        elif isinstance(inner, GraphQLObjectType) and depth > 1:
            parts.append(f"{name} {{ {everything_of(inner, depth - 1)} }}")
    return " ".join(parts) or "__typename"


def fields_of_results(contract: GraphQLSchema) -> Iterator[tuple[str, GraphQLUnionType]]:
    for root in (contract.query_type, contract.mutation_type):
        assert root is not None
        for name, field in root.fields.items():
            if isinstance(kind := get_named_type(field.type), GraphQLUnionType):
                yield f"{'query' if root is contract.query_type else 'mutation'} {name}", kind


def test_all_members_of_a_result_can_be_asked_for_everything_in_one_document(contract: GraphQLSchema) -> None:
    """Fields of one name must have one type in all of them, or GraphQL refuses the document."""
    found = list(fields_of_results(contract))
    assert len(found) > 40
    for place, union in found:
        operation, name = place.split()
        members = " ".join(f"... on {member.name} {{ {everything_of(member)} }}" for member in union.types)
        document = (
            f"{operation} ($input: {_input_of(contract, operation, name)}) {{ {name}(input: $input) {{ {members} }} }}"
        )
        errors = validate(contract, parse(document), [OverlappingFieldsCanBeMergedRule, FieldsOnCorrectTypeRule])
        assert not errors, f"{name}: {errors[0].message}"


def _input_of(contract: GraphQLSchema, operation: str, name: str) -> str:
    root = contract.query_type if operation == "query" else contract.mutation_type
    assert root is not None
    return str(root.fields[name].args["input"].type)


def test_the_walk_over_results_would_notice() -> None:
    clashing = build_schema("""
        type A { id: ID! } type B { id: ID } union U = A | B
        type Query { u(input: Int): U } type Mutation { m(input: Int): U }
    """)
    document = "query ($input: Int) { u(input: $input) { ... on A { id } ... on B { id } } }"
    assert [place for place, _ in fields_of_results(clashing)] == ["query u", "mutation m"]
    assert validate(clashing, parse(document), [OverlappingFieldsCanBeMergedRule])
