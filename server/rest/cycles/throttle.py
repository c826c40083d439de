"""How often an address may ask for what anybody may have (section 9): a fixed minute, counted on each node."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from domain.terms import MINUTE_MS

PUBLIC_A_MINUTE: Final = 300
ADDRESSES_MAX: Final = 10_000
"""Addresses that are counted in one minute; whoever comes after so many others shares one count with them."""
_OTHERS: Final = "*"


@dataclass(slots=True)
class PublicLimit:
    """One object an application."""

    most: int = PUBLIC_A_MINUTE
    _minute: int = -1
    _counts: dict[str, int] = field(default_factory=dict)

    def wait_ms(self, address: str | None, *, now: int) -> int | None:
        """How long to wait; None: now is fine, and counted."""
        minute = now // MINUTE_MS
        if minute != self._minute:
            self._minute, self._counts = minute, {}
        name = address or _OTHERS
        if name not in self._counts and len(self._counts) >= ADDRESSES_MAX:
            name = _OTHERS
        if self._counts.get(name, 0) >= self.most:
            return (minute + 1) * MINUTE_MS - now
        self._counts[name] = self._counts.get(name, 0) + 1
        return None
