"""Reading a trace of requests to a language model: when each came, how long its prompt was, and how long its answer.

Comma-separated text, one request a line. A malformed file is refused with the line and the column at fault.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TextIO

from domain.terms import SECOND_MS
from server.replay.trace import TraceError

PATTERN: Final = "AzureLLMInferenceTrace_*.csv"
"""How the files are called in the folder that the trace is published in."""
COLUMNS: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
"""What is read of a line, wherever in it."""
TOKENS_MAX: Final = 10_000_000
"""Tokens of one request: more than any model takes."""

_TIMESTAMP: Final = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.(\d{1,9}))?", re.ASCII)
_DIGITS: Final = re.compile(r"[0-9]{1,8}")
_APP: Final = re.compile(r"[a-z0-9-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmRequest:
    came_at: int
    app: str
    """Which service it went to: the last word of its file's name."""
    context_tokens: int
    generated_tokens: int


def read_requests(path: Path, *, limit: int | None = None) -> tuple[LlmRequest, ...]:
    """The requests of a file, or of a folder's files, in the order of time; with `limit` only the first of them.

    Raises `TraceError`, OSError.
    """
    sources = sorted(path.glob(PATTERN)) if path.is_dir() else [path]
    requests = [request for source in sources for request in _read(source)]
    if not requests:
        raise TraceError(f"{path.name} has no request to a language model (looked for {PATTERN})")
    requests.sort(key=lambda request: request.came_at)
    return tuple(requests[:limit])


def _read(source: Path) -> list[LlmRequest]:
    app = source.stem.rpartition("_")[2].lower()
    if not _APP.fullmatch(app):
        raise TraceError(f"{source.name}: the last word of its name must match {_APP.pattern}")
    try:
        with source.open(encoding="utf-8-sig", newline="") as file:
            return list(_requests(source.name, app, file))
    except UnicodeDecodeError as error:
        raise TraceError(f"{source.name} is not text in UTF-8: {error.reason} at byte {error.start}") from None
    except csv.Error as error:
        raise TraceError(f"{source.name}: {error}") from None


def _requests(name: str, app: str, file: TextIO) -> Iterator[LlmRequest]:
    lines = csv.DictReader(file, strict=True)
    for wanted in COLUMNS:
        if (lines.fieldnames or []).count(wanted) != 1:
            raise TraceError(f"{name}, line 1: there must be one column {wanted}")
    for cells in lines:
        if None in cells or None in cells.values():
            raise TraceError(f"{name}, line {lines.line_num}: has not as many columns as the first line")
        row = _Row(name, lines.line_num, cells)
        yield LlmRequest(
            came_at=row.instant("TIMESTAMP"),
            app=app,
            context_tokens=row.tokens("ContextTokens"),
            generated_tokens=row.tokens("GeneratedTokens"),
        )


@dataclass(frozen=True, slots=True)
class _Row:
    file: str
    line: int
    cells: Mapping[str, str]

    def instant(self, column: str) -> int:
        """Epoch ms, what is finer cut off. The trace names no zone: it is read as UTC."""
        found = _TIMESTAMP.fullmatch(self.cells[column])
        try:
            second = datetime.strptime(found[1] if found else "", "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
        except ValueError:
            raise self.wrong(column, "be an instant such as 2023-11-16 18:17:03.979") from None
        fraction = (found[2] or "") if found else ""
        return int(second.timestamp()) * SECOND_MS + int(fraction[:3].ljust(3, "0"))

    def tokens(self, column: str) -> int:
        value = self.cells[column]
        if not _DIGITS.fullmatch(value) or int(value) > TOKENS_MAX:
            raise self.wrong(column, f"be a whole number from 0 to {TOKENS_MAX}")
        return int(value)

    def wrong(self, column: str, rule: str) -> TraceError:
        return TraceError(f"{self.file}, line {self.line}, column {column}: {self.cells[column][:40]!r} must {rule}")
