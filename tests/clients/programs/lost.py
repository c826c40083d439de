"""A function that succeeds while the server is out of reach: what it cost is written down, and told by a later run.

`lose`: the line is cut by the test while the function runs. `recover`: a new process, in which the engine finds the
journal of the old one.
"""

import sys
import threading
from pathlib import Path

from runcycles import CyclesClient, CyclesConfig, cycles
from saying import say, wait_for_the_test

TRIES, PAUSE_S = 2_000, 0.01

config = CyclesConfig.from_env()
config.retry_flush_timeout = 0.0
config.retry_initial_delay = 0.01


def written():
    return [str(path) for path in Path(config.journal_dir).rglob("*.json")]


with CyclesClient(config) as client:

    @cycles(1_000, actual=700, client=client, unit="TOKENS", action_kind="tool", action_name="search", ttl_ms=60_000)
    def work():
        say(state="working")
        wait_for_the_test()
        return "done"

    @cycles(1, client=client, unit="TOKENS", action_kind="tool", action_name="next")
    def go_on():
        return "done"

    if sys.argv[1] == "lose":
        say(result=work(), written=len(written()))
    else:
        go_on()
        pause = threading.Event()
        for _ in range(TRIES):
            if not written():
                break
            pause.wait(PAUSE_S)
        say(written=len(written()))
