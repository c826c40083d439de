"""Cursors and page sizes: what goes in comes out, and nothing else is taken for a cursor."""

from __future__ import annotations

import base64
import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.events import encode_cursor as encode_event_cursor
from domain.identity import GRANT_ID, INSTANCE_ID, RESERVATION_ID
from domain.paging import (
    CURSOR_LENGTH_MAX,
    LIST_MAX,
    PAGE_DEFAULT,
    PAGE_MAX,
    check_after,
    check_first,
    encode_cursor,
)
from domain.shapes import Shape
from domain.terms import INSTANT_MAX

GRANT = f"rgrant_{7:026}"


def raw(text: bytes) -> str:
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


@given(st.integers(0, INSTANT_MAX), st.from_regex(RESERVATION_ID, fullmatch=True))
def test_a_cursor_brings_back_its_place(instant: int, id_: str) -> None:
    cursor = encode_cursor(instant, id_)
    assert check_after(cursor, id_pattern=RESERVATION_ID) == (instant, id_)
    assert len(cursor) <= CURSOR_LENGTH_MAX
    assert "=" not in cursor


def test_no_cursor_is_the_beginning() -> None:
    assert check_after(None, id_pattern=GRANT_ID) is None


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        " ",
        "nonsense",
        "é",
        "\ud800",
        7,
        True,
        ["x"],
        encode_cursor(5, GRANT) + "=",
        encode_cursor(5, GRANT) + "\n",
        encode_cursor(5, GRANT)[:-1],
        encode_cursor(5, GRANT + "\n"),
        encode_cursor(-5, GRANT),
        encode_cursor(10**17, GRANT),
        raw(f"05/{GRANT}".encode()),
        raw(f"٥/{GRANT}".encode()),
        raw(b"\xff/" + GRANT.encode()),
        raw(GRANT.encode()),
        encode_cursor(5, f"inst_{7:026}"),
        encode_event_cursor("tenant", 5),
        "A" * (CURSOR_LENGTH_MAX + 1),
    ],
)
def test_garbled_and_foreign_cursors_are_refused(cursor: Any) -> None:
    with pytest.raises(Shape) as refused:
        check_after(cursor, id_pattern=GRANT_ID)
    assert (refused.value.refusal.field, refused.value.refusal.reason) == ("after", "bad-cursor")


@given(st.text() | st.binary().map(raw))
def test_whatever_a_client_sends_is_a_cursor_of_ours_or_refused(cursor: str) -> None:
    with contextlib.suppress(Shape):
        place = check_after(cursor, id_pattern=INSTANCE_ID)
        assert place is not None
        assert encode_cursor(*place) == cursor


def test_a_page_has_its_default_and_its_limits() -> None:
    assert check_first(None) == PAGE_DEFAULT
    assert [check_first(value) for value in (0, 1, PAGE_MAX, 3.0)] == [0, 1, PAGE_MAX, 3]
    assert check_first(LIST_MAX, most=LIST_MAX) == LIST_MAX
    for value in (-1, PAGE_MAX + 1, True, "5", 1.5):
        with pytest.raises(Shape) as refused:
            check_first(value)
        assert refused.value.refusal.field == "first"
