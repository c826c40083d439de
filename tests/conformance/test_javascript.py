"""The public JavaScript clients: graphql-ws over a WebSocket, graphql-sse over an event stream."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.conformance.live import Live, run_client
from tests.schema.world import ROOT_KEY, until

VIEWER = "{ viewer { tenant { id } } }"
LISTEN = "subscription ($after: String) { grantEvents(all: true, after: $after) { seq type } }"


def wanted(live: Live, transport: str, **given: Any) -> dict[str, Any]:
    if transport == "ws":
        return {"transport": "ws", "url": live.socket_url, "parameters": {"apiKey": ROOT_KEY}, **given}
    return {"transport": "sse", "url": live.url, "key": ROOT_KEY, **given}


@pytest.mark.parametrize("transport", ["ws", "sse"])
async def test_a_query_goes_over_a_stream_too(live: Live, transport: str) -> None:
    said = await run_client(**wanted(live, transport, query=VIEWER))

    assert {"next": {"data": {"viewer": {"tenant": {"id": "root"}}}}} in said
    assert {"complete": True} in said


@pytest.mark.parametrize("transport", ["ws", "sse"])
async def test_a_subscription_resumes_and_goes_on(live: Live, transport: str) -> None:
    cursor = (await live.world.data("{ eventsCursor(all: true) }"))["eventsCursor"]
    await live.world.create_grant(slots=1)
    listening = asyncio.create_task(
        run_client(**wanted(live, transport, query=LISTEN, variables={"after": cursor}, take=4))
    )
    await until(lambda: live.world.runtime.hub.count or listening.done())
    await live.world.create_grant(slots=1)
    said = await listening
    events = [line["next"]["data"]["grantEvents"] for line in said if "next" in line]

    first = int(events[0]["seq"])
    assert [int(event["seq"]) for event in events] == list(range(first, first + 4))
    assert [event["type"].rpartition(".")[2] for event in events] == ["created", "active"] * 2
    await until(lambda: not live.world.runtime.hub.count)


@pytest.mark.parametrize("transport", ["ws", "sse"])
async def test_an_invalid_document_is_an_error_and_the_connection_stays_usable(live: Live, transport: str) -> None:
    for document in ("{ nope }", "{"):
        said = await run_client(**wanted(live, transport, query=document))
        told = next(line for line in said if "error" in line or "next" in line)

        errors = told["error"] if "error" in told else told["next"]["errors"]
        assert errors[0]["extensions"]["code"] == "INVALID_DOCUMENT"


@pytest.mark.parametrize("transport", ["ws", "sse"])
async def test_a_stranger_cannot_subscribe(live: Live, transport: str) -> None:
    stranger = {"parameters": {"apiKey": "x" * 40}} if transport == "ws" else {"key": "x" * 40}
    said = await run_client(**{**wanted(live, transport, query=LISTEN), **stranger})

    assert not [line for line in said if "next" in line]
    if transport == "ws":
        assert {"closed": 4403, "reason": "Forbidden"} in said
    else:
        assert [line["status"] for line in said if "error" in line] == [401]


async def test_the_server_ends_a_stream_with_a_code_and_a_cursor(live: Live) -> None:
    listening = asyncio.create_task(run_client(**wanted(live, "ws", query=LISTEN)))
    await until(lambda: live.world.runtime.hub.count or listening.done())
    live.world.runtime.end_streams()
    said = await listening
    [error] = next(line["next"]["errors"] for line in said if "next" in line)

    assert error["extensions"]["code"] == "SHUTTING_DOWN"
    assert error["extensions"]["cursor"]
    assert {"complete": True} in said
