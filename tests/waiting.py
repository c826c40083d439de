"""Waiting, with a deadline, for what happens elsewhere: another process, a file. In an event loop, await events."""

from __future__ import annotations

import time
from collections.abc import Callable

POLL_SECONDS = 0.005


def wait_until(condition: Callable[[], object], *, timeout_ms: int = 60_000) -> None:
    """Return once the condition holds. Raises TimeoutError when it never does."""
    deadline = time.monotonic() + timeout_ms / 1000
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout_ms} ms: {condition}")
        time.sleep(POLL_SECONDS)
