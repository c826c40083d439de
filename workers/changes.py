"""Who watches a thing: woken on each change of it, with as many changes as came meanwhile folded into one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass, field
from typing import Final

from workers import measures
from workers.events import SUBSCRIBERS_MAX, SubscriptionClosed

SPACING_S: Final = 0.1
"""The least time between two looks of one watcher: each costs a read, and nobody's eyes are faster."""


@dataclass(slots=True, eq=False)
class _Watcher:
    key_id: str
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    closing: tuple[str, str] | None = None


class ChangeBoard:
    """Watched keys of this node. A watcher never falls behind: it is told *that* something changed, and looks itself."""

    def __init__(self) -> None:
        self._watchers: dict[str, set[_Watcher]] = {}
        """By key: a watcher has at least one."""
        self._everybody: set[_Watcher] = set()

    @property
    def count(self) -> int:
        return len(self._everybody)

    def key_ids(self) -> set[str]:
        """The API keys that open watches were made with."""
        return {watcher.key_id for watcher in self._everybody}

    def wake(self, keys: Iterable[str]) -> None:
        for key in keys:
            for watcher in self._watchers.get(key, ()):
                watcher.wake.set()

    def wake_all(self) -> None:
        """Something changed and nobody knows what: hints may be lost, changes may not."""
        for watcher in self._everybody:
            watcher.wake.set()

    def close_keys(self, key_ids: Iterable[str]) -> None:
        revoked = set(key_ids)
        self._close([w for w in self._everybody if w.key_id in revoked], "UNAUTHENTICATED", _REVOKED)

    def close_all(self) -> None:
        self._close(self._everybody, "SHUTTING_DOWN", "the server is closing; subscribe again")

    async def watch(self, *keys: str, key_id: str) -> AsyncGenerator[None, None]:
        """Once at the beginning, then after each change of any of the keys. Raises `SubscriptionClosed`."""
        if self.count >= SUBSCRIBERS_MAX:
            raise SubscriptionClosed("TOO_MANY_SUBSCRIPTIONS", "this node has too many open subscriptions")
        watcher = _Watcher(key_id)
        self._join(watcher, keys)
        try:
            while True:
                watcher.wake.clear()
                if watcher.closing is not None:
                    raise SubscriptionClosed(*watcher.closing)
                looked = time.monotonic()
                yield None
                await watcher.wake.wait()
                if watcher.closing is None:
                    await asyncio.sleep(looked + SPACING_S - time.monotonic())
        finally:
            self._leave(watcher, keys)

    def _join(self, watcher: _Watcher, keys: Iterable[str]) -> None:
        self._everybody.add(watcher)
        measures.SUBSCRIBERS.inc()
        for key in keys:
            self._watchers.setdefault(key, set()).add(watcher)

    def _leave(self, watcher: _Watcher, keys: Iterable[str]) -> None:
        self._everybody.discard(watcher)
        measures.SUBSCRIBERS.dec()
        for key in set(keys):
            self._watchers[key].discard(watcher)
            if not self._watchers[key]:
                del self._watchers[key]

    def _close(self, watchers: Iterable[_Watcher], code: str, message: str) -> None:
        for watcher in watchers:
            watcher.closing = (code, message)
            watcher.wake.set()


_REVOKED = "the API key is no longer valid"
