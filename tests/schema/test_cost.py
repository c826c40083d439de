"""What operations cost before they are executed, and requests that would keep everybody else waiting: none is let in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest
from graphql import get_introspection_query
from strawberry.types import ExecutionResult

from domain.paging import PAGE_DEFAULT, PAGE_MAX
from schema.bounds import (
    ALIASES_MAX,
    COST_MAX,
    DOCUMENT_LENGTH_MAX,
    ERRORS_MAX,
    LIST_MAX,
    REMEMBERED_LENGTH_MAX,
    REMEMBERED_MAX,
    REMEMBERED_SUM_MAX,
    TEXT_MAX,
    TOKENS_MAX,
    VALUES_MAX,
)
from schema.context import Context
from schema.cost import Cost
from schema.documents import DOCUMENTS, Documents
from schema.root import schema
from schema.weights import COMPUTED, LISTED, LOADED, PLAIN, READ, SIZES, WEIGHTS
from tests.schema.world import World

SCHEMA: Final = schema._schema
INTROSPECTION: Final = get_introspection_query(input_value_deprecation=True, one_of=True)
EVERYTHING_OF_GRANTS: Final = """
    id tenantId projectId state slots startsAt endsAt createdAt cancelledAt endedReason poolId region provider version
    accountId reservationId orphaned held running stopped idle usedSlotMs usedSlotHours committedSlotMs committedSlotHours
