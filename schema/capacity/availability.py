"""What is free when: steps of granted slots, and the terms in which more would fit (F1)."""

from __future__ import annotations

from typing import Any

import strawberry

from domain.capacity import availability
from domain.identity import split_reservation_key
from schema.context import operation
from schema.paging import value
from schema.scalars import Millis


@strawberry.type
class AvailabilityStep:
    """From `at` until the next step, so many slots are granted."""

    at: Millis
    granted: int
    free: int = strawberry.field(description="Slots that are not granted then; never below zero.")

    @classmethod
    def of(cls, step: availability.Step) -> AvailabilityStep:
        return cls(at=Millis(step.at), granted=step.granted, free=step.free)


@strawberry.type
class Fit:
    """A term in which the slots fit. `createGrant` accepts it unless a competitor was faster."""

    starts_at: Millis
    ends_at: Millis
    latest_start_at: Millis = strawberry.field(description="A term of this length fits if it starts until then.")

    @classmethod
    def of(cls, fit: availability.Fit) -> Fit:
        return cls(
            starts_at=Millis(fit.starts_at),
            ends_at=Millis(fit.ends_at),
            latest_start_at=Millis(fit.latest_start_at),
        )


async def fits(key: str, **wanted: Any) -> list[Fit]:
    """Terms with room on the reservation, the earliest first. Raises the refusals of the read."""
    current = operation()
    account_id, reservation_id = split_reservation_key(key)
    found = await current.runtime.reads.earliest_fit(
        current.caller,
        tenant_id=current.caller.principal.tenant_id,
        account_id=account_id,
        reservation_id=reservation_id,
        **wanted,
    )
    return [Fit.of(fit) for fit in value(found)]
