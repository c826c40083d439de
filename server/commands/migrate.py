"""`earmark migrate`: bring the database up to date."""

from __future__ import annotations

import argparse
import asyncio

from server.commands.common import settings_of, show
from server.process import reachable_database
from storage.migrate import migrate


def run(given: argparse.Namespace) -> int:
    settings = settings_of(given)
    with reachable_database(settings) as url:
        names = asyncio.run(migrate(url))
    show(
        given,
        {"applied": names},
        lambda: "\n".join(f"applied {name}" for name in names) or "the database is up to date",
    )
    return 0