"""


def cost(document: str, operation_name: str | None = None, /, **variables: Any) -> Cost:
    prepared = Documents().prepare(SCHEMA, document)
    assert prepared.errors == ()
    costing = prepared.costing(operation_name)
    assert costing is not None
    return costing.of(variables)


def codes(result: ExecutionResult) -> list[str]:
    return [(error.extensions or {}).get("code") for error in result.errors or ()]


def test_a_fragment_that_asks_for_what_an_object_never_is_costs_nothing() -> None:
    """By way of an interface, which both are, it is a valid document."""
    without = "... on InvalidInput { reason ... on Refusal { code } }"
    within = "... on InvalidInput { reason ... on Refusal { code ... on Conflict { grantId } } }"
    head = "mutation ($input: EndGrantInput!) { endGrant(input: $input)"
    assert cost(f"{head} {{ {within} }} }}") == cost(f"{head} {{ {without} }} }}")


# -- what it comes to --------------------------------------------------------------------------------------------------


def page(items: int, of_each: int) -> int:
    """A list of the query: read, made, and its items in `nodes`."""
    return READ + COMPUTED + COMPUTED + items * (COMPUTED + of_each)


def test_a_page_costs_its_items_times_what_is_asked_of_each() -> None:
    assert cost("{ grants(first: 10) { nodes { id } } }").total == page(10, PLAIN)
    assert cost("{ grants(first: 10) { nodes { id slots accountId } } }").total == page(10, 2 * PLAIN + COMPUTED)
    assert cost("{ grants(first: 10) { nodes { held } } }").total == page(10, LOADED)
    assert cost("{ grants(first: 0) { nodes { id } } }").total == page(0, PLAIN)
    assert cost("{ grants { nodes { id } } }").total == page(PAGE_DEFAULT, PLAIN)
    assert cost("{ grants(first: 999999) { nodes { id } } }").total == page(PAGE_MAX, PLAIN)
    assert cost("{ grants(first: -5) { nodes { id } } }").total == page(0, PLAIN)


def test_what_hangs_on_each_item_is_multiplied() -> None:
    inner = page(7, PLAIN)
    assert cost("{ grants(first: 10) { nodes { events(first: 7) { nodes { id } } } } }").total == page(10, inner)
    outer = page(3, page(10, inner))
    nested = "{ grants(first: 10) { nodes { events(first: 7) { nodes { id } } } } }"
    assert cost(f"{{ capacityReservations(first: 3) {{ nodes {nested} }} }}").total == outer


def test_edges_cost_as_much_as_nodes_and_a_count_is_a_read() -> None:
    edges = READ + COMPUTED + PLAIN + 10 * (COMPUTED + PLAIN + PLAIN + COMPUTED + PLAIN)
    assert cost("{ grants(first: 10) { edges { cursor node { id } } } }").total == edges
    assert cost("{ grants(first: 10) { totalCount } }").total == READ + COMPUTED + READ


def test_every_alias_counts_and_what_is_merged_counts_once() -> None:
    one = page(10, PLAIN)
    twice = "{ a: grants(first: 10) { nodes { id } } b: grants(first: 10) { nodes { id } } }"
    merged = (
        "{ grants(first: 10) { nodes { id } } ...F ...F } fragment F on Query { grants(first: 10) { nodes { id } } }"
    )
    aliased_leaves = "{ grants(first: 10) { nodes { a: id b: id } } }"
    assert cost(twice).total == 2 * one
    assert cost(merged).total == one
    assert cost(aliased_leaves).total == page(10, 2 * PLAIN)


def test_page_sizes_and_conditions_are_taken_from_variables_and_their_defaults() -> None:
    document = "query ($n: Int = 4, $x: Boolean = true) { grants(first: $n) { nodes { id slots @include(if: $x) } } }"
    assert cost(document).total == page(4, 2 * PLAIN)
    assert cost(document, n=20).total == page(20, 2 * PLAIN)
    assert cost(document, n=20, x=False).total == page(20, PLAIN)
    assert cost(document, n=None).total == page(PAGE_DEFAULT, 2 * PLAIN)
    assert cost(document, n=3.0).total == page(3, 2 * PLAIN)
    for nonsense in ("x", [1], {"a": 1}, 2.5):  # refused when the variables are looked at
        assert cost(document, n=nonsense, x=nonsense).total == page(PAGE_DEFAULT, 2 * PLAIN)
    skipped = "query ($x: Boolean!) { grants(first: 9) @skip(if: $x) { nodes { id } } }"
    assert (cost(skipped, x=True).total, cost(skipped, x=False).total) == (0, page(9, PLAIN))


def test_what_is_asked_of_several_kinds_is_counted_for_each() -> None:
    refusals = "... on Refusal { message } ... on Grant { id } ... on Conflict { message }"
    document = f"mutation ($input: EndGrantInput!) {{ endGrant(input: $input) {{ __typename {refusals} }} }}"
    assert cost(document).total == READ + COMPUTED + 4 * PLAIN


def test_a_list_that_nobody_says_the_size_of_counts_as_some() -> None:
    at = "availability(from: 0, to: 1)"
    reservation = (
        f'{{ capacityReservation(id: "x") {{ {at} {{ at }} earliestFit(slots: 1, durationMs: 1) {{ startsAt }} }} }}'
    )
    steps = 2 * READ + LISTED * (COMPUTED + PLAIN)
    fits = 2 * READ + SIZES["CapacityReservation", "earliestFit"] * (COMPUTED + PLAIN)
    assert cost(reservation).total == READ + COMPUTED + steps + fits


def test_the_heaviest_field_is_named_by_its_path() -> None:
    events = (
        "{ a: grants(first: 9) { nodes { id events(first: 50) { nodes { id payload } } } } tenants { totalCount } }"
    )
    assert cost(events).heaviest == ("a", "nodes", "events", "nodes")
    assert cost("{ viewer { tenant { id } } grants(first: 200) { nodes { id } } }").heaviest == ("grants", "nodes")
    even = " ".join(f"a{n}: grants(first: 9) {{ nodes {{ id }} }}" for n in range(9))
    assert cost(f"{{ {even} }}").heaviest == ()


def test_an_operation_is_counted_for_itself() -> None:
    document = "query A { grants(first: 9) { nodes { id } } } query B { grants(first: 2) { nodes { id } } }"
    assert cost(document, "A").total == page(9, PLAIN)
    assert cost(document, "B").total == page(2, PLAIN)


def test_the_tables_name_fields_that_are_there() -> None:
    for kind, field in (*WEIGHTS, *SIZES):
        assert field in SCHEMA.type_map[kind].fields, (kind, field)


# -- what is refused ---------------------------------------------------------------------------------------------------


async def test_an_operation_that_costs_too_much_is_refused_with_its_cost_the_limit_and_the_place(world: World) -> None:
    document = "query ($n: Int!) { grants(all: true, first: $n) { nodes { id events(first: 50) { nodes { id } } } } }"
    expected = page(PAGE_MAX, PLAIN + page(50, PLAIN))
    assert expected > COST_MAX

    refused = await world.ask(document, n=PAGE_MAX)
    await world.data(document, n=20)

    assert refused.errors is not None
    assert refused.data is None
    [error] = refused.errors
    assert error.extensions == {
        "code": "TOO_COSTLY",
        "cost": expected,
        "limit": COST_MAX,
        "field": "grants.nodes.events.nodes",
    }
    assert all(word in error.message for word in (str(expected), str(COST_MAX), "grants.nodes.events.nodes", "first"))
    assert error.path is None


async def test_the_limit_is_the_contexts_and_holds_for_subscriptions_too(world: World) -> None:
    document = "{ grants(first: 10) { nodes { id } } }"
    exactly = Context(runtime=world.runtime, caller=world.root, cost_max=page(10, PLAIN))
    less = Context(runtime=world.runtime, caller=world.root, cost_max=page(10, PLAIN) - 1)
    stream = await schema.subscribe(
        "subscription { grantEvents { id } }",
        context_value=Context(runtime=world.runtime, caller=world.root, cost_max=READ),
    )

    assert codes(await schema.execute(document, context_value=exactly)) == []
    assert codes(await schema.execute(document, context_value=less)) == ["TOO_COSTLY"]
    assert [codes(result) async for result in stream] == [["TOO_COSTLY"]]


async def test_everything_about_two_hundred_grants_is_let_in(world: World) -> None:
    await world.create_grant()
    shown = await world.data(f"{{ grants(all: true, first: {PAGE_MAX}) {{ nodes {{ {EVERYTHING_OF_GRANTS} }} }} }}")
    assert len(shown["grants"]["nodes"]) == 1


LIST_OF_TYPES: Final = "query ($types: [String!]) { events(types: $types) { nodes { id } } }"
ONE_TEXT: Final = "query ($after: String) { grants(after: $after) { nodes { id } } }"
ACCOUNT: Final = """
    mutation ($input: CreateProviderAccountInput!) { createProviderAccount(input: $input) { __typename } }
