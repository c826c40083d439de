"""Structured logs: one JSON object a line, or readable text on a terminal; request and trace ids come by themselves."""

from __future__ import annotations

import json
import logging
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

REQUEST: ContextVar[dict[str, str] | None] = ContextVar("request", default=None)
"""The ids of the request that is being served, set by the outermost middleware."""

_PLAIN: Final = frozenset(logging.LogRecord("", 0, "", 0, "", (), None).__dict__) | {
    "message",
    "taskName",
    "color_message",
}


def _extras(record: logging.LogRecord) -> dict[str, Any]:
    given = {name: value for name, value in record.__dict__.items() if name not in _PLAIN}
    return {**(REQUEST.get() or {}), **given}


_SECOND: list[Any] = [None, ""]
"""The last second that was spelled, and how."""


def _instant(created: float) -> str:
    second = int(created)
    if second != _SECOND[0]:
        _SECOND[:] = second, datetime.fromtimestamp(second, UTC).isoformat(timespec="seconds").removesuffix("+00:00")
    return f"{_SECOND[1]}.{int((created - second) * 1000):03}+00:00"


_encode: Final = msgspec.json.Encoder().encode


def _in_json(line: dict[str, Any]) -> str:
    """Every request writes a line, so the fast encoder first. It knows what JSON has and nothing else."""
    try:
        return _encode(line).decode()
    except (TypeError, ValueError, OverflowError):
        return json.dumps(line, default=str, ensure_ascii=False)


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _instant(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_extras(record),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return _in_json(line)


class Readable(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S.%f")[:-3]
        extras = " ".join(f"{name}={_on_one_line(value)}" for name, value in _extras(record).items())
        text = f"{moment} {record.levelname.lower():7} {record.getMessage()}" + (f"  {extras}" if extras else "")
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def _on_one_line(value: Any) -> str:
    """A path may hold a line break, and what a client sends must not look like a line of ours."""
    text = str(value)
    return text if text.isprintable() else repr(text)


def is_text(style: str) -> bool:
    """Whether logs are for people's eyes. `style`: json, text or auto."""
    return style == "text" or (style == "auto" and sys.stderr.isatty())


def configure(*, level: str, style: str) -> None:
    """Set up the process's logging. `style`: json, text or auto."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Readable() if is_text(style) else JsonLines())
    # What no line of ours says is not found out for each of them.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # noqa: SLF001 - documented as the way not to look for the caller
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # Their ordinary news is noise beside ours; a client's mistake is not our error.
    for name, quiet in (
        ("uvicorn.access", "CRITICAL"),
        ("apscheduler", "WARNING"),
        ("strawberry.execution", "CRITICAL"),
    ):
        logging.getLogger(name).setLevel(quiet)
    logging.getLogger("uvicorn.error").setLevel("WARNING")
