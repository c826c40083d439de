"""Instants as the published wire writes them: RFC 3339 in UTC with milliseconds out, with any offset in."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from domain.terms import SECOND_MS

_FORM: Final = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})[Tt](\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,9}))?(?:([Zz])|([+-])(\d{2}):(\d{2}))", re.ASCII
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_NANOSECONDS_A_MS: Final = 1_000_000


def show_instant(at: int) -> str:
    """An instant in epoch ms, such as `2026-01-31T23:59:59.250Z`."""
    whole = datetime.fromtimestamp(at // SECOND_MS, UTC)
    return f"{whole:%Y-%m-%dT%H:%M:%S}.{at % SECOND_MS:03d}Z"


def read_instant(text: str, *, round_up: bool = False) -> int | None:
    """Epoch ms; None for what is no RFC 3339 instant. The offset is required (decision 42).

    Finer digits are dropped; `round_up` takes the next millisecond instead, as the lower end of a window has to.
    """
    match = _FORM.fullmatch(text)
    if match is None:
        return None
    fraction = (match[7] or "").ljust(9, "0")
    milliseconds, rest = divmod(int(fraction), _NANOSECONDS_A_MS)
    try:
        moment = datetime(*(int(match[number]) for number in range(1, 7)), tzinfo=UTC)  # type: ignore[arg-type, misc]
        offset = _offset(match)
    except ValueError:
        return None
    if offset is None:
        return None
    at = (moment - _EPOCH) // _MILLISECOND - offset + milliseconds
    return at + 1 if round_up and rest else at


def _offset(match: re.Match[str]) -> int | None:
    """Milliseconds east of UTC."""
    if match[8]:
        return 0
    hours, minutes = int(match[10]), int(match[11])
    if hours > 23 or minutes > 59:
        return None
    east = (hours * 60 + minutes) * 60 * SECOND_MS
    return east if match[9] == "+" else -east
