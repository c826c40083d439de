"""Connections to receivers that are kept: used again where nothing has changed, and never where something has (8.6)."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator

import pytest

from domain.webhooks.deliveries import Attempt
from domain.webhooks.targets import PERMISSIVE, Address, Security, Target, parse_url
from tests.capacity_world import eventually
from tests.receiver import Receiver
from workers.webhooks import lines
from workers.webhooks.lines import KEPT_MAX, REST_MAX
from workers.webhooks.sender import Sender

HEADERS = [("Content-Type", "application/json"), ("Content-Length", "2")]
NAME = "hooks.example.test"


class Names:
    """A name server that answers whatever a test says."""

    def __init__(self) -> None:
        self.address = "127.0.0.1"

    async def resolve(self, _target: Target) -> list[Address]:
        return [ipaddress.ip_address(self.address)]


class Sending:
    """To one receiver that keeps its connections."""

    def __init__(self, receiver: Receiver) -> None:
        receiver.keeps_alive = True
        self.receiver = receiver
        self.names = Names()
        self.sender = Sender(self.names.resolve, within_s=30)

    async def send(self, *, security: Security = PERMISSIVE) -> Attempt:
        found = parse_url(f"http://{NAME}:{self.receiver.port}/in")
        assert isinstance(found, Target)
        return await self.sender.send(found, HEADERS, b"{}", security=security)


@pytest.fixture
async def sending(receiver: Receiver) -> AsyncIterator[Sending]:
    made = Sending(receiver)
    yield made
    made.sender.close()


async def test_one_connection_serves_one_request_after_another(sending: Sending) -> None:
    for status in (200, 500, 200, 410, 200):
        sending.receiver.answers = [status]
        assert (await sending.send()).response_status == status
    assert (len(sending.receiver.got), sending.receiver.connections) == (5, 1)


async def test_only_so_many_are_kept(sending: Sending) -> None:
    await asyncio.gather(*(sending.send() for _ in range(3 * KEPT_MAX)))
    await asyncio.gather(*(sending.send() for _ in range(3 * KEPT_MAX)))
    assert sending.receiver.connections <= KEPT_MAX


async def test_a_connection_that_the_receiver_has_ended_meanwhile_is_no_failure(sending: Sending) -> None:
    for _ in range(5):
        sending.receiver.keeps_alive = False
        assert (await sending.send()).succeeded
    assert (len(sending.receiver.got), sending.receiver.connections) == (5, 5)


async def test_a_kept_connection_does_not_outlive_its_address(sending: Sending) -> None:
    """DNS rebinding the other way round: the name has moved, and the old connection leads where it was."""
    assert (await sending.send()).succeeded
    sending.names.address = "127.0.0.9"
    attempt = await sending.send()
    assert (attempt.response_status, attempt.error) == (None, "the connection failed or was cut")
    sending.names.address = "127.0.0.1"
    assert (await sending.send()).succeeded
    assert sending.receiver.connections == 2


async def test_what_is_blocked_by_now_is_not_reached_by_it(sending: Sending) -> None:
    assert (await sending.send()).succeeded
    blocked = await sending.send(security=Security(blocked_cidr_ranges=("127.0.0.0/8",), allow_http=True))
    assert blocked.error == "the host is, or resolves to, an address that webhooks may not go to"
    assert len(sending.receiver.got) == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.0 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b"x" * (REST_MAX + 1),
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nand silence"[:-6],
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n",
    ],
    ids=["old", "closing", "large", "unfinished", "broken"],
)
async def test_an_answer_that_does_not_end_well_counts_and_ends_the_connection(sending: Sending, answer: bytes) -> None:
    sending.receiver.answers = [answer]
    assert (await sending.send()).succeeded
    assert (await sending.send()).succeeded
    assert sending.receiver.connections == 2


async def test_what_is_not_used_is_ended(sending: Sending, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "KEPT_S", 0.01)
    assert (await sending.send()).succeeded

    async def is_ended() -> bool:
        return sending.receiver.open_connections == 0

    await eventually(is_ended)
    assert (await sending.send()).succeeded
