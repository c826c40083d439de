"""Under which keys of the change board a budget is found: its own, which every turn that changes it wakes, and its tenant's,
which is woken when a turn was in doubt and nobody knows what it changed."""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import Final

from domain.amounts import Unit

KEYS_MAX: Final = 10_000
"""Keys in memory, some three megabytes: each turn names every budget that it has changed."""


@lru_cache(maxsize=KEYS_MAX)
def change_key(tenant_id: str, scope_path: str, unit: Unit) -> str:
    """Short, since other nodes are told many at once. Two budgets may share one: a watcher looks, and sees no change."""
    return f"budget/{zlib.crc32(f'{tenant_id}/{unit}/{scope_path}'.encode()):08x}"


def watched_keys(tenant_id: str, scope: str, unit: Unit) -> tuple[str, str]:
    return (change_key(tenant_id, scope.lower(), unit), tenant_id)
