"""Reading the pod list of the openb trace: comma-separated text, one pod a line, times in seconds from the trace's start.

A malformed file is refused with the line and the column at fault; nothing in it is guessed, skipped or mended.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

POD_LIST: Final = "openb_pod_list_default.csv"
"""How the pod list is called in the folder that the trace is published in."""

COLUMNS: Final = ("name", "num_gpu", "gpu_milli", "qos", "creation_time", "deletion_time", "scheduled_time")
"""What is read of a line, wherever in it. Further columns are passed over."""

GPUS_MAX: Final = 1_000
"""GPUs of one pod: more than any machine has."""
SECONDS_MAX: Final = 10**9
"""Some thirty years: a time beyond it is not in seconds."""
MILLI_MAX: Final = 1_000

_NAME: Final = re.compile(r"[A-Za-z0-9._:-]{1,200}")
_QOS: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_DIGITS: Final = re.compile(r"[0-9]{1,10}")


class TraceError(Exception):
    """The file is not what it should be. The message names the file, the line and the column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod that asks for GPUs."""

    name: str
    qos: str
    gpus: int
    takes_whole_gpus: bool
    """False: it asks for less than a thousand thousandths of a GPU, so it could share it."""
    created_s: int
    deleted_s: int | None
    """None: it outlives the trace."""
    was_scheduled: bool
    """False: the real cluster never found a place for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The pods that ask for GPUs, as they lie in the file, and how many lines there were."""

    pods: tuple[Pod, ...]
    lines: int
    """Pods of either kind."""

    @property
    def without_gpu(self) -> int:
        return self.lines - len(self.pods)

    @property
    def never_scheduled(self) -> int:
        return sum(not pod.was_scheduled for pod in self.pods)

    @property
    def never_deleted(self) -> int:
        return sum(pod.deleted_s is None for pod in self.pods)

    @property
    def gone_at_once(self) -> int:
        """Pods whose deletion is not after their creation."""
        return sum(pod.deleted_s is not None and pod.deleted_s <= pod.created_s for pod in self.pods)

    @property
    def with_several_gpus(self) -> int:
        return sum(pod.gpus > 1 for pod in self.pods)

    @property
    def gpus(self) -> int:
        return sum(pod.gpus for pod in self.pods)

    @property
    def ends_s(self) -> int:
        """The last instant that the trace tells of."""
        return max(max(pod.created_s, pod.deleted_s or 0) for pod in self.pods)


def read_trace(path: Path, *, limit: int | None = None) -> Trace:
    """Read the pod list, or the one in a folder; with `limit` only its first pods. Raises `TraceError`, OSError."""
    source = path / POD_LIST if path.is_dir() else path
    try:
        with source.open(encoding="utf-8-sig", newline="") as file:
            trace = _trace_of(_Reader(source.name, file), limit)
    except UnicodeDecodeError as error:
        raise TraceError(f"{source.name} is not text in UTF-8: {error.reason} at byte {error.start}") from None
    if not trace.pods:
        raise TraceError(f"{source.name} has no pod that asks for a GPU")
    return trace


class _Reader:
    """Lines as mappings from column to text."""

    def __init__(self, name: str, file: TextIO) -> None:
        self._name = name
        self._lines = csv.reader(file, strict=True)
        self._columns: Sequence[str] = ()

    def rows(self) -> Iterator[tuple[_Row, int]]:
        """Each line of data, and its number in the file."""
        self._columns = self._header()
        while (cells := self._next()) is not None:
            if not cells:
                continue  # an empty line, such as the last one
            number = self._lines.line_num
            if len(cells) != len(self._columns):
                message = f"has {len(cells)} columns, not {len(self._columns)}"
                if len(cells) < len(self._columns):
                    message += f": {self._columns[len(cells)]} is missing"
                raise TraceError(f"{self._name}, line {number}: {message}")
            yield _Row(self._name, number, dict(zip(self._columns, cells, strict=True))), number

    def _header(self) -> Sequence[str]:
        columns = self._next() or []
        for wanted in COLUMNS:
            if columns.count(wanted) != 1:
                how = "no" if wanted not in columns else "more than one"
                raise TraceError(f"{self._name}, line 1: there is {how} column {wanted}")
        return columns

    def _next(self) -> list[str] | None:
        try:
            return next(self._lines, None)
        except csv.Error as error:
            raise TraceError(f"{self._name}, line {self._lines.line_num}: {error}") from None


@dataclass(frozen=True, slots=True)
class _Row:
    file: str
    line: int
    cells: Mapping[str, str]

    def text(self, column: str, pattern: re.Pattern[str]) -> str:
        value = self.cells[column]
        if not pattern.fullmatch(value):
            raise self.wrong(column, f"match {pattern.pattern}")
        return value

    def number(self, column: str, *, most: int) -> int:
        value = self.cells[column]
        if not _DIGITS.fullmatch(value) or int(value) > most:
            raise self.wrong(column, f"be a whole number from 0 to {most}")
        return int(value)

    def optional_number(self, column: str, *, most: int) -> int | None:
        return self.number(column, most=most) if self.cells[column] else None

    def wrong(self, column: str, rule: str) -> TraceError:
        return TraceError(f"{self.file}, line {self.line}, column {column}: {self.cells[column][:40]!r} must {rule}")


def _trace_of(reader: _Reader, limit: int | None) -> Trace:
    pods, lines = [], 0
    seen: dict[str, int] = {}
    for row, number in reader.rows():
        if lines == limit:
            break
        lines += 1
        name = row.text("name", _NAME)
        if name in seen:
            raise row.wrong("name", f"not be the name of line {seen[name]} again")
        seen[name] = number
        pod = _pod_of(row, name)
        if pod.gpus:
            pods.append(pod)
    return Trace(pods=tuple(pods), lines=lines)


def _pod_of(row: _Row, name: str) -> Pod:
    return Pod(
        name=name,
        qos=row.text("qos", _QOS),
        gpus=row.number("num_gpu", most=GPUS_MAX),
        takes_whole_gpus=row.number("gpu_milli", most=MILLI_MAX) == MILLI_MAX,
        created_s=row.number("creation_time", most=SECONDS_MAX),
        deleted_s=row.optional_number("deletion_time", most=SECONDS_MAX),
        was_scheduled=row.optional_number("scheduled_time", most=SECONDS_MAX) is not None,
    )
