"""The fingerprint of a request is that of its JSON, however it is put together."""

from __future__ import annotations

import hashlib
import json

import pytest

from domain.replay import fingerprint


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"b": 1, "a": "x", "c": -5},
        {"a": 'quote " and \\ and \n and é and \u2028', "z": 1 << 62},
        {"a": True, "b": False, "c": 1.5, "d": [1, "x", None], "e": {"z": 1, "a": {"y": None}}},
        {'odd " name': "x", "é": 3},
    ],
)
def test_it_is_taken_of_the_canonical_json(content: dict[str, object]) -> None:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert fingerprint(content) == hashlib.sha256(canonical.encode()).digest()[:16]


def test_an_absent_value_and_null_are_the_same_request() -> None:
    assert fingerprint({"a": 1, "b": None}) == fingerprint({"a": 1}) != fingerprint({"a": "1"})
