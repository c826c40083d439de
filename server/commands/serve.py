"""`earmark serve`: one node, until it is told to stop."""

from __future__ import annotations

import argparse
import logging
import sys

from server.commands.common import bold, settings_of
from server.logs import is_text
from server.process import Reachable, Server, bring_up_to_date, check_packages, kept_database, listening_socket
from server.settings import Settings
from workers.runtime import Runtime

log = logging.getLogger("earmark.server")


def run(given: argparse.Namespace) -> int:
    settings = settings_of(given)
    check_packages()
    with listening_socket(settings) as listener, kept_database(settings) as kept:
        bring_up_to_date(kept.url)
        server_of(settings, kept).run([listener])
    return 0


def server_of(settings: Settings, kept: Reachable) -> Server:
    from server.asgi import create_app  # noqa: PLC0415 - a second of imports, after the database is known to be there

    async def look_after(node: Runtime) -> None:
        if kept.embedded is not None:
            node.supervisor.keep("embedded PostgreSQL", kept.watch)

    app = create_app(settings, kept.url, on_open=look_after)

    def started(address: str) -> None:
        if is_text(settings.log_format):
            print(_banner(address, settings), file=sys.stderr)
        else:
            log.info("ready", extra={"address": address, "database": _place(settings)})
        if made := app.state.made_root_key:
            print(_root_key(made), file=sys.stderr, flush=True)

    return Server(app, settings, started=started)


def _place(settings: Settings) -> str:
    return "your PostgreSQL" if settings.database_url else f"an embedded PostgreSQL in {settings.data_dir}"


def _banner(address: str, settings: Settings) -> str:
    lines = [f"Earmark is ready on {_place(settings)}", f"  GraphQL  {address}/graphql"]
    if settings.is_development:
        lines.append(f"  IDE      {address}/")
    lines += [f"  REST     {address}/api/compute/reservationGrants  ({address}/openapi.json)"]
    lines += [f"  health   {address}/readyz   metrics {address}/metrics"]
    return "\n".join(lines)


def _root_key(secret: str) -> str:
    return f"\nThe root key, shown this once (set EARMARK_ROOT_KEY to choose one yourself):\n  {bold(secret)}\n"
