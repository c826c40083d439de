"""`earmark migrate`: bring the database up to date."""

from __future__ import annotations

import argparse

from server.commands.common import settings_of, show
from server.process import bring_up_to_date, reachable_database


def run(given: argparse.Namespace) -> int:
    settings = settings_of(given)
    with reachable_database(settings) as url:
        names = bring_up_to_date(url)
    show(
        given,
        {"applied": names},
        lambda: "\n".join(f"applied {name}" for name in names) or "the database is up to date",
    )
    return 0
