"""The PostgreSQL servers of a test run: the embedded one that all workers share, and the system's, with a password.

Here and not in `conftest.py`, so that tests can name the types of what their fixtures give them.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import psutil

from storage.embedded import EmbeddedPostgres, EmbeddedPostgresError
from storage.embedded.account import account_for, make_private
from tests import templates
from tests.ports import reserved_port
from tests.templates import Template, address_of, name_of
from tests.waiting import wait_until

SYSTEM_POSTGRES = Path("/usr/lib/postgresql")
WITHOUT_DURABILITY = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "autovacuum": "off",  # plans that do not depend on when it came by
    "max_connections": "300",
}
HOME_PREFIX = "earmark-tests-"


class Databases:
    """Clean databases on one server, copied from a migrated template that belongs to this process."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self._prefix = f"earmark_test_{os.getpid()}_{secrets.token_hex(3)}"
        self._numbers = itertools.count(1)
        self._administrator: templates.Connection | None = None
        self._migrated: Template | None = None
        self._taken: dict[str, Template] = {}

    async def open(self) -> None:
        """Connect, and make the template by the project's own migrations. Nobody may connect to it afterwards."""
        from storage.migrate import migrate

        self._administrator = await asyncpg.connect(self.dsn)
        address = await self.create(migrated=False)
        await migrate(address)
        self._migrated = await self.template_of(address)

    async def close(self) -> None:
        """Drop everything that this process made."""
        if self._administrator is not None:
            found = "select datname from pg_database where starts_with(datname, $1)"
            for (name,) in await self._administrator.fetch(found, self._prefix):
                await templates.drop(self._administrator, address_of(self.dsn, database=name))
            await self._administrator.close()

    async def create(self, *, migrated: bool = True) -> str:
        """The address of a clean database. `migrated=False`: an empty one, as a new user would bring it."""
        if migrated:
            assert self._migrated is not None
            return await self.copy(self._migrated)
        assert self._administrator is not None
        name = f"{self._prefix}_{next(self._numbers)}"
        await templates.create(self._administrator, name, template="template0")
        return address_of(self.dsn, database=name)

    async def template_of(self, address: str) -> Template:
        """Of a database that was created here, as it is now. Nobody may connect to it afterwards."""
        assert self._administrator is not None
        template = await Template.of(self._administrator, address)
        await self._administrator.execute(f"ALTER DATABASE {name_of(address)} ALLOW_CONNECTIONS false")
        return template

    async def copy(self, template: Template) -> str:
        """The address of a database that is like it."""
        address = await template.take()
        self._taken[address] = template
        return address

    async def drop(self, address: str) -> None:
        """Nobody needs it any more, whoever is still connected."""
        assert self._administrator is not None
        template = self._taken.pop(address, None)
        if template is None:
            await templates.drop(self._administrator, address)
        else:
            await template.give_back(address)


def address_for(dsn: str, *, user: str, password: str) -> str:
    """The same database, another user."""
    parts = urllib.parse.urlsplit(dsn)
    user, password = (urllib.parse.quote(text, safe="") for text in (user, password))
    return parts._replace(netloc=f"{user}:{password}@{parts.netloc.rpartition('@')[2]}").geturl()


def new_home() -> Path:
    """A folder for a data directory that PostgreSQL can reach also when root runs the tests (pytest's are closed)."""
    home = Path(tempfile.mkdtemp(prefix=f"{HOME_PREFIX}{os.getpid()}-", dir="/tmp"))
    home.chmod(0o711)
    return home


def remove_homes_of_killed_runs() -> None:
    """A run that was killed leaves its server behind: stop it, since nobody else will."""
    for home in Path("/tmp").glob(f"{HOME_PREFIX}*"):
        number = home.name.removeprefix(HOME_PREFIX).partition("-")[0]
        if number.isdigit() and not psutil.pid_exists(int(number)) and os.access(home, os.W_OK):
            server = EmbeddedPostgres(home)
            if server.pid is not None:
                with contextlib.suppress(EmbeddedPostgresError):
                    server.start()
                    server.stop()
            shutil.rmtree(home, ignore_errors=True)


@contextlib.contextmanager
def durable_server() -> Iterator[EmbeddedPostgres]:
    """A server as it runs in production; its folder is gone afterwards."""
    remove_homes_of_killed_runs()
    home = new_home()
    try:
        with EmbeddedPostgres(home) as server:
            yield server
    finally:
        shutil.rmtree(home, ignore_errors=True)


class SystemPostgres:
    """The installed PostgreSQL, on TCP and with a password: what `EARMARK_DATABASE_URL` names in real life."""

    def __init__(self, bin_dir: Path, *, home: Path) -> None:
        self.major = int(bin_dir.parent.name)
        self._bin = bin_dir
        self._home = home
        self._data = home / "data"
        self._account = account_for(self._data)
        self._password = secrets.token_urlsafe(12)
        self._port = reserved_port()

    @property
    def dsn(self) -> str:
        """The administrator's address."""
        return f"postgresql://postgres:{self._password}@127.0.0.1:{self._port}/postgres"

    @contextlib.contextmanager
    def running(self) -> Iterator[SystemPostgres]:
        self._initialise()
        options = {"listen_addresses": "127.0.0.1", "port": str(self._port), "unix_socket_directories": ""}
        arguments = [f"--{name}={value}" for name, value in {**WITHOUT_DURABILITY, **options}.items()]
        with (self._home / "log").open("wb") as log:
            process = subprocess.Popen(
                [self._bin / "postgres", "-D", self._data, *arguments],
                stdout=log,
                stderr=log,
                **self._account.process_options(),
            )
        try:
            self._wait_until_ready()
            yield self
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(30)

    def _initialise(self) -> None:
        make_private(self._data, self._account)
        secret = self._home / "password"
        secret.write_text(self._password)
        self._account.own(secret)
        command = [self._bin / "initdb", "-D", self._data, "-U", "postgres", "-E", "UTF8", "--no-locale", "--no-sync"]
        command += ["--auth=scram-sha-256", f"--pwfile={secret}"]
        subprocess.run(command, check=True, capture_output=True, **self._account.process_options())

    def _wait_until_ready(self) -> None:
        command = [self._bin / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self._port)]
        wait_until(lambda: subprocess.run(command, check=False).returncode == 0)


def system_bin_dir() -> Path | None:
    """The programs of the newest PostgreSQL that the system's packages installed, from 15 on."""
    found = [folder for folder in SYSTEM_POSTGRES.glob("*/bin") if (folder / "postgres").exists()]
    recent = [folder for folder in found if folder.parent.name.isdigit() and int(folder.parent.name) >= 15]
    return max(recent, key=lambda folder: int(folder.parent.name), default=None)
