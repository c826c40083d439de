"""The endpoint over WebSockets: the Python client, and what happens when one side does not keep to the protocol."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from gql import Client, GraphQLRequest
from gql.transport.exceptions import TransportError, TransportQueryError
from gql.transport.websockets import WebsocketsTransport
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from schema.bounds import BODY_MAX
from server.graphql import OPERATIONS_MAX
from tests.conformance.live import Live, live_on
from tests.schema.world import CREATE_GRANT, ROOT_KEY, World, until

VIEWER = "{ viewer { tenant { id } } }"
LISTEN = "subscription ($after: String) { grantEvents(after: $after) { cursor seq } }"
LISTEN_TO_ALL = "subscription ($after: String) { grantEvents(all: true, after: $after) { cursor seq } }"


def python_client(live: Live, secret: str = ROOT_KEY, **options: Any) -> Client:
    transport = WebsocketsTransport(
        live.socket_url,
        init_payload={"Authorization": f"Bearer {secret}"},
        subprotocols=[WebsocketsTransport.GRAPHQLWS_SUBPROTOCOL],
        **options,
    )
    return Client(transport=transport)


class Socket:
    """A client that says just what it is told to."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def say(self, **message: Any) -> None:
        await self.connection.send(json.dumps(message))

    async def hear(self) -> dict[str, Any]:
        heard = await asyncio.wait_for(self.connection.recv(), timeout=60)
        assert isinstance(heard, str), "frames are text"
        return json.loads(heard)

    async def closed(self) -> tuple[int, str]:
        """How the server closes, whatever else it says before."""
        with suppress(ConnectionClosed):
            while True:
                await self.hear()
        assert self.connection.close_code is not None
        return self.connection.close_code, self.connection.close_reason or ""

    async def init(self, payload: Any = None) -> None:
        await self.say(type="connection_init", **({} if payload is None else {"payload": payload}))
        assert await self.hear() == {"type": "connection_ack"}

    async def subscribe(self, document: str, *, name: str = "1", **variables: Any) -> None:
        await self.say(type="subscribe", id=name, payload={"query": document, "variables": variables})


@asynccontextmanager
async def raw(live: Live, **options: Any) -> AsyncIterator[Socket]:
    async with connect(live.socket_url, subprotocols=["graphql-transport-ws"], **options) as connection:  # type: ignore[list-item]
        yield Socket(connection)


async def test_the_python_client_asks_and_listens(live: Live) -> None:
    async with python_client(live) as session:
        answer = await session.execute(GraphQLRequest(VIEWER))
        cursor = (await live.world.data("{ eventsCursor(all: true) }"))["eventsCursor"]
        await live.world.create_grant(slots=1)
        heard = []
        async for result in session.subscribe(GraphQLRequest(LISTEN_TO_ALL, variable_values={"after": cursor})):
            heard.append(result["grantEvents"]["seq"])
            if len(heard) == 2:
                await live.world.create_grant(slots=1)
            if len(heard) == 4:
                break

    assert answer == {"viewer": {"tenant": {"id": "root"}}}
    assert [int(seq) - int(heard[0]) for seq in heard] == [0, 1, 2, 3]
    await until(lambda: not live.world.runtime.hub.count)


async def test_a_dropped_connection_is_resumed_by_cursor_without_a_gap(live: Live) -> None:
    """T91."""
    world = live.world
    cursor = (await world.data("{ eventsCursor(all: true) }"))["eventsCursor"]
    heard: list[str] = []
    for _ in range(4):
        await world.create_grant(slots=1)
        async with python_client(live) as session:
            request = GraphQLRequest(LISTEN_TO_ALL, variable_values={"after": cursor})
            async for result in session.subscribe(request):
                heard.append(result["grantEvents"]["seq"])
                cursor = result["grantEvents"]["cursor"]
                if len(heard) % 2 == 0:
                    break
        await world.create_grant(slots=1)

    assert [int(seq) - int(heard[0]) for seq in heard] == list(range(8))


