"""`earmark replay`: a real trace through the desks, and an audit of the books at the end."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import uvloop

from server.commands.common import Progress, settings_of, show
from server.process import reachable_database
from server.replay.llm import LlmOptions
from server.replay.llm import run as run_llm
from server.replay.llm_report import LlmReport
from server.replay.openb import OpenbOptions
from server.replay.openb import run as run_openb
from server.replay.report import OpenbReport
from server.replay.scratch import with_scratch_database


def run(given: argparse.Namespace) -> int:
    settings = settings_of(given)
    replay = _llm if given.trace == "llm" else _openb
    with reachable_database(settings) as url:
        report = uvloop.run(replay(url, given))
    show(given, report.as_json(), report.table)
    for violation in report.violations:
        print(f"earmark: {violation}", file=sys.stderr)
    return 1 if report.violations else 0


async def _openb(url: str, given: argparse.Namespace) -> OpenbReport | LlmReport:
    """On a database of its own, which is dropped afterwards."""
    options = OpenbOptions(**_asked(given, "slots", "limit"))
    async with with_scratch_database(url) as scratch:
        return await run_openb(scratch, given.path, options=options, progress=Progress("openb"))


async def _llm(url: str, given: argparse.Namespace) -> OpenbReport | LlmReport:
    """The same for requests to language models."""
    options = LlmOptions(**_asked(given, "concurrency", "budget_percent", "limit"))
    async with with_scratch_database(url) as scratch:
        return await run_llm(scratch, given.path, options=options, progress=Progress("llm"))


def _asked(given: argparse.Namespace, *names: str) -> dict[str, Any]:
    """The options of these names that were given."""
    return {name: value for name in names if (value := getattr(given, name)) is not None}
