"""Settings: environment variables that begin with `EARMARK_`. An unknown or malformed one fails the start (B34)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TextIO, TypeVar
from urllib.parse import urlsplit

PREFIX: Final = "EARMARK_"
FOR_TESTS: Final = "EARMARK_TEST_"
"""Variables of the test suite; the server passes over them."""

ROOT_KEY_MIN: Final = 32
"""Characters a root key must have when it is given: a short one could be guessed."""
ROOT_KEY_MAX: Final = 512
"""Characters that a key is looked at for at all (`domain.credentials`)."""

Value = TypeVar("Value")


class SettingsError(Exception):
    """A setting is unknown or malformed. The message names it and says what would be right."""


def _default_data_dir() -> Path:
    """Root's own folder is closed to the plain user that PostgreSQL then runs as."""
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        return Path("/var/lib/earmark")
    return Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share") / "earmark"


def _about(text: str) -> dict[str, str]:
    return {"about": text}


def _bound(name: str) -> int:
    """Looked up when it is needed: this module must also load where another package has taken `schema`'s place, to say
    so."""
    from schema import bounds  # noqa: PLC0415

    value: int = getattr(bounds, name)
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting with its default. The name of the variable is the field's, in capitals, behind `EARMARK_`."""

    database_url: str | None = field(
        default=None,
        repr=False,
        metadata=_about("a PostgreSQL 15 or later to use; without it an embedded one is run in the data directory"),
    )
    data_dir: Path = field(
        default_factory=_default_data_dir, metadata=_about("where the embedded PostgreSQL keeps its data")
    )
    postgres_bin: Path | None = field(
        default=None, metadata=_about("where the embedded server's programs are, if not in the wheel")
    )
    host: str = field(default="127.0.0.1", metadata=_about("address to listen on"))
    port: int = field(default=7878, metadata=_about("port to listen on; 0 takes a free one"))
    environment: str = field(
        default="development", metadata=_about("development serves an in-browser IDE at /, production does not")
    )
    root_key: str | None = field(
        default=None,
        repr=False,
        metadata=_about("the root API key, 32 characters or more; without it one is made and printed once"),
    )
    root_tenant: str = field(default="root", metadata=_about("the id of the platform's own tenant"))
    lanes: int = field(default=2, metadata=_about("writers of this node, each with a database connection"))
    inventory_dir: Path | None = field(
        default=None,
        metadata=_about("the folder of inventories of accounts of the kind file (inventory, in the data directory)"),
    )
    scan_seconds: int = field(default=60, metadata=_about("how often each provider account is scanned"))
    gone_after_misses: int = field(
        default=1, metadata=_about("complete scans in a row that must miss a reservation before it is gone")
    )
    event_days: int = field(default=30, metadata=_about("how long events are kept for subscribers to resume"))
    answer_days: int = field(default=30, metadata=_about("how long idempotency keys of requests are remembered"))
    audit_days: int = field(default=400, metadata=_about("how long the audit log is kept"))
    evidence_days: int = field(default=400, metadata=_about("how long signed evidence can be fetched"))
    delivery_days: int = field(default=14, metadata=_about("how long it is kept what became of webhooks' deliveries"))
    secret_key_former: str | None = field(
        default=None,
        repr=False,
        metadata=_about(
            "the secret key before this one: what it has sealed is opened, and sealed anew, so that it can be dropped"
        ),
    )
    evidence_server_id: str | None = field(
        default=None,
        metadata=_about(
            "the public address of /v1, such as https://host/v1: with it, decisions come with signed evidence"
        ),
    )
    evidence_key: str | None = field(
        default=None,
        repr=False,
        metadata=_about(
            "what evidence is signed with, 64 hexadecimal digits; without it, the key is made of the secret key"
        ),
    )
    secret_key: str | None = field(
        default=None,
        repr=False,
        metadata=_about(
            "what webhooks' secrets are sealed with, 32 characters or more, alike on every node; without it a key is made "
            "in the data directory"
        ),
    )
    webhook_private_addresses: bool = field(
        default=False,
        metadata=_about(
            "on or off: whether webhooks may go to this host and its network, over plain http too; for tests"
        ),
    )
    webhook_timeout_seconds: int = field(
        default=30, metadata=_about("how long a receiver of webhooks may take to answer")
    )
    webhook_ca_file: Path | None = field(
        default=None,
        metadata=_about("certificates, as PEM, of authorities that receivers of webhooks have theirs from"),
    )
    log_format: str = field(default="auto", metadata=_about("json, text, or auto: text on a terminal, JSON elsewhere"))
    log_level: str = field(default="info", metadata=_about("debug, info, warning or error"))
    graphql_cost_max: int = field(
        default_factory=lambda: _bound("COST_MAX"),
        metadata=_about("what one GraphQL operation may cost, in units of about five microseconds of the node's time"),
    )
    graphql_body_max: int = field(
        default_factory=lambda: _bound("BODY_MAX"),
        metadata=_about("bytes of one GraphQL request or message of a socket"),
    )
    jobs: bool = field(default=True, metadata=_about("on or off: whether this node runs jobs; any number may"))

    @property
    def is_development(self) -> bool:
        return self.environment == "development"

    def shown(self) -> dict[str, str]:
        """Variable to value, for people and scripts: without secrets."""
        return {PREFIX + item.name.upper(): _shown(item.name, getattr(self, item.name)) for item in fields(self)}


