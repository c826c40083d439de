"""Refusals that only capacity knows, and where there would be room instead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import strawberry

from domain.capacity import refusals
from domain.identity import reservation_key
from schema.capacity.availability import Fit, fits
from schema.context import operation
from schema.refusals import Refusal, RefusalCode, shows


@dataclass(frozen=True, slots=True)
class Wish:
    """The grant that was refused, as far as it matters for finding another term."""

    key: str
    slots: int
    starts_at: int
    duration_ms: int


@strawberry.type
class CapacityUnavailable(Refusal):
    """No room. A tenant is told nothing of how much there is."""

    total: int | None = strawberry.field(description="For a grant: slots of the capacity reservation.")
    granted: int | None = strawberry.field(
        description="For a grant: slots granted at the peak of its term, without it."
    )
    wish: strawberry.Private[Wish | None] = None

    @strawberry.field
    async def earliest_fit(self) -> Fit | None:
        """The earliest term of the same length, from the one asked for on, with room for the same slots. Worked out when
        it is asked for; root only, and only where a new grant was refused."""
        if self.wish is None or not operation().caller.principal.is_root:
            return None
        found = await fits(
            self.wish.key,
            slots=self.wish.slots,
            duration_ms=self.wish.duration_ms,
            not_before=self.wish.starts_at,
            first=1,
        )
        return found[0] if found else None


@shows(refusals.CapacityUnavailable)
def _capacity_unavailable(refusal: refusals.CapacityUnavailable) -> Refusal:
    return CapacityUnavailable(
        code=RefusalCode.CAPACITY_UNAVAILABLE,
        message=refusal.message,
        total=refusal.total,
        granted=refusal.granted,
    )


def with_wish(shown: Any, wanted: Any) -> Any:
    """A refusal for lack of room remembers the grant that was wanted, for whoever asks where it would fit."""
    if isinstance(shown, CapacityUnavailable):
        shown.wish = Wish(
            key=reservation_key(wanted.account_id, wanted.reservation_id),
            slots=wanted.slots,
            starts_at=wanted.starts_at,
            duration_ms=wanted.ends_at - wanted.starts_at,
        )
    return shown
