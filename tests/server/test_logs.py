"""Logs: one JSON object a line, or readable text; the ids of a request come by themselves."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

from server.logs import REQUEST, JsonLines, Readable, is_text

IDS = {"request_id": "req_1", "trace_id": "0af7651916cd43dd8448eb211c80319c"}


def record_of(message: str, *, failed: bool = False, **extra: Any) -> logging.LogRecord:
    info = None
    if failed:
        try:
            raise ValueError("the cause")
        except ValueError:
            info = sys.exc_info()
    record = logging.LogRecord("earmark.http", logging.WARNING, __file__, 1, message, (), info)
    record.__dict__.update(extra)
    return record


def test_a_line_of_json_says_when_how_bad_who_and_what() -> None:
    line = json.loads(JsonLines().format(record_of("served", status=200, path="/graphql")))
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "warning",
        "logger": "earmark.http",
        "message": "served",
        "status": 200,
        "path": "/graphql",
    }


def test_inside_a_request_every_line_has_its_ids() -> None:
    token = REQUEST.set(IDS)
    try:
        line = json.loads(JsonLines().format(record_of("inside")))
        text = Readable().format(record_of("inside"))
    finally:
        REQUEST.reset(token)
    assert line.items() >= IDS.items()
    assert "request_id=req_1" in text
    assert "request_id" not in Readable().format(record_of("outside"))


def test_a_failure_comes_with_its_traceback_in_one_line() -> None:
    text = JsonLines().format(record_of("it failed", failed=True))
    assert "\n" not in text
    assert "ValueError: the cause" in json.loads(text)["error"]
    assert "ValueError: the cause" in Readable().format(record_of("it failed", failed=True))


def test_what_a_client_sends_cannot_look_like_a_line_of_ours() -> None:
    forged = "/x\n12:00:00.000 info    all is well"
    assert Readable().format(record_of("served", path=forged)).count("\n") == 0
    assert JsonLines().format(record_of("served", path=forged)).count("\n") == 0


def test_what_is_no_json_is_written_as_text() -> None:
    assert json.loads(JsonLines().format(record_of("x", place=object)))["place"] == "<class 'object'>"


def test_text_is_for_terminals() -> None:
    assert (is_text("text"), is_text("json")) == (True, False)
    assert is_text("auto") == sys.stderr.isatty()
