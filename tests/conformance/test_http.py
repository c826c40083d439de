"""The endpoint over HTTP: who asks, in which form it is answered, and what is refused before it is read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import httpx2
import pytest

from schema.bounds import BODY_MAX
from tests.conformance.live import Live
from tests.schema.world import ROOT_KEY, until

VIEWER = {"query": "{ viewer { tenant { id } } }"}
LISTEN = "subscription { grantEvents(all: true) { seq type } }"
GRAPHQL_JSON = "application/graphql-response+json"


@pytest.fixture
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(timeout=60) as client:
        yield client


@pytest.mark.parametrize(
    "headers",
    [{"authorization": f"Bearer {ROOT_KEY}"}, {"authorization": f"bearer {ROOT_KEY}"}, {"x-api-key": ROOT_KEY}],
)
async def test_a_key_goes_into_either_header(live: Live, http: httpx2.AsyncClient, headers: dict[str, str]) -> None:
    response = await http.post(live.url, json=VIEWER, headers=headers)

    assert response.json() == {"data": {"viewer": {"tenant": {"id": "root"}}}}
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"].startswith("req_")


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer nonsense"}, {"authorization": f"Basic {ROOT_KEY}"}])
async def test_without_a_valid_key_nothing_is_read(
    live: Live, http: httpx2.AsyncClient, headers: dict[str, str]
) -> None:
    for accept in ("application/json", GRAPHQL_JSON, "text/event-stream"):
        response = await http.post(live.url, content=b"{nonsense", headers={**headers, "accept": accept})

        assert response.status_code == 401
        assert response.headers["www-authenticate"] == "Bearer"
        [error] = response.json()["errors"]
        assert error["extensions"] == {"code": "UNAUTHENTICATED"}
        assert "data" not in response.json()


@pytest.mark.parametrize(
    ("accept", "media_type", "status"),
    [
        (None, "application/json", 200),
        ("*/*", "application/json", 200),
        ("application/json", "application/json", 200),
        (GRAPHQL_JSON, f"{GRAPHQL_JSON}; charset=utf-8", 400),
        (f"{GRAPHQL_JSON}, application/json;q=0.9", f"{GRAPHQL_JSON}; charset=utf-8", 400),
        (f"{GRAPHQL_JSON};q=0.5, application/json", "application/json", 200),
        (f"{GRAPHQL_JSON}, application/graphql+json, application/json, text/event-stream, multipart/mixed", None, 400),
    ],
)
async def test_a_request_that_cannot_be_executed_has_a_status_of_its_own_media_type(
    live: Live, http: httpx2.AsyncClient, accept: str | None, media_type: str | None, status: int
) -> None:
    headers = {**live.headers, **({"accept": accept} if accept else {})}
    if accept is None:
        http.headers.pop("accept")
    response = await http.post(live.url, json={"query": "{ nope }"}, headers=headers)

    assert response.status_code == status
    assert response.headers["content-type"] == (media_type or f"{GRAPHQL_JSON}; charset=utf-8")
    assert response.json()["errors"][0]["extensions"] == {"code": "INVALID_DOCUMENT"}
    assert "data" not in response.json()


async def test_variables_that_do_not_fit_are_the_clients_mistake(live: Live, http: httpx2.AsyncClient) -> None:
    wanted = {"query": "query ($first: Int!) { grants(first: $first) { nodes { id } } }", "variables": {"first": "x"}}
    response = await http.post(live.url, json=wanted, headers={**live.headers, "accept": GRAPHQL_JSON})

    assert response.status_code == 400
    expected = {"code": "INVALID_INPUT", "field": "first", "reason": "wrong-type"}
    assert response.json()["errors"][0]["extensions"] == expected


async def test_an_executed_request_is_a_200_also_with_errors(live: Live, http: httpx2.AsyncClient) -> None:
    wanted = {"query": "{ grants(first: -1) { nodes { id } } }"}
    response = await http.post(live.url, json=wanted, headers={**live.headers, "accept": GRAPHQL_JSON})

    assert response.status_code == 200
    assert response.json()["data"] == {"grants": None}


@pytest.mark.parametrize(
    "body", [b"", b"{", b"null", b"5", b'"x"', b"[]", b"[1]", b"\xff", b'{"query": 5}', b"[" * 100_000]
)
async def test_a_body_that_is_no_request_is_refused(live: Live, http: httpx2.AsyncClient, body: bytes) -> None:
    headers = {**live.headers, "content-type": "application/json"}
    response = await http.post(live.url, content=body, headers=headers)

    assert response.status_code == 400
    assert response.json()["errors"][0]["extensions"] == {"code": "BAD_REQUEST"}


@pytest.mark.parametrize(
    "extra",
    [{"operationName": 5}, {"operationName": ["x"]}, {"operationName": {}}, {"variables": []}, {"extensions": 1}],
)
async def test_a_request_with_a_wrong_part_is_refused(
    live: Live, http: httpx2.AsyncClient, extra: dict[str, object]
) -> None:
    response = await http.post(live.url, json={**VIEWER, **extra}, headers=live.headers)

    assert response.status_code == 400
    assert response.json()["errors"]


async def test_a_body_that_is_too_large_is_refused_declared_or_not(live: Live, http: httpx2.AsyncClient) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(BODY_MAX // 65_536 + 1):
            yield b" " * 65_536

    headers = {**live.headers, "content-type": "application/json"}
    declared = await http.post(live.url, content=b" " * (BODY_MAX + 1), headers=headers)
    streamed = await http.post(live.url, content=pieces(), headers=headers)

    for response in (declared, streamed):
        assert response.status_code == 413
        assert response.json()["errors"][0]["extensions"] == {"code": "BODY_TOO_LARGE", "limit": BODY_MAX}


async def test_a_get_reads_and_never_changes(live: Live, http: httpx2.AsyncClient) -> None:
    read = await http.get(live.url, params=VIEWER, headers=live.headers)
    change = await http.get(
        live.url,
        params={"query": 'mutation { createPool(input: {poolId: "p", name: "p"}) { __typename } }'},
        headers=live.headers,
    )
    pools = await live.world.data("{ pools { nodes { id } } }")

    assert read.json() == {"data": {"viewer": {"tenant": {"id": "root"}}}}
    assert change.status_code in (400, 405)
    assert pools["pools"]["nodes"] == [{"id": "pool"}]


async def test_events_come_as_server_sent_events_with_a_heartbeat_in_silence(
    live: Live, http: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.graphql.HEARTBEAT_S", 0.05)
    headers = {**live.headers, "accept": "text/event-stream"}
    async with http.stream("POST", live.url, json={"query": LISTEN}, headers=headers) as response:
        lines = response.aiter_lines()
        assert response.headers["content-type"] == "text/event-stream"
        assert response.headers["cache-control"] == "no-cache, no-transform"
        assert await _next(lines) == ": ping"
        await live.world.create_grant(slots=1)
        said = await _next(lines)
        while said != "event: next":
            said = await _next(lines)
        told = json.loads((await _next(lines)).removeprefix("data: "))
        assert told["data"]["grantEvents"]["type"] == "reservation-grant.created"
    await until(lambda: not live.world.runtime.hub.count)


async def test_an_event_source_asks_by_get(live: Live, http: httpx2.AsyncClient) -> None:
    """Browsers' EventSource knows nothing else."""
    headers = {**live.headers, "accept": "text/event-stream"}
    async with http.stream("GET", live.url, params={"query": LISTEN}, headers=headers) as response:
        await until(lambda: live.world.runtime.hub.count)
        await live.world.create_grant(slots=1)
        lines = response.aiter_lines()
        assert await _next(lines) == "event: next"


