"""Accounts described by a file that an operator or a script keeps: read anew on every scan.

The file is YAML (`.yaml`, `.yml`) or JSON (`.json`), in UTF-8:

    count: 2                    # optional: how many entries follow
    reservations:
      - reservationId: rack-7/h100
        flavor: h100-8x
        region: eu-west
        total: 16               # slots
        inUse: 4                # optional: slots in use by anybody, if you know (D16)
        ready: true             # optional, true when absent
      - {reservationId: rack-8/h100, flavor: h100-8x, region: eu-west, total: 8}

Everything is checked and nothing is guessed: unknown or repeated keys, an id given twice, a wrong value, a file that is
missing, too large, changing while it is read or cut short make the whole report incomplete, with the line or the
entry in its problems; then no reservation is taken from it (D12). `reservations: []` is a full statement: there is
nothing left (R54).

A reservation that is missing from a readable file is gone, and that ends grants. So replace the file in one step
(write a new one beside it, then rename), or state `count`: YAML that was cut between two entries still reads well. A
YAML file has to end with a line break, because a cut inside a line would read well too.

YAML is read by the core rules of YAML 1.2: only `true` and `false` are flags, only decimal digits are numbers, so
that `no`, `010` and `1:30` stay text instead of turning into something else.

Which files: only those in the directory that the operator named when the server was started (`EARMARK_INVENTORY_DIR`),
symbolic links followed. The setting `path` is relative to it, or absolute and inside it. Without a directory accounts
of this kind are refused: whoever may create accounts over the API should not thereby read the server's disk.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from domain.capacity.scan import ReportedReservation, ScanReport
from domain.outcomes import InvalidInput
from workers.capacity.providers.entries import read_entry, repeated_ids, shown
from workers.capacity.providers.inventory import Inventory, NotReadableError, parse_json, parse_yaml
from workers.capacity.providers.protocol import RESERVATIONS_MAX, ProviderAccountConfig, incomplete
from workers.capacity.providers.settings import check_keys, refuse
from workers.capacity.providers.threads import BlockingCalls, StillRunningError

FILE_BYTES_MAX: Final = 2 * 1024 * 1024
"""Size of an inventory: `RESERVATIONS_MAX` generous entries. It is read into memory whole."""

READ_MS_MAX: Final = 10_000
"""How long one reading may take. A local file takes milliseconds; a dead network drive takes for ever."""

_FORMATS: Final = {".yaml": parse_yaml, ".yml": parse_yaml, ".json": parse_json}
_PATH_CHARACTERS_MAX: Final = 1_000


class FileProvider:
    """The kind `file`. `inventory_directory` is the only place it reads; None refuses every account."""

    name = "file"
    scans = True

    def __init__(self, *, inventory_directory: Path | None, read_ms_max: int = READ_MS_MAX) -> None:
        # Made absolute once: a later change of the working directory moves nothing.
        self._directory = None if inventory_directory is None else _absolute(inventory_directory)
        self._read_ms_max = read_ms_max
        self._calls = BlockingCalls()

    def validate_settings(self, settings: Mapping[str, Any]) -> InvalidInput | None:
        """Refused: unknown keys, no inventory directory on this server, then a `path` that is no file name inside it.

        The file itself need not exist yet.
        """
        refusal = check_keys(settings, known=("path",))
        if refusal is not None:
            return refusal
        located = self._locate(settings.get("path"))
        return located if isinstance(located, InvalidInput) else None

    async def scan(self, account: ProviderAccountConfig) -> ScanReport:
        """Read and check the file, off the event loop. Anything wrong: an incomplete report without reservations."""
        refusal = self.validate_settings(account.settings)
        if refusal is not None:
            return incomplete(refusal.message)
        try:
            return await self._calls.call(
                account.account_id, lambda abandoned: self._read(account.settings["path"]), limit_ms=self._read_ms_max
            )
        except TimeoutError:
            return incomplete(f"the inventory could not be read within {self._read_ms_max} ms")
        except StillRunningError:
            return incomplete("an earlier reading of the inventory still hangs; no second one was started")

    def _locate(self, path: object) -> Path | InvalidInput:
        """The absolute path named by the setting, by its words alone: links are followed when the file is read."""
        if self._directory is None:
            message = "names a file, but this server reads none: start it with EARMARK_INVENTORY_DIR"
            return refuse("path", message, reason="no-inventory-directory")
        if not isinstance(path, str) or not 0 < len(path) <= _PATH_CHARACTERS_MAX or not path.isprintable():
            return refuse("path", f"must be the path of an inventory file, not {shown(path)}")
        absolute = Path(os.path.normpath(self._directory / path))
        if not absolute.is_relative_to(self._directory):
            return refuse("path", "must stay inside the inventory directory", reason="outside-inventory-directory")
        if absolute.suffix not in _FORMATS:
            return refuse("path", f"must end in {', '.join(_FORMATS)}")
        return absolute

    def _read(self, path: str) -> ScanReport:
        located = self._locate(path)
        assert isinstance(located, Path), "validated before"
        assert self._directory is not None, "validated before"
        try:
            real = Path(os.path.realpath(located, strict=True))
            if not real.is_relative_to(os.path.realpath(self._directory)):
                return incomplete(f"{path}: leads outside the inventory directory")
            text = _read_steadily(real).decode("utf-8-sig")
            return _report(_FORMATS[located.suffix](text), path=path)
        except OSError as error:
            return incomplete(f"{path}: {error.strerror or type(error).__name__}")
        except UnicodeDecodeError as error:
            return incomplete(f"{path}: not UTF-8 at byte {error.start}")
        except NotReadableError as error:
            return incomplete(f"{path}: {error}")


def _absolute(directory: Path) -> Path:
    return Path(os.path.normpath(Path.cwd() / directory))


def _read_steadily(path: Path) -> bytes:
    """The bytes of a regular file that nobody wrote to or replaced meanwhile."""
    # Non-blocking, because opening a named pipe would wait for its writer.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        before = os.fstat(file.fileno())
        if not stat.S_ISREG(before.st_mode):
            raise NotReadableError("is not a regular file")
        content = file.read(FILE_BYTES_MAX + 1)
        after, named = os.fstat(file.fileno()), path.stat()
    if len(content) > FILE_BYTES_MAX:
        raise NotReadableError(f"is larger than {FILE_BYTES_MAX} bytes")
    if not _version(before) == _version(after) == _version(named) or len(content) != before.st_size:
        raise NotReadableError("changed while it was being read")
    return content


def _version(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _report(inventory: Inventory, *, path: str) -> ScanReport:
    problems = list(_document_problems(inventory.content))
    if problems:
        return incomplete(*(f"{path}: {problem}" for problem in problems))
    reservations: list[ReportedReservation] = []
    for index, entry in enumerate(inventory.content["reservations"]):
        read = read_entry(entry)
        if isinstance(read, InvalidInput):
            field = f".{read.field}" if read.field else ""
            problems.append(f"{inventory.place(index)}{field} {read.message}")
        else:
            reservations.append(read)
    # Only a list without a wrong entry has the same positions as the file.
    repeats = [] if problems else repeated_ids(reservations)
    for at, first in repeats:
        problems.append(f"{inventory.place(at)}.reservationId is the same as in {inventory.place(first)}")
    if problems:
        return incomplete(*(f"{path}: {problem}" for problem in problems))
    return ScanReport(reservations=tuple(reservations), complete=True)


def _document_problems(content: object) -> Iterator[str]:
    """What is wrong around the entries."""
    if not isinstance(content, Mapping):
        yield f"must be an object with the key reservations, not {shown(content)}"
        return
    for key in content:
        if key not in {"reservations", "count"}:
            yield f"{key if isinstance(key, str) else shown(key)} is not a known key (known: reservations, count)"
    entries = content.get("reservations")
    if not isinstance(entries, list):
        yield f"reservations must be a list, not {shown(entries)}"
        return
    if len(entries) > RESERVATIONS_MAX:
        yield f"holds {len(entries)} reservations; at most {RESERVATIONS_MAX} are read"
    count = content.get("count", len(entries))
    if isinstance(count, bool) or not isinstance(count, int):
        yield f"count must be a whole number, not {shown(count)}"
    elif count != len(entries):
        yield f"count says {count}, but {len(entries)} reservations follow: the file may be cut short"
