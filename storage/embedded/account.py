"""Who runs the embedded PostgreSQL, and the folders that only this account may enter.

PostgreSQL refuses to run as root. Started by root (a container, mostly) it runs as the owner of the data directory that
is there already, else as `nobody`. Folders that we did not make are never opened to anybody: where the account cannot
reach, we refuse.
"""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

if sys.platform != "win32":
    import pwd

STEP_DOWN_TO: Final = "nobody"


class EmbeddedPostgresError(RuntimeError):
    """The embedded PostgreSQL cannot run here; the message says what to do about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The user and group of the server's processes. `is_other`: we are root, and step down to it."""

    uid: int
    gid: int
    is_other: bool

    def process_options(self) -> dict[str, Any]:
        """What `subprocess` needs to run a program under this account: from `/`, with nothing of our environment."""
        options: dict[str, Any] = {"cwd": "/", "env": {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}}
        if self.is_other:
            options |= {"user": self.uid, "group": self.gid, "extra_groups": []}
        return options

    def own(self, path: Path | int) -> None:
        """Hand a file, a folder or an open descriptor that we made over to this account."""
        if self.is_other:
            os.chown(path, self.uid, self.gid)

    def can_run(self, path: Path) -> bool:
        """Whether this account can execute a file or enter a folder. The kernel is asked, as that account."""
        if not self.is_other:
            return os.access(path, os.X_OK)
        command = ["/bin/sh", "-c", 'test -x "$1"', "sh", str(path)]
        return subprocess.run(command, check=False, **self.process_options()).returncode == 0


def account_for(data: Path) -> Account:
    """The account that runs the server of this data directory. Raises where root finds no `nobody`."""
    if os.geteuid() != 0:
        return Account(uid=os.geteuid(), gid=os.getegid(), is_other=False)
    if data.exists() and (found := data.stat()).st_uid != 0:
        return Account(uid=found.st_uid, gid=found.st_gid, is_other=True)
    try:
        entry = pwd.getpwnam(STEP_DOWN_TO)
    except KeyError:
        message = f"PostgreSQL does not run as root, and there is no user {STEP_DOWN_TO!r} here: run as a plain user"
        raise EmbeddedPostgresError(message) from None
    return Account(uid=entry.pw_uid, gid=entry.pw_gid, is_other=True)


def make_home(home: Path, account: Account) -> None:
    """The folder that holds everything. A new one is closed to others; as root, the account may pass through."""
    if not home.is_dir():
        home.mkdir(parents=True, exist_ok=True)
        home.chmod(0o711 if account.is_other else 0o700)


def make_private(folder: Path, account: Account) -> None:
    """A folder of mode 0700 that belongs to the account.

    Raises for a link, or for what belongs to somebody else: the short socket folder lies in `/tmp`, where others write.
    """
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise EmbeddedPostgresError(f"{folder} is in the way: it is not a folder")
    if account.is_other and found.st_uid == 0 and not any(folder.iterdir()):
        account.own(folder)
    elif found.st_uid != account.uid:
        message = f"{folder} belongs to user {found.st_uid}, and PostgreSQL would run as user {account.uid}"
        raise EmbeddedPostgresError(f"{message}: choose another data directory, or give it away with chown")


def check_reach(data: Path, account: Account) -> None:
    """Raises when the data directory lies below a folder that is closed to the account."""
    if not account.can_run(data):
        message = f"started by root, PostgreSQL runs as user {account.uid}, which cannot reach {data}"
        hint = "choose a data directory such as one below /var/lib, or run as a plain user"
        raise EmbeddedPostgresError(f"{message}: {hint}")
