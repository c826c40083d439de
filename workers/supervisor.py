"""The only starter of tasks. What it starts lives until it is stopped: a loop that fails is logged and begun again."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

log = logging.getLogger("earmark.supervisor")

RESTART_PAUSES_S: Final = (0.1, 0.5, 2.0, 5.0)
"""How long a failed loop waits before it is begun again; the last one repeats."""


class Supervisor:
    """Starts background tasks in a clean context, so that none inherits a request's connection or log fields."""

    def __init__(self) -> None:
        self._context = contextvars.copy_context()
        self._tasks: set[asyncio.Task[Any]] = set()

    def keep(self, name: str, loop: Callable[[], Awaitable[None]]) -> None:
        """Run `loop` until `stop`, again and again if it fails."""
        self._start(self._kept(name, loop), name)

    def spawn(self, name: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run something once, beside everything else. Its failure is logged."""
        return self._start(self._logged(name, work), name)

    async def stop(self) -> None:
        """Cancel everything that still runs and wait until it has cleaned up."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def _start(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work, name=name, context=self._context.copy())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _kept(self, name: str, loop: Callable[[], Awaitable[None]]) -> None:
        failures = 0
        while True:
            try:
                await loop()
            except asyncio.CancelledError:
                raise
            except Exception:
                log.exception("%s failed and is begun again", name)
            await asyncio.sleep(RESTART_PAUSES_S[min(failures, len(RESTART_PAUSES_S) - 1)])
            failures += 1

    async def _logged(self, name: str, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            return await work
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("%s failed", name)
            return None
