"""`earmark run JOB`: one pass of a job."""

from __future__ import annotations

import argparse
import asyncio

from server.commands.common import settings_of, show
from server.commands.node import quiet_node
from server.process import migrated_database
from server.settings import Settings
from workers.schedule import Ran


def run(given: argparse.Namespace) -> int:
    settings = settings_of(given)
    with migrated_database(settings) as url:
        ran = asyncio.run(_pass(settings, url, given.job))
    counts = dict(ran.counts)
    text = ", ".join(f"{name} {count}" for name, count in counts.items()) or "done"
    show(given, {"job": given.job, "counts": counts}, lambda: f"{given.job}: {text}")
    return 0


async def _pass(settings: Settings, url: str, job: str) -> Ran:
    async with quiet_node(settings, url) as node:
        return await node.schedule.run_job(job)
