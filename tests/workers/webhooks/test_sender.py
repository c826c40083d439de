"""Where a request really goes: over TLS by name, to the address that was looked at, and nowhere else (section 8.6)."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from pathlib import Path

import pytest

from domain.webhooks.deliveries import Attempt
from domain.webhooks.targets import PERMISSIVE, STRICT, Address, Security, Target, parse_url
from tests.receiver import Got, Receiver, receiving
from tests.workers.webhooks.certificates import make_certificate
from workers.webhooks.addresses import Addresses, Resolve
from workers.webhooks.sender import PER_HOST_MAX, Sender

BLOCKED = "the host is, or resolves to, an address that webhooks may not go to"
HEADERS = [("Content-Type", "application/json"), ("Content-Length", "2")]


def target(url: str) -> Target:
    found = parse_url(url)
    assert isinstance(found, Target)
    return found


async def send(
    url: str, *, security: Security = PERMISSIVE, resolve: Resolve | None = None, ca_file: Path | None = None
) -> Attempt:
    addresses = Addresses()
    try:
        sender = Sender(resolve or addresses.resolve, within_s=60, ca_file=ca_file)
        return await sender.send(target(url), HEADERS, b"{}", security=security)
    finally:
        addresses.close()


def answering(*turns: list[str]) -> tuple[Resolve, list[str]]:
    """A name server that answers one way and then another; and what it was asked."""
    left, asked = list(turns), []

    async def resolve(wanted: Target) -> list[Address]:
        asked.append(wanted.host)
        return [ipaddress.ip_address(text) for text in (left.pop(0) if len(left) > 1 else left[0])]

    return resolve, asked


async def test_the_host_header_and_the_certificate_are_the_names_and_the_connection_goes_to_the_address(
    tmp_path: Path,
) -> None:
    context, ca_file = make_certificate(tmp_path, names=("hooks.example.test",))
    names: list[str | None] = []
    context.sni_callback = lambda _socket, name, _context: names.append(name)
    resolve, asked = answering(["127.0.0.1"])
    async with receiving(tls=context) as receiver:
        url = f"https://hooks.example.test:{receiver.port}/in"
        attempt = await send(url, resolve=resolve, ca_file=ca_file)
    assert attempt.succeeded, attempt
    assert names == ["hooks.example.test"]
    assert asked == ["hooks.example.test"], "looked up once"
    assert receiver.got[0].header("Host") == f"hooks.example.test:{receiver.port}"


async def test_a_certificate_that_nobody_vouches_for_is_refused(tmp_path: Path) -> None:
    context, ca_file = make_certificate(tmp_path)
    async with receiving(tls=context, host="localhost") as receiver:
        stranger = await send(receiver.url())
        other_name = await send(
            f"https://hooks.example.test:{receiver.port}/", resolve=answering(["127.0.0.1"])[0], ca_file=ca_file
        )
        assert (await send(receiver.url(), ca_file=ca_file)).succeeded
    for attempt in (stranger, other_name):
        assert attempt.response_status is None
        assert attempt.error is not None
        assert attempt.error.startswith("the receiver's certificate is not valid")
    assert len(receiver.got) == 1


async def test_a_receiver_that_speaks_no_tls_is_a_failure() -> None:
    def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 a mail server" + b"." * 100 + b"\r\n")
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        attempt = await send(f"https://127.0.0.1:{port}/")
    assert (attempt.response_status, attempt.error) == (None, "the TLS handshake failed")


async def test_private_addresses_are_blocked_whatever_the_name(receiver: Receiver) -> None:
    for host in ("127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "[::1]", "[::ffff:127.0.0.1]"):
        attempt = await send(f"http://{host}:{receiver.port}/", security=STRICT)
        assert attempt.error in (BLOCKED, "the host cannot be resolved"), host
    assert receiver.got == []


async def test_one_blocked_address_among_the_answers_is_enough(receiver: Receiver) -> None:
    resolve, _ = answering(["192.0.2.1", "127.0.0.1"])
    attempt = await send(f"http://mixed.example.test:{receiver.port}/", security=STRICT, resolve=resolve)
    assert attempt.error == BLOCKED
    assert receiver.got == []


async def test_a_name_that_changes_its_mind_gains_nothing(receiver: Receiver) -> None:
    """DNS rebinding: the second answer is never asked for between the look and the connection."""
    here = Security(blocked_cidr_ranges=("127.0.0.2/32",), allow_http=True)
    resolve, asked = answering(["127.0.0.1"], ["127.0.0.2"])
    url = f"http://rebind.example.test:{receiver.port}/"
    assert (await send(url, security=here, resolve=resolve)).succeeded
    assert asked == ["rebind.example.test"]
    assert (await send(url, security=here, resolve=resolve)).error == BLOCKED, "and the next delivery looks again"
    assert len(receiver.got) == 1


async def test_the_next_address_is_tried_when_one_takes_no_connection(receiver: Receiver) -> None:
    resolve, _ = answering(["127.0.0.3", "127.0.0.1"])
    assert (await send(f"http://two.example.test:{receiver.port}/", resolve=resolve)).succeeded


async def test_one_host_gets_only_so_many_requests_at_a_time(receiver: Receiver) -> None:
    go_on = asyncio.Event()

    async def hold(_got: Got) -> int:
        await go_on.wait()
        return 200

    receiver.usually = hold
    sender = Sender(Addresses().resolve, within_s=60)
    wanted = target(receiver.url())
    count = 3 * PER_HOST_MAX
    sends = [sender.send(wanted, HEADERS, b"{}", security=PERMISSIVE) for _ in range(count)]
    under_way = asyncio.gather(*sends)
    await receiver.until(PER_HOST_MAX)
    go_on.set()
    attempts = await under_way
    assert receiver.under_way_most == PER_HOST_MAX
    assert all(attempt.succeeded for attempt in attempts)
    assert len(attempts) == count


async def test_a_name_server_that_says_nothing_holds_up_one_look_up_only(tmp_path: Path, receiver: Receiver) -> None:
    never = asyncio.Event()

    async def resolve(wanted: Target) -> list[Address]:
        if wanted.host == "silent.example.test":
            await never.wait()
        return [ipaddress.ip_address("127.0.0.1")]

    sender = Sender(resolve, within_s=60)
    wanted = target("http://silent.example.test/")
    silent = asyncio.ensure_future(sender.send(wanted, HEADERS, b"{}", security=PERMISSIVE))
    prompt = await sender.send(target(receiver.url()), HEADERS, b"{}", security=PERMISSIVE)
    assert prompt.succeeded
    assert not silent.done()
    silent.cancel()
    given_up = await Sender(resolve, within_s=0.1).send(wanted, HEADERS, b"{}", security=PERMISSIVE)
    assert given_up.error == "no answer within 0.1 s"


async def test_a_file_that_holds_no_certificate_is_an_error_of_ours(tmp_path: Path) -> None:
    nothing = tmp_path / "empty.pem"
    nothing.write_text("")
    with pytest.raises(ssl.SSLError):
        Sender(Addresses().resolve, ca_file=nothing)
