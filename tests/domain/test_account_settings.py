"""Settings of provider accounts: what can be kept of them, and what cannot."""

from __future__ import annotations

from typing import Any

import pytest

from domain.registry import SETTINGS_BYTES_MAX, check_settings
from domain.shapes import Shape


def nested(depth: int) -> dict[str, Any]:
    innermost: dict[str, Any] = {}
    for _ in range(depth):
        innermost = {"a": innermost}
    return innermost


@pytest.mark.parametrize(
    "settings", [{}, {"a": [1, 2.5, True, None, {"b": "ünï😀"}]}, {"a": "\\u0000 is no NUL"}, nested(50)]
)
def test_plain_json_is_taken_as_it_is(settings: dict[str, Any]) -> None:
    assert check_settings(settings, "settings") == settings


def test_no_settings_are_empty_ones() -> None:
    assert check_settings(None, "settings") == {}


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ([], "wrong-type"),
        ("{}", "wrong-type"),
        ({"a": "\0"}, "malformed"),
        ({"\0": 1}, "malformed"),
        ({"a": ["\\\0"]}, "malformed"),
        ({"a": "\ud800"}, "malformed"),
        ({"a": float("nan")}, "malformed"),
        ({"a": object()}, "malformed"),
        (nested(100_000), "malformed"),
        ({"a": "x" * SETTINGS_BYTES_MAX}, "out-of-range"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_kept_is_refused(settings: Any, reason: str) -> None:
    with pytest.raises(Shape) as caught:
        check_settings(settings, "settings")
    assert (caught.value.refusal.field, caught.value.refusal.reason) == ("settings", reason)
