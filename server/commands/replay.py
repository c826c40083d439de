"""`earmark replay`: a real trace through the desks, and an audit of the books at the end."""

from __future__ import annotations

import argparse
import sys

import uvloop

from server.commands.common import Progress, settings_of, show
from server.process import reachable_database
from server.replay.openb import OpenbOptions
from server.replay.openb import run as run_openb
from server.replay.report import OpenbReport
from server.replay.scratch import with_scratch_database


def run(given: argparse.Namespace) -> int:
    settings = settings_of(given)
    asked = {"slots": given.slots, "limit": given.limit}
    options = OpenbOptions(**{name: value for name, value in asked.items() if value is not None})
    with reachable_database(settings) as url:
        report = uvloop.run(_openb(url, given, options))
    show(given, report.as_json(), report.table)
    for violation in report.violations:
        print(f"earmark: {violation}", file=sys.stderr)
    return 1 if report.violations else 0


async def _openb(url: str, given: argparse.Namespace, options: OpenbOptions) -> OpenbReport:
    """On a database of its own, which is dropped afterwards."""
    async with with_scratch_database(url) as scratch:
        return await run_openb(scratch, given.path, options=options, progress=Progress("openb"))
