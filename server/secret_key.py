"""The key that secrets at rest are sealed with: from the settings, or made once and kept in the data directory."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final

from server.settings import Settings

log = logging.getLogger("earmark.server")

FILE_NAME: Final = "secret.key"
FORMER_FILE_NAME: Final = "secret.key.former"
LENGTH: Final = 32
"""Bytes."""


def secret_key_of(settings: Settings) -> bytes | None:
    """None where none is given and none can be kept: then nothing is sealed, and whoever wants that is told why."""
    if settings.secret_key is not None:
        return settings.secret_key.encode()
    path = settings.data_dir.expanduser() / FILE_NAME
    try:
        return _kept(path) or _make(path)
    except OSError as error:
        log.warning("no key for secrets can be kept, so no webhook can be made: set EARMARK_SECRET_KEY (%s)", error)
        return None


def former_secret_key_of(settings: Settings) -> bytes | None:
    """The one before, if it is given, or lies beside the present one under the name that a rotation gives it."""
    if settings.secret_key_former is not None:
        return settings.secret_key_former.encode()
    try:
        return _kept(settings.data_dir.expanduser() / FORMER_FILE_NAME)
    except OSError as error:
        log.warning("the former key for secrets cannot be read: %s", error)
        return None


def _kept(path: Path) -> bytes | None:
    try:
        key = path.read_bytes()
    except FileNotFoundError:
        return None
    if len(key) != LENGTH:
        raise OSError(f"{path} is no key: it should hold {LENGTH} bytes")
    return key


def _make(path: Path) -> bytes:
    """Written aside and linked into place, whole or not at all: of several processes the first one's is everybody's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    key = os.urandom(LENGTH)
    aside = path.with_name(f"{FILE_NAME}.{os.getpid()}.{os.urandom(4).hex()}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(key)
            file.flush()
            os.fsync(file.fileno())
        os.link(aside, path)
    except FileExistsError:
        return _kept(path) or key
    finally:
        aside.unlink()
    log.info("a key for secrets was made", extra={"path": str(path)})
    return key
