"""`earmark replay`: a real trace through the desks or over HTTP, and an audit of the books at the end."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import uvloop

from server.commands.common import Progress, settings_of, show
from server.process import reachable_database
from server.replay.llm import LlmOptions
from server.replay.llm import run as run_llm
from server.replay.llm_live import run_live
from server.replay.llm_report import LlmReport
from server.replay.llm_trace import read_requests
from server.replay.openb import OpenbOptions
from server.replay.openb import run as run_openb
from server.replay.report import OpenbReport
from server.replay.scratch import with_scratch_database
from server.replay.trace import read_trace
from server.settings import Settings, SettingsError


def run(given: argparse.Namespace) -> int:
    settings = settings_of(given)
    report = uvloop.run(_live(settings, given)) if getattr(given, "url", None) else _alone(settings, given)
    show(given, report.as_json(), report.table)
    for violation in report.violations:
        print(f"earmark: {violation}", file=sys.stderr)
    return 1 if report.violations else 0


def _alone(settings: Settings, given: argparse.Namespace) -> OpenbReport | LlmReport:
    """Through the desks of this process. What is wrong with the call is known before a database is made for it."""
    if given.trace == "llm":
        replay, _ = _llm, (_llm_options(given), read_requests(given.path, limit=1))
    else:
        replay, _ = _openb, (_openb_options(given), read_trace(given.path, limit=1))
    with reachable_database(settings) as url:
        return uvloop.run(replay(url, given))


async def _live(settings: Settings, given: argparse.Namespace) -> LlmReport:
    """Against a running server, which has a database of its own."""
    key = given.key or settings.root_key
    if key is None:
        raise SettingsError("--url needs the server's root key: give --key, or set EARMARK_ROOT_KEY")
    return await run_live(given.url, key, given.path, options=_llm_options(given), progress=Progress("llm"))


async def _openb(url: str, given: argparse.Namespace) -> OpenbReport | LlmReport:
    """On a database of its own, which is dropped afterwards."""
    options = _openb_options(given)
    async with with_scratch_database(url) as scratch:
        return await run_openb(scratch, given.path, options=options, progress=Progress("openb"))


async def _llm(url: str, given: argparse.Namespace) -> OpenbReport | LlmReport:
    """The same for requests to language models."""
    options = _llm_options(given)
    async with with_scratch_database(url) as scratch:
        return await run_llm(scratch, given.path, options=options, progress=Progress("llm"))


def _openb_options(given: argparse.Namespace) -> OpenbOptions:
    return OpenbOptions(**_asked(given, "slots", "limit"))


def _llm_options(given: argparse.Namespace) -> LlmOptions:
    return LlmOptions(**_asked(given, "concurrency", "budget_percent", "limit"))


def _asked(given: argparse.Namespace, *names: str) -> dict[str, Any]:
    """The options of these names that were given."""
    return {name: value for name in names if (value := getattr(given, name)) is not None}