async def test_a_bad_key_gets_no_connection(live: Live) -> None:
    for payload in ({"apiKey": "x" * 40}, {"apiKey": 5}, {}, None):
        async with raw(live) as client:
            await client.say(type="connection_init", payload=payload)
            assert await client.closed() == (4403, "Forbidden")
    with pytest.raises((TransportError, ConnectionClosed)):
        async with python_client(live, "x" * 40) as session:
            await session.execute(GraphQLRequest(VIEWER))


@pytest.mark.parametrize(
    "payload",
    [
        {"apiKey": ROOT_KEY},
        {"Authorization": f"Bearer {ROOT_KEY}"},
        {"authorization": f"Bearer {ROOT_KEY}"},
        {"X-API-Key": ROOT_KEY},
    ],
)
async def test_a_key_goes_into_the_first_message(live: Live, payload: dict[str, str]) -> None:
    async with raw(live) as client:
        await client.init(payload)
        await client.subscribe(VIEWER)
        assert (await client.hear())["payload"] == {"data": {"viewer": {"tenant": {"id": "root"}}}}


async def test_a_key_in_the_headers_counts_where_the_first_message_has_none(live: Live) -> None:
    async with raw(live, additional_headers=live.headers) as client:
        await client.init()
        await client.subscribe(VIEWER)
        assert (await client.hear())["type"] == "next"
    async with raw(live, additional_headers=live.headers) as client:
        await client.init({"apiKey": live.world.secrets["a"]})
        await client.subscribe(VIEWER)
        assert (await client.hear())["payload"]["data"]["viewer"]["tenant"]["id"] == "a"


async def test_nobody_asks_before_saying_who_it_is(live: Live) -> None:
    async with raw(live, additional_headers=live.headers) as client:
        await client.subscribe(VIEWER)
        assert await client.closed() == (4401, "Unauthorized")


async def test_a_page_of_another_origin_may_connect_with_a_key(live: Live) -> None:
    async with raw(live, origin="https://dashboard.example") as client:
        await client.init({"apiKey": ROOT_KEY})


async def test_a_revoked_key_ends_its_streams_and_its_connection(live: Live) -> None:
    world = live.world
    async with raw(live) as client:
        await client.init({"apiKey": world.secrets["a"]})
        await client.subscribe(LISTEN)
        await until(lambda: world.runtime.hub.count)
        await world.mutate("revokeApiKey", {"keyId": world.callers["a"].principal.key_id})
        ended = await client.hear()
        assert ended["payload"]["errors"][0]["extensions"]["code"] == "UNAUTHENTICATED"
        assert await client.hear() == {"type": "complete", "id": "1"}
        with suppress(ConnectionClosed):
            async with asyncio.timeout(60):  # a key is remembered for half a second
                while True:
                    await client.subscribe(VIEWER, name="2")
                    while (await client.hear())["type"] != "complete":
                        pass
        assert await client.closed() == (4403, "Forbidden")


async def test_the_python_client_is_told_why_its_stream_ended(live: Live) -> None:
    world = live.world

    async def listen() -> None:
        async with python_client(live, world.secrets["a"]) as session:
            async for _ in session.subscribe(GraphQLRequest(LISTEN)):
                pass

    listening = asyncio.create_task(listen())
    await until(lambda: world.runtime.hub.count)
    await world.mutate("revokeApiKey", {"keyId": world.callers["a"].principal.key_id})
    with pytest.raises(TransportQueryError) as ended:
        await listening
    assert ended.value.errors is not None
    assert ended.value.errors[0]["extensions"]["code"] == "UNAUTHENTICATED"


async def test_a_refused_subscription_is_an_error_of_that_operation_only(live: Live) -> None:
    async with raw(live) as client:
        await client.init({"apiKey": live.world.secrets["a"]})
        await client.subscribe(LISTEN_TO_ALL)
        refused = await client.hear()
        await client.subscribe(VIEWER, name="2")
        answered = await client.hear()

    assert (refused["type"], refused["id"]) == ("error", "1")
    assert refused["payload"][0]["extensions"]["code"] == "ACCESS_DENIED"
    assert (answered["type"], answered["id"]) == ("next", "2")


