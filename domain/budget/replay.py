"""Idempotent replay for budgets: what a request is, in short, and the answer that was given to it (section 4).

An accepted answer is remembered whole, DENY of a preview included, and comes back as it was; only the remaining
lifetime of a hold is told anew. A refusal is not remembered, so its key stays free.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from domain.terms import DAY_MS

Answer = TypeVar("Answer", covariant=True)

ANSWERS_KEPT_MS: Final = 7 * DAY_MS
"""For at least this long a key means the same request (section 4.4)."""
SETTLEMENTS_KEPT_MS: Final = 30 * DAY_MS
"""The same for the answers to commit and release."""

_CANONICAL: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


@dataclass(frozen=True, slots=True)
class Repeated(Generic[Answer]):
    """The request was accepted before: nothing happens again, and nothing is published (section 4.2)."""

    answer: Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberedAnswer:
    fingerprint: bytes
    answer: Any
    """One of the answers in `answers`."""
    answered_at: int


def fingerprint(content: Mapping[str, Any]) -> bytes:
    """SHA-256 over one canonical JSON form: keys by code point, no white space, exact integers, shortest floats.

    None at the top counts as absent; inside, it is content. No text is normalised. Not RFC 8785: that form cannot carry
    integers above 2^53, and amounts go to 2^63-1 (section 4.3).
    """
    present = {name: value for name, value in content.items() if value is not None}
    # A lone surrogate is a legal JSON string and must not become a fault of ours.
    return hashlib.sha256(_CANONICAL.encode(present).encode("utf-8", "surrogatepass")).digest()
