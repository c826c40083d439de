"""Start, share and stop the embedded PostgreSQL.

One server for each data directory, shared by every process that starts it, stopped by the last one that stops using it.
Nothing that a kill -9 leaves behind needs a hand afterwards. What that rests on:

- Two `flock` files, which the kernel lets go when a process dies. `gate.lock` is held while starting or stopping; every
  user of the server holds `users.lock` shared, and whoever stops tries it exclusively: only the last one gets it.
- initdb works beside the data directory and its result is renamed: a killed one leaves no half-made directory.
- A server is running if it answers on our socket, whatever number the pid file holds (after the restart of a container
  it may be any program's). A stale pid file is not deleted: see `_disown_stale_locks`.

No TCP: a Unix socket in a folder of mode 0700 is the whole authentication. Linux and macOS.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, TypedDict

import psutil

from storage.embedded.account import Account, EmbeddedPostgresError, account_for, check_reach, make_home, make_private
from storage.embedded.binaries import Binaries, find_binaries, reachable
from storage.embedded.directory import initialise, made_by, merged_settings, server_arguments

if sys.platform != "win32":
    import fcntl

PORT: Final = 5432
"""Only part of the socket's name: nothing listens on TCP."""

START_TIMEOUT_MS: Final = 300_000
"""Recovery after a crash may replay a lot of log; giving up early would not make it faster."""

STOP_TIMEOUT_MS: Final = 30_000
"""A fast shutdown writes one checkpoint. Past this we stop it the hard way, and the next start recovers."""

ANSWER_TIMEOUT_MS: Final = 1_000
POLL_MS: Final = 5

LOG_BYTES_MAX: Final = 10_000_000
"""Past this, the next start puts the log aside as `postgres.log.1`."""

SOCKET_PATH_BYTES_MAX: Final = 100
"""The path of a Unix socket has 104 bytes on macOS, 108 on Linux."""

_SSL_REQUEST: Final = struct.pack("!ii", 8, 80877103)
_SOCKETS_LINE: Final = 4
_STATUS_LINE: Final = 7
_ORPHANS_ARE_LEAVING: Final = "pre-existing shared memory block"


class Credentials(TypedDict):
    """Keyword arguments of `asyncpg.connect`, and of tortoise's `credentials`."""

    host: str
    port: int
    user: str
    password: str | None
    database: str


