"""What capacity is metered in: the names of the meters, and how a quantity is shown.

A quantity is an integer of slot-milliseconds or instance-milliseconds; hours are only how people read it (R47).
"""

from __future__ import annotations

from typing import Final

from domain.terms import HOUR_MS

GRANT_SLOT_HOURS: Final = "vm.grant.slot.hours"
"""Committed slots of a grant, used or not (R38)."""
GRANT_USAGE_HOURS: Final = "vm.grant.usage.hours"
"""Running time inside a grant: tells, costs nothing (R43)."""
RESERVED_INSTANCE_HOURS: Final = "vm.reserved.instance.hours"
"""Running time on a reservation outside any grant (R44)."""
ONDEMAND_INSTANCE_HOURS: Final = "vm.ondemand.instance.hours"
"""Running time after the reservation is gone (R44, R56)."""

METERS: Final = (GRANT_SLOT_HOURS, GRANT_USAGE_HOURS, RESERVED_INSTANCE_HOURS, ONDEMAND_INSTANCE_HOURS)

_PLACES: Final = 1_000_000


def hours_text(quantity_ms: int) -> str:
    """The quantity in hours as a decimal with exactly six places, half to even: for display only (R47).

    Corrections are negative (D6).
    """
    sign = "-" if quantity_ms < 0 else ""
    millionths, rest = divmod(abs(quantity_ms) * _PLACES, HOUR_MS)
    if rest * 2 > HOUR_MS or (rest * 2 == HOUR_MS and millionths % 2):
        millionths += 1
    return f"{sign if millionths else ''}{millionths // _PLACES}.{millionths % _PLACES:06}"
