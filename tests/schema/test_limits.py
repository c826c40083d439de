"""Every limit of a document, refused with its own code."""

from __future__ import annotations

import pytest
from graphql import get_introspection_query
from strawberry.types import ExecutionResult

from domain.paging import PAGE_MAX
from schema.bounds import ALIASES_MAX, DEPTH_MAX, ITEMS_MAX, LIST_MAX, TOKENS_MAX
from tests.schema.world import World
from workers.capacity.providers.push import PUSHED_MAX


def codes(result: ExecutionResult) -> list[str]:
    return [(error.extensions or {}).get("code") for error in result.errors or ()]


async def test_a_document_may_be_as_deep_as_the_limit_and_no_deeper(world: World) -> None:
    """Fragments count with what they contain. Validation goes through both, so unknown fields are refused besides."""
    allowed = "{ " + "a { " * (DEPTH_MAX - 1) + "a" + " }" * DEPTH_MAX
    deeper = "{ " + "a { " * DEPTH_MAX + "a" + " }" * (DEPTH_MAX + 1)
    in_fragment = (
        "{ a { a { ...F } } } fragment F on Query { " + "a { " * (DEPTH_MAX - 2) + "a" + " }" * (DEPTH_MAX - 1)
    )

    assert "TOO_DEEP" not in codes(await world.ask(allowed))
    assert "TOO_DEEP" in codes(await world.ask(deeper))
    assert "TOO_DEEP" in codes(await world.ask(in_fragment))


async def test_a_document_nested_beyond_all_measure_is_refused_and_not_our_fault(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    fields = await world.ask("{ " + "a { " * 900 + "a" + " }" * 901)
    values = await world.ask("{ events(types: " + "[" * 1_500 + "]" * 1_500 + ") { nodes { id } } }")

    assert codes(fields) == ["TOO_DEEP"]
    assert codes(values) == ["TOO_DEEP"]
    assert not [record for record in caplog.records if record.name == "earmark.graphql"]


async def test_aliases_are_counted_as_often_as_a_fragment_is_used(world: World) -> None:
    few = "{" + " ".join(f"a{number}: viewer {{ tenant {{ id }} }}" for number in range(ALIASES_MAX)) + "}"
    many = "{ ...F b: viewer { tenant { id } } } fragment F on Query {" + few[1:]

    assert codes(await world.ask(few)) == []
    assert codes(await world.ask(many)) == ["TOO_MANY_ALIASES"]


async def test_fragments_that_use_one_another_over_and_over_cost_nothing(world: World) -> None:
    """Each level doubles what is below: 2^60 aliases in a page of text."""
    levels = [f"fragment F{n} on Query {{ ...F{n + 1} ...F{n + 1} }}" for n in range(60)]
    document = "{ ...F0 } " + " ".join(levels) + " fragment F60 on Query { a: viewer { tenant { id } } }"

    assert "TOO_MANY_ALIASES" in codes(await world.ask(document))


async def test_a_fragment_that_uses_itself_is_an_invalid_document(world: World) -> None:
    result = await world.ask("{ ...F } fragment F on Query { viewer { tenant { id } } ...F }")

    assert codes(result) == ["INVALID_DOCUMENT"]


async def test_a_document_of_too_many_words_is_not_even_parsed(world: World) -> None:
    result = await world.ask("{" + " viewer" * (TOKENS_MAX + 1) + "}")

    assert codes(result) == ["TOO_MANY_TOKENS"]


@pytest.mark.parametrize("first", [-1, PAGE_MAX + 1, 2**31 - 1])
async def test_a_page_has_a_size_and_a_limit(world: World, first: int) -> None:
    for field in ("grants", "instances", "events", "tenants", "pools", "apiKeys", "capacityReservations"):
        result = await world.ask(
            f"query ($first: Int) {{ {field}(first: $first) {{ nodes {{ __typename }} }} }}", first=first
        )

        assert result.errors is not None
        assert result.errors[0].extensions == {
            "code": "INVALID_INPUT",
            "field": "first",
            "reason": "out-of-range",
        }
        assert result.data == {field: None}


async def test_all_lists_of_an_operation_together_have_a_limit(world: World) -> None:
    """What one list inside another asks for is multiplied."""
    lists = ITEMS_MAX // PAGE_MAX
    fitting = "{" + " ".join(f"a{n}: tenants(first: {PAGE_MAX}) {{ nodes {{ id }} }}" for n in range(lists)) + "}"
    more = fitting[:-1] + " tenants(first: 1) { nodes { id } } }"

    assert lists <= ALIASES_MAX
    assert codes(await world.ask(fitting)) == []
    assert codes(await world.ask(more)) == ["TOO_MANY_ITEMS"]


@pytest.mark.parametrize("cursor", ["", "x", "MTAvYQ", "🙂", "=" * 5_000])
async def test_a_cursor_of_nothing_is_refused(world: World, cursor: str) -> None:
    for field in ("grants", "events", "tenants"):
        document = f"query ($after: String) {{ {field}(after: $after) {{ nodes {{ id }} }} }}"
        result = await world.ask(document, after=cursor)

        # An id of a tenant can be nearly anything, so a made-up place among tenants may be one.
        if (field, cursor) != ("tenants", "MTAvYQ"):
            assert codes(result) == ["INVALID_INPUT"], field
            assert result.errors is not None
            assert (result.errors[0].extensions or {})["field"] == "after"


async def test_lists_in_inputs_have_limits(world: World) -> None:
    types = ["x"] * 33
    result = await world.ask("query ($types: [String!]) { events(types: $types) { nodes { id } } }", types=types)
    reported = [{"reservationId": f"r{n}", "flavor": "f", "region": "r", "total": 1} for n in range(PUSHED_MAX + 1)]
    assert len(reported) < LIST_MAX, "the desk says it, in the result's own type"
    refused = await world.mutate("reportReservations", {"accountId": world.account_id, "reservations": reported})

    assert codes(result) == ["INVALID_INPUT"]
    assert (refused["code"], refused["field"], refused["reason"]) == ("INVALID_INPUT", "reservations", "too-many")


async def test_introspection_is_answered_and_bounded(world: World) -> None:
    """Clients fetch the schema with one deep query; nested without end it would be a way to keep a server busy."""
    endless = "{ __schema { types " + "{ fields { type " * 12 + "{ name }" + " } }" * 12 + " } }"

    whole = await world.data(get_introspection_query(input_value_deprecation=True, one_of=True), world.callers["a"])
    refused = await world.ask(endless)

    assert "CreateGrantInput" in {kind["name"] for kind in whole["__schema"]["types"]}
    assert codes(refused) == ["INVALID_DOCUMENT"]


async def test_several_operations_need_the_name_of_one(world: World) -> None:
    document = "query A { viewer { tenant { id } } } query B { viewer { apiKey { id } } }"
    for _ in range(2):  # also when the document is remembered
        unnamed = await world.ask(document)
        assert codes(unnamed) == ["INVALID_DOCUMENT"]
        assert unnamed.data is None