class EmbeddedPostgres:
    """A PostgreSQL in `home`, started on demand.

    `settings` come on top of `directory.SETTINGS` (`{"fsync": "off"}` in tests); where it listens is not among them.
    `bin_dir` names the programs to use instead of the wheel's. Whatever keeps it from running is raised as
    `EmbeddedPostgresError`, with what to do about it.
    """

    def __init__(self, home: Path, *, settings: Mapping[str, str] | None = None, bin_dir: Path | None = None) -> None:
        if sys.platform == "win32":
            message = "the embedded PostgreSQL runs on Linux and macOS only"
            raise EmbeddedPostgresError(f"{message}: name a server with EARMARK_DATABASE_URL, or use WSL")
        self.home: Final = home.expanduser().resolve()
        self.log: Final = self.home / "postgres.log"
        self._data: Final = self.home / "pg"
        self._sockets: Final = _socket_folder(self.home)
        self._settings: Final = merged_settings(settings or {})
        self._bin_dir: Final = bin_dir
        self._account: Account = account_for(self._data)
        self._gate: int | None = None
        self._users: int | None = None

    @property
    def credentials(self) -> Credentials:
        """How to connect, as keyword arguments. Who reaches the socket is let in: there is no password."""
        return {"host": str(self._sockets), "port": PORT, "user": "postgres", "password": None, "database": "postgres"}

    @property
    def dsn(self) -> str:
        """How to connect, as an address for asyncpg and libpq, in this process or in another one of the same user."""
        query = urllib.parse.urlencode({"host": str(self._sockets), "port": PORT}, quote_via=urllib.parse.quote)
        return f"postgresql://postgres@/postgres?{query}"

    @property
    def pid(self) -> int | None:
        """The number of the running server's process, None if there is none."""
        process = self._server()
        return process.pid if process else None

    def start(self) -> None:
        """Make, start or join the server; returns when it answers. On a started one: revive it if it died."""
        deadline = _Deadline(START_TIMEOUT_MS)
        self._account = account_for(self._data)
        make_home(self.home, self._account)
        if self._gate is None:
            self._gate, self._users = self._open("gate.lock"), self._open("users.lock")
        assert self._users is not None
        try:
            with self._alone(deadline):
                self._bring_up(deadline)
                fcntl.flock(self._users, fcntl.LOCK_SH)
        except BaseException:
            self._close()
            raise

    def stop(self) -> None:
        """Stop using the server; its last user stops the server too. The data stays. Harmless when not started."""
        if self._users is None:
            return
        try:
            with self._alone(_Deadline(START_TIMEOUT_MS)):
                if _try_lock(self._users):
                    self._shut_down()
                    self._tidy()
                self._close_users()  # before the gate: the next one to stop must find that we have left
        finally:
            self._close()

    def __enter__(self) -> EmbeddedPostgres:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # Locks

    def _open(self, name: str) -> int:
        descriptor = os.open(self.home / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._account.own(descriptor)
        return descriptor

    def _close_users(self) -> None:
        if self._users is not None:
            os.close(self._users)
            self._users = None

    def _close(self) -> None:
        self._close_users()
        if self._gate is not None:
            os.close(self._gate)
            self._gate = None

    @contextlib.contextmanager
    def _alone(self, deadline: _Deadline) -> Iterator[None]:
        """Hold the gate: no other process starts or stops this server meanwhile."""
        assert self._gate is not None
        while not _try_lock(self._gate):
            deadline.wait(f"another process has been starting or stopping the PostgreSQL in {self.home}")
        try:
            yield
        finally:
            fcntl.flock(self._gate, fcntl.LOCK_UN)

    # Starting

    def _bring_up(self, deadline: _Deadline) -> None:
        """Wait until a server answers: one that is there, one that is starting or leaving, or one that we spawn."""
        child: subprocess.Popen[bytes] | None = None
        log_start = 0
        while not self._answers():
            if child is not None and child.poll() is not None:
                self._explain_exit(log_start)
                child = None
            if self._server() is not None:
                self._refuse_other_socket()
            elif child is None:
                binaries = self._prepare()
                log_start = self._rotate_log()
                child = self._spawn(binaries)
            deadline.wait(f"PostgreSQL does not answer on {self._sockets}; see {self.log}")

    def _prepare(self) -> Binaries:
        """The programs and a finished data directory, both within reach of the account."""
        make_private(self._sockets, self._account)
        make_private(self._data, self._account)
        check_reach(self._data, self._account)
        major = made_by(self._data)
        found = find_binaries(bin_dir=self._bin_dir, made_by=major)
        binaries = reachable(found, account=self._account, home=self.home)
        if major is None:
            durable = self._settings.get("fsync") != "off"
            initialise(self._data, binaries=binaries, account=self._account, durable=durable)
        return binaries

    def _rotate_log(self) -> int:
        """The log's size before a start, so that a failure quotes only its own lines."""
        size = self.log.stat().st_size if self.log.exists() else 0
        if size <= LOG_BYTES_MAX:
            return size
        self.log.replace(self.log.with_name(f"{self.log.name}.1"))
        return 0

    def _spawn(self, binaries: Binaries) -> subprocess.Popen[bytes]:
        self._disown_stale_locks()
        settings = server_arguments(self._settings, major=binaries.major, sockets=self._sockets, port=PORT)
        descriptor = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._account.own(descriptor)
            child = subprocess.Popen(
                [binaries.postgres, "-D", str(self._data), *settings],
                stdin=subprocess.DEVNULL,
                stdout=descriptor,
                stderr=descriptor,
                start_new_session=True,  # Ctrl-C in our terminal is for us to handle, not for the server
                **self._account.process_options(),
            )
        finally:
            os.close(descriptor)
        # It may outlive this object or die before it: somebody must take its exit status, or it stays as a zombie.
        threading.Thread(target=child.wait, name="embedded-postgres", daemon=True).start()
        return child

    def _disown_stale_locks(self) -> None:
        """Make lock files that no server of ours holds harmless, without losing their check of the shared memory.

        PostgreSQL does not start while the number in its lock file is in use, be it by a zombie or by another program.
        Our own number is put there: it ignores its parent's, and still checks the shared memory key in the same file,
        so that it cannot start beside the orphaned backends of a killed server. Deleting the file would lose that.
        """
        for lock in (self._data / "postmaster.pid", self._sockets / f".s.PGSQL.{PORT}.lock"):
            with contextlib.suppress(FileNotFoundError):
                lines = lock.read_text(errors="replace").split("\n")
                if len(lines) < 2:
                    lock.unlink()  # never completed: no server got as far as its shared memory
                elif self._server_in(lines) is None:
                    lock.write_text("\n".join([str(os.getpid()), *lines[1:]]))

    def _explain_exit(self, log_start: int) -> None:
        """Raise with the server's last words, unless it only gave way.

        To the backends of a killed server, which are still leaving, or to a server that a killed process had spawned.
        """
        said = self.log.read_bytes()[log_start:].decode(errors="replace")
        if _ORPHANS_ARE_LEAVING not in said and self._server() is None:
            raise EmbeddedPostgresError(f"PostgreSQL did not start; {self.log} says:\n{said[-2000:].strip()}")

    def _refuse_other_socket(self) -> None:
        """Raise when somebody else serves this directory by other means, where we would wait for an answer in vain."""
        lines = self._pid_file()
        if _is_ready(lines) and lines[_SOCKETS_LINE] != str(self._sockets):
            message = f"a PostgreSQL (pid {lines[0]}) that was started by other means serves {self._data}"
            raise EmbeddedPostgresError(f"{message}: stop it, or name it with EARMARK_DATABASE_URL")

    # What is there

    def _pid_file(self) -> list[str]:
        """The lines of postmaster.pid: the number of its process first, its status eighth."""
        try:
            return (self._data / "postmaster.pid").read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return []

    def _server(self) -> psutil.Process | None:
        """The living process of the pid file, if it is the server of this data directory and not a namesake."""
        return self._server_in(self._pid_file())

    def _server_in(self, lines: list[str]) -> psutil.Process | None:
        try:
            process = psutil.Process(int(lines[0]))
            is_ours = _is_alive(process) and process.cmdline()[1:3] == ["-D", str(self._data)]
        except (IndexError, ValueError, OverflowError, psutil.Error):
            return None
        return process if is_ours else None

    def _answers(self) -> bool:
        """Whether a server that takes queries listens on our socket. Only a living one answers: it forks for us."""
        if not _is_ready(self._pid_file()):
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(ANSWER_TIMEOUT_MS / 1000)
            try:
                connection.connect(str(self._sockets / f".s.PGSQL.{PORT}"))
                connection.sendall(_SSL_REQUEST)
                return connection.recv(1) == b"N"
            except OSError:
                return False

    # Stopping

    def _shut_down(self) -> None:
        """A fast shutdown (open transactions are rolled back), and the hard way when that takes too long."""
        process = self._server()
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
            if process is None or _ends(process, number):
                return
        raise EmbeddedPostgresError(f"the PostgreSQL in {self.home} does not stop")

    def _tidy(self) -> None:
        """Leave no folder in `/tmp` behind: the next start makes it again."""
        if self._sockets.parent != self.home:
            with contextlib.suppress(OSError):
                self._sockets.rmdir()


class _Deadline:
    """An instant on the monotonic clock, and the pause between two looks."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._at = time.monotonic() + timeout_ms / 1000

    def wait(self, complaint: str) -> None:
        """Pause for one poll. Raises with the complaint when the time is over."""
        if time.monotonic() >= self._at:
            raise EmbeddedPostgresError(f"{complaint} (waited {self._timeout_ms // 1000} s)")
        time.sleep(POLL_MS / 1000)


def _socket_folder(home: Path) -> Path:
    """Inside home, or where that path cannot serve, a short one that every process derives alike.

    A socket's path is bounded, and clients take a comma in it for the next host of a list.
    """
    folder = home / "run"
    if len(os.fsencode(folder / f".s.PGSQL.{PORT}")) <= SOCKET_PATH_BYTES_MAX and "," not in str(folder):
        return folder
    name = hashlib.sha256(os.fsencode(home)).hexdigest()[:16]
    return Path("/tmp") / f"earmark-{name}"  # noqa: S108 - make_private refuses one that somebody else put there


def _is_ready(pid_file: list[str]) -> bool:
    return len(pid_file) > _STATUS_LINE and pid_file[_STATUS_LINE].strip() == "ready"


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def _ends(process: psutil.Process, number: signal.Signals) -> bool:
    """Send the signal and wait for the end. False when the process is still there after `STOP_TIMEOUT_MS`."""
    until = time.monotonic() + STOP_TIMEOUT_MS / 1000
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)
        while _is_alive(process):
            if time.monotonic() >= until:
                return False
            time.sleep(POLL_MS / 1000)
    return True