def _integer(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
            raise ValueError(f"an integer from {least} to {most}")
        return int(text)

    return parse


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(f"one of {', '.join(words)}")
        return text

    return parse


def _secret(text: str) -> str:
    if not ROOT_KEY_MIN <= len(text) <= ROOT_KEY_MAX:
        raise ValueError(f"a string of {ROOT_KEY_MIN} to {ROOT_KEY_MAX} characters")
    return text


def _root_key(text: str) -> str:
    """Whatever a header can carry: HTTP takes blanks off its ends."""
    _secret(text)
    if not text.isprintable() or text != text.strip():
        raise ValueError("printable, without blanks at its ends: it is sent in a header")
    return text


def _database_url(text: str) -> str:
    if not text.startswith(("postgresql://", "postgres://")):
        raise ValueError("an address such as postgresql://user:password@host:5432/name")
    return text


def _path(text: str) -> Path:
    """An empty one would quietly be the current folder."""
    if not text.strip():
        raise ValueError("the path of a folder")
    return Path(text)


def _file(text: str) -> Path:
    if not Path(text).expanduser().is_file():
        raise ValueError("the path of a file that is there")
    return Path(text).expanduser()


def _switch(text: str) -> bool:
    return {"on": True, "off": False}[_one_of("on", "off")(text)]


def _host(text: str) -> str:
    if not text or not text.isprintable() or " " in text:
        raise ValueError("an address or a name of this host, such as 127.0.0.1 or 0.0.0.0")
    return text


def _tenant(text: str) -> str:
    from domain.identity import TENANT_ID  # noqa: PLC0415 - the grammar is the domain's

    if not TENANT_ID.fullmatch(text):
        raise ValueError("a tenant id: 1 to 128 of A-Z a-z 0-9 . _ : -")
    return text


def _server_id(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("https", "http") or not parts.netloc or not text.isascii() or not text.isprintable():
        raise ValueError("an address such as https://cycles.example.com/v1")
    if not parts.path.endswith("/v1") or parts.query or parts.fragment or '"' in text or "\\" in text:
        raise ValueError("an address that ends in /v1")
    return text


def _seed(text: str) -> str:
    if len(text) != 64 or not set(text) <= set("0123456789abcdefABCDEF"):
        raise ValueError("64 hexadecimal digits")
    return text


PARSERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "database_url": _database_url,
    "data_dir": _path,
    "postgres_bin": _path,
    "host": _host,
    "port": _integer(0, 65535),
    "environment": _one_of("development", "production"),
    "root_key": _root_key,
    "root_tenant": _tenant,
    "lanes": _integer(1, 16),
    "inventory_dir": _path,
    "scan_seconds": _integer(1, 86_400),
    "gone_after_misses": _integer(1, 100),
    "event_days": _integer(7, 3_650),
    "answer_days": _integer(1, 3_650),
    "audit_days": _integer(1, 36_500),
    "evidence_days": _integer(30, 36_500),
    "log_format": _one_of("auto", "json", "text"),
    "log_level": _one_of("debug", "info", "warning", "error"),
    "jobs": _switch,
    "delivery_days": _integer(1, 3_650),
    "secret_key": _secret,
    "secret_key_former": _secret,
    "evidence_server_id": _server_id,
    "evidence_key": _seed,
    "webhook_private_addresses": _switch,
    "webhook_timeout_seconds": _integer(1, 30),
    "webhook_ca_file": _file,
    "graphql_cost_max": _integer(1_000, 1_000_000),
    "graphql_body_max": _integer(16_384, 16_777_216),
}


def load(environ: Mapping[str, str] | None = None, **overrides: Any) -> Settings:
    """Settings from the environment, with `overrides` (of the command line) that are not None on top.

    Raises `SettingsError` naming the variable.
    """
    given = os.environ if environ is None else environ
    known = {PREFIX + item.name.upper(): item.name for item in fields(Settings)}
    values: dict[str, Any] = {}
    for variable, text in given.items():
        if not variable.startswith(PREFIX) or variable.startswith(FOR_TESTS):
            continue
        if variable not in known:
            raise SettingsError(_unknown(variable, list(known)))
        name = known[variable]
        try:
            values[name] = PARSERS[name](text)
        except ValueError as error:
            raise SettingsError(f"{variable} must be {error}") from None
    values.update((name, value) for name, value in overrides.items() if value is not None)
    return Settings(**values)


def described() -> list[tuple[str, str, str]]:
    """(variable, default, what it is for) of every setting, for help."""
    about = {PREFIX + item.name.upper(): item.metadata["about"] for item in fields(Settings)}
    return [(variable, default, about[variable]) for variable, default in Settings().shown().items()]


def wants_colour(stream: TextIO | None = None) -> bool:
    """Colours only on a terminal, and not where NO_COLOR is set. `stream`: standard error if not given."""
    return (stream or sys.stderr).isatty() and not os.environ.get("NO_COLOR")


def _unknown(variable: str, known: list[str]) -> str:
    near = get_close_matches(variable, known, n=1)
    return f"unknown setting {variable}" + (f": did you mean {near[0]}?" if near else "")


def _shown(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name in ("root_key", "secret_key", "secret_key_former", "evidence_key"):
        return "(given)"
    if name == "database_url":
        parts = urlsplit(value)
        place = parts.netloc.rpartition("@")[2]
        return f"{parts.scheme}://…@{place}{parts.path}"
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
