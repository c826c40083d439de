"""One HTTP request to a receiver: to an address that was looked at, without redirects, and never for longer than allowed.

The host is looked up once for each request. All of its addresses must be allowed, and the connection goes to one of
these very addresses, with the host's name in the TLS handshake and in the Host header: a name that resolves otherwise a
moment later (DNS rebinding) changes nothing. A connection that is kept from before is used on the same terms.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

import h11

from domain.webhooks.deliveries import Attempt
from domain.webhooks.targets import (
    Address,
    Security,
    Target,
    blocked_networks,
    is_blocked,
    refuse_addresses,
)
from workers import measures
from workers.webhooks.addresses import Resolve
from workers.webhooks.lines import CutOffError, Line, Lines

CONNECT_WITHIN_S: Final = 5.0
ANSWER_WITHIN_S: Final = 30.0
"""The whole request, from the look-up on."""
PER_HOST_MAX: Final = 8
"""Requests that one host gets at a time from this node: however many subscriptions a dead one has, it holds up no more."""

AGENT: Final = f"earmark/{version('earmark')}"


class _NoAnswerError(Exception):
    """There is no status, for a reason that may be told."""


@dataclass(slots=True)
class _Door:
    """The queue in front of one host."""

    places: asyncio.Semaphore
    users: int = 0


class Sender:
    """`ca_file`: certificates, as PEM, of authorities that the system does not know. Raises `ssl.SSLError` for another."""

    def __init__(self, resolve: Resolve, *, within_s: float = ANSWER_WITHIN_S, ca_file: Path | None = None) -> None:
        self._resolve = resolve
        self.within_s = within_s
        self._tls = None if ca_file is None else _trusting(ca_file)
        self._doors: dict[str, _Door] = {}
        self._lines = Lines()

    async def send(
        self, target: Target, headers: Sequence[tuple[str, str]], body: bytes, *, security: Security
    ) -> Attempt:
        """What came of it. Only being cancelled is raised: whatever a receiver does is an answer."""
        async with self._door(target.host):
            started = time.monotonic()
            status, error, line = await self._attempt(target, headers, body, security)
            took_ms = round((time.monotonic() - started) * 1_000)
            if line is not None and not (await line.is_free_again() and self._lines.keep(target, line)):
                await line.close()
        if error is None and status is not None and not 200 <= status < 300:
            error = f"the receiver answered {status}"
            if 300 <= status < 400:
                error += ": redirects are not followed"
        attempt = Attempt(response_status=status, response_time_ms=took_ms, error=error)
        measures.WEBHOOK_ATTEMPTS.labels(result=_result(attempt)).inc()
        measures.WEBHOOK_SECONDS.observe(took_ms / 1_000)
        return attempt

    def close(self) -> None:
        """What is kept is not needed any more."""
        self._lines.close()

    async def _attempt(
        self, target: Target, headers: Sequence[tuple[str, str]], body: bytes, security: Security
    ) -> tuple[int | None, str | None, Line | None]:
        """(status, why there is none, the connection that it came over)."""
        try:
            async with asyncio.timeout(self.within_s):
                addresses = await self._look_up(target, security)
                status, line = await self._exchange(target, addresses, headers, body, security)
                return status, None, line
        except _NoAnswerError as error:
            return None, str(error), None
        except TimeoutError:
            return None, f"no answer within {self.within_s:g} s", None
        except ssl.SSLCertVerificationError as error:
            return None, f"the receiver's certificate is not valid: {error.verify_message}", None
        except ssl.SSLError:
            return None, "the TLS handshake failed", None
        except h11.RemoteProtocolError:
            return None, "the receiver's answer is no HTTP", None
        except CutOffError as error:
            return None, str(error), None
        except OSError:
            return None, "the connection failed or was cut", None

    async def _look_up(self, target: Target, security: Security) -> list[Address]:
        try:
            addresses = await self._resolve(target)
        except OSError:
            addresses = []
        if not addresses:
            raise _NoAnswerError("the host cannot be resolved")
        if (refused := refuse_addresses(addresses, security)) is not None:
            raise _NoAnswerError(refused.message)
        return addresses

    async def _exchange(
        self,
        target: Target,
        addresses: Sequence[Address],
        headers: Sequence[tuple[str, str]],
        body: bytes,
        security: Security,
    ) -> tuple[int, Line]:
        """Over a kept connection, if there is one. The other side may just have ended it: then over a new one, since
        nobody has heard the request, or whoever did knows the event by its id."""
        request = h11.Request(method="POST", target=target.path, headers=[("Host", target.authority), *headers])
        line = self._lines.take(target, addresses)
        if line is not None:
            try:
                return await _ask(line, request, body, security), line
            except OSError as error:
                if isinstance(error, TimeoutError):
                    raise
        line = await self._connect(target, addresses)
        return await _ask(line, request, body, security), line

    async def _connect(self, target: Target, addresses: Sequence[Address]) -> Line:
        """To the first address that takes a connection. Raises what the last one did not take it for."""
        last: OSError = OSError("no address")
        tls = {"ssl": self._context(), "server_hostname": target.host} if target.is_secure else {}
        try:
            async with asyncio.timeout(CONNECT_WITHIN_S):
                for address in addresses:
                    try:
                        return Line(*await asyncio.open_connection(str(address), target.port, **tls))  # type: ignore[arg-type]
                    except OSError as error:
                        last = error
        except TimeoutError:
            raise _NoAnswerError(f"no connection within {CONNECT_WITHIN_S:g} s") from None
        raise last

    def _context(self) -> ssl.SSLContext:
        """Made when first wanted: reading the system's certificates takes a while."""
        if self._tls is None:
            self._tls = _trusting(None)
        return self._tls

    @asynccontextmanager
    async def _door(self, host: str) -> AsyncIterator[None]:
        door = self._doors.setdefault(host, _Door(asyncio.Semaphore(PER_HOST_MAX)))
        door.users += 1
        try:
            async with door.places:
                yield
        finally:
            door.users -= 1
            if not door.users and self._doors.get(host) is door:
                del self._doors[host]


def _trusting(ca_file: Path | None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if ca_file is not None:
        context.load_verify_locations(cafile=ca_file)
    return context


async def _ask(line: Line, request: h11.Request, body: bytes, security: Security) -> int:
    """The status. A connection that fails is closed."""
    try:
        _check_peer(line, security)
        return await line.ask(request, body)
    except BaseException:
        await line.close()
        raise


def _check_peer(line: Line, security: Security) -> None:
    """The socket's own word on where it goes. Raises OSError."""
    address = line.peer
    if address is None or is_blocked(address, blocked_networks(security)):
        raise OSError("connected to an address that is not allowed")


def _result(attempt: Attempt) -> str:
    if attempt.response_status is None:
        return "no_answer"
    return f"{attempt.response_status // 100}xx"
