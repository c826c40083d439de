"""Do harm to a loaded installation in every way that is known to happen, and audit it after each.

run.py [ACT …] [--seed N] [--short] [--list]

Two nodes and their PostgreSQL, durable as in production, are started for it, and clients of both contexts keep asking,
each again under its key until it is answered. After each act an auditor that shares no code with the product holds the
tables against every reply that a client got. Exits with 1 when they differ, or when an act found what must not be. What is
slow fails nothing: the machine may be busy.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
import traceback
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

import uvloop

from storage.embedded import EmbeddedPostgres
from tests.chaos.acts import ACTS, NAMES, Act, Place, placed
from tests.chaos.scene import Log, Scene
from tests.databases import durable_server

TEXT_SHOWN: Final = 2_000
LOG_SHOWN: Final = 4_000


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="run.py", description="Do harm, and audit what comes of it.")
    parser.add_argument("acts", nargs="*", metavar="ACT", help=f"any of {', '.join(NAMES)}; all without one")
    parser.add_argument("--seed", type=int, help="what chance does; without it another one each time")
    parser.add_argument("--short", action="store_true", help="less of everything")
    parser.add_argument("--list", action="store_true", help="say what each act does, and do nothing")
    given = parser.parse_args(arguments)
    if unknown := set(given.acts) - set(NAMES):
        parser.error(f"no such act: {', '.join(sorted(unknown))}")
    return given


async def play(acts: Sequence[Act], postgres: EmbeddedPostgres, *, seed: int, is_short: bool, say: Log) -> list[str]:
    """Every act, those of one place one after another on the same nodes. What went wrong, in words."""
    wrong: list[str] = []
    for place, group in groupby(sorted(acts, key=lambda act: list(Place).index(act.place)), lambda act: act.place):
        say(f"two nodes, {place.value}")
        async with placed(place, postgres, seed=seed, say=say, is_short=is_short) as scene:
            for act in group:
                try:
                    await play_one(act, scene)
                except Exception as error:  # noqa: BLE001 - it is told; the next acts of this place would prove nothing
                    wrong.append(f"{act.name}: {told(error)}")
                    say(f"FAILED   {wrong[-1]}")
                    for server in scene.stage.servers:
                        print(server.log[-LOG_SHOWN:], file=sys.stderr)
                    break
    return wrong


def told(error: BaseException) -> str:
    """What it is in the end, and where it came from."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {Path(frame.filename).name}, line {frame.lineno}: {str(error)[:TEXT_SHOWN]}"


async def play_one(act: Act, scene: Scene) -> None:
    scene.say(f"{act.name}: {act.about}")
    began, before = time.monotonic(), _counts(scene)
    await act.play(scene)
    await scene.stage.check()
    answered, unanswered = (now - then for now, then in zip(_counts(scene), before, strict=True))
    took_s = time.monotonic() - began
    scene.say(f"agreed   {answered:,} replies after {unanswered:,} that were lost or late, audited; {took_s:.1f} s\n")


def _counts(scene: Scene) -> tuple[int, int]:
    loads = (scene.stage.capacity, scene.stage.budgets)
    return sum(load.answered for load in loads), sum(load.unanswered for load in loads)


def main(arguments: Sequence[str]) -> int:
    given = parse(arguments)
    chosen = [act for act in ACTS if not given.acts or act.name in given.acts]
    if given.list:
        for act in chosen:
            print(f"{act.name:20} {act.about}")
        return 0
    seed = random.SystemRandom().randrange(1 << 31) if given.seed is None else given.seed
    say = Log(lambda text: print(text, flush=True))
    say(f"seed {seed}")
    with durable_server() as postgres, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        wrong = runner.run(play(chosen, postgres, seed=seed, is_short=given.short, say=say))
    for text in wrong:
        print(f"chaos: {text}", file=sys.stderr)
    print("everything agreed" if not wrong else f"{len(wrong)} acts found something; --seed {seed} does it again")
    return 1 if wrong else 0
