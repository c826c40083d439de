"""One reservation as somebody outside states it: the checks a file's entry, a pushed report and a cloud's answer share.

Every check answers with the first thing wrong as an `InvalidInput` whose `field` is the wire name (`total`, `inUse`
…); the caller puts the place in front of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from domain.capacity.scan import ReportedReservation
from domain.identity import FLAVOR, RESERVATION_ID, in_words
from domain.outcomes import InvalidInput

SLOTS_MAX: Final = 1_000_000_000
"""Slots of one reservation: fits the database's integer, sums fit a 64-bit one, and no real fleet comes near."""

REGION: Final = FLAVOR
"""A region becomes a tag of every usage record (R38), so it is a word."""

_REQUIRED: Final = ("reservationId", "flavor", "region", "total")
_OPTIONAL: Final = ("inUse", "ready")
_SHOWN_CHARACTERS_MAX: Final = 60


def read_entry(entry: object) -> ReportedReservation | InvalidInput:
    """A reservation out of a parsed document. Refused: not an object, an unknown or missing key, then a wrong value."""
    if not isinstance(entry, Mapping):
        return InvalidInput(field="", message=f"must be an object with {', '.join(_REQUIRED)}, not {shown(entry)}")
    for key in entry:
        if key not in _REQUIRED and key not in _OPTIONAL:
            known = ", ".join((*_REQUIRED, *_OPTIONAL))
            return InvalidInput(field=_word(key), message=f"is not a known key (known: {known})", reason="unknown-key")
    for key in _REQUIRED:
        if key not in entry:
            return InvalidInput(field=key, message="is missing", reason="missing")
    return _checked(entry)


def _checked(entry: Mapping[str, Any]) -> ReportedReservation | InvalidInput:
    reservation = ReportedReservation(
        reservation_id=entry["reservationId"],
        flavor=entry["flavor"],
        region=entry["region"],
        total=entry["total"],
        in_use=entry.get("inUse"),
        ready=entry.get("ready", True),
    )
    return check_reservation(reservation) or reservation


def check_reservation(reservation: ReportedReservation) -> InvalidInput | None:
    """The first wrong value, types included: the fields come from outside, so their annotations promise nothing."""
    return (
        _check_word("reservationId", reservation.reservation_id, RESERVATION_ID)
        or _check_word("flavor", reservation.flavor, FLAVOR)
        or _check_word("region", reservation.region, REGION)
        or _check_slots("total", reservation.total)
        or (None if reservation.in_use is None else _check_slots("inUse", reservation.in_use))
        or _check_flag("ready", reservation.ready)
    )


def repeated_ids(reservations: Iterable[ReportedReservation]) -> list[tuple[int, int]]:
    """(index, index of its first appearance) of every reservation whose id was there before."""
    first_at: dict[str, int] = {}
    repeats = []
    for index, reservation in enumerate(reservations):
        first = first_at.setdefault(reservation.reservation_id, index)
        if first != index:
            repeats.append((index, first))
    return repeats


def shown(value: object) -> str:
    """A value from outside, fit for a message: short, and never a walk through a nested structure."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        text = value if len(value) <= _SHOWN_CHARACTERS_MAX else f"{value[: _SHOWN_CHARACTERS_MAX - 1]}…"
        return f'"{text}"'
    if isinstance(value, int):
        return str(value) if value.bit_length() <= 64 else "a number of more than 64 bits"
    if isinstance(value, float):
        return str(value)
    if isinstance(value, Mapping):
        return "an object"
    return "a list" if isinstance(value, list | tuple) else "something else"


def _check_word(field: str, value: object, pattern: re.Pattern[str]) -> InvalidInput | None:
    if isinstance(value, str) and pattern.fullmatch(value):
        return None
    hint = " (put it in quotes)" if isinstance(value, int | float) else ""
    return InvalidInput(field=field, message=f"must be {in_words(pattern)}, not {shown(value)}{hint}")


def _check_slots(field: str, value: object) -> InvalidInput | None:
    # A bool is an int to Python; as a number of slots it is a mistake.
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= SLOTS_MAX:
        return None
    return InvalidInput(field=field, message=f"must be a whole number from 0 to {SLOTS_MAX}, not {shown(value)}")


def _check_flag(field: str, value: object) -> InvalidInput | None:
    if isinstance(value, bool):
        return None
    return InvalidInput(field=field, message=f"must be true or false, not {shown(value)}")


def _word(key: object) -> str:
    return key[:_SHOWN_CHARACTERS_MAX] if isinstance(key, str) else shown(key)