"""


def _account(settings: Any) -> dict[str, Any]:
    return {"input": {"name": "x", "provider": "gcp", "kind": "push", "settings": settings}}


def _fragments(count: int, inside: str, *, on: str = "Query") -> str:
    spread = " ".join(f"...F{n}" for n in range(count))
    return f"{{ {spread} }} " + " ".join(f"fragment F{n} on {on} {{ {inside} }}" for n in range(count))


NASTY: Final[Mapping[str, tuple[str, dict[str, Any], str]]] = {
    "one field over and over": ("{ viewer { tenant { " + "id " * 2_900 + "} } }", {}, "TOO_MANY_OVERLAPS"),
    "one object over and over": ("{ " + "viewer { tenant { id } } " * 410 + "}", {}, "TOO_MANY_OVERLAPS"),
    "one page over and over": (
        "{ grants { nodes { " + "events { nodes { id } } " * 410 + "} } }",
        {},
        "TOO_MANY_OVERLAPS",
    ),
    "fragments that overlap": (
        _fragments(140, "viewer { tenant { id name } apiKey { id } }"),
        {},
        "TOO_MANY_OVERLAPS",
    ),
    "fragments that overlap in the depth": (
        _fragments(120, "grants { nodes { events { nodes { id seq } } } }"),
        {},
        "TOO_MANY_OVERLAPS",
    ),
    "fragments in a chain": (
        "{ ...F0 } "
        + " ".join(f"fragment F{n} on Query {{ ...F{n + 1} viewer {{ tenant {{ id }} }} }}" for n in range(190))
        + " fragment F190 on Query { viewer { tenant { id } } }",
        {},
        "TOO_MANY_OVERLAPS",
    ),
    "fragments in a longer chain": (
        "{ ...F0 } "
        + " ".join(f"fragment F{n} on Query {{ ...F{n + 1} }}" for n in range(260))
        + " fragment F260 on Query { viewer { tenant { id } } }",
        {},
        "TOO_DEEP",
    ),
    "inline fragments over and over": (
        "{ viewer { tenant { " + "... on Tenant { id } " * 480 + "} } }",
        {},
        "TOO_MANY_OVERLAPS",
    ),
    "conditions over and over": (
        "{ viewer { tenant { " + "id @include(if: true) " * 360 + "} } }",
        {},
        "TOO_MANY_OVERLAPS",
    ),
    "fields that are not there": ("{ " + " ".join(f"grand{n}" for n in range(2_900)) + "}", {}, "INVALID_DOCUMENT"),
    "arguments that are not there": (
        "{ viewer(" + " ".join(f"a{n}: 1" for n in range(900)) + ") { tenant { id } } }",
        {},
        "INVALID_DOCUMENT",
    ),
    "variables that nobody uses": (
        "query (" + " ".join(f"$v{n}: Int" for n in range(700)) + ") { viewer { tenant { id } } }",
        {},
        "INVALID_DOCUMENT",
    ),
    "one entry of an object over and over": (
        "mutation { createGrant(input: {" + "a: 1 " * 900 + "}) { __typename } }",
        {},
        "INVALID_DOCUMENT",
    ),
    "too many words": ("{ " + "a: viewer " * 1_001 + "}", {}, "TOO_MANY_TOKENS"),
    "a long text in the document": (
        f'{{ grants(after: "{"x" * DOCUMENT_LENGTH_MAX}") {{ totalCount }} }}',
        {},
        "DOCUMENT_TOO_LONG",
    ),
    "blanks": (" " * DOCUMENT_LENGTH_MAX + "{ viewer { tenant { id } } }", {}, "DOCUMENT_TOO_LONG"),
    "many aliases": (
        "{" + " ".join(f"a{n}: viewer {{ tenant {{ id }} }}" for n in range(ALIASES_MAX + 1)) + "}",
        {},
        "TOO_MANY_ALIASES",
    ),
    "two thousand grants with everything": (
        "{"
        + " ".join(f"a{n}: grants(all: true, first: 200) {{ nodes {{ {EVERYTHING_OF_GRANTS} }} }}" for n in range(10))
        + "}",
        {},
        "TOO_COSTLY",
    ),
    "pages in pages": (
        "{ grants(all: true, first: 200) { nodes { events(first: 200) { nodes { id } } } } }",
        {},
        "TOO_COSTLY",
    ),
    "pages in pages without a size": (
        "{ capacityReservations { nodes { grants { nodes { id events { nodes { id } } } } } } }",
        {},
        "TOO_COSTLY",
    ),
    "pages whose size is a variable": (
        "query ($n: Int) { grants(first: $n) { nodes { instances(first: $n) { nodes { id } } } } }",
        {"n": 200},
        "TOO_COSTLY",
    ),
    "a list of lists of reads": (
        "{"
        + " ".join(
            f"a{n}: capacityReservations(first: 50) {{ nodes {{ availability(from: 0, to: 9) {{ at }} }} }}"
            for n in range(99)
        )
        + "}",
        {},
        "TOO_COSTLY",
    ),
    "fragments that make many places out of few words": (
        "{"
        + " ".join(f"a{n}: grants(first: 0) {{ nodes {{ ...F }} }}" for n in range(99))
        + f" }} fragment F on Grant {{ {EVERYTHING_OF_GRANTS} "
        + " events(first: 0) { nodes { ...G } edges { node { ...G } } } }"
        + " fragment G on Event { id cursor seq type tenantId occurredAt recordedAt grantId slots startsAt endsAt reason }",
        {},
        "TOO_COSTLY",
    ),
    "the schema, over and over": (
        "{"
        + " ".join(f"{name}: __schema {{ types {{ fields {{ name args {{ ...F }} }} }} }}" for name in "abcdefgh")
        + "} fragment F on __InputValue { name type { name fields { name type { name } } } }",
        {},
        "TOO_COSTLY",
    ),
    "a long list in the variables": (LIST_OF_TYPES, {"types": ["x"] * (LIST_MAX + 1)}, "INVALID_INPUT"),
    "many lists in the variables": (
        ACCOUNT,
        _account({f"k{n}": ["x"] * (VALUES_MAX // 100) for n in range(101)}),
        "INVALID_INPUT",
    ),
    "a long text in the variables": (ONE_TEXT, {"after": "x" * (TEXT_MAX + 1)}, "INVALID_INPUT"),
    "a wide object in the variables": (ACCOUNT, _account({str(n): n for n in range(LIST_MAX + 1)}), "INVALID_INPUT"),
    "what is in no variable at all": (ONE_TEXT, {"unknown": ["x"] * (LIST_MAX + 1)}, "INVALID_INPUT"),
}


@pytest.mark.parametrize("name", NASTY)
async def test_a_request_that_would_keep_everybody_waiting_is_refused(world: World, name: str) -> None:
    """Whoever finds another one adds it here. Speed is measured elsewhere: here it is that nothing is executed, and that
    the client is told why in words."""
    document, variables, code = NASTY[name]

    result = await world.ask(document, **variables)

    assert result.data is None
    assert code in codes(result)
    assert len(codes(result)) <= ERRORS_MAX + 1
    assert result.errors is not None
    assert "Validation aborted." not in {error.message for error in result.errors}
    assert all(len(error.message) < 3_000 * ERRORS_MAX for error in result.errors)


@pytest.mark.parametrize(
    ("document", "variables", "field", "reason"),
    [
        (LIST_OF_TYPES, {"types": ["x"] * (LIST_MAX + 1)}, "types", "too-many"),
        (ONE_TEXT, {"after": "x" * (TEXT_MAX + 1)}, "after", "too-long"),
        (ACCOUNT, _account({"a": [0, {"b": "x" * (TEXT_MAX + 1)}]}), "settings.a[1].b", "too-long"),
        (ACCOUNT, _account({"k" * 500: "x" * (TEXT_MAX + 1)}), f"settings.{'k' * 191}", "too-long"),
        (ACCOUNT, _account([[1] * 2_000] * 11), "variables", "too-many"),
    ],
)
async def test_variables_that_are_too_large_are_refused_by_the_place(
    world: World, document: str, variables: dict[str, Any], field: str, reason: str
) -> None:
    result = await world.ask(document, **variables)

    assert result.errors is not None
    assert result.errors[0].extensions == {"code": "INVALID_INPUT", "field": field, "reason": reason}
    assert result.errors[0].message.startswith(field)


async def test_variables_of_the_largest_report_are_let_in(world: World) -> None:
    reported = [
        {"reservationId": f"r{n}", "flavor": "f", "region": "r", "total": 1, "inUse": 0, "ready": True}
        for n in range(2_000)
    ]
    made = await world.mutate(
        "reportReservations", {"accountId": world.account_id, "reservations": reported, "complete": False}
    )
    assert made["__typename"] == "ReportedReservations"


def test_overlaps_that_people_write_are_let_in() -> None:
    """A page of a client that gives each of its parts a fragment of its own."""
    parts = _fragments(40, "grants(first: 5) { nodes { id slots state startsAt endsAt } }")
    assert Documents().prepare(SCHEMA, parts).errors == ()


# -- the schema about itself -------------------------------------------------------------------------------------------


async def test_introspection_is_not_paid_from_the_same_purse(world: World) -> None:
    context = Context(runtime=world.runtime, caller=world.root, cost_max=1)
    assert codes(await schema.execute(INTROSPECTION, context_value=context)) == []
    assert cost(INTROSPECTION).total == 0
    assert cost("{ __typename viewer { __typename } }").introspection == 0


async def test_an_answer_about_the_schema_is_given_again_as_it_was(world: World) -> None:
    document = "query Q($d: Boolean = true) { __schema { types { name @include(if: $d) kind } } __typename }"
    first, again = [await world.data(document) for _ in range(2)]
    other = await world.data(document, d=False)
    mixed = await world.data("{ __schema { queryType { name } } viewer { tenant { id } } }", world.callers["a"])

    assert again is first or again == first
    assert {"name", "kind"} == first["__schema"]["types"][0].keys()
    assert {"kind"} == other["__schema"]["types"][0].keys()
    assert mixed["viewer"]["tenant"]["id"] == "a"


async def test_an_answer_about_the_caller_is_nobody_elses(world: World) -> None:
    document = "{ ...F } fragment F on Query { __typename viewer { tenant { id } } }"
    seen = [(await world.data(document, world.callers[name]))["viewer"]["tenant"]["id"] for name in ("a", "b")]
    assert seen == ["a", "b"]


# -- what is remembered ------------------------------------------------------------------------------------------------


def test_a_document_is_prepared_once_and_long_ones_are_not_kept() -> None:
    documents = Documents()
    document = "{ viewer { tenant { id } } }"
    long = document + "#" * REMEMBERED_LENGTH_MAX

    assert documents.prepare(SCHEMA, document) is documents.prepare(SCHEMA, document)
    assert documents.prepare(SCHEMA, long) is not documents.prepare(SCHEMA, long)
    assert len(documents) == 1


def test_the_longest_unused_are_forgotten_by_number_and_by_length() -> None:
    documents = Documents()
    kept = documents.prepare(SCHEMA, "{ __typename }")
    for number in range(REMEMBERED_MAX):
        documents.prepare(SCHEMA, f"{{ a{number} }}")
        assert documents.prepare(SCHEMA, "{ __typename }") is kept
    assert len(documents) == REMEMBERED_MAX
    half = REMEMBERED_LENGTH_MAX // 2
    for number in range(REMEMBERED_SUM_MAX // half):
        documents.prepare(SCHEMA, f"{{ b{number} }}".ljust(half))
    assert len(documents) <= REMEMBERED_SUM_MAX // half
    assert documents.prepare(SCHEMA, "{ __typename }") is not kept


async def test_a_faulty_document_is_told_of_each_time(world: World) -> None:
    for document, code in (
        ("{ nope }", "INVALID_DOCUMENT"),
        ("{", "INVALID_DOCUMENT"),
        ("{ viewer", "INVALID_DOCUMENT"),
    ):
        first, again = [await world.ask(document) for _ in range(2)]
        assert codes(first) == codes(again) == [code]
        assert first.errors is not None
        assert first.errors[0].locations
    assert len(INTROSPECTION.split()) < TOKENS_MAX
    assert DOCUMENTS.prepare(SCHEMA, "{ nope }").errors
