"""The command line `earmark`: arguments, help, exit codes. What a command does lives in `server.commands`.

Exit codes: 0 done, also when a server was told to stop; 1 it ran and the answer is no (refused, a check failed, it
cannot start here); 2 the call is wrong (unknown option or setting); 130 interrupted before it was done.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from server.settings import SettingsError, described

OK: Final = 0
NO: Final = 1
WRONG_CALL: Final = 2
INTERRUPTED: Final = 130

Command = Callable[[argparse.Namespace], int]
if TYPE_CHECKING:
    Commands = argparse._SubParsersAction["Parser"]  # noqa: SLF001 - argparse has no public name for it

ABOUT: Final = """\
Earmark is one authority for two scarce things, asked before anything happens: slots of provider capacity that are
committed to tenants for a term, and budgets that are held before they are spent.
"""

ENDING: Final = """\
Settings are environment variables that begin with EARMARK_: `earmark serve --help` lists them, `earmark check` says
what they are here. Without EARMARK_DATABASE_URL an embedded PostgreSQL is run in the data directory.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the process's exit code."""
    parser = make_parser()
    given = parser.parse_args(arguments)
    command: Command | None = getattr(given, "command", None)
    if command is None:
        parser.print_help()
        return WRONG_CALL
    try:
        return command(given)
    except SettingsError as error:
        print(f"earmark: {error}", file=sys.stderr)
        return WRONG_CALL
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return _reader_left()
    except Exception as error:
        if given.traceback:
            raise
        print(f"earmark: {_reason(error)}", file=sys.stderr)
        return NO


class Parser(argparse.ArgumentParser):
    """Help is worked out when somebody reads it, and keeps its line breaks."""

    def __init__(self, *, ending: Callable[[], str] | None = None, **options: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, **options)
        self._ending = ending

    def format_help(self) -> str:
        if self._ending is not None:
            self.epilog = self._ending()
        return super().format_help()


def make_parser() -> Parser:
    parser = Parser(prog="earmark", description=ABOUT, ending=lambda: ENDING)
    parser.add_argument("--version", action="version", version=f"earmark {version('earmark')}")
    parser.add_argument("--traceback", action="store_true", help="show where an error came from")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for add in (_add_serve, _add_demo, _add_migrate, _add_run, _add_export, _add_check, _add_keys, _add_replay):
        add(commands)
    return parser


def _add(
    commands: Commands,
    name: str,
    module: str,
    help_text: str,
    about: str,
    *,
    ending: Callable[[], str] | None = None,
) -> Parser:
    parser = commands.add_parser(name, help=help_text, description=about, ending=ending)
    parser.set_defaults(command=_lazily(module, "run"))
    return parser


def _lazily(module: str, function: str) -> Command:
    """Import a command when it is called: `earmark --help` does not wait for a GraphQL schema."""

    def call(given: argparse.Namespace) -> int:
        from importlib import import_module  # noqa: PLC0415 - that is the point

        from server.process import interrupted_by_signals  # noqa: PLC0415 - it brings uvicorn

        with interrupted_by_signals():
            code: int = getattr(import_module(f"server.commands.{module}"), function)(given)
        return code

    return call


def _with_data_dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data-dir", type=_folder, metavar="DIR", help="where the embedded PostgreSQL keeps its data")


def _with_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON for a script")


def _with_address(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", metavar="HOST", help="address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=_port, metavar="PORT", help="port to listen on (7878); 0 takes a free one")
    _with_data_dir(parser)


def _add_serve(commands: Commands) -> None:
    about = "Run a node: GraphQL at /graphql, REST at /api/compute, metrics at /metrics. Ctrl-C stops it cleanly."
    _with_address(_add(commands, "serve", "serve", "run a node", about, ending=_settings_table))


def _add_demo(commands: Commands) -> None:
    about = """\
Run a node on its own embedded PostgreSQL with a small world in it and slow traffic, and say what to try. The world is
there again at the next start. A PostgreSQL of yours (EARMARK_DATABASE_URL) is never touched."""
    parser = _add(commands, "demo", "demo", "run a node with a small world in it", about)
    _with_address(parser)
    parser.add_argument("--quiet", action="store_true", help="no traffic: the world stands still")


def _add_migrate(commands: Commands) -> None:
    about = "Bring the database up to date. Safe while nodes run; one at a time does it, the others wait."
    parser = _add(commands, "migrate", "migrate", "bring the database up to date", about)
    _with_data_dir(parser)
    _with_json(parser)


def _add_run(commands: Commands) -> None:
    about = "One pass of a job, now, beside whatever nodes run: every job is harmless when run twice or in two places."
    parser = _add(commands, "run", "jobs", "one pass of a job", about, ending=_jobs_table)
    parser.add_argument("job", choices=_JobNames(), metavar="JOB", help="one of the jobs below")
    _with_data_dir(parser)
    _with_json(parser)


def _add_export(commands: Commands) -> None:
    about = "Print the GraphQL schema, as it is checked in at schema/schema.graphql."
    parser = _add(commands, "export-schema", "export", "print the GraphQL schema", about)
    parser.add_argument("--output", type=Path, metavar="FILE", help="write it to a file instead")


