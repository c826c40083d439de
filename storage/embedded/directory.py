"""The data directory of the embedded PostgreSQL, made once by one major version, and the settings it is served with."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import psutil

from storage.embedded.account import Account, EmbeddedPostgresError
from storage.embedded.binaries import Binaries

SETTINGS: Final[Mapping[str, str]] = {
    "max_connections": "100",
    "shared_buffers": "128MB",
    "max_wal_size": "1GB",
    "min_wal_size": "64MB",
    "random_page_cost": "1.1",  # solid state, not spinning disks
    "jit": "off",  # our statements are short: compiling them costs more than it saves
    "io_method": "sync",  # no worker processes for reads that are in the cache anyway
    "wal_level": "minimal",  # nobody replicates from here
    "max_wal_senders": "0",
    "max_logical_replication_workers": "0",
    "autovacuum_naptime": "15s",  # balances and heads are updated in place, again and again
    "idle_in_transaction_session_timeout": "60s",  # nobody keeps a row locked for longer, whatever happened to them
    "log_min_messages": "warning",
    "log_checkpoints": "off",
    "log_line_prefix": "%m [%p] ",
    "timezone": "UTC",
}
"""Durability is PostgreSQL's own default: fsync, full page writes, and a commit waits for the disk."""

REMOVE_TIMEOUT_MS: Final = 5_000
"""What cannot be removed by then stays: it is in nobody's way."""

_SINCE_MAJOR: Final[Mapping[str, int]] = {"io_method": 18}
_BUILTIN_LOCALE_SINCE_MAJOR: Final = 17
_NOT_SETTINGS: Final = frozenset(
    {"data_directory", "listen_addresses", "port", "unix_socket_directories", "unix_socket_permissions"}
)


def merged_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """`SETTINGS` with the caller's on top. Raises for one that would open the server to others: it has no password."""
    if refused := sorted(_NOT_SETTINGS & {name.lower() for name in settings}):
        message = f"not a setting of the embedded PostgreSQL: {', '.join(refused)}"
        raise EmbeddedPostgresError(f"{message}; for a server on the network, name your own with EARMARK_DATABASE_URL")
    return {**SETTINGS, **settings}


def server_arguments(settings: Mapping[str, str], *, major: int, sockets: Path, port: int) -> list[str]:
    """The command line of `postgres`. It wins over the files in the data directory; names too new for it stay out."""
    known = {name: value for name, value in settings.items() if major >= _SINCE_MAJOR.get(name, 0)}
    known |= {
        "listen_addresses": "",
        "port": str(port),
        "unix_socket_directories": f'"{sockets}"',  # quoted: it is a list, and the path may hold a comma
        "unix_socket_permissions": "0700",
    }
    return [argument for name, value in known.items() for argument in ("-c", f"{name}={value}")]


def made_by(data: Path) -> int | None:
    """The major version that made this data directory, None if it is still empty. Raises if it holds something else."""
    try:
        return int((data / "PG_VERSION").read_text())
    except FileNotFoundError:
        if any(data.iterdir()):
            raise EmbeddedPostgresError(f"{data} holds something that is not a PostgreSQL data directory") from None
        return None


def initialise(data: Path, *, binaries: Binaries, account: Account, durable: bool) -> None:
    """Run initdb beside `data`, then rename its result: it writes PG_VERSION first, so a killed one looks finished."""
    home = data.parent
    for left_over in home.glob("new-pg-*"):
        _remove(left_over)
    new = Path(tempfile.mkdtemp(dir=home, prefix="new-pg-"))
    account.own(new)
    command = [binaries.initdb, "-D", str(new), *_initdb_options(binaries.major, durable=durable)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, **account.process_options())
    if done.returncode != 0:
        raise EmbeddedPostgresError(f"initdb failed: {(done.stderr or done.stdout).strip()}")
    new.rename(data)  # takes the place of an empty folder only
    if durable:
        _sync_folder(home)


def _remove(left_over: Path) -> None:
    """What a killed first start left behind, and its initdb too, which outlived it and goes on writing there."""
    for process in psutil.process_iter(["cmdline"]):
        if str(left_over) in (process.info["cmdline"] or ()):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
    until = time.monotonic() + REMOVE_TIMEOUT_MS / 1000
    while left_over.exists() and time.monotonic() < until:
        shutil.rmtree(left_over, ignore_errors=True)  # its children notice a moment later that it is gone


def _initdb_options(major: int, *, durable: bool) -> list[str]:
    """No way in but the socket. Text is ordered by code point everywhere, also before there was a builtin locale."""
    options = ["--username=postgres", "--encoding=UTF8", "--locale=C", "--auth-local=trust", "--auth-host=reject"]
    if major >= _BUILTIN_LOCALE_SINCE_MAJOR:
        options += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    return options if durable else [*options, "--no-sync"]


def _sync_folder(folder: Path) -> None:
    """Make a rename in this folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