@pytest.mark.parametrize(
    "message",
    [
        [],
        "x",
        None,
        {},
        {"type": 5},
        {"type": "nonsense"},
        {"type": "subscribe"},
        {"type": "subscribe", "id": "1"},
        {"type": "subscribe", "id": 1, "payload": {"query": VIEWER}},
        {"type": "subscribe", "id": "1", "payload": None},
        {"type": "subscribe", "id": "1", "payload": {"query": 5}},
        {"type": "subscribe", "id": "1", "payload": {"query": VIEWER, "variables": []}},
        {"type": "subscribe", "id": "1", "payload": {"query": VIEWER, "operationName": {}}},
        {"type": "complete"},
    ],
)
async def test_what_is_no_message_closes_the_connection(
    live: Live, message: object, caplog: pytest.LogCaptureFixture
) -> None:
    async with raw(live, additional_headers=live.headers) as client:
        await client.init()
        await client.connection.send(json.dumps(message))
        assert (await client.closed())[0] == 4400
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_broken_json_binary_frames_and_huge_messages_close_the_connection(live: Live) -> None:
    for frame, code in (("{", 4400), (b"{}", 4400), (" " * (BODY_MAX + 1), 1009)):
        async with raw(live, additional_headers=live.headers) as client:
            await client.init()
            await client.connection.send(frame)
            assert (await client.closed())[0] == code


async def test_one_socket_has_a_limit_of_open_operations(live: Live) -> None:
    async with raw(live, additional_headers=live.headers) as client:
        await client.init()
        for number in range(OPERATIONS_MAX):
            await client.subscribe(LISTEN_TO_ALL, name=str(number))
        await until(lambda: live.world.runtime.hub.count == OPERATIONS_MAX)
        await client.subscribe(LISTEN_TO_ALL, name="more")
        refused = await client.hear()
        assert (refused["type"], refused["id"]) == ("error", "more")
        assert refused["payload"][0]["extensions"] == {"code": "TOO_MANY_SUBSCRIPTIONS", "limit": OPERATIONS_MAX}
        await client.say(type="complete", id="0")
        await until(lambda: live.world.runtime.hub.count == OPERATIONS_MAX - 1)
        await client.subscribe(VIEWER, name="more")
        assert (await client.hear())["type"] == "next"
    await until(lambda: not live.world.runtime.hub.count)


async def test_operations_of_one_socket_see_what_changed_between_them(live: Live) -> None:
    """A look-up that is remembered for longer than one operation would show the first answer again."""
    made = await live.world.create_grant()
    document = "query ($id: ID!) { grant(id: $id) { held } }"
    seen = []
    async with raw(live, additional_headers=live.headers) as client:
        await client.init()
        for name in "12":
            await client.subscribe(document, name=name, id=made["id"])
            seen.append((await client.hear())["payload"]["data"]["grant"]["held"])
            assert (await client.hear())["type"] == "complete"
            await live.world.run_instance("a", name)

    assert seen == [0, 1]


async def test_operations_of_one_socket_are_told_apart_in_events(live: Live) -> None:
    async with raw(live, additional_headers=live.headers) as client:
        await client.init()
        for name in "12":
            await client.subscribe(CREATE_GRANT, name=name, input=live.world.grant_input(slots=1))
            assert (await client.hear())["type"] == "next"
            assert (await client.hear())["type"] == "complete"
    document = '{ events(all: true, types: ["reservation-grant.created"]) { nodes { requestId } } }'
    events: list[dict[str, str]] = []
    async with asyncio.timeout(60):
        while len(events) < 2:
            events = (await live.world.data(document))["events"]["nodes"]

    first, second = (event["requestId"].rsplit(".", 1) for event in events)
    assert first[0] == second[0]
    assert (first[1], second[1]) == ("1", "2")


async def test_a_mutation_whose_socket_closes_is_decided_all_the_same(live: Live) -> None:
    """The command is in its lane's hands; a retry with its key gets the grant."""
    world = live.world
    wanted = world.grant_input(idempotencyKey="dropped")
    for attempt in range(20):
        async with raw(live, additional_headers=live.headers) as client:
            await client.init()
            await client.subscribe(CREATE_GRANT, input={**wanted, "slots": 1, "idempotencyKey": f"dropped-{attempt}"})
            client.connection.transport.abort()
    made = [
        await world.create_grant(
            startsAt=wanted["startsAt"], slots=1, reservationId="res", idempotencyKey=f"dropped-{n}"
        )
        for n in range(20)
    ]

    granted = [grant for grant in made if grant.get("state") == "ACTIVE"]
    listed = await world.data("{ grants(all: true, first: 200) { nodes { id } } }")
    assert len(granted) == 10
    assert {node["id"] for node in listed["grants"]["nodes"]} == {grant["id"] for grant in granted}


