"""The same request answered by a compiled operation and by graphql-core: over HTTP nothing tells them apart."""

from __future__ import annotations

import re
from typing import Any

import httpx2
import pytest

from schema.compiled.operations import PLANS
from schema.documents import DOCUMENTS
from schema.root import schema
from tests.edges.world import ROOT, A, World

SHORT, LONG = "application/json", "application/json; charset=utf-8"
"""A body of the second type goes the long way, since hardly anybody says so."""
CREATE = """mutation Make($input: CreateGrantInput!) { made: createGrant(input: $input) { __typename
    ... on Grant { id tenantId state slots startsAt endsAt accountId reservationId cancelledAt version committedSlotMs }
    ... on CapacityUnavailable { total granted } ... on InvalidInput { field reason } ... on Refusal { code message } } }"""
GRANT = "query ($id: ID!, $tenantId: ID) { grant(id: $id, tenantId: $tenantId) { id accountId reservationId slots } }"
GRANTS = "query ($first: Int = 3) { grants(first: $first) { nodes { id state } pageInfo { hasNextPage endCursor } } }"
OWN_HEADERS = {"x-request-id", "traceparent", "date"}


async def both(world: World, body: Any, *, by: str | None, accept: str = "*/*") -> tuple[Any, Any]:
    """What is answered on the short way, and on the long one."""
    told = []
    for content_type in (SHORT, LONG):
        headers = {"content-type": content_type, "accept": accept}
        if by is not None:
            headers["authorization"] = f"Bearer {world.secrets[by]}"
        sent = {"content": body} if isinstance(body, bytes) else {"json": body}
        told.append(shown(await world.client.post("/graphql", headers=headers, **sent)))
    return told[0], told[1]


def shown(response: httpx2.Response) -> tuple[int, dict[str, str], str]:
    headers = {name: value for name, value in response.headers.items() if name not in OWN_HEADERS}
    headers.pop("content-length", None)  # it is the text's, where that names the request
    return response.status_code, headers, re.sub(r"req_\w+", "req", response.text)


def is_compiled(text: str) -> bool:
    return PLANS.plan(schema, DOCUMENTS.prepare(schema._schema, text), text, None) is not None


@pytest.mark.parametrize("accept", ["*/*", "application/graphql-response+json", "application/json, text/event-stream"])
async def test_a_mutation_and_its_refusals(world: World, accept: str) -> None:
    assert is_compiled(CREATE)
    wanted = world.creation()
    for by, changes in (
        (ROOT, {}),
        (ROOT, {"slots": 0}),
        (ROOT, {"slots": 1_000_000, "idempotencyKey": "other"}),
        (ROOT, {"slots": "1"}),
        (ROOT, {"slots": None}),
        (ROOT, {"startsAt": -1}),
        (ROOT, {"unknown": 1}),
        (A, {}),
        (None, {}),
    ):
        body = {"query": CREATE, "variables": {"input": {**wanted, **changes}}}
        short, long = await both(world, body, by=by, accept=accept)
        assert short == long


async def test_reads_and_their_errors(world: World) -> None:
    assert is_compiled(GRANT)
    made = await world.made(world.graphql)
    for by in (ROOT, A):
        for text, variables in (
            (GRANT, {"id": made["grantId"]}),
            (GRANT, {"id": made["grantId"], "tenantId": A}),
            (GRANT, {"id": "rgrant_nobody"}),
            (GRANT, {"id": "not an id"}),
            (GRANT, {}),
            (GRANTS, {}),
            (GRANTS, {"first": 1}),
            (GRANTS, {"first": None}),
            (GRANTS, {"first": 10_000}),
            (GRANTS, {"first": 2**40}),
        ):
            short, long = await both(world, {"query": text, "variables": variables}, by=by)
            assert short == long


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b'{"query": 7}',
        b'{"query": ""}',
        b'{"query": "{"}',
        b'{"query": "{ nope }"}',
        b'{"query": "{ viewer { tenant { id } } }"}',
        b'{"query": "query A { viewer { __typename } } query B { viewer { __typename } }"}',
        b'{"query": "query A { viewer { __typename } } query B { viewer { __typename } }", "operationName": "B"}',
        b'{"query": "query A { viewer { __typename } }", "operationName": "C"}',
        b'{"query": "{ viewer { __typename } }", "variables": []}',
        b'{"query": "{ viewer { __typename } }", "variables": null, "operationName": null}',
        b'{"query": "{ viewer { __typename } }", "extensions": {"x": 1}}',
        b'{"query": "{ viewer { __typename } }", "more": 1}',
        b'{"query": "subscription { events { __typename } }"}',
        b'{"query": "\xff"}',
    ],
)
async def test_bodies_of_all_kinds(world: World, body: bytes) -> None:
    short, long = await both(world, body, by=ROOT)
    assert short == long


async def test_what_is_too_costly_is_refused_on_the_short_way_too(world: World) -> None:
    text = "{ grants(first: 200) { nodes { " + " ".join(f"a{n}: committedSlotMs" for n in range(90)) + " } } }"
    assert is_compiled(text)
    short, long = await both(world, {"query": text}, by=ROOT)
    assert short == long
    assert "TOO_COSTLY" in short[2]
