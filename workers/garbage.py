"""The cycle collector of a node's process, told what kind of program it is in."""

from __future__ import annotations

import gc
from typing import Final

YOUNG_MAX: Final = 10_000
"""New containers that are still there before the young are looked through. A batch of commands makes thousands that live
until its commit; nearly all of what dies is freed by its last reference, without the collector."""


def spare_what_stays() -> None:
    """What a started process has in memory (modules, schemas, plans) stays for good: it is collected once, and never
    looked through again. Without it a full collection takes a tenth of a busy node's time, and tens of milliseconds
    at once. Once a process, when it has started."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_MAX, *gc.get_threshold()[1:])
