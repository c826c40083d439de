"""Idempotent replay: the same key with the same content gives the same answer; with other content it is refused (R5, R6).

A refusal burns no key: only accepted commands are remembered.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from json.encoder import encode_basestring as _quoted
from typing import Any, NamedTuple

from domain.outcomes import Conflict, Replayed


class RequestKey(NamedTuple):
    """Where an idempotency key is unique: the tenant acted in, and the operation, whichever edge it came over (D19).

    A tuple, because it is looked up several times a command, and tuples are hashed fastest.
    """

    owner: str
    operation: str
    idempotency_key: str


class Remembered(NamedTuple):
    """An accepted request: what it asked for, in short, and what it made or changed."""

    fingerprint: bytes
    subject_id: str


_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode


def fingerprint(content: Mapping[str, Any]) -> bytes:
    """Sixteen bytes that stand for the content; an absent value and an explicit null are the same request (R6, T29).

    They are taken of the JSON with sorted names and no spaces; texts and numbers are put there by hand, which is faster.
    """
    parts = []
    for name in sorted(content):
        value = content[name]
        if value is not None:
            kind = type(value)
            shown = _quoted(value) if kind is str else value if kind is int else _canonical(value)
            parts.append(f"{_quoted(name)}:{shown}")
    canonical = f"{{{','.join(parts)}}}"
    return hashlib.sha256(canonical.encode()).digest()[:16]


def check_replay(remembered: Remembered, asked: bytes, *, names_grants: bool = False) -> Replayed | Conflict:
    """The answer to a request whose key is known. `names_grants`: the subject is a grant, which the refusal then names."""
    if remembered.fingerprint == asked:
        return Replayed(remembered.subject_id)
    return Conflict(
        reason="idempotency-key-reused",
        grant_id=remembered.subject_id if names_grants else None,
        message="the idempotency key was used for another request",
    )
