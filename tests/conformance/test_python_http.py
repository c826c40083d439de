"""The Python client `gql` over HTTP. (Over WebSockets: test_websockets.py.)"""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest
from gql import Client, GraphQLRequest
from gql.transport.exceptions import TransportError, TransportQueryError
from gql.transport.requests import RequestsHTTPTransport

from schema.root import schema
from tests.conformance.live import Live
from tests.schema.world import CREATE_GRANT, ROOT_KEY

VIEWER = "{ viewer { tenant { id } } }"


async def execute(live: Live, *requests: GraphQLRequest, key: str = ROOT_KEY, **options: Any) -> list[dict[str, Any]]:
    """One after another; the client blocks, so it has a thread."""

    def run() -> list[dict[str, Any]]:
        transport = RequestsHTTPTransport(live.url, headers={"authorization": f"Bearer {key}"}, timeout=60)
        with Client(transport=transport, **options) as session:
            return [session.execute(request) for request in requests]

    return await asyncio.to_thread(run)


async def test_queries_and_mutations(live: Live) -> None:
    creation = GraphQLRequest(CREATE_GRANT, variable_values={"input": live.world.grant_input(slots=2)})
    viewer, created, again = await execute(live, GraphQLRequest(VIEWER), creation, creation)
    assert viewer == {"viewer": {"tenant": {"id": "root"}}}
    assert (created["createGrant"]["state"], created["createGrant"]["slots"]) == ("ACTIVE", 2)
    assert again == created, "the same idempotency key"


async def test_the_client_reads_the_schema_and_checks_documents_against_it(live: Live) -> None:
    def read() -> Client:
        transport = RequestsHTTPTransport(live.url, headers={"x-api-key": ROOT_KEY}, timeout=60)
        client = Client(transport=transport, fetch_schema_from_transport=True)
        with client as session:
            session.fetch_schema()
        return client

    client = await asyncio.to_thread(read)
    assert client.schema is not None
    assert set(client.schema.type_map) == set(schema._schema.type_map)
    with pytest.raises(Exception, match="Cannot query field 'nope'"):
        client.validate(GraphQLRequest("{ nope }"))


async def test_several_operations_in_one_request_are_refused_in_words(live: Live) -> None:
    async with httpx2.AsyncClient(timeout=60, headers={"x-api-key": ROOT_KEY}) as client:
        response = await client.post(live.url, json=[{"query": VIEWER}, {"query": VIEWER}])
    assert response.status_code == 400
    (error,) = response.json()["errors"]
    assert error == {"message": "Batching is not enabled", "extensions": {"code": "BAD_REQUEST"}}


async def test_a_mistake_is_an_error_with_its_code_and_a_wrong_key_a_status(live: Live) -> None:
    with pytest.raises(TransportQueryError) as refused:
        await execute(live, GraphQLRequest("{ grant(id: 1) { nope } }"))
    assert refused.value.errors
    with pytest.raises(TransportError) as stranger:
        await execute(live, GraphQLRequest(VIEWER), key="wrong" * 10)
    assert "UNAUTHENTICATED" in str(stranger.value)
