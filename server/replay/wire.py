"""Asking a running server over HTTP until it answers: again under the same idempotency key, which changes nothing twice."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from server.replay.http import HttpAnswer, HttpClient, NoAnswer
from server.replay.world import ReplayError

ANSWERED_WITHIN_S: Final = 120.0
"""Long enough for a server or its database to be killed and to start again."""
PAUSE_LEAST_S: Final = 0.05
PAUSE_MOST_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """An answer that decides something, and when by our clock: first asked, asked the time that was answered, answered."""

    status: int
    body: bytes
    first_asked_ns: int
    asked_ns: int
    told_ns: int

    def error(self) -> str:
        """The code of a refusal."""
        try:
            return str(msgspec.json.decode(self.body)["error"])
        except (msgspec.DecodeError, KeyError, TypeError):
            return f"HTTP {self.status}"


class Wire:
    """One caller's, with its key. `asked_again`: how often, by why."""

    def __init__(self, client: HttpClient, headers: Mapping[str, str]) -> None:
        self.asked_again: Counter[str] = Counter()
        self._client, self._headers = client, dict(headers)

    async def get(self, path: str, **params: Any) -> bytes:
        """Raises `ReplayError` for anything but 200."""
        return (await self.ask("GET", f"{path}?{urlencode(params)}", {200})).body

    async def post(self, path: str, body: Mapping[str, Any], *, expected: set[int] | None = None) -> Told:
        """A key in the body goes into the header as well, as clients send it. `expected`: or else `ReplayError`."""
        return await self.ask("POST", path, expected, body=body)

    async def ask(
        self, method: str, path: str, expected: set[int] | None, *, body: Mapping[str, Any] | None = None
    ) -> Told:
        """The answer, however often it has to be asked for."""
        headers, sent = dict(self._headers), None
        if body is not None:
            sent = msgspec.json.encode(body)
            if "idempotency_key" in body:
                headers["x-idempotency-key"] = body["idempotency_key"]
        first_asked_ns, pause_s = time.perf_counter_ns(), PAUSE_LEAST_S
        while True:
            asked_ns = time.perf_counter_ns()
            try:
                answer = await self._client.ask(method, path, headers=headers, body=sent)
                trouble = _trouble_of(answer)
            except NoAnswer as error:
                answer, trouble = HttpAnswer(), f"no answer ({error})"
            if trouble is None:
                break
            self.asked_again[trouble.partition(" (")[0]] += 1
            if time.perf_counter_ns() - first_asked_ns > ANSWERED_WITHIN_S * 1e9:
                raise ReplayError(f"{method} {path} was never answered: {trouble}")
            await asyncio.sleep(_pause_s(answer, pause_s))
            pause_s = min(pause_s * 2, PAUSE_MOST_S)
        told = Told(
            status=answer.status,
            body=answer.body,
            first_asked_ns=first_asked_ns,
            asked_ns=asked_ns,
            told_ns=time.perf_counter_ns(),
        )
        if expected is not None and told.status not in expected:
            raise ReplayError(
                f"not expected: {method} {path}: {told.status} {told.body.decode(errors='replace')[:200]}"
            )
        return told


def _trouble_of(answer: HttpAnswer) -> str | None:
    """Why to ask again."""
    if answer.status == 429:
        return "throttled"
    return f"HTTP {answer.status}" if answer.status >= 500 else None


def _pause_s(answer: HttpAnswer, usual_s: float) -> float:
    """As the server asks for, up to a point."""
    told = answer.headers.get("retry-after", "")
    return min(max(float(told), usual_s), PAUSE_MOST_S) if told.isdecimal() else usual_s
