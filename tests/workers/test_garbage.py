"""A started node does not look through what stays, and finds cycles all the same."""

from __future__ import annotations

import subprocess
import sys

CYCLE = """
import gc, weakref
from workers.garbage import YOUNG_MAX, spare_what_stays

class Thing:
    pass

spare_what_stays()
assert gc.get_freeze_count() > 1_000, gc.get_freeze_count()
assert gc.isenabled()
thing = Thing()
thing.itself = thing
seen = weakref.ref(thing)
del thing
kept = [[] for _ in range(2 * YOUNG_MAX)]
print("collected" if seen() is None else "kept")
"""


def test_cycles_that_begin_after_the_start_are_collected() -> None:
    """In a process of its own: the collector is the whole process's."""
    told = subprocess.run([sys.executable, "-c", CYCLE], capture_output=True, text=True, check=True)
    assert told.stdout == "collected\n"
