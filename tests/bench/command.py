"""Measure throughput, latency and CPU time against baselines, on a durable PostgreSQL of its own.

run.py [BENCH …] [--quick] [--seconds S] [--repetitions N] [--clients 1,32] [--json FILE]
       [--chart FILE]

Exits with 1 when the books were wrong after any window, or a call failed. What is slow fails nothing: the machine may be
busy. A new bench is a module with `run(bench)`, and a line in `BENCHES`.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final

import uvloop

from tests.bench.bench import Bench, Options
from tests.bench.chart import write_chart
from tests.bench.place import Place
from tests.bench.report import Report
from tests.databases import durable_server
from workers.garbage import spare_what_stays

BENCHES: Final = {
    "core": "tests.bench.core",
    "budgets": "tests.bench.budgets",
    "growth": "tests.bench.growth",
    "http": "tests.bench.http_edge",
    "graphql": "tests.bench.graphql_edge",
    "fanout": "tests.bench.fanout",
    "nodes": "tests.bench.nodes",
    "stress": "tests.bench.stress",
    "peer": "tests.bench.peer",
}
REPETITIONS: Final = 5
SECONDS: Final = 2.0
QUICK_REPETITIONS: Final = 3
QUICK_SECONDS: Final = 0.7


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="run.py", description="Measure against baselines; ratios come first.")
    parser.add_argument("benches", nargs="*", metavar="bench", help=f"any of {', '.join(BENCHES)}; all without one")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter windows")
    parser.add_argument("--seconds", type=float, help="length of one window")
    parser.add_argument("--repetitions", type=int, help="windows of each variant")
    parser.add_argument("--clients", help="numbers of clients instead of each bench's own, such as 1,32")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was found there, too")
    parser.add_argument("--chart", type=Path, metavar="FILE", help="draw the ratios there, as SVG")
    given = parser.parse_args(arguments)
    if unknown := set(given.benches) - set(BENCHES):
        parser.error(f"no such bench: {', '.join(sorted(unknown))}")
    return given


def options_of(given: argparse.Namespace) -> Options:
    clients = tuple(int(number) for number in given.clients.split(",")) if given.clients else None
    return Options(
        seconds=given.seconds or (QUICK_SECONDS if given.quick else SECONDS),
        repetitions=given.repetitions or (QUICK_REPETITIONS if given.quick else REPETITIONS),
        clients=clients,
    )


async def measure_all(names: Sequence[str], place: Place, options: Options, report: Report) -> None:
    await place.open()
    print(
        f"PostgreSQL {place.version}, durable; {options.repetitions} windows of {options.seconds:g} s each\n",
        flush=True,
    )
    bench = Bench(place=place, options=options, report=report)
    runs: list[Callable[[Bench], Coroutine[Any, Any, None]]] = [
        importlib.import_module(BENCHES[name]).run for name in names
    ]
    spare_what_stays()  # as a node does: all variants have it alike
    for run in runs:
        await run(bench)


def main(arguments: Sequence[str]) -> int:
    given = parse(arguments)
    options, report = options_of(given), Report()
    with durable_server() as server, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(measure_all(given.benches or list(BENCHES), Place(server), options, report))
    report.summarize()
    if given.json:
        settings = {"seconds": options.seconds, "repetitions": options.repetitions}
        report.write(given.json, settings=settings)
    if given.chart:
        write_chart(given.chart, report.comparisons)
    return 1 if report.complaints else 0