async def test_a_mutation_by_get_is_refused_in_an_event_stream_too(live: Live, http: httpx2.AsyncClient) -> None:
    document = 'mutation { createPool(input: {poolId: "by-get", name: "x"}) { __typename } }'
    response = await http.get(
        live.url, params={"query": document}, headers={**live.headers, "accept": "text/event-stream"}
    )

    assert "BAD_REQUEST" in response.text
    assert "INTERNAL" not in response.text


async def test_a_revoked_key_ends_its_event_stream_with_a_code(live: Live, http: httpx2.AsyncClient) -> None:
    world = live.world
    headers = {"x-api-key": world.secrets["a"], "accept": "text/event-stream"}
    wanted = {"query": "subscription { grantEvents { seq } }"}
    async with http.stream("POST", live.url, json=wanted, headers=headers) as response:
        await until(lambda: world.runtime.hub.count)
        await world.mutate("revokeApiKey", {"keyId": world.callers["a"].principal.key_id})
        said = [line async for line in response.aiter_lines() if line]

    assert '"code":"UNAUTHENTICATED"' in said[1]
    assert said[-2:] == ["event: complete", "data: "] or said[-1].startswith("event: complete")
    async with asyncio.timeout(60):  # a key is remembered for half a second
        while (await http.post(live.url, json=VIEWER, headers=headers)).status_code != 401:
            pass


async def test_a_subscription_without_an_event_stream_is_refused(live: Live, http: httpx2.AsyncClient) -> None:
    response = await http.post(live.url, json={"query": LISTEN}, headers=live.headers)

    assert response.status_code == 400
    assert response.json()["errors"][0]["extensions"] == {"code": "BAD_REQUEST"}


async def _next(lines: AsyncIterator[str]) -> str:
    """The next line that is not empty."""
    async with asyncio.timeout(60):
        while not (line := await anext(lines)):
            pass
        return line


@pytest.mark.parametrize("query", ["{ viewer { tenant { id } } }", "{ nope }", "{", "", LISTEN])
async def test_a_head_is_answered_like_a_get_without_its_body(live: Live, http: httpx2.AsyncClient, query: str) -> None:
    for headers in ({}, live.headers, {**live.headers, "accept": GRAPHQL_JSON}):
        parameters = {"query": query} if query else {}
        get = await http.get(live.url, params=parameters, headers=headers)
        head = await http.head(live.url, params=parameters, headers=headers)
        assert (head.status_code, head.content) == (get.status_code, b"")
        for name in ("content-type", "content-length", "www-authenticate"):
            assert head.headers.get(name) == get.headers.get(name)
    stream = await http.head(
        live.url, params={"query": LISTEN}, headers={**live.headers, "accept": "text/event-stream"}
    )
    assert stream.status_code in (200, 400, 405)


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "TRACE", "PROPFIND", "OPTIONS"])
async def test_another_method_is_told_which_ones_there_are(live: Live, http: httpx2.AsyncClient, method: str) -> None:
    for headers in ({}, live.headers):
        response = await http.request(method, live.url, json=VIEWER, headers=headers)
        assert response.status_code == 405
        assert response.headers["allow"] == "GET, HEAD, POST"
        assert response.json()["errors"][0]["extensions"] == {"code": "METHOD_NOT_ALLOWED"}


async def test_a_get_without_a_query_is_told_what_is_missing(live: Live, http: httpx2.AsyncClient) -> None:
    response = await http.get(live.url, headers=live.headers)
    assert response.status_code == 400
    assert response.json()["errors"][0]["extensions"] == {"code": "BAD_REQUEST"}
    assert "query" in response.json()["errors"][0]["message"]
