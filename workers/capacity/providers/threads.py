"""Blocking work beside the event loop, with a limit: what a client library or a hung file system may not do to a scan.

A daemon thread of its own for each call, not the loop's shared pool: a thread stuck in the kernel (a dead network
drive) cannot be stopped, and in the pool it would take a place from everybody and hold up the end of the process.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")


class StillRunningError(Exception):
    """The last call for this key overran its limit and its thread has not come back: no second one is started."""


class BlockingCalls:
    """At most one running call a key, so that stuck threads cannot pile up, one a scan."""

    def __init__(self) -> None:
        self._running: set[str] = set()

    async def call(self, key: str, work: Callable[[threading.Event], Result], *, limit_ms: int) -> Result:
        """What `work` returns or raises. `work` gets an event that is set when nobody waits for it any longer.

        Raises `TimeoutError` after `limit_ms` and `StillRunningError` when an earlier call for `key` has not ended.
        """
        if key in self._running:
            raise StillRunningError
        result: Future[Result] = Future()
        # A running future cannot be cancelled: the thread may always set its result, whoever has stopped waiting.
        result.set_running_or_notify_cancel()
        abandoned = threading.Event()
        self._running.add(key)
        threading.Thread(target=self._run, args=(key, work, abandoned, result), name=f"scan {key}", daemon=True).start()
        try:
            async with asyncio.timeout(limit_ms / 1_000):
                return await asyncio.wrap_future(result)
        finally:
            abandoned.set()

    def _run(
        self, key: str, work: Callable[[threading.Event], Result], abandoned: threading.Event, result: Future[Result]
    ) -> None:
        try:
            outcome = work(abandoned)
        except BaseException as error:  # noqa: BLE001 - whoever awaits the call gets it, whatever it is
            self._running.discard(key)
            result.set_exception(error)
        else:
            self._running.discard(key)
            result.set_result(outcome)
