"""The replay's HTTP client against servers that answer in every way that HTTP allows, and in some that it does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from server.replay.http import Address, HttpClient, NoAnswer
from tests.capacity_world import eventually


@asynccontextmanager
async def answering(*answers: bytes) -> AsyncIterator[tuple[HttpClient, list[bytes]]]:
    """A server that says these one after another, and what it was asked. An empty one: it hangs up."""
    asked: list[bytes] = []
    left = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not reader.at_eof() and (head := await reader.read(65_536)):
            asked.append(head)
            answer = left.pop(0)
            for part in answer.split(b"|"):
                writer.write(part)
                await writer.drain()
            if not answer:
                break
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = HttpClient(Address.parse(f"http://127.0.0.1:{port}/base/"), connections=1)
    try:
        yield client, asked
    finally:
        client.close()
        server.close()


LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = (
    b"HTTP/1.1 409 Conflict\r\nTransfer-Encoding: chunked\r\nRetry-After: 3\r\n\r\n|2\r\nno|\r\n1\r\n!\r\n0\r\n\r\n"
)
CLOSING = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"


async def test_answers_come_in_one_piece_however_they_were_sent() -> None:
    async with answering(LENGTH, CHUNKED) as (client, asked):
        first = await client.ask("POST", "/path", headers={"x-key": "secret"}, body=b"{}")
        assert (first.status, first.body) == (200, b"ok")
        second = await client.ask("GET", "/other", headers={})
        assert (second.status, second.body, second.headers["retry-after"]) == (409, b"no!", "3")
    assert asked[0].startswith(b"POST /base/path HTTP/1.1\r\nhost: 127.0.0.1:")
    assert b"\r\nx-key: secret\r\n" in asked[0]
    assert asked[0].endswith(b"content-length: 2\r\n\r\n{}")
    assert asked[1].startswith(b"GET /base/other ")


@pytest.mark.parametrize("broken", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nok", b"SSH-2.0-hello\r\n\r\n"])
async def test_what_is_no_whole_answer_is_none_and_the_next_request_gets_a_new_connection(broken: bytes) -> None:
    async with answering(broken, LENGTH) as (client, asked):
        asking = asyncio.create_task(client.ask("GET", "/", headers={}))
        if broken.startswith(b"HTTP"):
            await eventually(lambda: _is_one(asked))
            assert not asking.done(), "it waits for the rest"
            asking.cancel()
            await asyncio.wait([asking])
        else:
            with pytest.raises(NoAnswer):
                await asking
        assert (await client.ask("GET", "/", headers={})).body == b"ok"


async def _is_one(asked: list[bytes]) -> bool:
    return len(asked) == 1


async def test_a_connection_that_the_server_ends_is_not_used_again() -> None:
    async with answering(CLOSING, LENGTH) as (client, asked):
        for _ in range(2):
            assert (await client.ask("GET", "/", headers={})).body == b"ok"
    assert len(asked) == 2


async def test_nobody_there_is_no_answer() -> None:
    client = HttpClient(Address.parse("http://127.0.0.1:9"), connections=1)
    with pytest.raises(NoAnswer):
        await client.ask("GET", "/", headers={})


@pytest.mark.parametrize("wrong", ["127.0.0.1:7878", "ftp://host", "http://", "http://h/?a=1", "http://me@h"])
def test_what_is_no_address_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="an address such as"):
        Address.parse(wrong)


def test_the_host_header_leaves_the_usual_port_out() -> None:
    assert Address.parse("https://example.test").host_header == "example.test"
    assert Address.parse("http://[::1]:7878").host_header == "[::1]:7878"
