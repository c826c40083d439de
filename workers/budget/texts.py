"""Text that cannot be kept: PostgreSQL has no NUL in a text, and half a surrogate pair is no UTF-8.

JSON can carry both, in any string of a request, so they are refused here, before they reach a turn with others in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final

import msgspec

from domain.outcomes import InvalidInput

DEPTH_MAX: Final = 64
"""How deep a client's document may be nested: PostgreSQL and every JSON library stop somewhere far beyond."""

_OURS: Final = frozenset({"tenant_id", "origin", "fingerprint"})
"""Fields of a command that no client fills."""

_encode: Final = msgspec.json.Encoder().encode


def refuse_texts(command: Any) -> InvalidInput | None:
    """The first field of a command, or of anything else with fields, that holds such a text or is nested too deeply."""
    if _is_plain(command):
        return None
    for each in fields(command):
        if each.name not in _OURS and not is_kept(getattr(command, each.name)):
            message = f"{each.name} holds text that cannot be kept, or is nested too deeply"
            return InvalidInput(field=each.name, reason="charset", message=message)
    return None


def _is_plain(command: Any) -> bool:
    """A quick look at the whole, which nearly every request passes: there is nothing in it to look for."""
    try:
        text = _encode(command)
    except (ValueError, TypeError, RecursionError, OverflowError):
        return False
    return rb"\u0000" not in text and text.count(b"[") + text.count(b"{") <= DEPTH_MAX


def is_kept(value: Any, depth: int = DEPTH_MAX) -> bool:
    """Whether every text inside can be kept."""
    if isinstance(value, str):
        return "\0" not in value and (value.isascii() or _is_unicode(value))
    if value is None or isinstance(value, int | float | bytes):
        return True
    if depth == 0:
        return False
    if isinstance(value, Mapping):
        return all(is_kept(name, depth - 1) and is_kept(each, depth - 1) for name, each in value.items())
    if isinstance(value, list | tuple):
        return all(is_kept(each, depth - 1) for each in value)
    return is_dataclass(value) and all(is_kept(getattr(value, each.name), depth - 1) for each in fields(value))


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