def _add_check(commands: Commands) -> None:
    about = """\
Is everything in place for a node to start here? Looks at the settings, that the package `schema` is ours, the database
and its migrations. Without EARMARK_DATABASE_URL it starts the embedded PostgreSQL for a moment, if there is one yet;
nothing is made."""
    parser = _add(commands, "check", "check", "check settings, packages, database", about)
    _with_data_dir(parser)
    _with_json(parser)


def _add_keys(commands: Commands) -> None:
    about = "API keys, straight in the database: for the first key of a tenant, or when the root key is lost."
    parser = _add(commands, "keys", "keys", "make, list and revoke API keys", about)
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    create = actions.add_parser("create", help="make a key and print its secret, once", ending=_permissions_table)
    create.add_argument("--tenant", required=True, metavar="ID", help="the tenant that the key speaks for")
    create.add_argument("--name", default="made on the command line", help="what the key is for")
    create.add_argument(
        "--permission", action="append", metavar="WORD", help="one of the words below; repeat for several"
    )
    create.add_argument("--expires-at", type=int, metavar="MS", help="epoch milliseconds (never)")
    create.set_defaults(action="create")
    listing = actions.add_parser("list", help="list valid keys; secrets are not kept")
    listing.add_argument("--tenant", metavar="ID", help="only this tenant's (every tenant's)")
    listing.add_argument("--revoked", action="store_true", help="revoked ones too")
    listing.set_defaults(action="list")
    revoke = actions.add_parser("revoke", help="revoke a key; it ends within a second on every node")
    revoke.add_argument("key_id", metavar="KEY_ID")
    revoke.set_defaults(action="revoke")
    for action in (create, listing, revoke):
        _with_data_dir(action)
        _with_json(action)


def _add_replay(commands: Commands) -> None:
    about = "Play a real trace through the same desks and actors as the API, then audit every invariant."
    parser = _add(commands, "replay", "replay", "play a real trace and audit the books", about)
    traces = parser.add_subparsers(title="traces", metavar="TRACE", required=True)
    openb = traces.add_parser("openb", help="pods of a GPU cluster (openb): capacity grants and instances")
    openb.add_argument("path", type=Path, metavar="PATH", help="the pod list, or the folder it lies in")
    openb.add_argument("--slots", type=int, metavar="N", help="GPUs of the capacity reservation")
    openb.add_argument("--limit", type=int, metavar="N", help="only the first N pods")
    openb.set_defaults(trace="openb")
    _with_data_dir(openb)
    _with_json(openb)
    llm = traces.add_parser("llm", help="requests to language models (Azure 2023): budgets of tokens")
    llm.add_argument("path", type=Path, metavar="PATH", help="a list of requests, or the folder they lie in")
    llm.add_argument("--url", metavar="URL", help="over HTTP against a running server instead, in a tenant of its own")
    llm.add_argument("--key", metavar="KEY", help="with --url: the server's root key (EARMARK_ROOT_KEY)")
    llm.add_argument("--concurrency", type=int, metavar="N", help="calls under way at once (16)")
    llm.add_argument("--budget-percent", type=int, metavar="N", help="the tenant's budget, of all tokens used (65)")
    llm.add_argument("--limit", type=int, metavar="N", help="only the first N requests")
    llm.set_defaults(trace="llm")
    _with_data_dir(llm)
    _with_json(llm)


def _settings_table() -> str:
    rows = [(f"  {name}={default}", about) for name, default, about in described()]
    return "settings (environment variables, with their defaults):\n" + _columns(rows)


def _permissions_table() -> str:
    from domain.authority import PURPOSES, TENANT_DEFAULT  # noqa: PLC0415 - nothing else here needs the domain

    rows = [(f"{'*' if word in TENANT_DEFAULT else ' '} {word}", about) for word, about in PURPOSES.items()]
    return "permissions (* marks what a tenant's key has without this option):\n" + _columns(rows)


def _jobs_table() -> str:
    from workers.schedule import TABLE  # noqa: PLC0415 - the table of jobs is theirs

    return "jobs:\n" + _columns((f"  {entry.name}", entry.purpose) for entry in TABLE)


def _columns(rows: Iterable[tuple[str, str]], *, widest: int = 36) -> str:
    """Two columns; a first one that is too long gets a line of its own."""
    lines = []
    for left, right in rows:
        head = f"{left:{widest}}" if len(left) < widest else f"{left}\n{'':{widest}}"
        lines.append(f"{head} {right}")
    return "\n".join(lines)


class _JobNames(Container[str], Iterable[str]):
    """The names of jobs, looked up when one is given: the table brings the scheduler and the database's driver."""

    def __contains__(self, name: object) -> bool:
        return name in list(self)

    def __iter__(self) -> Iterator[str]:
        from workers.schedule import JOB_NAMES  # noqa: PLC0415 - the table of jobs is theirs

        return iter(sorted(JOB_NAMES))


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError("a port is a number from 0 to 65535")
    return int(text)


def _folder(text: str) -> Path:
    if not text.strip():
        raise argparse.ArgumentTypeError("the path of a folder is needed")
    return Path(text)


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


def _reader_left() -> int:
    """Whoever read our output has seen enough, as in `earmark export-schema | head`. Nothing more may be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return OK


if __name__ == "__main__":
    sys.exit(main())
