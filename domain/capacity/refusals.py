"""Refusals that only capacity knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from domain.outcomes import Refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityUnavailable(Refusal):
    """No room: for a grant `total` and `granted` (the peak without it, R10); for an instance nothing more (R28)."""

    code: ClassVar[str] = "CAPACITY_UNAVAILABLE"
    total: int | None = None
    granted: int | None = None