async def test_a_thousand_sockets_that_vanish_leave_nothing_behind(live: Live) -> None:
    """T92, B27, a tenth of it at a time: no close frame, just gone."""
    before = len(asyncio.all_tasks())
    for _ in range(10):
        connections = await asyncio.gather(*(_subscribed(live) for _ in range(100)))
        await until(lambda: live.world.runtime.hub.count == 100)
        for connection in connections:
            connection.transport.abort()
        await until(lambda: not live.world.runtime.hub.count)
    await until(lambda: len(asyncio.all_tasks()) <= before + 2)


async def test_a_slow_reader_is_cut_with_a_cursor_and_does_not_slow_a_fast_one(database_url: str) -> None:
    """T94: its queue is bounded, and the cursor of its error resumes without a gap."""
    async with live_on(database_url, send_buffer=4_096) as live:
        world = live.world
        await world.add_reservation("big", total=100_000)
        cursor = (await world.data("{ eventsCursor(all: true) }"))["eventsCursor"]
        # Compressed, all of these events would fit into anybody's buffers.
        async with raw(live, sock=_small_socket(live.port), compression=None, additional_headers=live.headers) as slow:
            await slow.init()
            await slow.subscribe(LISTEN_TO_ALL, after=cursor)
            await until(lambda: world.runtime.hub.count == 1)
            slow.connection.transport.pause_reading()
            fast = await _count_over(live, cursor, world, grants=2_000)
            slow.connection.transport.resume_reading()
            heard, ended = await _read_to_the_end(slow)

        assert [int(seq) - int(fast[0]) for seq in fast] == list(range(4_000))
        assert ended["code"] == "SLOW_CONSUMER"
        assert heard == fast[: len(heard)]
        assert len(heard) < len(fast)
        async with python_client(live) as session:
            request = GraphQLRequest(LISTEN_TO_ALL, variable_values={"after": ended["cursor"]})
            async for result in session.subscribe(request):
                heard.append(result["grantEvents"]["seq"])
                if len(heard) == len(fast):
                    break
        assert heard == fast


def _small_socket(port: int) -> socket.socket:
    """A connection that keeps little of what is not read."""
    small = socket.socket()
    small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    small.connect(("127.0.0.1", port))
    return small


async def _count_over(live: Live, cursor: str, world: World, *, grants: int) -> list[str]:
    """Make grants while a fast reader listens; what it hears."""
    heard: list[str] = []

    async def listen() -> None:
        async with python_client(live) as session:
            request = GraphQLRequest(LISTEN_TO_ALL, variable_values={"after": cursor})
            async for result in session.subscribe(request):
                heard.append(result["grantEvents"]["seq"])
                if len(heard) == 2 * grants:
                    return

    listening = asyncio.create_task(listen())
    for _ in range(grants // 200):
        await asyncio.gather(*(world.create_grant(slots=1, reservationId="big") for _ in range(200)))
    await asyncio.wait_for(listening, timeout=60)
    return heard


async def _read_to_the_end(client: Socket) -> tuple[list[str], dict[str, Any]]:
    heard: list[str] = []
    while True:
        message = await client.hear()
        assert message["type"] == "next"
        if "errors" in message["payload"]:
            return heard, message["payload"]["errors"][0]["extensions"]
        heard.append(message["payload"]["data"]["grantEvents"]["seq"])


async def _subscribed(live: Live) -> ClientConnection:
    connection = await connect(
        live.socket_url,
        subprotocols=["graphql-transport-ws"],
        additional_headers=live.headers,  # type: ignore[list-item]
    )
    client = Socket(connection)
    await client.init()
    await client.subscribe(LISTEN_TO_ALL)
    return connection
